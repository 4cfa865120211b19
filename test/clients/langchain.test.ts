// LangChain for JavaScript, with its chat model and embeddings for OpenAI.

import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { answerOf } from '../e2e/scripted-engine.ts';
import { outcomeOf, type Asked, type Library, type Shown } from './library.ts';
import { openRegion } from './file-region.ts';
import { KEY, MODEL } from './region.ts';
import { keepsTheRules } from './rules.ts';
import { noted, NUMBERS, numbers, stopped, words } from './scripts.ts';

const region = openRegion();

const REQUEST_ID = /^req-[0-9a-f]+$/;

function chat({ url, model, key = KEY, maxRetries, maxTokens, timeoutMs }: Asked): ChatOpenAI {
  return new ChatOpenAI({
    model,
    apiKey: key,
    configuration: { baseURL: `${url}/v1` },
    ...(maxRetries === undefined ? {} : { maxRetries }),
    ...(maxTokens === undefined ? {} : { maxTokens }),
    ...(timeoutMs === undefined ? {} : { timeout: timeoutMs }),
  });
}
const options = ({ signal }: Asked) => (signal === undefined ? {} : { signal });

function textOf(content: unknown): string {
  if (typeof content !== 'string') throw new Error(`no text: ${JSON.stringify(content)}`);
  return content;
}

const said = (kind: string, status: number | undefined, code: unknown): Partial<Shown> => ({
  ...{ kind, status, code, requestId: expect.stringMatching(REQUEST_ID) as string },
});

interface SdkError extends Error {
  readonly status?: number;
  readonly code?: unknown;
  readonly requestID?: string;
}

const library: Library = {
  name: 'langchain',
  async *stream(asked) {
    const stream = await chat(asked).stream(asked.prompt, options(asked));
    for await (const { content } of stream) yield textOf(content);
  },
  async whole(asked) {
    return textOf((await chat(asked).invoke(asked.prompt, options(asked))).content);
  },
  shown(error) {
    if (!(error instanceof Error)) throw new Error(`no error: ${String(error)}`);
    // A prompt too long is an error of its own, around that of the official library.
    const sdk = (error.name === 'ContextOverflowError' ? error.cause : error) as SdkError;
    const { status, code, requestID } = sdk;
    const kind = error.name === 'Error' ? error.constructor.name : error.name;
    return { kind, status, code, message: error.message, requestId: requestID };
  },
  // It waits by itself: a second or two, then twice as long.
  waitsAsTold: false,
  shows: {
    invalidKey: said('AuthenticationError', 401, 'invalid_api_key'),
    noModel: said('NotFoundError', 404, 'model_not_found'),
    tooLong: said('ContextOverflowError', 400, 'context_length_exceeded'),
    engineRefuses: said('ContextOverflowError', 400, 400),
    saturated: said('RateLimitError', 429, 'saturated'),
    noReplica: said('InternalServerError', 503, 'no_replica'),
    cut: said('APIError', undefined, 'stream_interrupted'),
    late: said('APIError', undefined, 'upstream_failed'),
    timeout: { kind: 'TimeoutError' },
  },
};

describe('langchain', () => {
  keepsTheRules(library, region);

  const asked = (prompt: string, more: Partial<Asked> = {}): Asked => ({
    ...{ url: region().fleet.clients, model: MODEL, prompt, maxTokens: 24, ...more },
  });

  test('usage comes with a stream and with a whole answer', async () => {
    const stream = await chat(asked('')).stream(region().prompt(words));
    const usages: unknown[] = [];
    for await (const { usage_metadata: usage } of stream)
      if (usage !== undefined) usages.push(usage);
    expect(usages).toEqual([
      expect.objectContaining({
        input_tokens: 100,
        output_tokens: 3,
        input_token_details: expect.objectContaining({ cache_read: 64 }) as object,
      }),
    ]);
    const whole = await chat(asked('')).invoke('hello');
    expect(whole.usage_metadata).toMatchObject({ output_tokens: 24 });
    expect(whole.response_metadata['finish_reason']).toBe('length');
  });

  test('an answer that is streamed inside `invoke` and is cut raises too', async () => {
    const tap = await region().tap();
    const model = new ChatOpenAI({
      model: MODEL,
      apiKey: KEY,
      streaming: true,
      configuration: { baseURL: `${tap.url}/v1` },
    });
    const answer = outcomeOf(
      (async function* () {
        yield textOf((await model.invoke(region().prompt(stopped))).content);
      })(),
    );
    await expect.poll(() => tap.answered()).toContain('two ');
    tap.cut('reset');
    expect((await answer).error).toBeInstanceOf(Error);
    await region().whenIdle();
  });

  test('a tool is called, whole and in pieces', async () => {
    const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
    const weather = {
      type: 'function' as const,
      function: { name: 'weather', parameters: schema },
    };
    const bound = chat(asked('')).bindTools([weather], { tool_choice: 'required' });
    const [whole] = (await bound.invoke('hello')).tool_calls ?? [];
    expect(whole).toMatchObject({ name: 'weather', args: { city: expect.any(String) } });
    let streamed = null;
    for await (const piece of await bound.stream('hello')) {
      streamed = streamed === null ? piece : streamed.concat(piece);
    }
    expect(streamed?.tool_calls?.[0]).toMatchObject({ name: 'weather', args: whole?.args });
  });

  test('structured output passes as it was asked for, and parses', async () => {
    const { script, received } = noted(answerOf('{"city":"Paris"}'));
    const prompt = region().prompt(script);
    const schema = z.object({ city: z.string() });
    const structured = chat(asked('')).withStructuredOutput(schema, { method: 'jsonSchema' });
    expect(await structured.invoke(prompt)).toEqual({ city: 'Paris' });
    const { body } = await received;
    expect(JSON.parse(body.toString())).toMatchObject({
      response_format: { type: 'json_schema', json_schema: { schema: { required: ['city'] } } },
    });
    expect(await structured.invoke('hello')).toEqual({ city: expect.any(String) });
  });

  test('embeddings come as numbers', async () => {
    const prompt = region().prompt(numbers);
    const embeddings = new OpenAIEmbeddings({
      model: MODEL,
      apiKey: KEY,
      configuration: { baseURL: `${region().fleet.clients}/v1` },
    });
    expect(await embeddings.embedQuery(prompt)).toEqual(NUMBERS);
  });
});
