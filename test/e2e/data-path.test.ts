// The data path alone: real sockets, the official client, scripted engines, a plain core.

import { once } from 'node:events';
import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import OpenAI from 'openai';
import { request } from 'undici';
import { describe, expect, test } from 'vitest';
import { untilBroken } from './broken-answer.ts';
import { openGateways } from './gateways.ts';
import {
  answerOf,
  chunk,
  DONE,
  startScriptedEngine,
  statusOf,
  streamHead,
  streamOf,
  usageChunk,
  type Script,
} from './scripted-engine.ts';
import type { Harness } from './shell-harness.ts';
import { until } from './until.ts';

const { engineWith, gateway } = openGateways();
function client(harness: Harness, apiKey = 'client-key'): OpenAI {
  return new OpenAI({ baseURL: `${harness.url}/v1`, apiKey, maxRetries: 0 });
}
const MESSAGES = [{ role: 'user' as const, content: 'hello' }];

function post(harness: Harness, body: unknown, headers: Record<string, string> = {}) {
  return request(`${harness.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body),
  });
}
async function textOf(stream: AsyncIterable<OpenAI.ChatCompletionChunk>): Promise<string> {
  let text = '';
  for await (const part of stream) text += part.choices[0]?.delta.content ?? '';
  return text;
}
const streaming = (harness: Harness, changes: object = {}) =>
  client(harness).chat.completions.create({
    model: 'm',
    messages: MESSAGES,
    stream: true,
    ...changes,
  });

/** A port on which nothing listens. */
async function deadUrl(): Promise<string> {
  const engine = await startScriptedEngine(streamOf());
  await engine.close();
  return engine.url;
}

describe('answers', () => {
  test('a stream passes; its usage chunk is dropped unless asked for', async () => {
    const engine = await engineWith(streamOf('a', 'b'));
    const harness = await gateway([engine]);
    const { data, response } = await streaming(harness).withResponse();
    const parts = [];
    for await (const part of data) parts.push(part);
    expect(parts.map((part) => part.choices.length)).toEqual([1, 1, 1]);
    expect(response.headers.get('x-spillway-replica')).toBe(engine.host);
    expect(response.headers.get('x-spillway-cached-tokens')).toBe('32');
    expect(response.headers.get('x-spillway-attempts')).toBe('1');
    expect(response.headers.get('x-request-id')).toMatch(/^req-/);

    const asked = await streaming(harness, { stream_options: { include_usage: true } });
    const last = [];
    for await (const part of asked) last.push(part);
    expect(last.at(-1)?.usage?.prompt_tokens).toBe(100);
    await until(() => harness.lines.length === 2);
    expect(harness.lines[0]).toMatchObject({
      outcome: 'complete',
      cachedTokens: 64,
      promptTokens: 100,
    });
    expect(harness.core.leaseCount).toBe(0);
  });

  test('a whole answer passes byte for byte', async () => {
    const harness = await gateway([await engineWith(answerOf('hi'))]);
    const answer = await client(harness).chat.completions.create({
      model: 'm',
      messages: MESSAGES,
    });
    expect(answer.choices[0]?.message.content).toBe('hi');
    await until(() => harness.lines.length === 1);
    expect(harness.lines[0]).toMatchObject({ outcome: 'complete', promptTokens: 10 });
  });

  test('an answer too long to be held passes as it comes', async () => {
    const long = 'x'.repeat(9 * 1024 * 1024);
    const harness = await gateway([await engineWith(answerOf(long))]);
    const answer = await client(harness).chat.completions.create({
      model: 'm',
      messages: MESSAGES,
    });
    expect(answer.choices[0]?.message.content?.length).toBe(long.length);
  });

  test('head and first event reach the client in one piece', async () => {
    const harness = await gateway([await engineWith(streamOf('a'))]);
    const socket = connect(Number(new URL(harness.url).port), '127.0.0.1');
    const body = JSON.stringify({ model: 'm', messages: MESSAGES, stream: true });
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    const [first] = (await once(socket, 'data')) as [Buffer];
    expect(first.toString()).toContain('HTTP/1.1 200');
    expect(first.toString()).toContain('"content":"a"');
    socket.destroy();
  });

  test('200 concurrent streams each get their own answer', async () => {
    const engine = await engineWith((received, response) => {
      const { messages } = JSON.parse(received.body.toString()) as {
        messages: { content: string }[];
      };
      const name = messages[0]?.content ?? '';
      streamHead(response);
      let left = 20;
      const next = (): void => {
        response.write(chunk(`${name};`));
        left -= 1;
        if (left > 0) return void setTimeout(next, 2);
        response.write(usageChunk(1, 0, 20));
        response.end(DONE);
      };
      next();
    });
    const harness = await gateway([engine]);
    const texts = await Promise.all(
      Array.from({ length: 200 }, async (_, i) => {
        const messages = [{ role: 'user' as const, content: `n${i}` }];
        return textOf(await streaming(harness, { messages }));
      }),
    );
    expect(texts).toEqual(Array.from({ length: 200 }, (_, i) => `n${i};`.repeat(20)));
    expect(harness.shell.requests.openRequests).toBe(0);
    expect(harness.shell.requests.budget.heldBytes).toBe(0);
  });
});

describe('what an engine receives', () => {
  test('is the body as it came but for the spliced members, and no credentials', async () => {
    const engine = await engineWith(streamOf('a'));
    const harness = await gateway([engine], {
      pool: { cacheSalt: 'pool-salt', engineApiKey: 'engine-key' },
    });
    const body =
      '{ "model":"m", "temperature":1.0e0,"cache_salt":"mine" ,"priority":-5,\n "stream":true,"messages":[{"role":"user","content":"\\u0041é"}], "x":{"y":[1,2]}}';
    const answer = await post(harness, body, {
      authorization: 'Bearer client-key',
      'x-api-key': 'client-key',
      cookie: 'a=client-key',
      'x-request-id': 'mine-1',
      'x-spillway-replica': 'evil',
      traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    });
    await answer.body.text();
    expect(answer.headers['x-request-id']).toBe('mine-1');
    const [received] = engine.received;
    expect(received?.body.toString()).toBe(
      '{ "model":"m", "temperature":1.0e0,"cache_salt":"pool-salt" ,"stream":true,"messages":[{"role":"user","content":"\\u0041é"}], "x":{"y":[1,2]},"stream_options":{"include_usage":true}}',
    );
    expect(JSON.stringify(received?.headers)).not.toContain('client-key');
    expect(received?.headers.authorization).toBe('Bearer engine-key');
    expect(received?.headers['x-request-id']).toMatch(/^req-[0-9a-f]+\.1$/);
    expect(received?.headers['traceparent']).toContain('0af7651916cd43dd');
    expect(Object.keys(received?.headers ?? {}).toSorted()).toEqual([
      'authorization',
      'connection',
      'content-length',
      'content-type',
      'host',
      'traceparent',
      'x-request-id',
    ]);
    expect(JSON.stringify(harness.lines)).not.toMatch(/client-key|engine-key|\\u0041|é/);
  });

  test('is plain where the client compressed it', async () => {
    const engine = await engineWith(answerOf('hi'));
    const harness = await gateway([engine]);
    const body = gzipSync(JSON.stringify({ model: 'm', messages: MESSAGES }));
    const answer = await post(harness, body, { 'content-encoding': 'gzip' });
    expect(answer.statusCode).toBe(200);
    expect(JSON.parse(engine.received[0]?.body.toString() ?? '')).toMatchObject({ model: 'm' });
  });
});

describe('before the first data event', () => {
  test.each<[string, Script, string]>([
    ['a 500', statusOf(500, '{"error":{"message":"boom"}}'), 'status'],
    ['our own key refused', statusOf(401, '{"error":"Unauthorized"}'), 'status'],
    [
      'an error event',
      (_r, res) => (
        streamHead(res),
        void res.end(`data: {"error":{"message":"x","code":500}}\n\n${DONE}`)
      ),
      'error_event',
    ],
    ['an abort', (_r, res) => (streamHead(res), void res.end(chunk('', 'abort') + DONE)), 'abort'],
    ['an empty stream', (_r, res) => (streamHead(res), void res.end()), 'truncated'],
    ['a lone [DONE]', (_r, res) => (streamHead(res), void res.end(DONE)), 'truncated'],
    ['a reset', (_r, res) => (streamHead(res), void res.socket?.destroy()), 'reset'],
    ['JSON in place of a stream', answerOf('x'), 'bad_answer'],
    ['429', statusOf(429, '{}', { 'retry-after': '7' }), 'backPressure'],
    ['503', statusOf(503, '{}'), 'backPressure'],
  ])('%s is a failover that the client does not see', async (_name, script, cause) => {
    const harness = await gateway([await engineWith(script), await engineWith(streamOf('ok'))]);
    const { data, response } = await streaming(harness).withResponse();
    expect(await textOf(data)).toBe('ok');
    expect(response.headers.get('x-spillway-attempts')).toBe('2');
    const ended = harness.core.events.find((event) => event.kind === 'attemptEnded');
    const result = ended?.kind === 'attemptEnded' ? ended.result : null;
    expect(result?.kind === 'serverFault' ? result.cause : result?.kind).toBe(cause);
    expect(await harness.metrics.text()).toContain(
      `spillway_retries_total{pool="default",cause="${cause}"} 1`,
    );
  });

  test.each<[string, Script]>([
    [
      'cut in its body',
      (_r, res) => {
        res.writeHead(200, { 'content-type': 'application/json', 'content-length': '1000' });
        res.write('{"choices":[');
        setTimeout(() => res.socket?.destroy(), 5);
      },
    ],
    [
      'aborted',
      (_r, res) => {
        res.writeHead(200, { 'content-type': 'application/json' });
        res.end('{"choices":[{"finish_reason":"abort","message":{"content":"x"}}]}');
      },
    ],
    ['an event stream', streamOf('x')],
    [
      'not JSON',
      (_r, res) => {
        res.writeHead(200, { 'content-type': 'text/html' });
        res.end('<html>');
      },
    ],
  ])('a whole answer %s is a failover too', async (_name, script) => {
    const harness = await gateway([await engineWith(script), await engineWith(answerOf('ok'))]);
    const answer = await client(harness).chat.completions.create({
      model: 'm',
      messages: MESSAGES,
    });
    expect(answer.choices[0]?.message.content).toBe('ok');
  });

  test('a refused connection is a failover, certainly not accepted', async () => {
    const harness = await gateway([await deadUrl(), await engineWith(streamOf('ok'))]);
    expect(await textOf(await streaming(harness))).toBe('ok');
    const ended = harness.core.events.find((event) => event.kind === 'attemptEnded');
    expect(ended).toMatchObject({ result: { kind: 'connectFailed' }, committed: false });
  });

  test('no first token in time is a failover', async () => {
    const silent = await engineWith((_r, res) => streamHead(res));
    const harness = await gateway([silent, await engineWith(streamOf('ok'))]);
    harness.core.firstAttemptOptions = { firstTokenTimeoutMs: 100 };
    expect(await textOf(await streaming(harness))).toBe('ok');
    await silent.received[0]?.cut;
  });

  test('out of replicas, the client gets an envelope with retry advice', async () => {
    const harness = await gateway([await deadUrl()]);
    const error = await streaming(harness).then(
      () => null,
      (failure: unknown) => failure as InstanceType<typeof OpenAI.APIError>,
    );
    expect(error).toMatchObject({ status: 502, code: 'upstream_failed', type: 'server_error' });
    expect(error?.headers?.get('retry-after')).toBe('2');
    expect(error?.headers?.get('x-should-retry')).toBe('true');
    expect(error?.requestID).toMatch(/^req-/);
    expect(harness.core.leaseCount).toBe(0);
  });

  test("the engine's word about the request passes byte for byte and is nobody's fault", async () => {
    const body =
      '{"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}';
    const harness = await gateway([await engineWith(statusOf(400, body))]);
    const answer = await post(harness, { model: 'm', messages: MESSAGES });
    expect(answer.statusCode).toBe(400);
    expect(await answer.body.text()).toBe(body);
    expect(answer.headers['x-should-retry']).toBe('false');
    expect(answer.headers['x-request-id']).toMatch(/^req-/);
    const ended = harness.core.events.at(-1);
    expect(ended).toMatchObject({ result: { kind: 'clientError', status: 400 } });
  });

  test('an error page is wrapped', async () => {
    const harness = await gateway([await engineWith(statusOf(404, '<html>nginx</html>'))]);
    const answer = await post(harness, { model: 'm', messages: MESSAGES });
    expect(await answer.body.json()).toMatchObject({ error: { code: 'engine_error' } });
  });
});

describe('after the first data event', () => {
  const cutAfter =
    (end: (res: Parameters<Script>[1]) => void): Script =>
    (_received, response) => {
      streamHead(response);
      response.write(chunk('a'));
      setTimeout(() => end(response), 20);
    };
  test.each<[string, Script, string]>([
    ['a reset', cutAfter((res) => res.socket?.destroy()), 'reset'],
    ['a clean end without [DONE]', cutAfter((res) => res.end()), 'truncated'],
    [
      'an error event',
      cutAfter((res) => res.end(`data: {"error":{"message":"x"}}\n\n${DONE}`)),
      'error_event',
    ],
    ['an abort', cutAfter((res) => res.end(chunk('', 'abort') + DONE)), 'abort'],
  ])('%s becomes an error event and never another attempt', async (_name, script, cause) => {
    const second = await engineWith(streamOf('never'));
    const harness = await gateway([await engineWith(script), second]);
    const stream = await streaming(harness);
    let text = '';
    const read = async () => {
      for await (const part of stream) text += part.choices[0]?.delta.content ?? '';
    };
    await expect(read()).rejects.toMatchObject({ code: 'stream_interrupted' });
    expect(text).toBe('a');
    expect(second.received).toHaveLength(0);
    await until(() => harness.lines.length === 1);
    expect(harness.lines[0]).toMatchObject({ outcome: 'interrupted', cause });
    expect(await harness.metrics.text()).toContain(
      `spillway_interrupted_streams_total{pool="default",cause="${cause}"} 1`,
    );
    expect(harness.core.leaseCount).toBe(0);
  });

  test('a stall becomes an error event', async () => {
    const engine = await engineWith((_received, response) => {
      streamHead(response);
      response.write(chunk('a'));
    });
    const harness = await gateway([engine]);
    harness.core.attemptOptions = { stallTimeoutMs: 150 };
    await expect(streaming(harness).then(textOf)).rejects.toMatchObject({
      code: 'stream_interrupted',
    });
    await engine.received[0]?.cut;
  });

  test('a stream cut raw ends with the error and breaks off, so that it never looks complete', async () => {
    const engine = await engineWith(cutAfter((res) => res.socket?.destroy()));
    const harness = await gateway([engine]);
    const answer = await post(harness, { model: 'm', messages: MESSAGES, stream: true });
    const text = await untilBroken(answer.body);
    expect(text).toMatch(/\n\ndata: \{"error":\{.*\}\}\n\n$/);
    expect(text).not.toContain('[DONE]');
  });
});

describe('a client', () => {
  test('that leaves at [DONE], before the body has ended, had its whole answer', async () => {
    const engine = await engineWith((_received, response) => {
      streamHead(response);
      response.write(chunk('a'));
      response.write(usageChunk(100, 64, 1));
      response.write(DONE);
    });
    const harness = await gateway([engine]);
    // The official client reads no further than [DONE] and closes the connection.
    expect(await textOf(await streaming(harness))).toBe('a');
    await until(() => harness.lines.length > 0);
    expect(harness.lines[0]).toMatchObject({ outcome: 'complete', promptTokens: 100 });
  });

  test('that leaves in mid-stream ends the engine at once', async () => {
    const engine = await engineWith((_received, response) => {
      streamHead(response);
      response.write(chunk('a'));
    });
    const harness = await gateway([engine]);
    const stream = await streaming(harness);
    for await (const _part of stream) break;
    await engine.received[0]?.cut;
    await until(() => harness.lines.length === 1);
    expect(harness.lines[0]).toMatchObject({ outcome: 'client_gone' });
    expect(harness.core.leaseCount).toBe(0);
  });

  test.each([true, false])(
    'that leaves before any token ends the engine (stream: %s)',
    async (stream) => {
      const engine = await engineWith(() => undefined);
      const harness = await gateway([engine]);
      const abort = new AbortController();
      const answer = client(harness)
        .chat.completions.create(
          { model: 'm', messages: MESSAGES, stream },
          { signal: abort.signal },
        )
        .catch((error: unknown) => error);
      await until(() => engine.received.length === 1);
      abort.abort();
      await answer;
      await engine.received[0]?.cut;
      await until(() => harness.lines.length === 1);
      expect(harness.core.leaseCount).toBe(0);
    },
  );

  test('that leaves the queue is dropped', async () => {
    const harness = await gateway([]);
    harness.core.queueing = true;
    const abort = new AbortController();
    const answer = client(harness)
      .chat.completions.create({ model: 'm', messages: MESSAGES }, { signal: abort.signal })
      .catch((error: unknown) => error);
    await until(() => harness.core.events.length === 1);
    abort.abort();
    await answer;
    await until(() => harness.lines.length === 1);
    expect(harness.lines[0]).toMatchObject({ outcome: 'client_gone' });
    expect(harness.shell.requests.budget.heldBytes).toBe(0);
  });

  test('that reads slowly gets everything, and the engine is held back meanwhile', async () => {
    const piece = chunk('y'.repeat(64 * 1024));
    let written = 0;
    const total = 600;
    const engine = await engineWith(async (_received, response) => {
      streamHead(response);
      for (; written < total; written += 1) {
        if (!response.write(piece)) await once(response, 'drain');
      }
      response.end(DONE);
    });
    const harness = await gateway([engine]);
    const answer = await post(harness, { model: 'm', messages: MESSAGES, stream: true });
    const reader = answer.body[Symbol.asyncIterator]();
    let bytes = ((await reader.next()).value as Buffer).length;
    // Nothing is read for a while: what is under way fills the sockets and then stands still.
    let before = -1;
    await until(async () => {
      const still = written === before && written > 0;
      before = written;
      await new Promise((resolve) => setTimeout(resolve, 100));
      return still;
    });
    expect(written).toBeLessThan(total);
    for (let next = await reader.next(); next.done !== true; next = await reader.next()) {
      bytes += (next.value as Buffer).length;
    }
    expect(bytes).toBe(piece.length * total + DONE.length);
  });

  test('that waits is told so after the silence, and errors come as events from then on', async () => {
    const slow = await engineWith((_received, response) => {
      setTimeout(() => response.writeHead(500).end(), 250);
    });
    const harness = await gateway([slow], { settings: { keepAliveAfterMs: 100 } });
    const answer = await post(harness, { model: 'm', messages: MESSAGES, stream: true });
    expect(answer.statusCode).toBe(200);
    const text = await untilBroken(answer.body);
    expect(text).toMatch(/^: keep-alive\n\n/);
    expect(text).toMatch(/data: \{"error":\{.*"upstream_failed"\}\}\n\n$/);
    expect(await harness.metrics.text()).toContain(
      'spillway_late_errors_total{code="upstream_failed"} 1',
    );
  });

  test('that waits still gets its answer from another replica', async () => {
    const slow = await engineWith((_received, response) => {
      setTimeout(() => response.writeHead(500).end(), 250);
    });
    const harness = await gateway([slow, await engineWith(streamOf('ok'))], {
      settings: { keepAliveAfterMs: 100 },
    });
    expect(await textOf(await streaming(harness))).toBe('ok');
  });
});

describe('what cannot be routed', () => {
  test.each<[string, string | Buffer, Record<string, string>, number, string]>([
    ['no JSON', '{"model":', {}, 400, 'invalid_json'],
    ['no object', '[1]', {}, 400, 'invalid_request'],
    ['no model', '{"messages":[]}', {}, 400, 'invalid_request'],
    ['no messages', '{"model":"m"}', {}, 400, 'invalid_request'],
    ['a message without role', '{"model":"m","messages":[{}]}', {}, 400, 'invalid_request'],
    ['stream as text', '{"model":"m","messages":[],"stream":"yes"}', {}, 400, 'invalid_request'],
    ['a repeated member', '{"model":"m","model":"n","messages":[]}', {}, 400, 'repeated_member'],
    ['an escaped member', '{"mod\\u0065l":"m","messages":[]}', {}, 400, 'repeated_member'],
    [
      'deep nesting',
      `{"model":"m","messages":[],"x":${'['.repeat(100)}${']'.repeat(100)}}`,
      {},
      400,
      'invalid_request',
    ],
    ['another type', '{}', { 'content-type': 'text/plain' }, 415, 'unsupported_media_type'],
    ['bad gzip', '{}', { 'content-encoding': 'gzip' }, 400, 'invalid_request'],
    ['a large body', 'x'.repeat(9 * 1024 * 1024), {}, 413, 'request_too_large'],
  ])('%s is refused in the envelope', async (_name, body, headers, status, code) => {
    const harness = await gateway([]);
    const answer = await post(harness, body, headers);
    expect(answer.statusCode).toBe(status);
    expect(await answer.body.json()).toMatchObject({
      error: { code, type: 'invalid_request_error' },
    });
    expect(answer.headers['x-request-id']).toMatch(/^req-/);
    expect(harness.core.events).toHaveLength(0);
    expect(harness.shell.requests.budget.heldBytes).toBe(0);
    await until(() => harness.lines.length === 1);
  });

  test.each([
    [100, 'body_ratio'],
    [10_000, 'body_bytes'],
  ])('a compressed bomb is refused at the limit (ratio %d)', async (bodyRatio, limit) => {
    const harness = await gateway([], { limits: { bodyRatio } });
    const bomb = gzipSync(Buffer.alloc(64 * 1024 * 1024));
    const answer = await post(harness, bomb, { 'content-encoding': 'gzip' });
    expect(answer.statusCode).toBe(413);
    expect(await harness.metrics.text()).toContain(`limit_hits_total{limit="${limit}"} 1`);
  });

  test.each([
    ['GET', '/v1/chat/completions', 405],
    ['DELETE', '/v1/models', 405],
    ['GET', '/nothing', 404],
    ['POST', '/v1/images/generations', 404],
    ['GET', '/v1/models/none', 404],
  ] as const)('%s %s has an envelope and an id', async (method, path, status) => {
    const harness = await gateway([]);
    const answer = await request(`${harness.url}${path}`, { method });
    expect(answer.statusCode).toBe(status);
    expect(await answer.body.json()).toMatchObject({ error: { type: 'invalid_request_error' } });
    expect(answer.headers['x-request-id']).toMatch(/^req-/);
  });

  test('that meets a bug on its way out is told so, and its lease is given back', async () => {
    const harness = await gateway(['http://127.0.0.1:1']);
    harness.core.attemptOptions = { url: 'no URL' };
    const answer = await post(harness, { model: 'm', messages: MESSAGES });
    expect(answer.statusCode).toBe(500);
    expect(await answer.body.json()).toMatchObject({ error: { code: 'internal' } });
    expect(harness.core.leaseCount).toBe(0);
    expect(harness.shell.requests.openRequests).toBe(0);
    expect(await harness.metrics.text()).toContain('spillway_bugs_total 1');
  });

  test('beyond openRequests a request is refused and counted', async () => {
    const harness = await gateway([], { limits: { openRequests: 1 } });
    harness.core.queueing = true;
    const abort = new AbortController();
    const first = client(harness)
      .chat.completions.create({ model: 'm', messages: MESSAGES }, { signal: abort.signal })
      .catch((error: unknown) => error);
    await until(() => harness.core.events.length === 1);
    const answer = await post(harness, { model: 'm', messages: MESSAGES });
    expect(answer.statusCode).toBe(429);
    expect(await harness.metrics.text()).toContain('limit_hits_total{limit="open_requests"} 1');
    abort.abort();
    await first;
  });
});
