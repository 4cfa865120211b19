import { describe, expect, test } from 'vitest';
import { checkKind, interrupted, withRegion, type KindCase } from './kinds-checks.ts';
import { inside, PROFILE, prompt, replicaOf } from './kinds-region.ts';
import { until } from './until.ts';

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

test('a vLLM that drains after SIGTERM shows no client anything: what ran ends, what comes goes elsewhere', () =>
  withRegion({ ...VLLM, engine: { vllm: { shutdownTimeoutMs: 30_000 } } }, async (region) => {
    // All have the prefix that the leaving engine holds, so that it is where they would rather go.
    const ask = (name: string, tokens: number) =>
      region.streamed([...prompt('held', 600), ...prompt(name)], { max_tokens: tokens });
    const { replica } = await ask('first', 4);
    const leaving = region.engines.find((each) => replicaOf(each) === replica);
    if (leaving === undefined) throw new Error('no engine');
    const long = Array.from({ length: 6 }, (_, at) => ask(`long ${at}`, 200));
    await until(() => inside(leaving) > 1);
    void leaving.terminate();
    const short = Array.from({ length: 24 }, (_, at) => ask(`short ${at}`, 4));
    const told = await Promise.all([...long, ...short]);
    expect(new Set(told.map(({ finish }) => finish))).toEqual(new Set(['length']));
    expect(told.every(({ text }) => text !== '')).toBe(true);
    // Whichever came while it drained: also one that was still on its way to it.
    expect(told.some(({ attempts }) => attempts > 1)).toBe(true);
  }));
