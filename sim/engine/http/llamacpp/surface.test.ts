// What a client of a simulated llama.cpp server sees.

import { describe, expect, it } from 'vitest';

import {
  answered,
  call,
  CHAT_PATH,
  dataOf,
  open,
  openEngines,
  readText,
  RECORDED_PROFILE,
  settled,
  type TestEngine,
  whenInside,
} from '../test-harness.ts';

const CHAT = {
  messages: [{ role: 'user', content: 'Tell me of the sea. '.repeat(100) }],
  max_tokens: 20,
};
const LONG = { ...CHAT, max_tokens: 4_000 };

const profile = { ...RECORDED_PROFILE, maxNumSeqs: 2 };
const start = openEngines({ kind: 'llamacpp', metrics: true, profile });

/** Answered between two steps: time has to go on. */
async function slots(test: TestEngine): Promise<Record<string, unknown>[]> {
  const answer = await settled(test, call(test.engine, '/slots'), 5);
  return JSON.parse(answer.text) as Record<string, unknown>[];
}

async function figure(test: TestEngine, name: string): Promise<number> {
  const { text } = await settled(test, call(test.engine, '/metrics'), 5);
  return Number(new RegExp(`^llamacpp:${name} (\\S+)$`, 'm').exec(text)?.[1]);
}

describe('loading', () => {
  it('is an open port on which every path is 503', async () => {
    const test = await start({ loadingMs: 10_000 });
    test.time.advance(0);
    const statusOf = (path: string): Promise<number> =>
      call(test.engine, path).then(
        ({ status }) => status,
        () => 0,
      );
    await expect.poll(() => statusOf('/health'), { interval: 1 }).toBe(503);
    for (const path of ['/v1/models', '/metrics', '/slots', '/nothing']) {
      expect(await statusOf(path)).toBe(503);
    }
    const refused = await call(test.engine, CHAT_PATH, { body: CHAT });
    expect(JSON.parse(refused.text)).toEqual({
      error: { code: 503, message: 'Loading model', type: 'unavailable_error' },
    });
    test.time.advance(10_000);
    expect(JSON.parse((await call(test.engine, '/health')).text)).toEqual({ status: 'ok' });
  });
});

describe('answers', () => {
  it('tell how much was found in the cache and how long the rest took', async () => {
    const test = await start();
    const first = JSON.parse((await answered(test, CHAT)).text);
    expect(first.timings).toMatchObject({ cache_n: 0, predicted_n: 20 });
    expect(first.timings.prompt_n).toBe(first.usage.prompt_tokens);
    expect(first.timings.prompt_ms).toBeGreaterThan(10);
    const second = JSON.parse((await answered(test, CHAT)).text);
    expect(second.timings.cache_n).toBe(second.usage.prompt_tokens_details.cached_tokens);
    expect(second.timings.cache_n + second.timings.prompt_n).toBe(second.usage.prompt_tokens);
    expect(second.timings.cache_n).toBeGreaterThan(400);
  });

  it('streamed end with the timings, in the usage chunk where it was asked for', async () => {
    const test = await start();
    const plain = dataOf((await answered(test, { ...CHAT, stream: true })).text);
    expect(plain.at(-1)).toBe('[DONE]');
    const chunks = plain.slice(0, -1).map((each) => JSON.parse(each));
    expect(chunks[0].choices[0].delta).toEqual({ role: 'assistant', content: null });
    expect(chunks.at(-1)).toMatchObject({
      choices: [{ finish_reason: 'length', delta: {} }],
      timings: { predicted_n: 20 },
    });
    const body = { ...CHAT, stream: true, stream_options: { include_usage: true } };
    const events = dataOf((await answered(test, body)).text);
    expect(JSON.parse(events.at(-2) ?? '')).toMatchObject({
      ...{ choices: [], usage: { completion_tokens: 20 }, timings: { predicted_n: 20 } },
    });
  });

  it('are cut where the slot is full, and refused where the prompt does not fit', async () => {
    const test = await start({ profile: { ...RECORDED_PROFILE, maxNumSeqs: 32 } });
    const cut = JSON.parse((await answered(test, { ...CHAT, max_tokens: 100_000 })).text);
    expect(cut.usage.total_tokens).toBe(1_024);
    const messages = [{ role: 'user', content: 'word '.repeat(2_000) }];
    const refused = await call(test.engine, CHAT_PATH, { body: { ...CHAT, messages } });
    expect(refused.status).toBe(400);
    expect(JSON.parse(refused.text).error).toMatchObject({
      ...{ type: 'exceed_context_size_error', n_ctx: 1_024, code: 400 },
    });
  });
});

