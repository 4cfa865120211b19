import { describe, expect, test } from 'vitest';
import { checkKind, failover, interrupted, withRegion, type KindCase } from './kinds-checks.ts';
import { replicaOf } from './kinds-region.ts';
import { until } from './until.ts';

const TGI: KindCase = {
  kind: 'tgi',
  agentKind: null,
  engine: { kind: 'tgi' },
  narrow: { maxConcurrentRequests: 4 },
  narrowFull: 4,
  onTerm: 'finishes',
  unknown: ['kvUsageRatio', 'preemptionsTotal', 'preemptionsPerMin'],
  absent: ['kvUsageRatio', 'computedTokensTotal', 'cachedTokensTotal', 'preemptionsTotal'],
  known: ['kvCapacityTokens'],
};

checkKind(TGI);

describe.concurrent('a TGI whose device fails under a batch', () => {
  test.each([false, true])('is a failover before the first token (streamed: %s)', (stream) =>
    withRegion(TGI, async (region) => {
      const told = await failover(region, stream, (busy) => {
        busy.thaw();
        busy.failBatch();
      });
      expect(told.finish).toBe('length');
    }),
  );

  test('is an error in mid-stream, and serves on', () =>
    withRegion(TGI, async (region) => {
      const seen = await interrupted(region, (busy) => void busy.failBatch());
      expect(seen).toMatchObject({ finishes: [], error: { code: 'stream_interrupted' } });
      await until(() => region.pool().ready === 2);
      const replicas = new Set<string | null>();
      await until(async () => {
        const messages = [{ role: 'user' as const, content: `again ${replicas.size}` }];
        replicas.add((await region.whole(messages)).replica);
        return replicas.size === 2;
      });
      expect(replicas).toEqual(new Set(region.engines.map(replicaOf)));
    }));
});
