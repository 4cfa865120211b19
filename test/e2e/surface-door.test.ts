// At the door: pages of other origins, compressed bodies, and connections as clients and load balancers use them.

import { once } from 'node:events';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import OpenAI from 'openai';
import { request } from 'undici';
import { describe, expect, test } from 'vitest';
import { openGateways, rawly } from './gateways.ts';
import { answerOf, chunk, streamHead, streamOf } from './scripted-engine.ts';
import type { Harness } from './shell-harness.ts';
import { until } from './until.ts';

const { engineWith, gateway } = openGateways();

const CHAT = '/v1/chat/completions';
const BODY = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'a' }] });
const STREAM = JSON.stringify({ ...(JSON.parse(BODY) as object), stream: true });
const post = (harness: Harness, body: string | Buffer, headers: Record<string, string> = {}) =>
  request(`${harness.url}${CHAT}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body,
  });
const head = (first: string, ...lines: string[]) =>
  [first, 'host: x', ...lines, '', ''].join('\r\n');
const posted = (body: string, ...lines: string[]) =>
  head(
    `POST ${CHAT} HTTP/1.1`,
    'content-type: application/json',
    `content-length: ${body.length}`,
    ...lines,
  ) + body;

describe('pages of other origins', () => {
  const APP = 'https://app.example.com';
  const cors = { surface: { cors: { origins: [APP], maxAgeS: 600 } } };
  const preflight = {
    method: 'OPTIONS',
    headers: {
      origin: APP,
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'authorization,content-type,x-stainless-os',
    },
  } as const;

  test('have no leave unless they are given it', async () => {
    const harness = await gateway([await engineWith(answerOf('hi'))]);
    const asked = await request(`${harness.url}${CHAT}`, preflight);
    expect(asked.statusCode).toBe(405);
    const answer = await post(harness, BODY, { origin: APP });
    for (const { headers } of [asked, answer]) {
      const names = Object.keys(headers).filter((name) => /^access-control|^vary/.test(name));
      expect(names).toEqual([]);
    }
  });

  test('are told beforehand what they may send, with ids like any answer', async () => {
    const engine = await engineWith(answerOf('hi'));
    const harness = await gateway([engine], cors);
    const asked = await request(`${harness.url}${CHAT}`, preflight);
    expect(asked.statusCode).toBe(204);
    expect(asked.headers).toMatchObject({
      'access-control-allow-origin': APP,
      'access-control-allow-methods': 'POST',
      'access-control-allow-headers': 'authorization, content-type, x-stainless-os',
      'access-control-max-age': '600',
    });
    expect(asked.headers['x-request-id']).toMatch(/^req-/);
    expect(engine.received).toHaveLength(0);
    const models = await request(`${harness.url}/v1/models/org/m:1`, preflight);
    expect(models.headers['access-control-allow-methods']).toBe('GET');
  });

  test('may read answers, streams and errors alike', async () => {
    const harness = await gateway([await engineWith(streamOf('a'))], cors);
    const stream = await post(harness, STREAM, { origin: APP });
    const bad = await post(harness, '{', { origin: APP });
    const late = await post(harness, BODY, { origin: APP, 'content-type': 'text/plain' });
    const missing = await request(`${harness.url}/nothing`, { headers: { origin: APP } });
    const models = await request(`${harness.url}/v1/models`, { headers: { origin: APP } });
    const statuses = [];
    for (const { statusCode, headers, body } of [stream, bad, late, missing, models]) {
      await body.dump();
      statuses.push(statusCode);
      expect(headers).toMatchObject({ 'access-control-allow-origin': APP, vary: 'Origin' });
      expect(headers['access-control-expose-headers']).toContain('x-request-id');
    }
    expect(statuses).toEqual([200, 400, 415, 404, 200]);
  });

  test('other than those that are named may not, though their request is answered', async () => {
    const harness = await gateway([await engineWith(answerOf('hi'))], cors);
    const answer = await post(harness, BODY, { origin: 'https://evil.example.com' });
    expect(answer.statusCode).toBe(200);
    expect(answer.headers['access-control-allow-origin']).toBeUndefined();
    expect(answer.headers['vary']).toBe('Origin');
  });

  test('work with the SDK as a browser runs it', async () => {
    const harness = await gateway([await engineWith(streamOf('a', 'b'))], cors);
    const seen: string[] = [];
    /** What a browser does: asks first, then holds the request to what it was told. */
    const browser: typeof fetch = async (input, init) => {
      const url = input instanceof Request ? input.url : String(input);
      const headers = new Headers(init?.headers);
      const asked = await fetch(url, {
        method: 'OPTIONS',
        headers: {
          origin: APP,
          'access-control-request-method': init?.method ?? 'GET',
          'access-control-request-headers': [...headers.keys()].join(','),
        },
      });
      const may = (asked.headers.get('access-control-allow-headers') ?? '').split(', ');
      seen.push(...[...headers.keys()].filter((name) => !may.includes(name)));
      headers.set('origin', APP);
      const answer = await fetch(url, { ...init, headers });
      if (answer.headers.get('access-control-allow-origin') !== APP) throw new Error('blocked');
      return answer;
    };
    const openai = new OpenAI({
      baseURL: `${harness.url}/v1`,
      apiKey: 'k',
      fetch: browser,
      dangerouslyAllowBrowser: true,
    });
    const stream = await openai.chat.completions.create({
      model: 'm',
      messages: [{ role: 'user', content: 'a' }],
      stream: true,
    });
    let text = '';
    for await (const part of stream) text += part.choices[0]?.delta.content ?? '';
    expect(text).toBe('ab');
    // Browsers never ask for these, and set the agent themselves.
    expect(seen.filter((name) => name !== 'user-agent')).toEqual([]);
  });
});

describe('a compressed body', () => {
  test.each([
    ['gzip', gzipSync(BODY)],
    ['deflate', deflateSync(BODY)],
    ['br', brotliCompressSync(BODY)],
    ['GZIP', gzipSync(BODY)],
  ])('in %s reaches the engine as it was before', async (encoding, body) => {
    const engine = await engineWith(answerOf('hi'));
    const harness = await gateway([engine]);
    const answer = await post(harness, body, { 'content-encoding': encoding });
    expect(answer.statusCode).toBe(200);
    expect(String(engine.received[0]?.body)).toBe(BODY);
    expect(engine.received[0]?.headers['content-encoding']).toBeUndefined();
    expect(harness.shell.requests.budget.heldBytes).toBe(0);
  });

  const big = Buffer.from(JSON.stringify({ model: 'm', x: 'a'.repeat(6 * 1024 * 1024) }));
  test.each([
    ['gzip', gzipSync(big)],
    ['deflate', deflateSync(big)],
    ['br', brotliCompressSync(big)],
  ])('that grows out of proportion is refused and counted (%s)', async (encoding, body) => {
    const harness = await gateway([]);
    const answer = await post(harness, body, { 'content-encoding': encoding });
    expect(answer.statusCode).toBe(413);
    expect(await harness.metrics.text()).toContain('limit_hits_total{limit="body_ratio"} 1');
    expect(harness.shell.requests.budget.heldBytes).toBe(0);
  });

  test('counts against the bodies in memory as large as it is decoded', async () => {
    const harness = await gateway([], { limits: { bodyRatio: 10_000, bodyBytesMax: 1_000_000 } });
    const answer = await post(harness, gzipSync(big), { 'content-encoding': 'gzip' });
    expect(answer.statusCode).toBe(429);
    expect(await harness.metrics.text()).toContain('limit_hits_total{limit="body_bytes_max"} 1');
    expect(harness.shell.requests.budget.heldBytes).toBe(0);
  });

  test.each([
    ['gzip', 400],
    ['deflate', 400],
    ['br', 400],
    ['zstd', 415],
    ['gzip, br', 415],
    ['constructor', 415],
  ])('that is not what it says is refused: %s', async (encoding, status) => {
    const harness = await gateway([]);
    for (const body of ['{"model":"m"}', gzipSync(BODY).subarray(0, 30)]) {
      const answer = await post(harness, body, { 'content-encoding': encoding });
      expect(answer.statusCode).toBe(status);
      await answer.body.dump();
      expect(answer.headers['accept-encoding']).toBe(
        status === 415 ? 'gzip, deflate, br' : undefined,
      );
    }
    expect(harness.shell.requests.budget.heldBytes).toBe(0);
    expect(harness.shell.requests.openRequests).toBe(0);
  });

  test('whose client leaves in the middle of it leaves nothing', async () => {
    const harness = await gateway([]);
    const body = gzipSync(Buffer.from(JSON.stringify({ x: 'a'.repeat(100_000) })));
    const { socket } = rawly(
      harness,
      head(
        `POST ${CHAT} HTTP/1.1`,
        'content-type: application/json',
        'content-encoding: gzip',
        `content-length: ${body.length + 10}`,
      ),
    );
    socket.write(body.subarray(0, 60));
    await until(() => harness.shell.requests.openRequests === 1);
    socket.destroy();
    await until(() => harness.lines.length === 1);
    expect(harness.lines[0]).toMatchObject({ code: 'client_closed', outcome: 'client_gone' });
    expect(harness.shell.requests.budget.heldBytes).toBe(0);
  });
});

describe('a connection', () => {
  test('is kept, and says for how long; closed where the client wants it so', async () => {
    const harness = await gateway([await engineWith(answerOf('hi'))]);
    const kept = rawly(harness, posted(BODY));
    await until(() => kept.received().includes('"usage"'));
    expect(kept.received()).toMatch(/^Connection: keep-alive\r$/m);
    expect(kept.received()).toMatch(/^Keep-Alive: timeout=75\r$/m);
    kept.socket.write(posted(BODY, 'connection: close'));
    await once(kept.socket, 'close');
    expect(kept.received().match(/HTTP\/1\.1 200/g)).toHaveLength(2);
    expect(kept.received()).toMatch(/^Connection: close\r$/m);
  });

  test('that is idle longer than it is kept is closed from this side', async () => {
    const harness = await gateway([await engineWith(answerOf('hi'))], {
      limits: { keepAliveMs: 1_000 },
    });
    const { socket, received } = rawly(harness, posted(BODY));
    await once(socket, 'close');
    expect(received()).toMatch(/^HTTP\/1\.1 200/);
    expect(received()).toMatch(/^Keep-Alive: timeout=1\r$/m);
  });

  test('of HTTP/1.0 ends with its answer, whole or streamed, and needs no Host', async () => {
    const engine = await engineWith((received, response) =>
      String(received.body).includes('"stream"')
        ? streamOf('a')(received, response)
        : answerOf('hi')(received, response),
    );
    const harness = await gateway([engine]);
    for (const body of [BODY, STREAM]) {
      const { socket, received } = rawly(
        harness,
        `POST ${CHAT} HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
      );
      await once(socket, 'close');
      expect(received()).toMatch(/^HTTP\/1\.1 200/);
      expect(received()).not.toMatch(/transfer-encoding/i);
      expect(received()).toMatch(body === STREAM ? /data: \[DONE\]\n\n$/ : /\}$/);
    }
  });

  test('of HTTP/1.0 that asks to be kept is kept where the length is known', async () => {
    const harness = await gateway();
    const text = 'GET /v1/models HTTP/1.0\r\nconnection: keep-alive\r\n\r\n';
    const { socket, received } = rawly(harness, text);
    await until(() => received().includes('"data"'));
    socket.write(text);
    await until(() => received().match(/HTTP\/1\.1 200/g)?.length === 2);
    socket.destroy();
  });

  test('answers requests that come together in their order', async () => {
    const slow = Promise.withResolvers<void>();
    const engine = await engineWith(async (received, response) => {
      await slow.promise;
      await answerOf('slow')(received, response);
    });
    const harness = await gateway([engine]);
    const models = head('GET /v1/models HTTP/1.1');
    const { socket, received } = rawly(harness, posted(BODY) + models + head('GET /no HTTP/1.1'));
    await until(() => harness.lines.length === 2);
    expect(received()).toBe('');
    slow.resolve();
    await until(() => received().includes('not_found'));
    const order = [...received().matchAll(/"slow"|"object":"list"|"not_found"/g)].map(([m]) => m);
    expect(order).toEqual(['"slow"', '"object":"list"', '"not_found"']);
    socket.destroy();
  });

  test('that goes away ends requests whose answers had not had their turn', async () => {
    const engine = await engineWith(async (received, response) => {
      streamHead(response);
      response.write(chunk('a'));
      await received.cut;
    });
    const harness = await gateway([engine]);
    const { socket, received } = rawly(harness, posted(STREAM).repeat(3));
    await until(() => harness.core.leaseCount === 3 && received().includes('data:'));
    socket.destroy();
    await until(() => harness.core.leaseCount === 0);
    await Promise.all(engine.received.map(({ cut }) => cut));
    await until(() => harness.lines.length === 3);
    expect(harness.lines.map(({ outcome }) => outcome)).toEqual(Array(3).fill('client_gone'));
    expect(harness.shell.requests.openRequests).toBe(0);
  });
});