describe('what it tells of its work', () => {
  it('shows in /slots who works on what, and in no place the prompts that wait', async () => {
    const test = await start();
    const inside = [1, 2, 3].map(() => call(test.engine, CHAT_PATH, { body: LONG }));
    await whenInside(test, 3);
    test.time.advance(1_000);
    const rows = await slots(test);
    expect(rows.map(({ id, is_processing }) => [id, is_processing])).toEqual([
      [0, true],
      [1, true],
    ]);
    const next = rows[0]?.['next_token'] as { n_decoded: number }[];
    expect(next[0]?.n_decoded).toBeGreaterThan(10);
    expect(await figure(test, 'requests_processing')).toBe(2);
    expect(await figure(test, 'requests_deferred')).toBe(1);
    await settled(test, Promise.all(inside), 2_000);
    expect((await slots(test)).map((slot) => slot['is_processing'])).toEqual([false, false]);
  });

  it('shows how far a long prompt is, step by step', async () => {
    const test = await start();
    const messages = [{ role: 'user', content: 'word '.repeat(8_000) }];
    const answer = call(test.engine, CHAT_PATH, { body: { ...CHAT, messages } });
    await whenInside(test, 1);
    const seen: number[] = [];
    for (let at = 0; at < 4; at += 1) {
      const [slot] = await slots(test);
      seen.push(Number(slot?.['n_prompt_tokens_processed']));
    }
    expect(seen.toSorted((a, b) => a - b)).toEqual(seen);
    expect(new Set(seen).size).toBeGreaterThan(2);
    expect(seen.every((tokens) => tokens % 1_024 === 0)).toBe(true);
    await settled(test, answer, 1_000);
  });

  it('counts computed tokens, found ones and their time', async () => {
    const test = await start();
    const first = JSON.parse((await answered(test, CHAT)).text);
    const second = JSON.parse((await answered(test, CHAT)).text);
    const computed = first.timings.prompt_n + second.timings.prompt_n;
    expect(await figure(test, 'prompt_tokens_total')).toBe(computed);
    expect(await figure(test, 'prompt_tokens_cached_total')).toBe(second.timings.cache_n);
    const seconds = (first.timings.prompt_ms + second.timings.prompt_ms) / 1_000;
    expect(await figure(test, 'prompt_seconds_total')).toBeCloseTo(seconds, 5);
    expect(await figure(test, 'tokens_predicted_total')).toBe(40);
  });

  it('loses its mean rates to whoever scrapes first', async () => {
    const test = await start();
    await answered(test, CHAT);
    expect(await figure(test, 'prompt_tokens_seconds')).toBeGreaterThan(0);
    expect(await figure(test, 'prompt_tokens_seconds')).toBe(0);
  });

  it('has no /metrics unless it was asked for', async () => {
    const { engine } = await start({ metrics: false });
    const answer = await call(engine, '/metrics');
    expect(answer.status).toBe(501);
    expect(JSON.parse(answer.text).error.type).toBe('not_supported_error');
  });
});

describe('its ends', () => {
  it('hangs in /slots and /metrics with a model that hangs, and is well in /health', async () => {
    const test = await start();
    test.engine.freeze();
    let told = false;
    const asked = call(test.engine, '/metrics').then((answer) => {
      told = true;
      return answer;
    });
    expect((await call(test.engine, '/health')).status).toBe(200);
    test.time.advance(60_000);
    await call(test.engine, '/health');
    expect(told).toBe(false);
    test.engine.thaw();
    expect((await settled(test, asked)).status).toBe(200);
  });

  it.each([
    ['SIGTERM', (test: TestEngine) => void test.engine.terminate()],
    ['a failure of the device', (test: TestEngine) => test.engine.killCore()],
  ])('cuts everything at %s', async (_name, end) => {
    const test = await start();
    const head = open(test.engine, CHAT_PATH, { body: { ...LONG, stream: true } });
    await whenInside(test, 1);
    test.time.advance(200);
    const cut = expect(head.then(readText)).rejects.toMatchObject({ code: 'ECONNRESET' });
    await head;
    end(test);
    await cut;
    await expect(call(test.engine, '/health')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });
});
