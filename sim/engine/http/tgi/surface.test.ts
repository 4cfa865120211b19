// What a client of a simulated TGI sees: answers, refusals, and the ends of its life.

import { once } from 'node:events';
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
  whenInside,
} from '../test-harness.ts';

const CHAT = {
  model: 'tgi',
  messages: [{ role: 'user', content: 'Tell me of the sea. '.repeat(100) }],
  max_tokens: 20,
};
const STREAM = { ...CHAT, stream: true };
const LONG = { ...CHAT, max_tokens: 4_000 };

const start = openEngines({ kind: 'tgi' });

describe('answers', () => {
  it('has an empty id, the model of the server, and no cached tokens in the usage', async () => {
    const test = await start();
    const answer = await answered(test, CHAT);
    expect(answer.status).toBe(200);
    const body = JSON.parse(answer.text);
    expect(body).toMatchObject({ object: 'chat.completion', id: '', model: 'tiny-llama' });
    expect(body.choices).toMatchObject([{ index: 0, finish_reason: 'length', logprobs: null }]);
    expect(Object.keys(body.usage)).toEqual(['prompt_tokens', 'completion_tokens', 'total_tokens']);
    expect(body.usage.completion_tokens).toBe(20);
  });

  it('tells in headers where the time of a whole answer went', async () => {
    const test = await start();
    const answer = await answered(test, CHAT);
    const headers = answer.headers;
    const ms = (name: string): number => Number(headers[name]);
    expect(ms('x-generated-tokens')).toBe(20);
    expect(ms('x-prompt-tokens')).toBe(JSON.parse(answer.text).usage.prompt_tokens);
    const parts = ms('x-validation-time') + ms('x-queue-time') + ms('x-inference-time');
    expect(ms('x-total-time') - parts).toBeGreaterThanOrEqual(0);
    expect(ms('x-total-time') - parts).toBeLessThanOrEqual(3);
    expect(ms('x-inference-time')).toBeGreaterThan(0);
  });

  it('gives a stream whose every chunk has the role, usage when asked for, and [DONE]', async () => {
    const test = await start();
    const body = { ...STREAM, stream_options: { include_usage: true } };
    const answer = await answered(test, body);
    expect(answer.headers['content-type']).toBe('text/event-stream');
    const events = dataOf(answer.text);
    expect(events.at(-1)).toBe('[DONE]');
    const chunks = events.slice(0, -1).map((each) => JSON.parse(each));
    expect(chunks).toHaveLength(21);
    expect(chunks.slice(0, -1).map((chunk) => chunk.choices[0].delta.role)).toEqual(
      Array(20).fill('assistant'),
    );
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 20 } });
    expect(chunks.at(-2).choices[0].finish_reason).toBe('length');
  });

  it('gives completions with an empty finish reason until the last, which has the usage', async () => {
    const test = await start();
    const body = { prompt: 'Once upon a time', max_tokens: 3, stream: true };
    const answer = await answered(test, body, '/v1/completions');
    const chunks = dataOf(answer.text)
      .slice(0, -1)
      .map((each) => JSON.parse(each));
    expect(chunks.map((chunk) => chunk.choices[0].finish_reason)).toEqual(['', '', 'length']);
    expect(chunks.map((chunk) => 'usage' in chunk)).toEqual([false, false, true]);
  });

  it('speaks its own protocol: whole, and as a stream without [DONE]', async () => {
    const test = await start();
    const inputs = 'Once upon a time';
    const body = { inputs, parameters: { max_new_tokens: 3, details: true } };
    const whole = await answered(test, body, '/generate');
    expect(JSON.parse(whole.text).details).toMatchObject({
      finish_reason: 'length',
      generated_tokens: 3,
    });
    const listed = await answered(test, body, '/');
    expect(JSON.parse(listed.text)).toEqual([JSON.parse(whole.text)]);
    const stream = await answered(test, body, '/generate_stream');
    const events = dataOf(stream.text).map((each) => JSON.parse(each));
    expect(events.map(({ index }) => index)).toEqual([1, 2, 3]);
    expect(events.at(-1).generated_text).toBe(JSON.parse(whole.text).generated_text);
  });

  it('sends a comment whenever it had nothing to send for 15 seconds', async () => {
    const test = await start();
    test.engine.freeze();
    const response = await open(test.engine, CHAT_PATH, { body: STREAM });
    await whenInside(test, 1);
    let said = '';
    response.setEncoding('utf8').on('data', (piece: string) => (said += piece));
    test.time.advance(14_999);
    await call(test.engine, '/health');
    expect(said).toBe('');
    test.time.advance(1);
    test.time.advance(15_000);
    test.engine.thaw();
    await settled(test, once(response, 'end'));
    const text = said;
    expect(text.startsWith(':\n\n:\n\ndata: {')).toBe(true);
    expect(text.match(/^:$/gm)).toHaveLength(2);
  });

  it('knows itself: /info, /v1/models, tokens', async () => {
    const { engine } = await start();
    const info = JSON.parse((await call(engine, '/info')).text);
    expect(info).toMatchObject({
      model_id: 'tiny-llama',
      max_concurrent_requests: 128,
      max_batch_total_tokens: 1_024 * 32,
      max_input_tokens: info.max_total_tokens - 1,
    });
    const models = JSON.parse((await call(engine, '/v1/models')).text);
    expect(models.data[0]).toEqual({
      ...{ id: 'tiny-llama', object: 'model', created: 0, owned_by: 'tiny-llama' },
    });
    const tokens = JSON.parse(
      (await call(engine, '/tokenize', { body: { inputs: 'abcdefg' } })).text,
    );
    expect(tokens.map(({ text }: { text: string }) => text).join('')).toBe('abcdefg');
  });
});

