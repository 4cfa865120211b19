// At the door: what the listener answers before a request is understood. Every answer has its ids and the
// envelope, every limit is counted.

import { once } from 'node:events';
import { connect } from 'node:net';
import { request } from 'undici';
import { describe, expect, test } from 'vitest';
import { METRICS } from '../../router/regional/metrics.ts';
import { openGateways, rawly } from './gateways.ts';
import { chunk, streamHead } from './scripted-engine.ts';
import type { Harness } from './shell-harness.ts';
import { until } from './until.ts';

const { engineWith, gateway } = openGateways();

const BODY = JSON.stringify({
  model: 'm',
  stream: true,
  messages: [{ role: 'user', content: 'a' }],
});
const HEAD = [
  'POST /v1/chat/completions HTTP/1.1',
  'host: x',
  'content-type: application/json',
  `content-length: ${BODY.length}`,
];
const post = (harness: Harness, body: string) =>
  request(`${harness.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
  });

async function hits(harness: Harness, limit: string): Promise<number> {
  const match = new RegExp(`limit_hits_total\\{limit="${limit}"\\} (\\d+)`).exec(
    await harness.metrics.text(),
  );
  return Number(match?.[1] ?? Number.NaN);
}

describe('an answer without a request', () => {
  test.each([
    ['bytes that are no HTTP', 'NONSENSE\r\n\r\n', 400, 'invalid_request'],
    [
      'headers beyond the limit',
      `GET /v1/models HTTP/1.1\r\nhost: x\r\nx-big: ${'a'.repeat(20_000)}\r\n\r\n`,
      431,
      'headers_too_large',
    ],
    ['a request without Host', 'GET /v1/models HTTP/1.1\r\n\r\n', 400, 'invalid_request'],
  ])('to %s has the ids and the envelope', async (_name, text, status, code) => {
    const harness = await gateway();
    const { socket, received } = rawly(harness, text);
    await until(() => received().includes('"error"'));
    socket.destroy();
    expect(received()).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(received()).toMatch(/^x-request-id: req-/m);
    expect(received()).toMatch(/^x-spillway-request-id: req-/m);
    expect(received()).toMatch(/^x-should-retry: false/m);
    expect(received()).toContain(`"code":"${code}"`);
  });

  test('is counted where a limit was met', async () => {
    const harness = await gateway();
    expect(await hits(harness, 'header_bytes')).toBe(0);
    const { socket } = rawly(harness, `GET / HTTP/1.1\r\nx: ${'a'.repeat(20_000)}\r\n\r\n`);
    await once(socket, 'close');
    expect(await hits(harness, 'header_bytes')).toBe(1);
  });

  test('never stands in the middle of a stream that is under way', async () => {
    const engine = await engineWith(async (received, response) => {
      streamHead(response);
      response.write(chunk('a'));
      await received.cut;
    });
    const harness = await gateway([engine]);
    const { socket, received } = rawly(harness, [...HEAD, '', BODY].join('\r\n'));
    await until(() => received().includes('data:'));
    socket.write('NONSENSE\r\n\r\n');
    await once(socket, 'close');
    expect(received().match(/HTTP\/1\.1/g)).toHaveLength(1);
    await until(() => harness.core.leaseCount === 0);
  });
});

describe('a request', () => {
  test('whose body does not come in time is refused, counted and logged as that', async () => {
    const harness = await gateway([], { limits: { requestTimeoutMs: 100 } });
    const { socket, received } = rawly(harness, [...HEAD, '', '{'].join('\r\n'));
    await once(socket, 'close');
    expect(received()).toMatch(/^HTTP\/1\.1 408 /);
    expect(received()).toMatch(/^x-should-retry: true/m);
    expect(await hits(harness, 'request_timeout')).toBe(1);
    await until(() => harness.lines.length === 1);
    expect(harness.lines[0]).toMatchObject({ code: 'request_timeout', outcome: 'refused' });
    expect(harness.shell.requests.openRequests).toBe(0);
  });

  test('whose client neither reads nor closes costs no connection after its refusal', async () => {
    const harness = await gateway([], { limits: { requestTimeoutMs: 100 } });
    const socket = connect(Number(new URL(harness.url).port), '127.0.0.1');
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.on('error', () => undefined);
    // Written now and then, never read: the end of the other side is not even noticed.
    const writing = setInterval(() => socket.write('x: y\r\n'), 20);
    socket.write('POST / HTTP/1.1\r\nhost: x\r\n');
    await closed;
    clearInterval(writing);
    expect(await hits(harness, 'request_timeout')).toBe(1);
  });

  test('that is too large is refused to a client that writes all of it before it reads', async () => {
    const harness = await gateway([], { limits: { bodyBytes: 100_000 } });
    const head = [...HEAD.slice(0, 3), 'transfer-encoding: chunked', '', ''].join('\r\n');
    const { socket, received } = rawly(harness, head);
    socket.pause();
    const piece = `10000\r\n${' '.repeat(0x10000)}\r\n`;
    for (let sent = 0; sent < 300; sent += 1) {
      if (!socket.write(piece)) await once(socket, 'drain');
    }
    socket.resume();
    socket.write('0\r\n\r\n');
    await until(() => received().includes('request_too_large'));
    expect(await hits(harness, 'body_bytes')).toBe(1);
    socket.write('GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n');
    await until(() => received().includes('HTTP/1.1 200'));
    socket.destroy();
    expect(harness.shell.requests.budget.heldBytes).toBe(0);
  });

  test('that is nested too deeply is refused and counted', async () => {
    const harness = await gateway();
    const answer = await post(harness, `{"model":"m","messages":${'['.repeat(100)}`);
    expect(answer.statusCode).toBe(400);
    expect(await hits(harness, 'json_depth')).toBe(1);
  });

  test('with a prompt of too many elements is refused and counted', async () => {
    const harness = await gateway();
    const answer = await request(`${harness.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'm', prompt: Array.from({ length: 4_097 }, () => 'a') }),
    });
    expect(answer.statusCode).toBe(400);
    expect(await answer.body.text()).toContain('4096');
    expect(await hits(harness, 'prompts')).toBe(1);
  });

  test.each(['http://x/v1/models', 'HTTP://x:80/v1/models?a=http://y'])(
    'for %s, as clients of a proxy write it, is served',
    async (target) => {
      const harness = await gateway();
      const { socket, received } = rawly(harness, `GET ${target} HTTP/1.1\r\nhost: x\r\n\r\n`);
      await until(() => received().includes('"data"'));
      socket.destroy();
    },
  );

  test('with an expectation that nobody knows is served', async () => {
    const harness = await gateway();
    const text = 'GET /v1/models HTTP/1.1\r\nhost: x\r\nexpect: wonders\r\n\r\n';
    const { socket, received } = rawly(harness, text);
    await until(() => received().includes('"data"'));
    socket.destroy();
    expect(received()).toMatch(/^HTTP\/1\.1 200 /);
  });

  test('for the head alone gets what GET would, without the body', async () => {
    const harness = await gateway();
    const head = await request(`${harness.url}/v1/models`, { method: 'HEAD' });
    expect(head.statusCode).toBe(200);
    expect(Number(head.headers['content-length'])).toBeGreaterThan(0);
    expect(await head.body.text()).toBe('');
  });

  test('for the models counts like any other', async () => {
    const harness = await gateway();
    await (await request(`${harness.url}/v1/models`)).body.dump();
    await (await request(`${harness.url}/v1/models/none`)).body.dump();
    const text = await harness.metrics.text();
    const counted = 'spillway_requests_total{route="models",pool="none",outcome=';
    expect(text).toContain(`${counted}"complete"} 1`);
    expect(text).toContain(`${counted}"refused"} 1`);
  });
});

test('counters with a closed list of labels show every row from the start', async () => {
  const text = await (await gateway()).metrics.text();
  for (const definition of METRICS) {
    if (!('values' in definition)) continue;
    for (const value of definition.values) {
      expect(text).toContain(`spillway_${definition.name}{${definition.labels[0]}="${value}"} 0`);
    }
  }
});
