// What vLLM's protocols say and how requests are taken, against recordings and the words of its own validation.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import {
  call,
  dataOf,
  open,
  readText,
  recorded,
  shapeOf,
  startTestEngine,
  type Answer,
  type TestEngine,
} from '../test-harness.ts';

/** An answer's body, looked into freely. */
type Json = ReturnType<typeof JSON.parse>;

const MESSAGES = [{ role: 'user', content: 'Say something about the sea, and of the sky.' }];
const CHAT = '/v1/chat/completions';

let test: TestEngine;

beforeAll(async () => {
  test = await startTestEngine({ vllm: { scaleOut: true, requestIdHeaders: true } });
});

afterAll(() => test.engine.close());

async function stream(path: string, body: object): Promise<string> {
  const response = await open(test.engine, path, { body: { ...body, stream: true } });
  test.time.advance(60_000);
  return readText(response);
}

async function whole(path: string, body: object, headers = {}): Promise<Answer> {
  const answer = call(test.engine, path, { body, headers });
  await expect.poll(() => test.engine.state().openRequests, { interval: 1 }).toBeGreaterThan(0);
  test.time.advance(60_000);
  return answer;
}

async function json(path: string, body: object): Promise<Json> {
  return JSON.parse((await whole(path, body)).text);
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
    const { text } = await whole('/v1/responses', body);
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

describe('tools and formats', () => {
  const tools = [
    {
      type: 'function',
      function: {
        name: 'weather',
        parameters: {
          type: 'object',
          properties: { city: { enum: ['Bergen', 'Oslo'] }, days: { type: 'integer', minimum: 2 } },
        },
      },
    },
  ];
  const body = { messages: MESSAGES, tools, max_tokens: 200 };

  it.each([
    ['a named one', { type: 'function', function: { name: 'weather' } }, 'stop'],
    ['one that is required', 'required', 'tool_calls'],
  ])('call %s with arguments of its schema, streamed or not', async (_, tool_choice, finish) => {
    const { choices } = await json(CHAT, { ...body, tool_choice });
    const [{ message, finish_reason }] = choices;
    expect(message.content).toBe('');
    expect(message.tool_calls[0].function.name).toBe('weather');
    const given = JSON.parse(message.tool_calls[0].function.arguments);
    expect(given).toEqual({ city: 'Bergen', days: 2 });
    expect(finish_reason).toBe(finish);
    const events = dataOf(await stream(CHAT, { ...body, tool_choice }))
      .filter((data) => data !== '[DONE]')
      .map((data) => JSON.parse(data).choices[0]);
    const parts = events.flatMap(({ delta }) => delta.tool_calls ?? []);
    expect(JSON.parse(parts.map((part) => part.function.arguments).join(''))).toEqual(given);
    expect(parts.map((part) => part.function.name).filter(Boolean)).toEqual(['weather']);
    expect(events.at(-1).finish_reason).toBe(finish);
  });

  it('talk where the choice is theirs', async () => {
    const { choices } = await json(CHAT, { ...body, max_tokens: 3 });
    expect(choices[0].message.tool_calls).toBeUndefined();
    expect(choices[0].message.content).not.toBe('');
  });

  it('answer in JSON of the schema, and find it in the cache as their own words', async () => {
    const schema = {
      type: 'object',
      properties: { ok: { type: 'boolean' }, names: { type: 'array', items: { type: 'string' } } },
    };
    const response_format = { type: 'json_schema', json_schema: { name: 'x', schema } };
    const long = [{ role: 'user', content: 'Tell me of the sea. '.repeat(40) }];
    const first = await json(CHAT, { messages: long, response_format });
    const { content } = first.choices[0].message;
    expect(JSON.parse(content)).toEqual({ ok: true, names: ['sea'] });
    const next = [...long, { role: 'assistant', content }, { role: 'user', content: 'And?' }];
    const { usage } = await json(CHAT, { messages: next, max_tokens: 1 });
    const before = first.usage.prompt_tokens + first.usage.completion_tokens;
    expect(usage.prompt_tokens_details.cached_tokens).toBe(Math.floor((before - 1) / 32) * 32);
  });

  it('are cut by a limit like any answer', async () => {
    const cut = { ...body, tool_choice: 'required', max_tokens: 2 };
    const { choices, usage } = await json(CHAT, cut);
    expect([choices[0].finish_reason, usage.completion_tokens]).toEqual(['length', 2]);
  });
});

describe('sampling', () => {
  it('stops before a stop string, tells which, and holds back what might become one', async () => {
    const full = (await json('/v1/completions', { prompt: 'The sea', max_tokens: 20 })).choices[0];
    const words = full.text.trim().split(' ') as string[];
    const stop = `${words[8]} ${words[9]}`;
    const body = { prompt: 'The sea', max_tokens: 20, stop: ['never said', stop] };
    const { choices, usage } = await json('/v1/completions', body);
    const [{ text, finish_reason, stop_reason }] = choices;
    expect([finish_reason, stop_reason]).toEqual(['stop', stop]);
    expect(text).toBe(full.text.slice(0, full.text.indexOf(stop)));
    expect(usage.completion_tokens).toBeLessThan(20);
    const streamed = dataOf(await stream('/v1/completions', body)).filter((at) => at !== '[DONE]');
    const pieces = streamed.map((data) => JSON.parse(data).choices[0].text as string);
    expect(pieces.join('')).toBe(text);
    const kept = await json('/v1/completions', { ...body, include_stop_str_in_output: true });
    expect(kept.choices[0].text).toBe(text + stop);
  });

  it('goes on past its own end where it must', async () => {
    const own = await json('/v1/completions', { prompt: 'The sea', max_tokens: null });
    const { completion_tokens } = own.usage;
    expect(own.choices[0].finish_reason).toBe('stop');
    const more = { prompt: 'The sea', max_tokens: null, min_tokens: completion_tokens + 5 };
    expect((await json('/v1/completions', more)).usage.completion_tokens).toBe(
      completion_tokens + 6,
    );
  });

  it('gives equal seeds equal answers and others others', async () => {
    const said = async (seed?: number): Promise<string> =>
      (await json('/v1/completions', { prompt: 'The sea', max_tokens: 8, seed })).choices[0].text;
    expect(await said(1)).toBe(await said(1));
    expect(new Set([await said(), await said(1), await said(2)]).size).toBe(3);
  });

  it('tells probabilities, token ids and an echo where they are asked for', async () => {
    const body = { prompt: 'The sea', max_tokens: 2, logprobs: 2, echo: true };
    const ids = { return_token_ids: true };
    const [choice] = (await json('/v1/completions', { ...body, ...ids })).choices;
    expect(choice.text.startsWith('The sea')).toBe(true);
    expect(choice.token_ids).toHaveLength(2);
    expect(choice.prompt_token_ids).toHaveLength(3);
    expect(Object.keys(choice.logprobs)).toEqual([
      ...['text_offset', 'token_logprobs', 'tokens', 'top_logprobs'],
    ]);
    expect(Object.keys(choice.logprobs.top_logprobs[0])).toHaveLength(2);
    const chat = { messages: MESSAGES, max_tokens: 2, logprobs: true, top_logprobs: 1 };
    const { content } = (await json(CHAT, chat)).choices[0].logprobs;
    expect(content).toHaveLength(2);
    expect(Object.keys(content[0])).toEqual(['token', 'logprob', 'bytes', 'top_logprobs']);
  });

  it('begins every answer of several with its role before any says a word', async () => {
    const events = dataOf(await stream(CHAT, { messages: MESSAGES, n: 2, max_tokens: 2 }));
    const deltas = events
      .filter((data) => data !== '[DONE]')
      .map((data) => JSON.parse(data).choices[0]);
    expect(deltas.slice(0, 2).map(({ index, delta }) => [index, delta.role])).toEqual([
      [0, 'assistant'],
      [1, 'assistant'],
    ]);
    expect(deltas.filter(({ finish_reason }) => finish_reason !== null)).toHaveLength(2);
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
    const text = await whole(CHAT, body, { 'endpoint-load-metrics-format': 'TEXT' });
    expect(text.headers['endpoint-load-metrics']).toBe(
      'TEXT named_metrics.num_requests_waiting=0.0, named_metrics.kv_cache_usage_perc=0.0',
    );
    const object = await whole(CHAT, body, { 'endpoint-load-metrics-format': 'json' });
    expect(object.headers['endpoint-load-metrics']).toBe(
      'JSON {"named_metrics": {"num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.0}}',
    );
  });

  it('tell where the time of a request went, in whole answers and the last chunk', async () => {
    const before = test;
    test = await startTestEngine({ vllm: { perRequestMetrics: true } });
    const body = { messages: MESSAGES, max_tokens: 3 };
    const { metrics } = await json(CHAT, body);
    expect(metrics).toMatchObject({ queue_time_ms: 0, speculative_decoding: null });
    for (const name of ['time_to_first_token_ms', 'mean_itl_ms', 'tokens_per_second']) {
      expect(metrics[name]).toBeGreaterThan(0);
    }
    const usage = { stream_options: { include_usage: true } };
    const last = JSON.parse(dataOf(await stream(CHAT, { ...body, ...usage })).at(-2)!);
    expect(Object.keys(last.metrics)).toEqual(Object.keys(metrics));
    await test.engine.close();
    test = before;
  });

  it('render a conversation as the tokens that /tokenize counts', async () => {
    const rendered = await call(test.engine, `${CHAT}/render`, { body: { messages: MESSAGES } });
    const { token_ids, stream: streamed } = JSON.parse(rendered.text);
    const counted = await call(test.engine, '/tokenize', { body: { messages: MESSAGES } });
    expect(token_ids).toEqual(JSON.parse(counted.text).tokens);
    expect(streamed).toBe(false);
    const other = await startTestEngine();
    const refused = await call(other.engine, `${CHAT}/render`, { body: { messages: MESSAGES } });
    const expected = recorded('render.http');
    expect([refused.status, refused.text]).toEqual([expected.status, expected.body]);
    await other.engine.close();
  });
});

/** As vLLM 0.32.0's own request models answer, run without an engine. */
const WORDS: readonly (readonly [string, object, string])[] = [
  [CHAT, { stream_options: {} }, 'Stream options can only be defined when `stream=True`.'],
  [CHAT, { tools: [] }, '`tools` must not be an empty array.'],
  [CHAT, { tool_choice: 'auto' }, 'When using `tool_choice`, `tools` must be set.'],
  [CHAT, { top_logprobs: 2 }, 'when using `top_logprobs`, `logprobs` must be set to true.'],
  [CHAT, { cache_salt: '' }, "Parameter 'cache_salt' must be a non-empty string if provided."],
  [
    CHAT,
    { max_tokens: 'x' },
    "1 validation error:\n  {'type': 'int_parsing', 'loc': 'body.max_tokens', 'msg': 'Input should be a valid integer, unable to parse string as an integer', 'input': 'x'}",
  ],
  [
    CHAT,
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

  it('say which flags a tool needs', async () => {
    const other = await startTestEngine({ vllm: { tools: false } });
    const tools = [{ type: 'function', function: { name: 'f' } }];
    const body = { messages: MESSAGES, tools };
    const auto = await call(other.engine, CHAT, { body });
    expect(JSON.parse(auto.text).error.message).toBe(
      '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    );
    const none = call(other.engine, CHAT, { body: { ...body, tool_choice: 'none' } });
    await expect.poll(() => other.engine.state().openRequests, { interval: 1 }).toBe(1);
    other.time.advance(60_000);
    expect((await none).status).toBe(200);
    await other.engine.close();
  });
});
