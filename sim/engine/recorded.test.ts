// The `cpu-tiny-llama` profile against what a real vLLM 0.32.0 did (test/fixtures/vllm-0.32.0/SOURCES.md).
//
// prefill-cached.json fitted the profile, so its error shows that the model computes what was fitted;
// load-24-requests.json and the requests at once took no part in the fit.

import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

import { seededRandom } from '../../shared/lib/random.ts';
import type { EngineEvent } from './events.ts';
import { EngineModel } from './model.ts';
import { engineProfile, type EngineProfile } from './profiles.ts';
import { tokenSequence } from './sequence.ts';

interface Recorded {
  readonly sentAtMs: number;
  readonly ttftMs: number;
  readonly e2eMs: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

const PROMPT_TOKENS = 'vllm:prompt_tokens_total';
const QUERIES = 'vllm:prefix_cache_queries_total';

const profile = engineProfile('cpu-tiny-llama')!;

function fixture<T>(name: string): T {
  const url = new URL(`../../test/fixtures/vllm-0.32.0/${name}`, import.meta.url);
  return JSON.parse(readFileSync(url, 'utf8')) as T;
}

function promptOf(tokens: number, from: number): Uint32Array {
  return Uint32Array.from({ length: tokens }, (_, at) => from * 100_000 + at);
}

function started(of: EngineProfile): EngineModel {
  const model = new EngineModel(of, seededRandom(1), { nowMs: 0, loadingMs: 0 });
  model.advance(0);
  return model;
}

function drain(model: EngineModel): EngineEvent[] {
  const events: EngineEvent[] = [];
  for (let next = model.nextEventMs(); next !== null; next = model.nextEventMs()) {
    events.push(...model.advance(next));
  }
  return events;
}

/** Time to the first token of one request after `cachedTokens` are in the cache; ms. */
function loneTtftMs({ promptTokens, cachedTokens }: Recorded): number {
  const model = started(profile);
  const ids = promptOf(promptTokens, 1);
  const submit = (id: string, prompt: Uint32Array, nowMs: number): void => {
    const sequence = tokenSequence(prompt, profile.blockTokens);
    model.submit({ id, sequence, answerTokens: 1, finishReason: 'length' }, nowMs);
  };
  if (cachedTokens > 0) submit('before', ids.slice(0, cachedTokens + 1), 0);
  drain(model);
  submit('measured', ids, 1e6);
  const first = drain(model).find((event) => event.kind === 'token');
  if (first?.kind !== 'token') throw new Error('no token');
  expect(first.cachedTokens).toBe(cachedTokens);
  return first.atMs - 1e6;
}

/** All at once, nothing cached. Times in ms since the first was sent. */
function atOnce(of: EngineProfile, recorded: readonly Recorded[], answerTokens: number) {
  const model = started(of);
  const startMs = recorded[0]?.sentAtMs ?? 0;
  recorded.forEach((each, at) => {
    const sequence = tokenSequence(promptOf(each.promptTokens, at + 1), of.blockTokens);
    const request = { id: `${at}`, sequence, answerTokens, finishReason: 'length' } as const;
    model.submit(request, each.sentAtMs - startMs);
  });
  const first: number[] = [];
  const end: number[] = [];
  for (const event of drain(model)) {
    if (event.kind === 'token' && event.index === 0) first[Number(event.id)] = event.atMs;
    if (event.kind === 'finished') end[Number(event.id)] = event.atMs;
  }
  return { first, end };
}

function medianOf(errors: readonly number[]): number {
  return errors.toSorted((a, b) => a - b)[Math.floor(errors.length / 2)] ?? Number.NaN;
}

function relative(simulated: number | undefined, measured: number): number {
  return Math.abs((simulated ?? Number.NaN) - measured) / measured;
}

describe('cpu-tiny-llama', () => {
  it('prefills lone requests as measured: median error at most 4 %', () => {
    const { alone } = fixture<{ alone: Recorded[] }>('prefill-cached.json');
    const errors = alone.map((each) => relative(loneTtftMs(each), each.ttftMs));
    expect(alone.length).toBe(48);
    expect(medianOf(errors)).toBeLessThan(0.04);
    expect(Math.max(...errors)).toBeLessThan(0.25);
  });

  it('serves 24 requests at once as measured: median error at most 5 %, first tokens and ends', () => {
    const { requests } = fixture<{ requests: Recorded[] }>('load-24-requests.json');
    const { first, end } = atOnce({ ...profile, kvBlocks: 16_384 }, requests, 24);
    const firstErrors = requests.map((each, at) => relative(first[at], each.ttftMs));
    const endErrors = requests.map((each, at) => relative(end[at], each.e2eMs));
    expect(medianOf(firstErrors)).toBeLessThan(0.05);
    expect(medianOf(endErrors)).toBeLessThan(0.05);
    expect(Math.max(...firstErrors, ...endErrors)).toBeLessThan(0.12);
  });

  it('fills its KV cache as the recorded gauge did while the first prompt was computed', () => {
    const { metrics } = fixture<{ metrics: Record<string, number>[] }>('load-24-requests.json');
    const model = started({ ...profile, kvBlocks: 16_384 });
    const sequence = tokenSequence(promptOf(7_493, 1), profile.blockTokens);
    model.submit({ id: 'a', sequence, answerTokens: 24, finishReason: 'length' }, 0);
    const simulated = new Set<string>();
    for (let step = 0; step < 7; step += 1) {
      model.advance(model.nextEventMs() ?? 0);
      simulated.add(model.stats.kvUsageRatio.toFixed(6));
    }
    const recorded = new Set(
      metrics.map((each) => (each['vllm:kv_cache_usage_perc'] ?? 0).toFixed(6)),
    );
    expect([...simulated].every((ratio) => recorded.has(ratio))).toBe(true);
  });

  it('goes through the recorded states of counters and gauges: 24 requests at once, sampled every 100 ms', () => {
    const load = fixture<{ requests: Recorded[]; metrics: Record<string, number>[] }>(
      'load-24-requests.json',
    );
    const state = (values: readonly (number | undefined)[]): string => values.join(' ');
    const before = load.metrics[0]!;
    const recorded = load.metrics.map((each) =>
      state([
        each[PROMPT_TOKENS]! - before[PROMPT_TOKENS]!,
        each[QUERIES]! - before[QUERIES]!,
        each['vllm:num_requests_running'],
        each['vllm:num_requests_waiting'],
      ]),
    );
    const model = started({ ...profile, kvBlocks: 16_384 });
    const simulated = new Set<string>();
    const look = (): void => {
      const { promptTokens, prefixCacheQueries, running, waiting } = model.stats;
      simulated.add(state([promptTokens, prefixCacheQueries, running, waiting]));
    };
    look();
    model.onStep = look;
    load.requests.forEach(({ promptTokens, sentAtMs }, at) => {
      const sequence = tokenSequence(promptOf(promptTokens, at + 1), profile.blockTokens);
      const request = { id: `${at}`, sequence, finishReason: 'length' } as const;
      const nowMs = sentAtMs - load.requests[0]!.sentAtMs;
      model.submit({ ...request, answerTokens: 24 }, nowMs);
    });
    drain(model);
    // The two left over were taken while the 24 were still coming in.
    const known = recorded.filter((each) => simulated.has(each)).length;
    expect(recorded.length).toBe(234);
    expect(known).toBeGreaterThanOrEqual(232);
  });

  it('finishes the last of several requests at once as measured: within 20 %', () => {
    const groups = fixture<{ atOnce: { requests: Recorded[] }[] }>('prefill-cached.json').atOnce;
    for (const { requests } of groups) {
      const { first } = atOnce(profile, requests, 1);
      const lastMs = Math.max(...first);
      expect(relative(lastMs, Math.max(...requests.map((each) => each.ttftMs)))).toBeLessThan(0.2);
    }
  });
});