describe('refusals', () => {
  it('is overloaded at its limit of concurrent requests: 429, and an event in a stream', async () => {
    const test = await start({ maxConcurrentRequests: 1 });
    const first = call(test.engine, CHAT_PATH, { body: LONG });
    await whenInside(test, 1);
    const refused = await call(test.engine, CHAT_PATH, { body: CHAT });
    expect(refused.status).toBe(429);
    const said = { error: 'Model is overloaded', error_type: 'overloaded' };
    expect(JSON.parse(refused.text)).toEqual(said);
    const stream = await call(test.engine, CHAT_PATH, { body: STREAM });
    expect(stream.status).toBe(200);
    expect(
      dataOf(stream.text).map((each) => (each === '[DONE]' ? each : JSON.parse(each))),
    ).toEqual([said, '[DONE]']);
    expect((await settled(test, first)).status).toBe(200);
    expect((await call(test.engine, '/metrics')).text).toContain(
      'tgi_request_failure{err="overloaded"} 2\n',
    );
  });

  it.each([
    [{ ...CHAT, max_tokens: 100_000 }, '`inputs` tokens + `max_new_tokens` must be <= '],
    [
      { ...CHAT, messages: [{ role: 'user', content: 'word '.repeat(60_000) }] },
      '`inputs` must have',
    ],
  ])('refuses what does not fit with 422', async (body, words) => {
    const { engine } = await start();
    const answer = await call(engine, CHAT_PATH, { body });
    expect(answer.status).toBe(422);
    expect(JSON.parse(answer.text)).toMatchObject({ error_type: 'validation' });
    expect(JSON.parse(answer.text).error).toContain(`Input validation error: ${words}`);
  });

  it('answers a body of the wrong form with the words of its web framework', async () => {
    const { engine } = await start();
    const path = CHAT_PATH;
    const missing = await call(engine, path, { body: {} });
    expect([missing.status, missing.headers['content-type']]).toEqual([
      422,
      'text/plain; charset=utf-8',
    ]);
    expect((await call(engine, path, { body: '{"messages": [' })).status).toBe(400);
    const type = { 'content-type': 'text/plain' };
    expect((await call(engine, path, { body: '{}', headers: type })).status).toBe(415);
    expect((await call(engine, '/no/such')).status).toBe(404);
    expect((await call(engine, '/generate')).status).toBe(405);
  });
});

