import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { createHttpPools, type HttpPools } from './http-pool.ts';

let server: Server;
let pools: HttpPools;
afterEach(async () => {
  await pools.close();
  server.close();
});

/** The origin of a listener that answers at once, and the connections that it has seen. */
async function listen(): Promise<{ origin: string; connections: Socket[] }> {
  const connections: Socket[] = [];
  server = createServer((_request, response) => response.end('ok'));
  server.on('connection', (socket) => connections.push(socket));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, connections };
}

async function ask(origin: string): Promise<string> {
  const answer = await pools.get(origin).request({ path: '/', method: 'GET' });
  return answer.body.text();
}

describe('pools', () => {
  test('keep connections for later requests', async () => {
    const { origin, connections } = await listen();
    pools = createHttpPools(1_000);
    for (let i = 0; i < 6; i += 1) expect(await ask(origin)).toBe('ok');
    // A request in the very turn in which the one before ended may find its connection still busy.
    expect(connections.length).toBeLessThanOrEqual(2);
  });

  test('open one connection for each request at the same time', async () => {
    const { origin, connections } = await listen();
    pools = createHttpPools(1_000);
    await Promise.all([ask(origin), ask(origin), ask(origin)]);
    expect(connections).toHaveLength(3);
  });

  test('close what is no longer named, and open it anew when it is asked for', async () => {
    const { origin, connections } = await listen();
    pools = createHttpPools(1_000);
    await ask(origin);
    const closed = new Promise((resolve) => connections[0]?.once('close', resolve));
    pools.retain(new Set());
    await closed;
    expect(await ask(origin)).toBe('ok');
    expect(connections).toHaveLength(2);
  });

  test('say that a connection was refused, and do not retry it', async () => {
    const { origin } = await listen();
    pools = createHttpPools(1_000);
    await new Promise((resolve) => server.close(resolve));
    await expect(ask(origin)).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });
});
