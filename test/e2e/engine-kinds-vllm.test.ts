import { describe, expect, test } from 'vitest';
import { checkKind, interrupted, withRegion, type KindCase } from './kinds-checks.ts';
import { PROFILE, prompt } from './kinds-region.ts';
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
    const ask = (name: string, tokens: number) =>
      region.streamed(prompt(name, 40), { max_tokens: tokens });
    const long = Array.from({ length: 6 }, (_, at) => ask(`long ${at}`, 200));
    const [leaving] = region.engines;
    if (leaving === undefined) throw new Error('no engine');
    await until(() => (region.target(leaving)?.leases ?? 0) > 1);
    void leaving.terminate();
    const short = Array.from({ length: 24 }, (_, at) => ask(`short ${at}`, 4));
    const told = await Promise.all([...long, ...short]);
    expect(new Set(told.map(({ finish }) => finish))).toEqual(new Set(['length']));
    expect(told.every(({ text }) => text !== '')).toBe(true);
    expect(told.slice(long.length).some(({ attempts }) => attempts > 1)).toBe(true);
  }));