describe('metrics', () => {
  it('says nothing before the first request, then what was counted', async () => {
    const test = await start();
    expect((await call(test.engine, '/metrics')).text).toBe('');
    const answer = await answered(test, CHAT);
    const { usage } = JSON.parse(answer.text);
    const { text } = await call(test.engine, '/metrics');
    expect(text).toContain('tgi_request_count 1\n');
    expect(text).toContain('tgi_request_success 1\n');
    expect(text).toContain(`tgi_request_input_length_sum ${usage.prompt_tokens}\n`);
    expect(text).toMatch(/tgi_batch_inference_count\{method="decode"\} 19\n/);
    const queue = Number(/tgi_request_queue_duration_sum (\S+)/.exec(text)?.[1]);
    expect(queue).toBeLessThan(0.05);
  });

  it('counts who waits and what the batch may come to while requests are inside', async () => {
    const test = await start({ profile: { ...RECORDED_PROFILE, maxNumSeqs: 1 } });
    const answers = [LONG, LONG, LONG].map((body) => call(test.engine, CHAT_PATH, { body }));
    await whenInside(test, 3);
    test.time.advance(1_000);
    const { text } = await call(test.engine, '/metrics');
    expect(text).toContain('tgi_queue_size 2\n');
    expect(text).toContain('tgi_batch_current_size 1\n');
    const prompt = Number(/tgi_request_input_length_sum (\d+)/.exec(text)?.[1]) / 3;
    expect(text).toContain(`tgi_batch_current_max_tokens ${prompt + 4_000}\n`);
    for (const answer of answers) answer.catch(() => {});
  });
});

describe('its ends', () => {
  it('refuses connections while it loads', async () => {
    const { engine, time } = await start({ loadingMs: 10_000 });
    await expect(call(engine, '/health')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    time.advance(10_000);
    await engine.whenServing();
    expect((await call(engine, '/health')).status).toBe(200);
  });

  it('finishes what is inside after SIGTERM, and takes nothing new', async () => {
    const test = await start();
    const answer = call(test.engine, CHAT_PATH, { body: CHAT });
    await whenInside(test, 1);
    const code = test.engine.whenGone();
    const gone = test.engine.terminate();
    await expect(call(test.engine, '/health')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    expect((await settled(test, answer)).status).toBe(200);
    await settled(test, gone);
    expect(await code).toBe(0);
  });

  it('cuts after 90 seconds of SIGTERM what is not finished', async () => {
    const test = await start();
    const response = await open(test.engine, CHAT_PATH, { body: STREAM });
    await whenInside(test, 1);
    test.engine.freeze();
    const gone = test.engine.terminate();
    const cut = expect(readText(response)).rejects.toMatchObject({ code: 'ECONNRESET' });
    test.time.advance(89_999);
    expect(test.engine.state().openRequests).toBe(1);
    test.time.advance(1);
    await gone;
    await cut;
  });

  it('answers 424 to the batch under which the device failed, and is healthy again after a token', async () => {
    const test = await start();
    const whole = call(test.engine, CHAT_PATH, { body: LONG });
    await whenInside(test, 1);
    const body = { ...LONG, stream: true };
    const response = await open(test.engine, CHAT_PATH, { body });
    test.time.advance(200);
    const stream = readText(response);
    await call(test.engine, '/sim/fail-batch', { method: 'POST' });
    expect((await whole).status).toBe(424);
    const [last, done] = dataOf(await stream).slice(-2);
    expect(JSON.parse(last ?? '')).toMatchObject({ error_type: 'generation' });
    expect(done).toBe('[DONE]');
    expect(test.engine.state().openRequests).toBe(0);
    const health = call(test.engine, '/health');
    await whenInside(test, 1);
    expect((await settled(test, health)).status).toBe(200);
  });

  it('is healthy again after any answer: no token of its own is asked for then', async () => {
    const test = await start();
    await call(test.engine, '/sim/fail-batch', { method: 'POST' });
    await answered(test, CHAT);
    expect((await call(test.engine, '/health')).status).toBe(200);
  });

  it('ends when a shard crashes: 424 for what was inside, then nothing', async () => {
    const test = await start();
    const whole = call(test.engine, CHAT_PATH, { body: LONG });
    await whenInside(test, 1);
    const code = test.engine.whenGone();
    test.engine.killCore();
    expect((await whole).status).toBe(424);
    expect((await call(test.engine, '/health')).status).toBe(503);
    test.time.advance(100);
    await expect(call(test.engine, '/health')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    expect(await code).toBe(1);
  });

  it('gives back what a client that left had', async () => {
    const test = await start({ maxConcurrentRequests: 1 });
    const left = new AbortController();
    const gone = open(test.engine, CHAT_PATH, {
      body: { ...LONG, stream: true },
      signal: left.signal,
    });
    const response = await gone;
    await whenInside(test, 1);
    left.abort();
    await expect(readText(response)).rejects.toThrow();
    await expect.poll(() => test.engine.state().openRequests, { interval: 1 }).toBe(0);
    const next = await answered(test, CHAT);
    expect(next.status).toBe(200);
  });
});
