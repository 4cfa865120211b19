import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import type { Timers } from '../../shared/runtime/timers.ts';
import { until } from '../../test/e2e/until.ts';
import { DelayProxy } from './delay-proxy.ts';

/** Time that passes when the test says so. */
class Waiting implements Timers {
  readonly tasks: { readonly ms: number; readonly task: () => void }[] = [];

  after(ms: number, task: () => void): () => void {
    this.tasks.push({ ms, task });
    return () => undefined;
  }

  every(): () => void {
    throw new Error('not asked for');
  }

  /** In the order in which they were begun. */
  pass(): void {
    for (const { task } of this.tasks.splice(0)) task();
  }
}

const open: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).toReversed()) await close();
});

async function echo(): Promise<number> {
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.pipe(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  open.push(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, 'close');
  });
  return (server.address() as AddressInfo).port;
}

async function proxyTo(target: number | null) {
  const timers = new Waiting();
  const proxy = new DelayProxy({ oneWayMs: 40, timers });
  await proxy.listen();
  if (target !== null) proxy.reaches(target);
  open.push(() => proxy.close());
  const socket = connect(proxy.port, '127.0.0.1');
  const state = { received: '', closed: false };
  socket.on('data', (piece: Buffer) => (state.received += piece.toString()));
  socket.on('close', () => (state.closed = true));
  socket.on('error', () => undefined);
  return { proxy, timers, socket, state };
}

describe('the distance to a region', () => {
  it('is passed once there and once back, by everything in its order', async () => {
    const { timers, socket, state } = await proxyTo(await echo());
    for (const piece of ['a', 'b', 'c']) {
      const before = timers.tasks.length;
      socket.write(piece);
      await until(() => timers.tasks.length > before);
    }
    expect(timers.tasks.map(({ ms }) => ms)).toEqual([40, 40, 40]);
    timers.pass();
    await until(() => timers.tasks.length > 0);
    expect(state.received).toBe('');
    await until(() => {
      timers.pass();
      return state.received === 'abc';
    });
  });

  it('is passed by an end too', async () => {
    const { timers, socket, state } = await proxyTo(await echo());
    socket.end('bye');
    await until(() => timers.tasks.length >= 2);
    expect(state).toEqual({ received: '', closed: false });
    await until(() => {
      timers.pass();
      return state.received === 'bye' && state.closed;
    });
  });

  it('has nobody behind it before the region has come', async () => {
    const { state } = await proxyTo(null);
    await until(() => state.closed);
  });

  it('is refused while the region is dead, and leads to wherever it comes back', async () => {
    const { proxy, timers } = await proxyTo(await echo());
    proxy.loses();
    const refused = connect(proxy.port, '127.0.0.1');
    const [error] = (await once(refused, 'error')) as [NodeJS.ErrnoException];
    expect(error.code).toBe('ECONNREFUSED');
    proxy.reaches(await echo());
    const again = connect(proxy.port, '127.0.0.1');
    let received = '';
    again.on('data', (piece: Buffer) => (received += piece.toString()));
    again.write('x');
    await until(() => {
      timers.pass();
      return received === 'x';
    });
    again.destroy();
  });
});
