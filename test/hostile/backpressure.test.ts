// Slow on one side, fast on the other: what waits in the router is bounded, and does not wait for ever.

import { connect, type Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { openGateways, rawly } from '../e2e/gateways.ts';
import {
  answerOf,
  chunk,
  DONE,
  streamHead,
  streamOf,
  type Script,
} from '../e2e/scripted-engine.ts';
import type { Harness } from '../e2e/shell-harness.ts';
import { until } from '../e2e/until.ts';
import { startRawEngine } from './raw-engine.ts';
import { wirePost, wireText } from './wire.ts';

const { engineWith, gateway } = openGateways();
const BODY = { model: 'm', messages: [{ role: 'user', content: 'a' }] };
const ask = (stream: boolean) => wirePost(JSON.stringify({ ...BODY, stream }));
const MIB = 1_048_576;

/** A client that never reads. */
function deaf(harness: Harness, bytes: Buffer): Socket {
  const socket = connect(Number(new URL(harness.url).port), '127.0.0.1');
  socket.pause();
  socket.on('error', () => undefined);
  socket.write(bytes);
  return socket;
}
const stalls = async (harness: Harness) =>
  /limit_hits_total\{limit="client_stall"\} (\d+)/.exec(await harness.metrics.text())?.[1];

/** Writes for ever, as fast as it is taken, and counts. */
function fast(head: (response: Parameters<Script>[1]) => void, piece: string) {
  const sent = { bytes: 0 };
  const script: Script = (_received, response) => {
    head(response);
    const more = (): void => {
      while (!response.destroyed) {
        sent.bytes += piece.length;
        if (!response.write(piece)) break;
      }
    };
    response.on('drain', more);
    more();
  };
  return { sent, script };
}

describe('a client that never reads', () => {
  test.each([
    ['a stream', true],
    ['an answer without end', false],
  ])('holds back the engine of %s, and is cut in the end', async (_name, stream) => {
    const { sent, script } = fast(
      (response) =>
        stream
          ? streamHead(response)
          : void response.writeHead(200, { 'content-type': 'application/json' }),
      stream ? chunk('x'.repeat(10_000)) : 'x'.repeat(10_000),
    );
    const engine = await engineWith(script);
    const harness = await gateway([engine], { limits: { clientStallMs: 400 } });
    const socket = deaf(harness, ask(stream));
    await until(() => engine.received.length === 1);
    await engine.received[0]?.cut;
    await until(() => harness.core.leaseCount === 0);
    // What the kernels hold between the three, one held answer, and no more.
    expect(sent.bytes).toBeLessThan(40 * MIB);
    expect(await stalls(harness)).toBe('1');
    expect(harness.shell.requests.openRequests).toBe(0);
    socket.destroy();
  });

  test('is cut, once, also where another answer comes first on its connection', async () => {
    const { sent, script } = fast(streamHead, chunk('x'.repeat(10_000)));
    let first: Parameters<Script>[1] | null = null;
    const engine = await engineWith((received, response) => {
      if (first !== null) return script(received, response);
      first = response;
      streamHead(response);
      response.write(chunk('first'));
    });
    const harness = await gateway([engine], { limits: { clientStallMs: 300 } });
    const { socket, received } = rawly(harness, Buffer.concat([ask(true), ask(true)]).toString());
    await until(() => engine.received.length === 2 && sent.bytes > 0);
    await engine.received[1]?.cut;
    await until(() => harness.core.leaseCount === 1);
    expect(harness.lines).toMatchObject([{ outcome: 'client_gone' }]);
    (first as Parameters<Script>[1] | null)?.end(DONE);
    await until(() => harness.core.leaseCount === 0 && socket.closed);
    expect(await stalls(harness)).toBe('1');
    expect(received()).toContain('first');
  });

  test('the last of its answer is cut in the end, though its request is over', async () => {
    const harness = await gateway([await engineWith(answerOf('x'.repeat(3 * MIB)))], {
      limits: { clientStallMs: 300 },
    });
    // More of them than the kernels hold.
    const socket = deaf(harness, Buffer.concat(Array.from({ length: 6 }, () => ask(false))));
    await until(async () => (await stalls(harness)) === '1');
    await until(() => harness.shell.requests.openRequests === 0);
    expect(harness.core.leaseCount).toBe(0);
    // What had left before comes, and then the end.
    socket.resume();
    await until(() => socket.closed);
    expect(socket.bytesRead).toBeLessThan(6 * 3 * MIB);
  });
});

describe('an engine', () => {
  test('that answers before it has read the request is heard', async () => {
    const raw = await startRawEngine(
      () => undefined,
      (socket) => {
        socket.once('data', () => {
          const body = '{"error":{"message":"too long","type":"x","param":null,"code":400}}';
          socket.end(`HTTP/1.1 400 No\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
        });
      },
    );
    const harness = await gateway([raw.url]);
    const body = JSON.stringify({ ...BODY, x: 'y'.repeat(6 * MIB) });
    const { socket, received } = rawly(harness, wirePost(body).toString());
    await until(() => received().includes('HTTP/1.1 '));
    expect(received()).toMatch(/^HTTP\/1\.1 400 /);
    await until(() => harness.shell.requests.openRequests === 0 && raw.sockets() === 0);
    expect(harness.core.leaseCount).toBe(0);
    socket.destroy();
    await raw.close();
  });

  test('whose kept connection ends as it is used again is asked elsewhere', async () => {
    const answer = '{"choices":[]}';
    const raw = await startRawEngine((socket, { onConnection }) => {
      if (onConnection > 0) socket.destroy();
      else socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${answer.length}\r\n\r\n${answer}`);
    });
    const harness = await gateway([raw.url, await engineWith(answerOf('other'))]);
    for (const attempts of [1, 2]) {
      const { socket, received } = rawly(harness, ask(false).toString());
      await until(() => received().includes('"choices"'));
      expect(received()).toMatch(new RegExp(`^x-spillway-attempts: ${attempts}\r$`, 'm'));
      socket.destroy();
    }
    await until(() => harness.shell.requests.openRequests === 0);
    await raw.close();
  });

  test('that trickles an answer too long to be held has stalled', async () => {
    const raw = await startRawEngine((socket) => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      socket.write('x'.repeat(5 * MIB));
      const timer = setInterval(() => socket.write('y'), 20);
      socket.on('close', () => clearInterval(timer));
    });
    const harness = await gateway([raw.url]);
    harness.core.attemptOptions = { stallTimeoutMs: 300 };
    const { socket } = rawly(harness, ask(false).toString());
    await until(() => harness.lines.length === 1);
    expect(harness.lines[0]).toMatchObject({ outcome: 'interrupted', cause: 'stall' });
    await until(() => socket.closed && raw.sockets() === 0);
    await raw.close();
  });

  test('that answers 100 MiB of JSON is passed on as it comes', async () => {
    const piece = `"${'x'.repeat(65_533)}",`;
    const pieces = 1_600;
    const engine = await engineWith((_received, response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.write('[');
      let left = pieces;
      const more = (): void => {
        while (left > 0) {
          left -= 1;
          if (!response.write(piece)) break;
        }
        if (left === 0) response.end('0]');
      };
      response.on('drain', more);
      more();
    });
    const harness = await gateway([engine]);
    const socket = connect(Number(new URL(harness.url).port), '127.0.0.1');
    let bytes = 0;
    socket.on('data', (given: Buffer) => (bytes += given.length));
    socket.write(ask(false));
    await until(() => harness.lines.length === 1);
    expect(harness.lines[0]).toMatchObject({ outcome: 'complete' });
    await until(() => bytes > pieces * piece.length);
    socket.destroy();
  });
});

describe('answers that are held until they are whole', () => {
  const half = `{"choices":[${'1,'.repeat(1_000_000)}`;
  test('together beyond the limit pass on as they come, and are counted', async () => {
    const gate = Promise.withResolvers<void>();
    const engine = await engineWith(async (_received, response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.write(half);
      await gate.promise;
      response.end('0]}');
    });
    const harness = await gateway([engine], { limits: { answerBytesMax: 5_000_000 } });
    const clients = [1, 2, 3].map(() => rawly(harness, ask(false).toString()));
    const { room } = harness.shell.requests;
    await until(() => clients.some(({ received }) => received().length > half.length));
    await until(() => room.heldBytes === 2 * half.length);
    gate.resolve();
    await until(() => clients.every(({ received }) => received().length > half.length + 3));
    await until(() => harness.shell.requests.openRequests === 0);
    expect(room.heldBytes).toBe(0);
    const text = await harness.metrics.text();
    expect(text).toContain('limit_hits_total{limit="answer_bytes_max"} 1');
    for (const { socket } of clients) socket.destroy();
  });

  test('are given back whatever becomes of them', async () => {
    const engine = await engineWith((_received, response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.write(half, () => response.socket?.destroy());
    });
    const harness = await gateway([engine]);
    const { socket, received } = rawly(harness, ask(false).toString());
    await until(() => received().includes('upstream_failed'));
    expect(harness.shell.requests.room.heldBytes).toBe(0);
    socket.destroy();
  });
});

describe('events whose end has not come', () => {
  const half = `data: ${'x'.repeat(1_000_000)}`;
  const endless: Script = (_received, response) => {
    streamHead(response);
    response.write(half);
  };

  test('take room together, and one that finds none is given up', async () => {
    const harness = await gateway([await engineWith(endless), await engineWith(streamOf('ok'))], {
      limits: { answerBytesMax: 2_000_000 },
    });
    const { room } = harness.shell.requests;
    // Each takes as much as its event is long, or twice that.
    const clients = [1, 2, 3].map(() => rawly(harness, ask(true).toString()));
    await until(() => clients.some(({ received }) => received().includes('ok')));
    expect(room.heldBytes).toBeGreaterThan(900_000);
    expect(await harness.metrics.text()).toMatch(
      /limit_hits_total\{limit="answer_bytes_max"\} [12]\n/,
    );
    for (const { socket } of clients) socket.destroy();
    await until(() => room.heldBytes === 0);
  });

  test('take none where they are short', async () => {
    const short: Script = (_received, response) => {
      streamHead(response);
      response.write(`data: ${'x'.repeat(10_000)}`);
    };
    const harness = await gateway([await engineWith(short)], { limits: { answerBytesMax: 1 } });
    const client = rawly(harness, ask(true).toString());
    await until(() => harness.core.leaseCount === 1);
    client.socket.destroy();
    await until(() => harness.core.leaseCount === 0);
    expect(await harness.metrics.text()).not.toContain(
      'limit_hits_total{limit="answer_bytes_max"} 1',
    );
  });
});

describe('more connections than there may be', () => {
  test('are refused and counted, and others are served when there is room', async () => {
    const harness = await gateway([await engineWith(streamOf('a'))], { connections: 5 });
    const port = Number(new URL(harness.url).port);
    const idle = Array.from({ length: 12 }, () => connect(port, '127.0.0.1'));
    for (const socket of idle) socket.on('error', () => undefined);
    await until(() => idle.filter(({ closed }) => closed).length === 7);
    expect(await harness.metrics.text()).toContain('limit_hits_total{limit="connections"} 7');
    for (const socket of idle) socket.destroy();
    await until(async () => {
      const { socket, received } = rawly(
        harness,
        wireText('GET /v1/models HTTP/1.1', []).toString(),
      );
      await until(() => socket.closed || received().includes('"data"'));
      socket.destroy();
      return received().includes('"data"');
    });
  });
});
