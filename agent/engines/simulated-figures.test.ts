// What the agent reads of a simulated engine of each kind is what that engine did: tokens computed, cached, generated,
// what waits, limits. In time that the test moves, so that both are of one moment.

import { afterEach, describe, expect, it } from 'vitest';
import { createHttpPools, type HttpPools } from '../../shared/runtime/http-pool.ts';
import { createLog } from '../../shared/runtime/log.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import type { EngineServerOptions } from '../../sim/engine/http/options.ts';
import {
  call,
  RECORDED_PROFILE,
  startTestEngine,
  type TestEngine,
} from '../../sim/engine/http/test-harness.ts';
import { kvCapacityTokens } from '../../sim/engine/profiles.ts';
import type { RankScrape } from '../events.ts';
import { EngineReader } from '../scrape.ts';
import { EngineClient } from './client.ts';

const CAPACITY = kvCapacityTokens(RECORDED_PROFILE);
const REQUESTS = 6;

interface Subject extends TestEngine {
  readonly reader: EngineReader;
}

const opened: { readonly test: TestEngine; readonly pools: HttpPools }[] = [];

afterEach(async () => {
  for (const { test, pools } of opened.splice(0)) {
    await pools.close();
    await test.engine.close();
  }
});

async function subject(options: Partial<EngineServerOptions>): Promise<Subject> {
  const test = await startTestEngine(options);
  const pools = createHttpPools(1_000);
  opened.push({ test, pools });
  const { url } = test.engine;
  const client = new EngineClient({ url, apiKey: null, pools, timers: systemTimers });
  const log = createLog({ level: 'silent', readable: false });
  const reader = new EngineReader({ client, clock: test.time, log, kind: null });
  return { ...test, reader };
}

async function figures({ reader }: Subject): Promise<RankScrape> {
  const result = await reader.scrape();
  const rank = result.kind === 'ok' ? result.scrape.ranks[0] : undefined;
  if (rank === undefined) throw new Error(JSON.stringify(result));
  return rank;
}

interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly prompt_tokens_details?: { readonly cached_tokens?: number } | null;
}

async function ask(of: Subject, name: string, words: number): Promise<Usage> {
  const prompt = `${name} ${'of all the seas '.repeat(words / 4)}`;
  const body = { model: 'tiny-llama', prompt, max_tokens: 12, temperature: 0 };
  const { status, text } = await call(of.engine, '/v1/completions', { body });
  if (status !== 200) throw new Error(text);
  return (JSON.parse(text) as { usage: Usage }).usage;
}

/** Time goes on until it is there. */
async function settled<T>({ time }: Subject, answer: Promise<T>): Promise<T> {
  let done = false;
  const note = (): void => void (done = true);
  answer.then(note, note);
  const isDone = (): boolean => {
    time.advance(20);
    return done;
  };
  await expect.poll(isDone, { interval: 1, timeout: 8_000 }).toBe(true);
  return answer;
}

/** Twice: different prompts at once, then the same ones again. */
async function work(of: Subject): Promise<{ prompt: number; cached: number; generated: number }> {
  const sums = { prompt: 0, cached: 0, generated: 0 };
  for (let round = 0; round < 2; round += 1) {
    const asked = Array.from({ length: REQUESTS }, (_, i) => ask(of, `tale ${i}`, 400));
    for (const usage of await settled(of, Promise.all(asked))) {
      sums.prompt += usage.prompt_tokens;
      sums.generated += usage.completion_tokens;
      sums.cached += usage.prompt_tokens_details?.cached_tokens ?? 0;
    }
  }
  return sums;
}

const SGLANG = { kind: 'sglang', metrics: true, cacheReport: true } as const;

