// Data-parallel ranks, adapters, and what development mode adds.

import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

import {
  call,
  dataOf,
  open,
  openEngines,
  readText,
  RECORDED_PROFILE,
  settled,
  shapeOf,
  type TestEngine,
} from '../test-harness.ts';

/** An answer's body, looked into freely. */
type Json = ReturnType<typeof JSON.parse>;

const COMPLETIONS = '/v1/completions';
const PROMPT = 'Tell me of the sea and of the sky. '.repeat(40);

const start = openEngines();

async function whole(test: TestEngine, body: object, headers = {}): Promise<Json> {
  const answer = await settled(test, call(test.engine, COMPLETIONS, { body, headers }));
  return JSON.parse(answer.text);
}

const cachedOf = (answer: Json): number => answer.usage.prompt_tokens_details.cached_tokens;

describe('data-parallel ranks', () => {
  const rank = (value: string): object => ({ 'x-data-parallel-rank': value });

  it('have caches of their own, which a header picks', async () => {
    const test = await start({ dataParallelSize: 2 });
    const body = { prompt: PROMPT, max_tokens: 1 };
    expect(cachedOf(await whole(test, body, rank('1')))).toBe(0);
    expect(cachedOf(await whole(test, body, rank('0')))).toBe(0);
    expect(cachedOf(await whole(test, body, rank('1')))).toBeGreaterThan(0);
    const { ranks } = test.engine.state();
    expect(ranks.map(({ cachedBlocks }) => cachedBlocks > 0)).toEqual([true, true]);
  });

  it('take turns without a header or with one that is no number, blind to prefixes', async () => {
    const test = await start({ dataParallelSize: 2 });
    const body = { prompt: PROMPT, max_tokens: 1 };
    const cached: number[] = [];
    for (const headers of [{}, rank('first'), {}, {}]) {
      cached.push(cachedOf(await whole(test, body, headers)));
    }
    expect(cached.map((tokens) => tokens > 0)).toEqual([false, false, true, true]);
  });

  it('go to the one with the least to do', async () => {
    const test = await start({ dataParallelSize: 2 });
    const held = await open(test.engine, COMPLETIONS, {
      body: { prompt: PROMPT, max_tokens: 4_000, stream: true },
      headers: { 'x-data-parallel-rank': '0' },
    });
    test.time.advance(500);
    for (let at = 0; at < 3; at += 1) {
      const answer = call(test.engine, COMPLETIONS, { body: { prompt: `${at}`, max_tokens: 1 } });
      const busy = (): number => test.engine.state().ranks[1]!.openRequests;
      await expect.poll(busy, { interval: 1 }).toBe(1);
      test.time.advance(100);
      await answer;
    }
    held.destroy();
  });

  it.each(['2', '-1'])('refuse rank %s: 400, or an event of a stream', async (value) => {
    const test = await start({ dataParallelSize: 2 });
    const body = { prompt: PROMPT, max_tokens: 1 };
    const headers = { 'x-data-parallel-rank': value };
    const message = `data_parallel_rank ${value} is out of range [0, 2).`;
    const refused = await call(test.engine, COMPLETIONS, { body, headers });
    expect([refused.status, JSON.parse(refused.text).error.message]).toEqual([400, message]);
    const streamed = await open(test.engine, COMPLETIONS, {
      body: { ...body, stream: true },
      headers,
    });
    const [error, done] = dataOf(await readText(streamed));
    expect([streamed.statusCode, JSON.parse(error!).error.message, done]).toEqual([
      ...[200, message, '[DONE]'],
    ]);
  });

  it('tell what a request put into the cache, as one does', async () => {
    const test = await start({ dataParallelSize: 2 });
    const answer = call(test.engine, '/v1/chat/completions', {
      body: { messages: [{ role: 'user', content: PROMPT }], max_tokens: 1 },
    });
    await expect.poll(() => test.engine.state().openRequests, { interval: 1 }).toBe(1);
    test.time.advance(10_000);
    const { usage } = JSON.parse((await answer).text);
    const block = RECORDED_PROFILE.blockTokens;
    expect(usage.prompt_tokens_details).toMatchObject({
      cached_tokens: 0,
      created_cache_tokens: Math.floor(usage.prompt_tokens / block) * block,
    });
  });
});

