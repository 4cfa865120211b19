// What a request may ask of an answer: tools, formats, stops, seeds, probabilities.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { answered, CHAT_PATH, dataOf, startTestEngine, type TestEngine } from '../test-harness.ts';

/** An answer's body, looked into freely. */
type Json = ReturnType<typeof JSON.parse>;

const MESSAGES = [{ role: 'user', content: 'Say something about the sea, and of the sky.' }];

let test: TestEngine;

beforeAll(async () => {
  test = await startTestEngine();
});

afterAll(() => test.engine.close());

async function stream(path: string, body: object): Promise<string> {
  return (await answered(test, { ...body, stream: true }, path)).text;
}

async function json(path: string, body: object): Promise<Json> {
  return JSON.parse((await answered(test, body, path)).text);
}

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
    const { choices } = await json(CHAT_PATH, { ...body, tool_choice });
    const [{ message, finish_reason }] = choices;
    expect(message.content).toBe('');
    expect(message.tool_calls[0].function.name).toBe('weather');
    const given = JSON.parse(message.tool_calls[0].function.arguments);
    expect(given).toEqual({ city: 'Bergen', days: 2 });
    expect(finish_reason).toBe(finish);
    const events = dataOf(await stream(CHAT_PATH, { ...body, tool_choice }))
      .filter((data) => data !== '[DONE]')
      .map((data) => JSON.parse(data).choices[0]);
    const parts = events.flatMap(({ delta }) => delta.tool_calls ?? []);
    expect(JSON.parse(parts.map((part) => part.function.arguments).join(''))).toEqual(given);
    expect(parts.map((part) => part.function.name).filter(Boolean)).toEqual(['weather']);
    expect(events.at(-1).finish_reason).toBe(finish);
  });

  it('talk where the choice is theirs', async () => {
    const { choices } = await json(CHAT_PATH, { ...body, max_tokens: 3 });
    expect(choices[0].message.tool_calls).toBeUndefined();
    expect(choices[0].message.content).not.toBe('');
  });

  it('answer in JSON of the schema, and find it in the cache as their own words', async () => {
    // Longer than a few blocks, so that its own tokens are looked for.
    const flags = Array.from({ length: 40 }, (_, at) => `flag${at}`);
    const properties = {
      ...Object.fromEntries(flags.map((name) => [name, { type: 'boolean' }])),
      names: { type: 'array', items: { type: 'string' } },
    };
    const schema = { type: 'object', properties };
    const response_format = { type: 'json_schema', json_schema: { name: 'x', schema } };
    const long = [{ role: 'user', content: 'Tell me of the sea. '.repeat(40) }];
    const first = await json(CHAT_PATH, { messages: long, response_format });
    const { content } = first.choices[0].message;
    const told = Object.fromEntries(flags.map((name) => [name, true]));
    expect(JSON.parse(content)).toEqual({ ...told, names: ['sea'] });
    const next = [...long, { role: 'assistant', content }, { role: 'user', content: 'And?' }];
    const { usage } = await json(CHAT_PATH, { messages: next, max_tokens: 1 });
    const before = first.usage.prompt_tokens + first.usage.completion_tokens;
    expect(usage.prompt_tokens_details.cached_tokens).toBe(Math.floor((before - 1) / 32) * 32);
  });

  it('are cut by a limit like any answer', async () => {
    const cut = { ...body, tool_choice: 'required', max_tokens: 2 };
    const { choices, usage } = await json(CHAT_PATH, cut);
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
    const { content } = (await json(CHAT_PATH, chat)).choices[0].logprobs;
    expect(content).toHaveLength(2);
    expect(Object.keys(content[0])).toEqual(['token', 'logprob', 'bytes', 'top_logprobs']);
  });

  it('begins every answer of several with its role before any says a word', async () => {
    const events = dataOf(await stream(CHAT_PATH, { messages: MESSAGES, n: 2, max_tokens: 2 }));
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
