import { once } from 'node:events';
import { createServer as createHttpServer, request, type Server } from 'node:http';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { serveHanded, type HandedServer } from './handed-connections.ts';
import { systemTimers } from './timers.ts';

let acceptor: ReturnType<typeof createServer>;
let server: Server;
let served: HandedServer;
let port = 0;
let drops = 0;

beforeEach(async () => {
  drops = 0;
  let take: (socket: Socket) => void = () => undefined;
  acceptor = createServer((socket) => take(socket));
  acceptor.listen(0, '127.0.0.1');
  await once(acceptor, 'listening');
  ({ port } = acceptor.address() as AddressInfo);
  server = createHttpServer({ connectionsCheckingInterval: 20 }, (asked, response) => {
    if (asked.url === '/never') response.write('half');
    else response.end('whole');
  });
  const source = { port, start: (taker: (socket: Socket) => void) => (take = taker) };
  served = serveHanded(server, source, {
    timers: systemTimers,
    lastWritesMs: 30,
    onDrop: () => (drops += 1),
  });
});

afterEach(async () => {
  await served.close();
  acceptor.close();
});

/** Everything that comes on a connection after `text` was written, until it ends. */
async function exchange(text: string): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  let got = '';
  socket.on('data', (piece) => (got += String(piece)));
  socket.on('error', () => undefined);
  socket.write(text);
  await once(socket, 'close');
  return got;
}

function get(path: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const asked = request({ port, path, host: '127.0.0.1' }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    asked.on('error', reject).end();
  });
}

describe('connections that another process has accepted', () => {
  test('are served', async () => {
    expect(await get('/')).toBe(200);
  });

  test('end when a request takes too long to arrive, as those of a listening server', async () => {
    server.requestTimeout = 40;
    server.headersTimeout = 40;
    expect(await exchange('GET / HTTP/1.1\r\nhost: a\r\nx-slow: ')).toMatch(/^HTTP\/1.1 408/);
  });

  test('are refused above the greatest number, and counted again when one has ended', async () => {
    server.maxConnections = 1;
    const first = connect(port, '127.0.0.1');
    first.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
    await once(first, 'data');
    expect(served.connections).toBe(1);
    expect(await exchange('GET / HTTP/1.1\r\nhost: a\r\n\r\n')).toBe('');
    expect(drops).toBe(1);
    first.destroy();
    await expect.poll(() => served.connections).toBe(0);
    expect(await get('/')).toBe(200);
  });

  test('end when it closes: idle ones at once, those with an answer under way a moment later', async () => {
    const busy = connect(port, '127.0.0.1');
    busy.write('GET /never HTTP/1.1\r\nhost: a\r\n\r\n');
    await once(busy, 'data');
    const idle = connect(port, '127.0.0.1');
    idle.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
    await once(idle, 'data');
    const ended = Promise.all([once(busy, 'close'), once(idle, 'close')]);
    await served.close();
    await ended;
    expect(served.connections).toBe(0);
  });
});
