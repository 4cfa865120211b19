import { describe, expect, test } from 'vitest';
import { checkKind, withRegion, type KindCase } from './kinds-checks.ts';
import { prompt } from './kinds-region.ts';
import { until } from './until.ts';

const SGLANG: KindCase = {
  kind: 'sglang',
  agentKind: null,
  engine: { kind: 'sglang', metrics: true, cacheReport: true },
  narrow: { maxQueuedRequests: 1 },
  narrowFull: 1,
  onTerm: 'finishes',
  unknown: [],
  absent: ['cachedTokensTotal'],
  known: [
    ...(['kvUsageRatio', 'kvCapacityTokens', 'preemptionsTotal', 'waitingPrefillTokens'] as const),
    'running',
  ],
};

checkKind(SGLANG);

describe.concurrent('an SGLang', () => {
  test('without --enable-metrics still tells its load, and what is lost is unknown', () =>
    withRegion({ ...SGLANG, engine: { kind: 'sglang' } }, async (region) => {
      expect((await region.whole(prompt('one'))).finish).toBe('length');
      const [replica] = region.pool().replicas;
      const report = replica?.targets[0]?.report;
      expect(report?.engine.kind).toBe('sglang');
      expect(report).toMatchObject({
        kvCapacityTokens: expect.any(Number),
        waitingPrefillTokens: expect.any(Number),
        preemptionsTotal: null,
      });
    }));

  test('with several ranks gets each request on the rank that was chosen for it', () =>
    withRegion({ ...SGLANG, engine: { ...SGLANG.engine, dataParallelSize: 2 } }, async (region) => {
      expect(region.pool().replicas.map(({ targets }) => targets.length)).toEqual([2, 2]);
      const chosen = new Set<string | null>();
      let asked = 0;
      await until(async () => {
        chosen.add((await region.whole(prompt(`rank ${(asked += 1)}`))).replica);
        return chosen.size === 4;
      });
      for (const replica of chosen) {
        const [, port = '', rank = ''] = /:(\d+)#([01])$/.exec(replica ?? '') ?? [];
        const engine = region.engines.find((each) => each.port === Number(port));
        const named = engine
          ?.received()
          .filter(({ headers }) =>
            headers.some(([name, value]) => name === 'x-data-parallel-rank' && value === rank),
          );
        expect(named?.length).toBeGreaterThan(0);
      }
    }));

  test('that publishes KV events is heard where its /server_info says', () => {
    const kvEvents = {
      ...{ endpoint: 'tcp://*:0', replayEndpoint: null, topic: '' },
      ...{ bufferSteps: 100, hwm: 1_000, maxQueueSize: 1_000 },
    };
    return withRegion({ ...SGLANG, engine: { ...SGLANG.engine, kvEvents } }, async (region) => {
      let asked = 0;
      await until(async () => {
        // Another prompt each time: a prefix that is there already is not told of again.
        await region.whole(prompt(`heard ${(asked += 1)}`, 500));
        const reports = region.pool().replicas.map(({ targets: [target] }) => target?.report);
        return reports.some((report) => (report?.kvCachedTokens ?? 0) >= 400);
      });
    });
  });
});