describe('work that is done', () => {
  it.each([
    ['vLLM', {}, 0],
    ['SGLang', SGLANG, 1],
  ] as const)(
    '%s: every prompt token computed or cached, as its answers say',
    async (_, options, ofHealth) => {
      const of = await subject(options);
      const { prompt, cached, generated } = await work(of);
      expect(cached).toBeGreaterThan(0);
      // The first scrape asks SGLang for its health: a generation with a prompt of one token.
      await figures(of);
      of.time.advance(100);
      expect(await figures(of)).toMatchObject({
        promptTokensTotal: prompt,
        computedTokensTotal: prompt - cached + ofHealth,
        cachedTokensTotal: cached,
        generationTokensTotal: generated,
        firstTokensTotal: 2 * REQUESTS,
        preemptionsTotal: 0,
        running: 0,
        waiting: 0,
        kvCapacityTokens: CAPACITY,
        blockTokens: RECORDED_PROFILE.blockTokens,
      });
    },
  );

  it('TGI: first tokens and generated ones, prompts as a bound of what was computed', async () => {
    const of = await subject({ kind: 'tgi' });
    const { prompt, generated } = await work(of);
    const rank = await figures(of);
    expect(rank).toMatchObject({
      promptTokensTotal: null,
      computedTokensTotal: null,
      cachedTokensTotal: null,
      prefillBusyTokens: prompt,
      generationTokensTotal: generated,
      firstTokensTotal: 2 * REQUESTS,
      running: 0,
      waiting: 0,
      kvCapacityTokens: CAPACITY,
    });
    expect(rank.prefillBusySeconds).toBeGreaterThan(0);
    expect(rank.derived).toContain('prefillBusyTokens');
  });
});

describe('work that waits', () => {
  it('SGLang: its own count of waiting prefill tokens is the truth within a step', async () => {
    const of = await subject(SGLANG);
    const asked = Promise.all(Array.from({ length: 12 }, (_, i) => ask(of, `tale ${i}`, 800)));
    await expect.poll(() => of.engine.state().openRequests, { interval: 1 }).toBe(12);
    const seen: number[] = [];
    for (let look = 0; look < 8; look += 1) {
      of.time.advance(150);
      const { waitingPrefillTokens, running, waiting } = await figures(of);
      const truth = of.engine.state();
      if (waitingPrefillTokens === null) throw new Error('SGLang tells it');
      seen.push(waitingPrefillTokens);
      const off = Math.abs(waitingPrefillTokens - truth.waitingPrefillTokens);
      expect(off).toBeLessThanOrEqual(RECORDED_PROFILE.maxNumBatchedTokens);
      expect((running ?? 0) + (waiting ?? 0)).toBe(truth.openRequests);
    }
    expect(seen[0]).toBeGreaterThan(4_000);
    expect(seen).toEqual([...seen].sort((a, b) => b - a));
    await settled(of, asked);
    expect((await figures(of)).waitingPrefillTokens).toBe(0);
  });

  it('SGLang: nothing is claimed of a scheduler that hangs', async () => {
    const of = await subject(SGLANG);
    const asked = Promise.all(Array.from({ length: 4 }, (_, i) => ask(of, `tale ${i}`, 800)));
    await expect.poll(() => of.engine.state().openRequests, { interval: 1 }).toBe(4);
    of.time.advance(100);
    expect((await figures(of)).waitingPrefillTokens).not.toBeNull();
    of.engine.freeze();
    of.time.advance(7_000);
    expect(await figures(of)).toMatchObject({ running: null, waitingPrefillTokens: null });
    of.engine.thaw();
    await settled(of, asked);
  });

  it.each([
    ['vLLM', {}],
    ['TGI', { kind: 'tgi' }],
  ] as const)('%s: requests alone, and no figure of tokens', async (_, options) => {
    const of = await subject(options);
    const asked = Promise.all(Array.from({ length: 6 }, (_, i) => ask(of, `tale ${i}`, 800)));
    await expect.poll(() => of.engine.state().openRequests, { interval: 1 }).toBe(6);
    of.time.advance(200);
    const rank = await figures(of);
    expect((rank.running ?? 0) + (rank.waiting ?? 0)).toBeGreaterThan(0);
    expect(rank.waitingPrefillTokens).toBeNull();
    await settled(of, asked);
  });
});

describe('an engine that starts', () => {
  it.each([
    ['vLLM', {}, ['refused']],
    ['SGLang', { ...SGLANG, warmUpMs: 3_000 }, ['refused', 'unready']],
    ['TGI', { kind: 'tgi' }, ['refused']],
  ] as const)('%s', async (_, options, before) => {
    const of = await subject({ ...options, loadingMs: 5_000 });
    const seen: string[] = [];
    const look = async (): Promise<string> => {
      of.time.advance(500);
      const { kind } = await of.reader.scrape();
      if (seen.at(-1) !== kind) seen.push(kind);
      return of.engine.state().phase === 'serving' ? kind : 'not yet';
    };
    await expect.poll(look, { interval: 1, timeout: 8_000 }).toBe('ok');
    expect(seen.filter((kind) => kind !== 'ok')).toEqual(expect.arrayContaining([...before]));
  });
});
