// What vLLM's protocols say and how requests are taken, against recordings and the words of its own validation.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import {
  answered,
  call,
  CHAT_PATH,
  dataOf,
  recorded,
  settled,
  shapeOf,
  startTestEngine,
  type TestEngine,
  type Answer,
} from '../test-harness.ts';

/** An answer's body, looked into freely. */
type Json = ReturnType<typeof JSON.parse>;

const MESSAGES = [{ role: 'user', content: 'Say something about the sea, and of the sky.' }];

let test: TestEngine;

beforeAll(async () => {
  test = await startTestEngine({ vllm: { scaleOut: true, requestIdHeaders: true } });
});

afterAll(() => test.engine.close());

async function stream(path: string, body: object): Promise<string> {
  return (await answered(test, { ...body, stream: true }, path)).text;
}

async function json(path: string, body: object): Promise<Json> {
  return JSON.parse((await answered(test, body, path)).text);
}

/** Name and data of each event. */
function named(text: string): [string, Json][] {
  return text
    .split('\n\n')
    .filter((event) => event !== '')
    .map((event) => {
      const [, name = '', data = ''] = /^event: (.+)\ndata: (.+)$/.exec(event) ?? [];
      return [name, JSON.parse(data)];
    });
}

describe('messages', () => {
  const body = { model: 'tiny-llama', messages: MESSAGES, max_tokens: 4 };

  it('are answered member by member as recorded', async () => {
    const answer = await json('/v1/messages', body);
    const expected = JSON.parse(recorded('messages.http').body);
    expect(shapeOf(answer)).toEqual(shapeOf(expected));
    expect(answer.stop_reason).toBe('max_tokens');
  });

  it('are streamed as blocks, with the usage at the end', async () => {
    const events = named(await stream('/v1/messages', body));
    expect(events.map(([name]) => name)).toEqual([
      'message_start',
      'content_block_start',
      ...Array.from({ length: 4 }, () => 'content_block_delta'),
      'content_block_stop',
      'message_delta',
      'message_stop',
    ]);
    expect(events.every(([name, data]) => data.type === name)).toBe(true);
    expect(Object.keys(events[0]![1].message)).toEqual([
      ...['id', 'type', 'role', 'content', 'model', 'stop_reason', 'stop_sequence', 'usage'],
    ]);
    expect(events.at(-2)![1]).toMatchObject({
      delta: { stop_reason: 'max_tokens', stop_sequence: null },
      usage: { output_tokens: 4 },
    });
    const said = events.map(([, data]) => data.delta?.text ?? '').join('');
    expect(said).toBe((await json('/v1/messages', body)).content[0].text);
  });

  it('count tokens as the answer does', async () => {
    const counted = await call(test.engine, '/v1/messages/count_tokens', { body });
    const { input_tokens, context_management } = JSON.parse(counted.text);
    const { usage } = await json('/v1/messages', body);
    const { input_tokens: own, cache_creation_input_tokens: made } = usage;
    expect(input_tokens).toBe(own + made + usage.cache_read_input_tokens);
    expect(context_management).toEqual({ original_input_tokens: input_tokens });
  });

  it('call the tool that they must', async () => {
    const tools = [
      { name: 'look', input_schema: { type: 'object', properties: { at: { type: 'string' } } } },
    ];
    const asked = { ...body, max_tokens: 100, tools, tool_choice: { type: 'any' } };
    const answer = await json('/v1/messages', asked);
    expect(answer.content).toMatchObject([
      { type: 'tool_use', name: 'look', input: { at: 'sea' } },
    ]);
    expect(answer.stop_reason).toBe('tool_use');
    const events = named(await stream('/v1/messages', asked));
    const parts = events.map(([, data]) => data.delta?.partial_json ?? '').join('');
    expect(JSON.parse(parts)).toEqual({ at: 'sea' });
  });

  it("refuse in Anthropic's envelope, but for the form of the request", async () => {
    const unknown = await call(test.engine, '/v1/messages', { body: { ...body, model: 'nope' } });
    expect([unknown.status, unknown.text]).toEqual([
      404,
      '{"type":"error","error":{"type":"NotFoundError","message":"The model `nope` does not exist. Valid aliases: tiny-llama."}}',
    ]);
  });
});

