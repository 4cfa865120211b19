// The HTTP surface against recorded answers of a real vLLM 0.32.0.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import {
  type Answer,
  answered,
  call,
  type Call,
  CHAT_PATH,
  dataOf,
  open,
  recorded,
  RECORDED_PROFILE,
  settled,
  shapeOf,
  startTestEngine,
  streamShape,
  type TestEngine,
} from '../test-harness.ts';

const MESSAGES = [{ role: 'user', content: 'Say something about the sea. '.repeat(300) }];
const CHAT = { model: 'tiny-llama', messages: MESSAGES, max_tokens: 4 };

let test: TestEngine;

beforeAll(async () => {
  test = await startTestEngine({ vllm: { devMode: true } });
});

afterAll(() => test.engine.close());

describe('answers', () => {
  it('have the members of a recorded chat answer, in order', async () => {
    const answer = await answered(test, CHAT);
    const expected = recorded('chat-first-turn.http');
    expect(answer.status).toBe(expected.status);
    expect(shapeOf(JSON.parse(answer.text))).toEqual(shapeOf(JSON.parse(expected.body)));
  });

  it('have the members of a recorded completion, in order', async () => {
    const answer = await answered(test, { prompt: 'The sea', max_tokens: 4 }, '/v1/completions');
    const expected = recorded('completion.http').body;
    expect(shapeOf(JSON.parse(answer.text))).toEqual(shapeOf(JSON.parse(expected)));
  });

  it('ignore members that they do not know', async () => {
    const answer = await answered(test, { ...CHAT, max_tokens: 1, no_such_member: 1 });
    const expected = recorded('error-unknown-field.http');
    expect(answer.status).toBe(expected.status);
    expect(shapeOf(JSON.parse(answer.text))).toEqual(shapeOf(JSON.parse(expected.body)));
  });

  it('report the prefix of an earlier turn as cached, and nothing under another salt', async () => {
    const first = JSON.parse((await answered(test, CHAT)).text);
    const answer = first.choices[0].message.content as string;
    const next = [
      ...MESSAGES,
      { role: 'assistant', content: answer },
      { role: 'user', content: 'And?' },
    ];
    const body = { ...CHAT, messages: next };
    const second = JSON.parse((await answered(test, body)).text).usage;
    const before = first.usage.prompt_tokens as number;
    expect(second.prompt_tokens_details.cached_tokens).toBe(Math.floor((before + 3) / 32) * 32);
    const salted = JSON.parse((await answered(test, { ...body, cache_salt: 's' })).text);
    expect(salted.usage.prompt_tokens_details.cached_tokens).toBe(0);
  });

  it('answer every prompt of a list, n times, and count each prompt once', async () => {
    const body = { prompt: ['one two three', 'four five six'], n: 2, max_tokens: 3 };
    const { choices, usage } = JSON.parse((await answered(test, body, '/v1/completions')).text);
    expect(choices.map((choice: { index: number }) => choice.index)).toEqual([0, 1, 2, 3]);
    expect(choices[0].text).not.toBe(choices[1].text);
    expect(usage).toMatchObject({ prompt_tokens: 10, completion_tokens: 12, total_tokens: 22 });
  });

  it('take token ids for a prompt', async () => {
    const body = { prompt: [1, 2, 3, 4, 5], max_tokens: 2 };
    const { usage } = JSON.parse((await answered(test, body, '/v1/completions')).text);
    expect(usage.prompt_tokens).toBe(5);
  });

  it('end by themselves where no limit is given, the same way every time', async () => {
    const body = { messages: [{ role: 'user', content: 'How long?' }] };
    const [first, second] = [await answered(test, body), await answered(test, body)];
    const { choices, usage } = JSON.parse(first.text);
    expect(choices[0].finish_reason).toBe('stop');
    expect(JSON.parse(second.text).choices).toEqual(choices);
    expect(usage.completion_tokens).toBeGreaterThan(0);
  });

  it('carry the request id that they were given', async () => {
    const answer = await settled(
      test,
      call(test.engine, CHAT_PATH, { body: CHAT, headers: { 'X-Request-Id': 'abc.1' } }),
    );
    expect(JSON.parse(answer.text).id).toBe('chatcmpl-abc.1');
  });
});

