// The AI SDK with its provider for OpenAI-compatible servers.

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, embed, generateText, Output, RetryError, streamText, tool } from 'ai';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { answerOf } from '../e2e/scripted-engine.ts';
import { failureOf, outcomeOf, type Asked, type Library, type Shown } from './library.ts';
import { openRegion } from './file-region.ts';
import { KEY, MODEL } from './region.ts';
import { keepsTheRules } from './rules.ts';
import { CUTS, cutShort, noted, NUMBERS, numbers, words } from './scripts.ts';

const region = openRegion();

const REQUEST_ID = /^req-[0-9a-f]+$/;

function providerOf(url: string, key = KEY) {
  return createOpenAICompatible({
    name: 'spillway',
    baseURL: `${url}/v1`,
    apiKey: key,
    includeUsage: true,
    supportsStructuredOutputs: true,
  });
}

function callOf({ url, model, prompt, key, maxRetries, maxTokens, signal, timeoutMs }: Asked) {
  return {
    model: providerOf(url, key)(model),
    prompt,
    ...(maxRetries === undefined ? {} : { maxRetries }),
    ...(maxTokens === undefined ? {} : { maxOutputTokens: maxTokens }),
    ...(signal === undefined ? {} : { abortSignal: signal }),
    ...(timeoutMs === undefined ? {} : { timeout: timeoutMs }),
  };
}

const said = (status: number, code: unknown): Partial<Shown> => ({
  ...{ kind: 'AI_APICallError', status, code },
  requestId: expect.stringMatching(REQUEST_ID) as string,
});
/** Of a connection that was cut; the error event before it went to `onError`. */
const CUT: Partial<Shown> = {
  kind: 'AI_APICallError',
  status: 200,
  message: 'Failed to process successful response',
};

const library: Library = {
  name: 'ai',
  async *stream(asked) {
    yield* streamText({ ...callOf(asked), onError: () => undefined }).textStream;
  },
  whole: async (asked) => (await generateText(callOf(asked))).text,
  shown(error) {
    const last = RetryError.isInstance(error) ? error.lastError : error;
    if (!(last instanceof Error)) throw new Error(`no error: ${String(last)}`);
    if (!APICallError.isInstance(last)) {
      const { name, message } = last;
      return { kind: name, status: undefined, code: undefined, message, requestId: undefined };
    }
    const data = last.data as { error?: { code?: unknown } } | undefined;
    return {
      kind: last.name,
      status: last.statusCode,
      code: data?.error?.code,
      message: last.message,
      requestId: last.responseHeaders?.['x-request-id'],
    };
  },
  waitsAsTold: true,
  shows: {
    invalidKey: said(401, 'invalid_api_key'),
    noModel: said(404, 'model_not_found'),
    tooLong: said(400, 'context_length_exceeded'),
    engineRefuses: said(400, 400),
    saturated: said(429, 'saturated'),
    noReplica: said(503, 'no_replica'),
    cut: CUT,
    late: CUT,
    timeout: { kind: 'TimeoutError' },
  },
};

describe('ai', () => {
  keepsTheRules(library, region);

  const call = (prompt: string) => ({
    ...callOf({ url: region().fleet.clients, model: MODEL, prompt, maxTokens: 24 }),
  });

  test.each(CUTS)('%s of the engine has its code in `onError`, and no text', async (_name, end) => {
    const told: unknown[] = [];
    const result = streamText({
      ...call(region().prompt(cutShort(end))),
      onError: ({ error }) => void told.push(error),
    });
    expect((await outcomeOf(result.textStream)).error).toBeInstanceOf(Error);
    expect(told).toEqual([expect.objectContaining({ code: 'stream_interrupted' })]);
    await expect(result.text).rejects.toThrow();
    await expect(result.finishReason).rejects.toThrow();
  });

  test('a refusal ends the text of a stream, and is told to `onError` alone', async () => {
    const told: unknown[] = [];
    const asked = { url: region().fleet.clients, model: 'none', prompt: 'hello' };
    const result = streamText({ ...callOf(asked), onError: ({ error }) => void told.push(error) });
    expect(await outcomeOf(result.textStream)).toEqual({ pieces: [], error: null });
    expect(told.map((error) => library.shown(error).code)).toEqual(['model_not_found']);
    await expect(result.text).rejects.toThrow('No output generated');
  });

  test('usage comes with a stream and with a whole answer', async () => {
    const streamed = streamText(call(region().prompt(words)));
    await streamed.consumeStream();
    expect(await streamed.finishReason).toBe('stop');
    expect(await streamed.usage).toMatchObject({ inputTokens: 100, outputTokens: 3 });
    const { usage, finishReason } = await generateText(call('hello'));
    expect(usage.outputTokens).toBe(24);
    expect(usage.inputTokens).toBeGreaterThan(0);
    expect(finishReason).toBe('length');
  });

  test('a tool is called, whole and in pieces', async () => {
    const weather = tool({
      description: 'the weather',
      inputSchema: z.object({ city: z.string() }),
      execute: ({ city }) => `rain in ${city}`,
    });
    const asked = { ...call('hello'), tools: { weather }, toolChoice: 'required' as const };
    const [whole] = (await generateText(asked)).toolCalls;
    expect(whole).toMatchObject({ toolName: 'weather', input: { city: expect.any(String) } });
    const [streamed] = await streamText(asked).toolCalls;
    expect(streamed).toMatchObject({ toolName: 'weather', input: whole?.input });
  });

  test('structured output passes as it was asked for, and parses', async () => {
    const { script, received } = noted(answerOf('{"city":"Paris"}'));
    const prompt = region().prompt(script);
    const output = Output.object({ schema: z.object({ city: z.string() }) });
    expect((await generateText({ ...call(prompt), output })).output).toEqual({ city: 'Paris' });
    const { body } = await received;
    expect(JSON.parse(body.toString())).toMatchObject({
      response_format: { type: 'json_schema', json_schema: { schema: { required: ['city'] } } },
    });
    const real = await generateText({ ...call('hello'), output });
    expect(real.output).toEqual({ city: expect.any(String) });
  });

  test('embeddings come as numbers', async () => {
    const value = region().prompt(numbers);
    const model = providerOf(region().fleet.clients).embeddingModel(MODEL);
    const { embedding, usage } = await embed({ model, value });
    expect([embedding, usage.tokens]).toEqual([NUMBERS, 3]);
  });

  test('a request is tried three times in all', async () => {
    const tap = await region().tap();
    const prompt = region().prompt((_received, response) => void response.writeHead(500).end());
    const error = await failureOf(library.whole({ url: tap.url, model: MODEL, prompt }));
    expect(library.shown(error)).toMatchObject({ status: 502, code: 'upstream_failed' });
    expect(tap.attempts).toHaveLength(3);
  });
});