describe('responses', () => {
  const body = { input: 'Say something about the sea.', max_output_tokens: 4 };

  it('are answered member by member as recorded, floats included', async () => {
    const { text } = await answered(test, body, '/v1/responses');
    const expected = recorded('responses.http').body;
    expect(shapeOf(JSON.parse(text))).toEqual(shapeOf(JSON.parse(expected)));
    for (const float of ['"temperature":1.0', '"top_p":1.0', '"presence_penalty":0.0']) {
      expect(text).toContain(float);
    }
  });

  it('are streamed as numbered events around the same response', async () => {
    const events = named(await stream('/v1/responses', body));
    expect(events.map(([name]) => name)).toEqual([
      'response.created',
      'response.in_progress',
      'response.output_item.added',
      'response.content_part.added',
      ...Array.from({ length: 4 }, () => 'response.output_text.delta'),
      'response.output_text.done',
      'response.content_part.done',
      'response.output_item.done',
      'response.completed',
    ]);
    expect(events.map(([, data]) => data.sequence_number)).toEqual(events.map((_, at) => at));
    expect(events[0]![1].response).toMatchObject({
      status: 'in_progress',
      output: [],
      usage: null,
    });
    const { response } = events.at(-1)![1];
    expect(shapeOf(response)).toEqual(shapeOf(JSON.parse(recorded('responses.http').body)));
    const deltas = events.map(([, data]) => data.delta ?? '').join('');
    expect(deltas).toBe(response.output[0].content[0].text);
  });
});

describe('extras', () => {
  it('give the request id back, and make one up where there is none', async () => {
    const given = await call(test.engine, '/v1/models', { headers: { 'x-request-id': 'mine' } });
    expect(given.headers['x-request-id']).toBe('mine');
    const made = await call(test.engine, '/health');
    expect(made.headers['x-request-id']).toMatch(/^[0-9a-f]{32}$/);
  });

  it('report the load in a header of whole answers, in both forms', async () => {
    const body = { messages: MESSAGES, max_tokens: 1 };
    const loadsSaid = (format: string): Promise<Answer> =>
      settled(
        test,
        call(test.engine, CHAT_PATH, {
          body,
          headers: { 'endpoint-load-metrics-format': format },
        }),
      );
    const text = await loadsSaid('TEXT');
    expect(text.headers['endpoint-load-metrics']).toBe(
      'TEXT named_metrics.num_requests_waiting=0.0, named_metrics.kv_cache_usage_perc=0.0',
    );
    const object = await loadsSaid('json');
    expect(object.headers['endpoint-load-metrics']).toBe(
      'JSON {"named_metrics": {"num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.0}}',
    );
  });

  it('tell where the time of a request went, in whole answers and the last chunk', async () => {
    const before = test;
    test = await startTestEngine({ vllm: { perRequestMetrics: true } });
    const body = { messages: MESSAGES, max_tokens: 3 };
    const { metrics } = await json(CHAT_PATH, body);
    expect(metrics).toMatchObject({ queue_time_ms: 0, speculative_decoding: null });
    for (const name of ['time_to_first_token_ms', 'mean_itl_ms', 'tokens_per_second']) {
      expect(metrics[name]).toBeGreaterThan(0);
    }
    const usage = { stream_options: { include_usage: true } };
    const last = JSON.parse(dataOf(await stream(CHAT_PATH, { ...body, ...usage })).at(-2)!);
    expect(Object.keys(last.metrics)).toEqual(Object.keys(metrics));
    await test.engine.close();
    test = before;
  });

  it('render a conversation as the tokens that /tokenize counts', async () => {
    const rendered = await call(test.engine, `${CHAT_PATH}/render`, {
      body: { messages: MESSAGES },
    });
    const { token_ids, stream: streamed } = JSON.parse(rendered.text);
    const counted = await call(test.engine, '/tokenize', { body: { messages: MESSAGES } });
    expect(token_ids).toEqual(JSON.parse(counted.text).tokens);
    expect(streamed).toBe(false);
    const other = await startTestEngine();
    const refused = await call(other.engine, `${CHAT_PATH}/render`, {
      body: { messages: MESSAGES },
    });
    const expected = recorded('render.http');
    expect([refused.status, refused.text]).toEqual([expected.status, expected.body]);
    await other.engine.close();
  });
});

