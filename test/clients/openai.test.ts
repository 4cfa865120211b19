// The official JavaScript library, its current major and the one before.

import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import OpenAI6 from 'openai-6';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { answerOf } from '../e2e/scripted-engine.ts';
import type { Asked, Library, Shown } from './library.ts';
import { openRegion } from './file-region.ts';
import { KEY, MODEL } from './region.ts';
import { keepsTheRules } from './rules.ts';
import { noted, NUMBERS, numbers, words } from './scripts.ts';

const region = openRegion();

const MAJORS = [
  ['openai 7', OpenAI],
  ['openai 6', OpenAI6 as unknown as typeof OpenAI],
] as const;

const REQUEST_ID = /^req-[0-9a-f]+$/;

function libraryOf(name: string, Client: typeof OpenAI): Library {
  const client = ({ url, key = KEY, maxRetries, timeoutMs }: Asked): OpenAI =>
    new Client({
      baseURL: `${url}/v1`,
      apiKey: key,
      ...(maxRetries === undefined ? {} : { maxRetries }),
      ...(timeoutMs === undefined ? {} : { timeout: timeoutMs }),
    });
  const body = ({ model, prompt, maxTokens }: Asked) => ({
    model,
    messages: [{ role: 'user' as const, content: prompt }],
    ...(maxTokens === undefined ? {} : { max_tokens: maxTokens }),
  });
  const options = ({ signal }: Asked) => (signal === undefined ? {} : { signal });
  const said = (kind: string, status: number | undefined, code: unknown): Partial<Shown> => ({
    ...{ kind, status, code, requestId: expect.stringMatching(REQUEST_ID) as string },
  });
  return {
    name,
    async *stream(asked) {
      const stream = await client(asked).chat.completions.create(
        { ...body(asked), stream: true },
        options(asked),
      );
      for await (const { choices } of stream) yield choices[0]?.delta.content ?? '';
    },
    async whole(asked) {
      const answer = await client(asked).chat.completions.create(body(asked), options(asked));
      return answer.choices[0]?.message.content ?? '';
    },
    shown(error) {
      if (!(error instanceof Client.APIError)) throw error;
      const { status, code, message, requestID } = error;
      return { kind: error.constructor.name, status, code, message, requestId: requestID };
    },
    waitsAsTold: true,
    shows: {
      invalidKey: said('AuthenticationError', 401, 'invalid_api_key'),
      noModel: said('NotFoundError', 404, 'model_not_found'),
      tooLong: said('BadRequestError', 400, 'context_length_exceeded'),
      // As vLLM has it: a number.
      engineRefuses: said('BadRequestError', 400, 400),
      saturated: said('RateLimitError', 429, 'saturated'),
      noReplica: said('InternalServerError', 503, 'no_replica'),
      cut: said('APIError', undefined, 'stream_interrupted'),
      late: said('APIError', undefined, 'upstream_failed'),
      timeout: { kind: 'APIConnectionTimeoutError' },
    },
  };
}

const WEATHER = z.object({ city: z.string(), degrees: z.number() });
const TOOL = {
  type: 'function' as const,
  function: {
    name: 'weather',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string' } },
      required: ['city'],
    },
  },
};