describe('streams', () => {
  it.each([
    ['chat-stream.http', CHAT_PATH, CHAT],
    ['chat-stream-usage.http', CHAT_PATH, { ...CHAT, stream_options: { include_usage: true } }],
    [
      'chat-stream-continuous-usage.http',
      CHAT_PATH,
      { ...CHAT, stream_options: { include_usage: true, continuous_usage_stats: true } },
    ],
    [
      'completion-stream-usage.http',
      '/v1/completions',
      { prompt: 'x', max_tokens: 3, stream_options: { include_usage: true } },
    ],
  ])('have the events of %s', async (name, path, body) => {
    const answer = await answered(test, { ...body, stream: true }, path);
    expect(streamShape(answer.text)).toEqual(streamShape(recorded(name).body));
    expect(answer.text.endsWith('data: [DONE]\n\n')).toBe(true);
  });

  it('send their head before anything is computed, and the role with the first token', async () => {
    const response = await open(test.engine, CHAT_PATH, {
      body: { ...CHAT, stream: true },
    });
    expect(response.statusCode).toBe(200);
    const parts: string[] = [];
    response.setEncoding('utf8').on('data', (part: string) => parts.push(part));
    test.time.advance(20);
    expect(parts).toEqual([]);
    test.time.advance(60_000);
    await expect.poll(() => parts.join('')).toContain('[DONE]');
    const [first, second] = dataOf(parts.join('')).map((data) =>
      JSON.parse(data.replace('[DONE]', '{}')),
    );
    expect(first.choices[0].delta).toEqual({ role: 'assistant', content: '' });
    expect(second.choices[0].delta.content).not.toBe('');
  });

  it('say the same as an answer in one piece', async () => {
    const streamed = dataOf((await answered(test, { ...CHAT, stream: true })).text)
      .filter((data) => data !== '[DONE]')
      .map((data) => JSON.parse(data).choices[0].delta.content as string)
      .join('');
    const answer = JSON.parse((await answered(test, CHAT)).text);
    expect(streamed).toBe(answer.choices[0].message.content);
  });
});