/** As vLLM 0.32.0's own request models answer, run without an engine. */
const WORDS: readonly (readonly [string, object, string])[] = [
  [CHAT_PATH, { stream_options: {} }, 'Stream options can only be defined when `stream=True`.'],
  [CHAT_PATH, { tools: [] }, '`tools` must not be an empty array.'],
  [CHAT_PATH, { tool_choice: 'auto' }, 'When using `tool_choice`, `tools` must be set.'],
  [CHAT_PATH, { top_logprobs: 2 }, 'when using `top_logprobs`, `logprobs` must be set to true.'],
  [CHAT_PATH, { cache_salt: '' }, "Parameter 'cache_salt' must be a non-empty string if provided."],
  [
    CHAT_PATH,
    { max_tokens: 'x' },
    "1 validation error:\n  {'type': 'int_parsing', 'loc': 'body.max_tokens', 'msg': 'Input should be a valid integer, unable to parse string as an integer', 'input': 'x'}",
  ],
  [
    CHAT_PATH,
    { stream: 'maybe' },
    "1 validation error:\n  {'type': 'bool_parsing', 'loc': 'body.stream', 'msg': 'Input should be a valid boolean, unable to interpret input', 'input': 'maybe'}",
  ],
  [
    '/v1/completions',
    { prompt: 5 },
    "4 validation errors:\n  {'type': 'list_type', 'loc': 'body.prompt', 'msg': 'Input should be a valid list', 'input': '5'}",
  ],
  [
    '/v1/completions',
    { prompt: undefined },
    'Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)',
  ],
  [
    '/v1/messages',
    {},
    "2 validation errors:\n  {'type': 'missing', 'loc': 'body.model', 'msg': 'Field required', 'input': '<dict of 1 items>'}",
  ],
  [
    '/tokenize',
    { messages: undefined },
    "2 validation errors:\n  {'type': 'missing', 'loc': 'body.prompt', 'msg': 'Field required', 'input': '<dict of 0 items>'}",
  ],
];

describe('refusals', () => {
  it.each(WORDS)('of %s with %j are in the words of vLLM', async (path, more, words) => {
    const answer = await call(test.engine, path, { body: { messages: MESSAGES, ...more } });
    expect(answer.status).toBe(400);
    expect(JSON.parse(answer.text).error.message.slice(0, words.length)).toBe(words);
  });

  it('are none of texts that say a number or a truth', async () => {
    const body = { messages: MESSAGES, max_tokens: '3', temperature: '0.5', stream: 'false' };
    expect((await json(CHAT_PATH, body)).usage.completion_tokens).toBe(3);
  });

  it('say which flags a tool needs', async () => {
    const other = await startTestEngine({ vllm: { tools: false } });
    const tools = [{ type: 'function', function: { name: 'f' } }];
    const body = { messages: MESSAGES, tools };
    const auto = await call(other.engine, CHAT_PATH, { body });
    expect(JSON.parse(auto.text).error.message).toBe(
      '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    );
    const none = call(other.engine, CHAT_PATH, { body: { ...body, tool_choice: 'none' } });
    await expect.poll(() => other.engine.state().openRequests, { interval: 1 }).toBe(1);
    other.time.advance(60_000);
    expect((await none).status).toBe(200);
    await other.engine.close();
  });
});