describe('a client that asks before it sends (Expect: 100-continue)', () => {
  const asking = (...lines: string[]) =>
    head(`POST ${CHAT} HTTP/1.1`, 'expect: 100-continue', ...lines);

  test('is told to go on where its body is wanted', async () => {
    const harness = await gateway([await engineWith(answerOf('hi'))]);
    const { socket, received } = rawly(
      harness,
      asking('content-type: application/json', `content-length: ${BODY.length}`),
    );
    await until(() => received().startsWith('HTTP/1.1 100 Continue'));
    socket.write(BODY);
    await until(() => received().includes('HTTP/1.1 200'));
    socket.destroy();
  });

  test.each([
    [
      'a body that is too large',
      ['content-type: application/json', 'content-length: 99999999'],
      413,
    ],
    ['a type that is not understood', ['content-type: text/plain', 'content-length: 9'], 415],
    [
      'an encoding that is not',
      ['content-type: application/json', 'content-encoding: lzw', 'content-length: 9'],
      415,
    ],
  ])(
    'is refused %s at once, and cannot send it into the next request',
    async (_n, lines, status) => {
      const harness = await gateway();
      const { socket, received } = rawly(harness, asking(...lines));
      await once(socket, 'close');
      expect(received()).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
      expect(received()).not.toContain('100 Continue');
      expect(received()).toMatch(/^Connection: close\r$/im);
    },
  );
});