describe('adapters', () => {
  const modules = [{ name: 'support-bot', path: '/adapters/support-bot' }];

  it('are listed with their parent and without a length, as recorded', async () => {
    const test = await start({ vllm: { enableLora: true, loraModules: modules } });
    const url = new URL('../../../../test/fixtures/vllm-0.32.0/models-lora.json', import.meta.url);
    const expected = JSON.parse(readFileSync(url, 'utf8'));
    const listed = JSON.parse((await call(test.engine, '/v1/models')).text);
    expect(shapeOf(listed)).toEqual(shapeOf(expected));
    expect(listed.data[1]).toMatchObject({ id: 'support-bot', parent: 'tiny-llama' });
  });

  it('answer under their own name and share no prefix with the base', async () => {
    const test = await start({ vllm: { enableLora: true, loraModules: modules } });
    const base = { prompt: PROMPT, max_tokens: 3 };
    const adapted = { ...base, model: 'support-bot' };
    await whole(test, base);
    const first = await whole(test, adapted);
    expect([first.model, cachedOf(first)]).toEqual(['support-bot', 0]);
    expect(cachedOf(await whole(test, adapted))).toBeGreaterThan(0);
    const { text } = await call(test.engine, '/metrics');
    const seen = text.matchAll(/running_lora_adapters="([^"]*)"/g);
    expect([...seen].map(([, names]) => names)).toEqual(['', 'support-bot']);
  });

  it('are loaded and unloaded where that is allowed', async () => {
    const test = await start({ vllm: { enableLora: true, loraUpdates: true } });
    const load = { lora_name: 'late', lora_path: '/adapters/late' };
    const ask = (path: string, body: object) => call(test.engine, path, { body });
    const loaded = await ask('/v1/load_lora_adapter', load);
    expect([loaded.status, loaded.text]).toEqual([
      ...[200, "Success: LoRA adapter 'late' added successfully."],
    ]);
    expect(loaded.headers['content-type']).toBeUndefined();
    expect((await ask('/v1/load_lora_adapter', load)).status).toBe(400);
    expect((await ask('/v1/unload_lora_adapter', { lora_name: 'late' })).status).toBe(200);
    expect((await ask('/v1/unload_lora_adapter', { lora_name: 'late' })).status).toBe(404);
    const plain = await start({});
    const nowhere = await call(plain.engine, '/v1/load_lora_adapter', { body: load });
    expect(nowhere.status).toBe(404);
  });
});

describe('development mode', () => {
  const post = (test: TestEngine, path: string) => call(test.engine, path, { method: 'POST' });

  it('is not there unless it is asked for', async () => {
    const test = await start({});
    for (const path of ['/sleep', '/wake_up', '/pause', '/resume', '/reset_prefix_cache']) {
      expect((await post(test, path)).status).toBe(404);
    }
  });

  it('sleeps without its cache, holds what comes, and wakes', async () => {
    const test = await start({ vllm: { devMode: true } });
    const body = { prompt: PROMPT, max_tokens: 1 };
    await whole(test, body);
    expect((await post(test, '/sleep?level=1')).text).toBe('{"status":"sleeping","level":1}');
    expect((await call(test.engine, '/is_sleeping')).text).toBe('{"is_sleeping":true}');
    const { text } = await call(test.engine, '/metrics');
    expect(text).toMatch(/sleep_state="weights_offloaded"\} 1\.0/);
    expect((await call(test.engine, '/health')).status).toBe(200);
    const waiting = call(test.engine, COMPLETIONS, { body });
    await expect.poll(() => test.engine.state().openRequests, { interval: 1 }).toBe(1);
    test.time.advance(60_000);
    expect(test.engine.state().openRequests).toBe(1);
    expect((await post(test, '/wake_up')).text).toBe('{"status":"awake","tags":null}');
    test.time.advance(60_000);
    expect(cachedOf(JSON.parse((await waiting).text))).toBe(0);
  });

  it('answers a sleep that waits only when all have ended', async () => {
    const test = await start({ dataParallelSize: 2, vllm: { devMode: true } });
    const answer = call(test.engine, COMPLETIONS, { body: { prompt: PROMPT, max_tokens: 50 } });
    await expect.poll(() => test.engine.state().openRequests, { interval: 1 }).toBe(1);
    test.time.advance(50);
    let asleep = false;
    const slept = post(test, '/sleep?mode=wait').then(() => (asleep = true));
    await call(test.engine, '/version');
    expect(asleep).toBe(false);
    test.time.advance(60_000);
    await slept;
    expect(JSON.parse((await answer).text).choices[0].finish_reason).toBe('length');
  });

  it('resets the cache of an idle engine, of a busy one only with what runs', async () => {
    const test = await start({ vllm: { devMode: true }, profile: RECORDED_PROFILE });
    const body = { prompt: PROMPT, max_tokens: 1 };
    await whole(test, body);
    expect((await post(test, '/reset_prefix_cache')).text).toBe('{"success":true}');
    expect(cachedOf(await whole(test, body))).toBe(0);
    const long = call(test.engine, COMPLETIONS, { body: { prompt: 'x', max_tokens: 100 } });
    await expect.poll(() => test.engine.state().openRequests, { interval: 1 }).toBe(1);
    test.time.advance(50);
    expect((await post(test, '/reset_prefix_cache')).text).toBe('{"success":false}');
    const forced = post(test, '/reset_prefix_cache?reset_running_requests=true');
    const step = (): boolean => {
      test.time.advance(10);
      return test.engine.state().cachedBlocks === 0;
    };
    await expect.poll(step, { interval: 1 }).toBe(true);
    expect((await forced).text).toBe('{"success":true}');
    test.time.advance(60_000);
    expect(JSON.parse((await long).text).usage.completion_tokens).toBe(100);
  });

  it.each([
    ['/sleep?level=3', 'query.level'],
    ['/pause?mode=never', 'query.mode'],
  ])('refuses %s', async (path, param) => {
    const test = await start({ vllm: { devMode: true } });
    const { status, text } = await post(test, path);
    expect([status, JSON.parse(text).error.param]).toEqual([400, param]);
  });
});
