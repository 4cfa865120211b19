import { describe, expect, test } from 'vitest';
import { checkKind, interrupted, withRegion, type KindCase } from './kinds-checks.ts';
import { PROFILE } from './kinds-region.ts';

const VLLM: KindCase = {
  kind: 'vllm',
  agentKind: null,
  engine: { vllm: { termEnding: 'error' } },
  narrow: { profile: { ...PROFILE, maxQueuedRequests: 4 } },
  narrowFull: 4,
  onTerm: 'breaks',
  unknown: [],
  absent: [],
  known: [
    ...(['kvUsageRatio', 'kvCapacityTokens', 'preemptionsTotal', 'waitingPrefillTokens'] as const),
    'running',
  ],
};

checkKind(VLLM);

describe.concurrent('a stream that runs when a vLLM is told to end', () => {
  test.each(['abort', 'hang'] as const)('is an error where it ends with: %s', (termEnding) =>
    withRegion({ ...VLLM, engine: { vllm: { termEnding } }, stallMinMs: 3_000 }, async (region) => {
      const seen = await interrupted(region, (busy) => void busy.terminate());
      expect(seen).toMatchObject({ finishes: [], error: { code: 'stream_interrupted' } });
    }),
  );
});
