// The rest of what clients use, with the official SDK: embeddings, rerank, scores, tokenising, models, aliases, timing and
// explanations, through the real data path to scripted engines.

import OpenAI from 'openai';
import { request } from 'undici';
import { describe, expect, test } from 'vitest';
import { openGateways } from './gateways.ts';
import {
  answerOf,
  statusOf,
  streamOf,
  type Script,
  type ScriptedEngine,
} from './scripted-engine.ts';
import type { Harness } from './shell-harness.ts';
import { until } from './until.ts';

const { engineWith, gateway } = openGateways();
const client = (harness: Harness) =>
  new OpenAI({ baseURL: `${harness.url}/v1`, apiKey: 'client-key', maxRetries: 0 });

function post(harness: Harness, path: string, body: unknown, headers = {}) {
  return request(`${harness.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
}
const json = (value: unknown): Script => statusOf(200, JSON.stringify(value));
const bodyOf = (engine: ScriptedEngine, k = 0) =>
  JSON.parse(String(engine.received[k]?.body)) as Record<string, unknown>;

/** As vLLM answers: each input's length and place, as floats or in base64 where asked for. */
const embeddings: Script = ({ body }, response) => {
  const {
    input,
    encoding_format: format,
    model,
  } = JSON.parse(String(body)) as {
    input: string | string[];
    encoding_format?: string;
    model: string;
  };
  const data = [input].flat().map((text, index) => {
    const vector = new Float32Array([String(text).length, index]);
    const base64 = Buffer.from(vector.buffer).toString('base64');
    return { object: 'embedding', index, embedding: format === 'base64' ? base64 : [...vector] };
  });
  const usage = { prompt_tokens: 9, total_tokens: 9, completion_tokens: 0 };
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ id: 'e', object: 'list', created: 1, model, data, usage }));
};

describe('embeddings', () => {
  test('pass with the SDK, which asks for base64 of its own accord', async () => {
    const engine = await engineWith(embeddings);
    const harness = await gateway([engine]);
    const { data, response } = await client(harness)
      .embeddings.create({ model: 'm', input: ['abc', 'de'] })
      .withResponse();
    expect(data.data.map(({ embedding }) => embedding)).toEqual([
      [3, 0],
      [2, 1],
    ]);
    expect(data.usage.prompt_tokens).toBe(9);
    expect(bodyOf(engine)['encoding_format']).toBe('base64');
    expect(engine.received[0]?.path).toBe('/v1/embeddings');
    expect(engine.received[0]?.headers['authorization']).toBeUndefined();
    expect(response.headers.get('x-spillway-replica')).toBe(engine.host);
    expect(response.headers.get('server-timing')).toMatch(/engine;dur=[\d.]+, ttft;dur=[\d.]+$/);
    await until(() => harness.lines.length === 1);
    expect(harness.lines[0]).toMatchObject({
      route: 'embeddings',
      outcome: 'complete',
      promptTokens: 9,
      attempts: 1,
    });
    expect(harness.lines[0]?.['ttftMs']).toBeGreaterThan(0);
  });

  test.each([
    ['floats', { input: 'abcd', encoding_format: 'float' as const }],
    ['a text', { input: 'abcd', encoding_format: 'float' as const, dimensions: 2 }],
    ['token ids', { input: [1, 2, 3], encoding_format: 'float' as const }],
    ['lists of token ids', { input: [[1], [2, 3]], encoding_format: 'float' as const }],
  ])('of %s go on byte for byte', async (_name, changes) => {
    const engine = await engineWith(embeddings);
    const harness = await gateway([engine]);
    const answer = await client(harness).embeddings.create({ model: 'm', ...changes });
    expect(answer.data.length).toBeGreaterThan(0);
    expect(bodyOf(engine)).toEqual({ model: 'm', ...changes });
  });

  test('are told to the core as a prefill without decode, whose answer is its first token', async () => {
    const harness = await gateway([await engineWith(embeddings)]);
    await client(harness).embeddings.create({ model: 'm', input: ['abcd', 'ef'] });
    const { events } = harness.core;
    const arrived = events.find((event) => event.kind === 'arrived');
    expect(arrived?.request).toMatchObject({ work: 'prefill', maxTokens: 0, stream: false });
    expect(arrived?.request.prompts.map(({ bytes }) => bytes)).toEqual([4, 2]);
    const kinds = events.map(({ kind }) => kind).filter((kind) => kind !== 'tick');
    expect(kinds).toEqual(['arrived', 'firstToken', 'attemptEnded']);
    expect(await harness.metrics.text()).toMatch(/ttft_seconds_count\{pool="default"\} 1/);
  });

  test('are asked of another replica where one fails', async () => {
    const [bad, good] = [await engineWith(statusOf(500, '{}')), await engineWith(embeddings)];
    const harness = await gateway([bad, good]);
    const { response } = await client(harness)
      .embeddings.create({ model: 'm', input: 'a' })
      .withResponse();
    expect(response.headers.get('x-spillway-attempts')).toBe('2');
    expect(response.headers.get('server-timing')).toMatch(/retry;dur=/);
    expect(harness.core.leaseCount).toBe(0);
  });

  test('an answer larger than is held passes whole', async () => {
    const long = Array.from({ length: 600_000 }, (_, k) => k + 0.123456);
    const one = { object: 'embedding', index: 0, embedding: long };
    const harness = await gateway([await engineWith(json({ object: 'list', data: [one] }))]);
    const answer = await client(harness).embeddings.create({
      model: 'm',
      input: 'a',
      encoding_format: 'float',
    });
    expect(answer.data[0]?.embedding).toEqual(long);
    await until(() => harness.core.leaseCount === 0);
  });

  test('as bytes pass with what the engine says of them', async () => {
    const bytes = Buffer.from([0, 255, 1, 254]);
    const engine = await engineWith((_received, response) => {
      response.writeHead(200, { 'content-type': 'application/octet-stream', metadata: '{"a":1}' });
      response.end(bytes);
    });
    const harness = await gateway([engine]);
    const answer = await post(harness, '/v1/embeddings', {
      model: 'm',
      input: 'a',
      encoding_format: 'bytes',
    });
    expect(answer.headers['metadata']).toBe('{"a":1}');
    expect(Buffer.from(await answer.body.arrayBuffer())).toEqual(bytes);
  });

  test("the engine's own refusal passes, and a request that names no input never reaches it", async () => {
    const said = { error: { message: 'no embeddings here', type: 'NotFoundError', code: 404 } };
    const engine = await engineWith(statusOf(404, JSON.stringify(said)));
    const harness = await gateway([engine]);
    const passed = await post(harness, '/v1/embeddings', { model: 'm', input: 'a' });
    expect(passed.statusCode).toBe(404);
    expect(await passed.body.json()).toEqual(said);
    const refused = await post(harness, '/v1/embeddings', { model: 'm' });
    expect(refused.statusCode).toBe(400);
    expect(await refused.body.json()).toMatchObject({ error: { param: 'input' } });
    expect(engine.received).toHaveLength(1);
  });
});

describe('rerank and scores', () => {
  const result = { id: 'r', results: [{ index: 1, relevance_score: 0.9 }] };
  test.each([
    ['/v1/rerank', { query: 'q', documents: ['a', 'b'], top_n: 1 }],
    ['/v2/rerank', { query: 'q', documents: ['a', 'b'] }],
    ['/rerank', { query: 'q', documents: [{ text: 'a' }] }],
    ['/v1/score', { text_1: 'q', text_2: ['a', 'b'] }],
    ['/score', { queries: 'q', documents: ['a'] }],
  ])('%s passes under its own path', async (path, body) => {
    const engine = await engineWith(json(result));
    const harness = await gateway([engine]);
    const answer = await post(harness, path, { model: 'm', ...body });
    expect(await answer.body.json()).toEqual(result);
    expect(engine.received[0]?.path).toBe(path);
    expect(bodyOf(engine)).toEqual({ model: 'm', ...body });
    expect(harness.core.leaseCount).toBe(0);
  });

  test('an answer that is a list is an answer here, and none of a chat', async () => {
    const list = [{ index: 0, score: 0.5 }];
    const harness = await gateway([await engineWith(json(list))]);
    const answer = await post(harness, '/rerank', { model: 'm', query: 'q', documents: ['a'] });
    expect(await answer.body.json()).toEqual(list);
    const chat = await post(harness, '/v1/chat/completions', { model: 'm', messages: [] });
    expect(chat.statusCode).toBe(502);
  });
});

describe('tokenising', () => {
  test.each([
    ['/tokenize', { prompt: 'abc', add_special_tokens: false }],
    ['/tokenize', { messages: [{ role: 'user', content: 'abc' }] }],
    ['/detokenize', { tokens: [1, 2, 3] }],
  ])('%s passes as light work: no prompt, no prediction', async (path, body) => {
    const engine = await engineWith(json({ count: 3, tokens: [1, 2, 3] }));
    const harness = await gateway([engine], { pool: { cacheSalt: 's', enginePriority: true } });
    harness.core.attemptOptions = { predictedPromptTokens: 0, predictedCachedTokens: 0 };
    const answer = await post(harness, path, { model: 'm', ...body });
    expect(await answer.body.json()).toEqual({ count: 3, tokens: [1, 2, 3] });
    expect(engine.received[0]?.path).toBe(path);
    expect(bodyOf(engine)).toEqual({ model: 'm', ...body });
    expect(answer.headers['x-spillway-prompt-tokens']).toBeUndefined();
    const arrived = harness.core.events.find((event) => event.kind === 'arrived');
    expect(arrived?.request).toMatchObject({ work: 'light', prompts: [], maxTokens: 0 });
  });
});

describe('models', () => {
  test('are found by id, slashes or not, and one that there is not has the envelope', async () => {
    const harness = await gateway([]);
    const { models } = client(harness);
    expect((await models.retrieve('m')).id).toBe('m');
    expect(await models.retrieve('org/m:1')).toMatchObject({ id: 'org/m:1', max_model_len: 4_096 });
    const raw = await request(`${harness.url}/v1/models/org/m:1`);
    expect(await raw.body.json()).toMatchObject({ id: 'org/m:1', object: 'model' });
    await expect(models.retrieve('org/none')).rejects.toMatchObject({
      status: 404,
      code: 'model_not_found',
      param: 'model',
      type: 'invalid_request_error',
    });
    expect((await request(`${harness.url}/v1/models/%E0%A4%A`)).statusCode).toBe(404);
  });

  test('an alias is exchanged by its bytes; the answer is the engine’s, and names its own', async () => {
    const engine = await engineWith(answerOf('hi'));
    const harness = await gateway([engine]);
    harness.core.attemptOptions = { engineModel: 'org/real "1"' };
    const sent = '{"model" : "m", "messages":[], "seed":1e2, "x":"\\u00e9"}';
    const answer = await post(harness, '/v1/chat/completions', sent);
    expect(String(engine.received[0]?.body)).toBe(
      sent.replace('"m"', () => JSON.stringify('org/real "1"')),
    );
    expect(await answer.body.json()).toMatchObject({ model: 'm' });
    const light = await post(harness, '/tokenize', '{"prompt":"a","model":"m"}');
    await light.body.dump();
    expect(bodyOf(engine, 1)['model']).toBe('org/real "1"');
  });
});

describe('what an answer says of its way', () => {
  const ask = (harness: Harness, headers: Record<string, string> = {}) =>
    client(harness)
      .chat.completions.create(
        { model: 'm', messages: [{ role: 'user', content: 'a' }], stream: true },
        { headers },
      )
      .withResponse();

  test('Server-Timing goes with streams and with refusals', async () => {
    const harness = await gateway([await engineWith(streamOf('a'))]);
    const { data, response } = await ask(harness);
    for await (const _part of data);
    expect(response.headers.get('server-timing')).toMatch(
      /^read;dur=[\d.]+, decide;dur=[\d.]+, queue;dur=[\d.]+, engine;dur=[\d.]+, ttft;dur=[\d.]+$/,
    );
    const none = await gateway([]);
    const refused = await post(none, '/v1/chat/completions', { model: 'm', messages: [] });
    expect(refused.statusCode).toBe(502);
    expect(refused.headers['server-timing']).toMatch(/total;dur=[\d.]+$/);
  });

  test('the decision goes with it where it is asked for and allowed, and only there', async () => {
    const engine = await engineWith(streamOf('a'));
    const allowed = await gateway([engine], { surface: { explain: true } });
    const asked = await ask(allowed, { 'x-spillway-explain': '1' });
    for await (const _part of asked.data);
    const told = JSON.parse(asked.response.headers.get('x-spillway-explain') ?? '') as object;
    expect(told).toEqual({ kind: 'send', reason: 'least_cost', candidates: [] });
    const unasked = await ask(allowed);
    for await (const _part of unasked.data);
    expect(unasked.response.headers.get('x-spillway-explain')).toBeNull();
    const closed = await ask(await gateway([engine]), { 'x-spillway-explain': '1' });
    for await (const _part of closed.data);
    expect(closed.response.headers.get('x-spillway-explain')).toBeNull();
  });
});
