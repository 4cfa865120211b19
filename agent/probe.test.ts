import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import type { ReplicaId } from '../shared/model/ids.ts';
import { systemClock } from '../shared/runtime/clock.ts';
import { createHttpPools } from '../shared/runtime/http-pool.ts';
import { systemTimers } from '../shared/runtime/timers.ts';
import { EngineClient } from './engines/client.ts';
import type { GenerateOrder, GenerationOutcome } from './events.ts';
import { generate, type GenerationDialect, type ProbeContext } from './probe.ts';

const running: (() => Promise<void> | void)[] = [];

afterEach(async () => {
  for (const stop of running.splice(0).reverse()) await stop();
});

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

async function engineThat(answer: Answer): Promise<EngineClient> {
  const server = createServer((request, response) => {
    request.resume();
    request.once('end', () => answer(request, response));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  running.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return clientOf((server.address() as AddressInfo).port);
}

function clientOf(port: number): EngineClient {
  const pools = createHttpPools(1_000);
  running.push(() => pools.close());
  const url = `http://127.0.0.1:${port}`;
  return new EngineClient({ url, apiKey: null, pools, timers: systemTimers });
}

async function refusingPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const order: GenerateOrder = {
  replica: '127.0.0.1:8000' as ReplicaId,
  rank: 1,
  id: 'p1',
  purpose: 'probe',
  model: 'tiny',
  prompt: 'once upon a time',
  maxTokens: 2,
  deadlineMs: 2_000,
};

function probe(
  client: EngineClient,
  overrides: Partial<GenerateOrder> = {},
): Promise<GenerationOutcome> {
  return generate(contextOf(client), { ...order, ...overrides });
}

function contextOf(client: EngineClient): ProbeContext {
  const dialect: GenerationDialect = { way: 'completions' };
  return { client, clock: systemClock, requestIdPrefix: 'agent-x', ranks: 2, dialect };
}

const token = (text: string, reason: string | null = null): string =>
  `data: ${JSON.stringify({ choices: [{ index: 0, text, finish_reason: reason }] })}\n\n`;
const usage = `data: ${JSON.stringify({
  choices: [],
  usage: { prompt_tokens: 40, prompt_tokens_details: { cached_tokens: 32 } },
})}\n\n`;
const error = 'data: {"error": {"message": "EngineCore died", "code": 500}}\n\n';
const noRank = 'data: {"error": {"message": "data_parallel_rank 1 …", "code": 400}}\n\n';
const done = 'data: [DONE]\n\n';

function streaming(...pieces: string[]): Answer {
  return (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const piece of pieces) response.write(piece);
    response.end();
  };
}

describe('a generation of the agent', () => {
  it('is good when tokens come and the stream ends as it should', async () => {
    let seen: IncomingMessage['headers'] = {};
    const whole = streaming(token('a'), token('b', 'length'), usage, done);
    const client = await engineThat((request, response) => {
      seen = request.headers;
      whole(request, response);
    });
    expect(await probe(client)).toMatchObject({ kind: 'ok', promptTokens: 40, cachedTokens: 32 });
    expect(seen['x-request-id']).toBe('agent-x-p1');
    expect(seen['x-data-parallel-rank']).toBe('1');
  });

  it('reads events that are cut anywhere', async () => {
    const text = token('a') + token('b', 'stop') + usage + done;
    const client = await engineThat(streaming(...text.split('')));
    expect(await probe(client)).toMatchObject({ kind: 'ok', cachedTokens: 32 });
  });

  const failures: readonly (readonly [string, Answer, string])[] = [
    ['the first event is an error', streaming(error, done), 'broken'],
    ['an error follows tokens', streaming(token('a'), error, done), 'broken'],
    ['the engine aborted it', streaming(token('', 'abort'), usage, done), 'broken'],
    ['the stream ends without a finish', streaming(token('a'), done), 'broken'],
    ['the stream ends without [DONE]', streaming(token('a', 'stop')), 'broken'],
    ['nothing but an end comes', streaming(done), 'broken'],
    ['an event is no JSON', streaming('data: {oops\n\n', done), 'broken'],
    ['the connection breaks', (_request, response) => void response.destroy(), 'broken'],
    ['a stream of status 400 refuses its rank', streaming(noRank, done), 'rank'],
    ['a stream of status 400 comes late', streaming(token('a'), noRank, done), 'broken'],
    [
      'status 400 refuses its rank',
      (_request, response) => void response.writeHead(400).end(),
      'rank',
    ],
    ['the status is not 200', (_request, response) => void response.writeHead(503).end(), 'status'],
  ];
  for (const [what, answer, cause] of failures) {
    it(`fails when ${what}`, async () => {
      expect(await probe(await engineThat(answer))).toEqual({ kind: 'failed', cause });
    });
  }

  it('is asked for through the chat where a server has no completions, and then always', async () => {
    const asked: string[] = [];
    const delta = (text: string, reason: string | null = null): string =>
      `data: ${JSON.stringify({ choices: [{ delta: { content: text }, finish_reason: reason }] })}\n\n`;
    const chat = streaming(delta('a'), delta('b', 'stop'), usage, done);
    const client = await engineThat((request, response) => {
      asked.push(request.url ?? '');
      if (request.url === '/v1/chat/completions') chat(request, response);
      else response.writeHead(404).end();
    });
    const context = contextOf(client);
    expect(await generate(context, order)).toMatchObject({ kind: 'ok', promptTokens: 40 });
    expect(await generate(context, order)).toMatchObject({ kind: 'ok' });
    expect(asked).toEqual(['/v1/completions', '/v1/chat/completions', '/v1/chat/completions']);
  });

  const vectors = { object: 'list', data: [{ embedding: [0.5] }], usage: { prompt_tokens: 12 } };
  const scores = { results: [{ index: 0, relevance_score: 0.5 }], usage: { total_tokens: 14 } };
  const unsupported = { message: 'The model does not support Completions API', code: 400 };

  /** Answers on one path only, everything else as told. */
  const only =
    (path: string, answer: object, [status, error]: [number, object]): Answer =>
    (request, response) => {
      const mine = request.url === path;
      response.writeHead(mine ? 200 : status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(mine ? answer : error));
    };

  it.each([
    ['embeddings', vectors, [404, {}], 12],
    ['embeddings', vectors, [400, { error: unsupported }], 12],
    ['embeddings', vectors, [501, {}], 12],
    ['rerank', scores, [404, {}], 14],
  ] as const)('is %s where the model generates nothing (%#)', async (way, answer, no, tokens) => {
    const asked: string[] = [];
    const rest = only(`/v1/${way}`, answer, [...no] as [number, object]);
    const client = await engineThat((request, response) => {
      asked.push(request.url ?? '');
      rest(request, response);
    });
    const context = contextOf(client);
    const good = { kind: 'ok', promptTokens: tokens, cachedTokens: null, pooled: true };
    expect(await generate(context, order)).toMatchObject(good);
    expect(asked.slice(0, 3)).toEqual([
      '/v1/completions',
      '/v1/chat/completions',
      '/v1/embeddings',
    ]);
    asked.length = 0;
    expect(await generate(context, order)).toMatchObject(good);
    expect(asked).toEqual([`/v1/${way}`]);
  });

  it('is a generation again when what embedded before generates now', async () => {
    let answer = only('/v1/embeddings', vectors, [404, {}]);
    const client = await engineThat((request, response) => answer(request, response));
    const context = contextOf(client);
    await generate(context, order);
    expect(context.dialect.way).toBe('embeddings');
    const stream = streaming(token('a', 'stop'), usage, done);
    answer = (request, response) => {
      if (request.url === '/v1/completions') stream(request, response);
      else response.writeHead(404).end();
    };
    expect(await generate(context, order)).toMatchObject({ kind: 'ok', promptTokens: 40 });
    expect(context.dialect.way).toBe('completions');
  });

  it.each([
    ['a request that the engine minds', 400, { error: { message: 'prompt too long' } }],
    ['an engine in trouble', 500, {}],
  ])('goes no other way for %s', async (_what, status, body) => {
    const context = contextOf(await engineThat(only('/v1/embeddings', vectors, [status, body])));
    expect(await generate(context, { ...order, rank: 0 })).toEqual({
      kind: 'failed',
      cause: 'status',
    });
  });

  it.each([
    ['an error', { error: { message: 'EngineCore died' } }],
    ['no vector', { data: [] }],
    ['an empty vector', { data: [{ embedding: [] }] }],
    ['something else', { data: [7], results: 'none' }],
  ])('fails on embeddings that are %s', async (_what, body) => {
    const client = await engineThat(only('/v1/embeddings', body, [404, {}]));
    expect(await probe(client)).toEqual({ kind: 'failed', cause: 'broken' });
  });

  it('fails on a server that has neither, which is asked for both again', async () => {
    const client = await engineThat((_request, response) => void response.writeHead(404).end());
    const context = contextOf(client);
    expect(await generate(context, order)).toEqual({ kind: 'failed', cause: 'status' });
    expect(context.dialect.way).toBe('completions');
  });

  it('fails as refused when nothing listens', async () => {
    const client = clientOf(await refusingPort());
    expect(await probe(client)).toEqual({ kind: 'failed', cause: 'refused' });
  });

  it('fails as timed out when the first token does not come in time: headers are no sign of progress', async () => {
    const client = await engineThat((_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.flushHeaders();
    });
    expect(await probe(client, { deadlineMs: 50 })).toEqual({ kind: 'failed', cause: 'timeout' });
  });
});