describe.each(MAJORS)('%s', (name, Client) => {
  keepsTheRules(libraryOf(name, Client), region);

  const client = (): OpenAI => new Client({ baseURL: `${region().fleet.clients}/v1`, apiKey: KEY });
  const ask = (content: string) => ({
    model: MODEL,
    messages: [{ role: 'user' as const, content }],
    max_tokens: 24,
  });

  test('usage comes with a stream where it is asked for, and only there', async () => {
    const read = async (changes: object) => {
      const chunks: OpenAI.ChatCompletionChunk[] = [];
      const prompt = region().prompt(words);
      const stream = await client().chat.completions.create({
        ...ask(prompt),
        stream: true,
        ...changes,
      });
      for await (const chunk of stream) chunks.push(chunk);
      return chunks;
    };
    const plain = await read({});
    expect(plain.map(({ choices }) => choices.length)).toEqual([1, 1, 1, 1]);
    expect(plain.at(-1)?.choices[0]?.finish_reason).toBe('stop');
    const asked = await read({ stream_options: { include_usage: true } });
    expect(asked.map(({ choices }) => choices.length)).toEqual([1, 1, 1, 1, 0]);
    expect(asked.at(-1)?.usage).toMatchObject({
      prompt_tokens: 100,
      completion_tokens: 3,
      prompt_tokens_details: { cached_tokens: 64 },
    });
  });

  test('the helper for streams ends with the whole completion, usage included', async () => {
    const stream = client().chat.completions.stream({
      ...ask('hello'),
      stream_options: { include_usage: true },
    });
    const final = await stream.finalChatCompletion();
    expect(final.choices[0]?.finish_reason).toBe('length');
    expect(final.choices[0]?.message.content).not.toBe('');
    expect(final.usage?.completion_tokens).toBe(24);
  });

  test('a tool is called, whole and in pieces', async () => {
    const body = { ...ask('hello'), tools: [TOOL], tool_choice: 'required' as const };
    const whole = await client().chat.completions.create(body);
    const [call] = whole.choices[0]?.message.tool_calls ?? [];
    expect(call).toMatchObject({ type: 'function', function: { name: 'weather' } });
    const stream = client().chat.completions.stream(body);
    const pieces = new Set<string>();
    stream.on('chunk', ({ choices }) => {
      for (const { function: part } of choices[0]?.delta.tool_calls ?? []) {
        pieces.add(part?.arguments ?? '');
      }
    });
    const final = await stream.finalChatCompletion();
    const [streamed] = final.choices[0]?.message.tool_calls ?? [];
    expect(pieces.size).toBeGreaterThan(0);
    expect(streamed).toMatchObject({
      function: call?.type === 'function' ? call.function : {},
    });
  });

  test('structured output passes as it was asked for, and parses', async () => {
    const { script, received } = noted(answerOf('{"city":"Paris","degrees":21.5}'));
    const prompt = region().prompt(script);
    const format = zodResponseFormat(WEATHER, 'weather');
    const { parsed } =
      (await client().chat.completions.parse({ ...ask(prompt), response_format: format }))
        .choices[0]?.message ?? {};
    expect(parsed).toEqual({ city: 'Paris', degrees: 21.5 });
    const { body } = await received;
    expect((JSON.parse(body.toString()) as { response_format: unknown }).response_format).toEqual(
      JSON.parse(JSON.stringify(format)),
    );
    const real = await client().chat.completions.parse({
      ...ask('hello'),
      response_format: format,
    });
    expect(WEATHER.safeParse(real.choices[0]?.message.parsed).success).toBe(true);
  });

  test('embeddings come as numbers, although the library asks for base64', async () => {
    const prompt = region().prompt(numbers);
    const { data, usage } = await client().embeddings.create({ model: MODEL, input: prompt });
    expect(data[0]?.embedding).toEqual(NUMBERS);
    expect(usage.prompt_tokens).toBe(3);
  });

  test('models are listed and found', async () => {
    const ids: string[] = [];
    for await (const model of client().models.list()) ids.push(model.id);
    expect(ids).toContain(MODEL);
    expect(await client().models.retrieve(MODEL)).toMatchObject({ id: MODEL, object: 'model' });
    const missing = client().models.retrieve('none');
    await expect(missing).rejects.toMatchObject({ status: 404, code: 'model_not_found' });
  });

  test('a stream left by `break` is over for the engine', async () => {
    const stream = await client().chat.completions.create({
      ...ask('Go on.'),
      max_tokens: 20_000,
      stream: true,
    });
    for await (const _ of stream) break;
    await region().whenIdle();
  });
});

test('a request is tried three times in all, and its tries are counted', async () => {
  const tap = await region().tap();
  const client = new OpenAI({ baseURL: `${tap.url}/v1`, apiKey: KEY });
  const failing = region().prompt((_received, response) => void response.writeHead(500).end());
  const messages = [{ role: 'user' as const, content: failing }];
  await expect(client.chat.completions.create({ model: MODEL, messages })).rejects.toMatchObject({
    status: 502,
    code: 'upstream_failed',
  });
  const counts = tap.attempts.map(({ head }) => /x-stainless-retry-count: (\d)/i.exec(head)?.[1]);
  expect(counts).toEqual(['0', '1', '2']);
});