describe('errors', () => {
  const chat = (body: unknown, options: Call = {}): Promise<Answer> =>
    call(test.engine, CHAT_PATH, { ...options, body });

  it.each<[string, () => Promise<Answer>]>([
    ['error-bad-temperature.http', () => chat({ ...CHAT, temperature: -1 })],
    ['error-content-type.http', () => chat('{}', { headers: { 'content-type': 'text/plain' } })],
    [
      'error-context-too-long.http',
      () => chat({ ...CHAT, messages: [{ role: 'user', content: 'a'.repeat(70_000) }] }),
    ],
    ['error-empty-messages.http', () => chat({ model: 'tiny-llama', messages: [] })],
    ['error-max-tokens-too-large.http', () => chat({ ...CHAT, max_tokens: 99_999_999 })],
    ['error-method.http', () => call(test.engine, CHAT_PATH)],
    ['error-missing-messages.http', () => chat({ model: 'tiny-llama' })],
    ['error-not-found.http', () => call(test.engine, '/v1/nothing')],
    ['error-unknown-model.http', () => chat({ ...CHAT, model: 'nope' })],
    ['error-wrong-type.http', () => chat({ model: 'tiny-llama', messages: 'x' })],
  ])('are those of %s, word for word', async (name, send) => {
    const answer = await send();
    const expected = recorded(name);
    expect(answer.text).toBe(expected.body);
    expect(answer.status).toBe(expected.status);
    expect(Object.keys(answer.headers).filter((header) => header !== 'connection')).toEqual(
      Object.keys(expected.headers),
    );
  });

  it('refuse more answers than vLLM gives at once, and than are simulated', async () => {
    const words = async (body: object, path = CHAT_PATH): Promise<[number, string]> => {
      const { status, text } = await call(test.engine, path, { body });
      return [status, JSON.parse(text).error.message];
    };
    const hint = 'To increase this limit, set the VLLM_MAX_N_SEQUENCES environment variable.';
    expect(await words({ ...CHAT, n: 1_000_000_000 })).toEqual([
      400,
      `n must be at most 16384, got 1000000000. ${hint}`,
    ]);
    expect(await words({ ...CHAT, n: 16_385 })).toEqual([
      400,
      `n must be at most 16384, got 16385. ${hint}`,
    ]);
    expect(await words({ prompt: ['a', 'b'], n: 8_193 }, '/v1/completions')).toEqual([
      400,
      '2 prompts of 8193 answers are more than the 16384 answers that are simulated.',
    ]);
  });

  it("name the place where JSON breaks off, in Python's words", async () => {
    const answer = await chat('{"model": "');
    const expected = recorded('error-malformed-json.http');
    expect([answer.status, answer.text]).toEqual([expected.status, expected.body]);
  });

  it('cut an answer that would not fit to what the context leaves', async () => {
    const prompt = Array.from({ length: 16_382 }, (_, at) => at);
    const body = { prompt, max_tokens: 100 };
    const { usage, choices } = JSON.parse((await answered(test, body, '/v1/completions')).text);
    expect([usage.completion_tokens, choices[0].finish_reason]).toEqual([2, 'length']);
  });

  it('refuse a full queue without a time to come back', async () => {
    const full = await startTestEngine({ profile: { ...RECORDED_PROFILE, maxQueuedRequests: 1 } });
    const waiting = await open(full.engine, CHAT_PATH, {
      body: { ...CHAT, stream: true },
    });
    const answer = await call(full.engine, CHAT_PATH, { body: CHAT });
    const expected = recorded('error-queue-full.http');
    expect([answer.status, answer.text]).toEqual([expected.status, expected.body]);
    expect(answer.headers['retry-after']).toBeUndefined();
    waiting.destroy();
    await full.engine.close();
  });
});

describe('other endpoints', () => {
  it.each([
    ['models.http', '/v1/models', undefined],
    ['version.http', '/version', undefined],
    ['load.http', '/load', undefined],
    ['is-sleeping.http', '/is_sleeping', undefined],
  ])('answer as in %s', async (name, path, body) => {
    const answer = await call(test.engine, path, body === undefined ? {} : { body });
    const expected = recorded(name);
    expect(answer.status).toBe(expected.status);
    expect(shapeOf(JSON.parse(answer.text))).toEqual(shapeOf(JSON.parse(expected.body)));
    expect(answer.headers['content-type']).toBe(expected.headers['content-type']);
  });

  it('tokenise and detokenise, a text and a conversation', async () => {
    const text = JSON.parse(
      (await call(test.engine, '/tokenize', { body: { prompt: 'The sea is old.' } })).text,
    );
    expect(Object.keys(text)).toEqual(Object.keys(JSON.parse(recorded('tokenize.http').body)));
    expect(text.count).toBe(text.tokens.length);
    const back = await call(test.engine, '/detokenize', { body: { tokens: text.tokens } });
    expect(JSON.parse(back.text)).toEqual({ prompt: 'The sea is old.' });
    const chat = JSON.parse(
      (await call(test.engine, '/tokenize', { body: { messages: MESSAGES } })).text,
    );
    const usage = JSON.parse((await answered(test, CHAT)).text).usage;
    expect(chat.count).toBe(usage.prompt_tokens);
  });

  it('serve the exposition, with the work that was done', async () => {
    const { text, headers } = await call(test.engine, '/metrics');
    expect(headers['content-type']).toMatch(/^text\/plain/);
    expect(text).toMatch(/vllm:num_requests_running\{engine="0",model_name="tiny-llama"\} 0\.0/);
    expect(text).toMatch(/vllm:prompt_tokens_total\{[^}]*\} [1-9]/);
    expect(text).toContain(`process_start_time_seconds 1.800000001e+09`);
  });

  it('are alive', async () => {
    expect(await call(test.engine, '/health')).toMatchObject({ status: 200, text: '' });
  });
});
