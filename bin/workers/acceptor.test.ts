import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import fc from 'fast-check';
import { afterEach, describe, expect, test } from 'vitest';
import { ManualTime } from '../../shared/runtime/manual-time.ts';
import { Acceptor, pickTaker, type Handed, type Taker } from './acceptor.ts';

const taker = (connections: number, untakenForMs = 0, readyPools = 1) => ({
  ...{ connections, untakenForMs, readyPools },
});

describe('the worker for the next connection', () => {
  test('is the one with the fewest, so that 64 go evenly to any number of workers', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 64 }), fc.integer({ min: 0 }), (workers, from) => {
        const takers = Array.from({ length: workers }, () => taker(0));
        for (let turn = from; turn < from + 64; turn += 1) {
          const next = pickTaker(takers, turn);
          if (next !== null) next.connections += 1;
        }
        const counts = takers.map(({ connections }) => connections);
        expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(1);
      }),
    );
  });

  test('is not the one that died and came back alone, but it until it has as many', () => {
    const takers = [taker(20), taker(20), taker(0)];
    for (let turn = 0; turn < 20; turn += 1) {
      const next = pickTaker(takers, turn);
      if (next !== null) next.connections += 1;
    }
    expect(takers.map(({ connections }) => connections)).toEqual([20, 20, 20]);
  });

  test('is none that does not take what it has, while another does', () => {
    const hangs = taker(0, 250);
    const works = taker(40);
    expect(pickTaker([hangs, works], 0)).toBe(works);
    expect(pickTaker([hangs], 0)).toBe(hangs);
    expect(pickTaker([], 0)).toBeNull();
  });

  test('is none that has no replicas yet, or of fewer pools, while another that takes has', () => {
    const begins = taker(0, 0, 0);
    const half = taker(0, 0, 1);
    const works = taker(40, 0, 2);
    expect(pickTaker([begins, half, works], 0)).toBe(works);
    expect(pickTaker([begins, half], 0)).toBe(half);
    expect(pickTaker([begins, taker(1, 0, 0)], 0)).toBe(begins);
    expect(pickTaker([begins, taker(40, 250, 2)], 0)).toBe(begins);
  });
});

describe('connections that no worker can take', () => {
  const timers = new ManualTime();
  const takers: Taker[] = [];
  let dropped = 0;
  const acceptor = new Acceptor({
    on: 'tier',
    timers,
    takers: () => takers,
    onDrop: () => (dropped += 1),
  });
  afterEach(() => acceptor.close());

  test('wait for one, for 5 s', async () => {
    const port = await acceptor.listen({ host: '127.0.0.1', port: 0 });
    const first = connect(port, '127.0.0.1');
    await once(first, 'connect');
    await expect.poll(() => acceptor.held).toBe(1);
    timers.advance(5_000);
    await once(first, 'close');
    expect(dropped).toBe(1);

    const second = connect(port, '127.0.0.1');
    await once(second, 'connect');
    await expect.poll(() => acceptor.held).toBe(1);
    const handed: Handed[] = [];
    takers.push({ ...taker(0), hand: (socket, on) => handed.push({ socket, on }) });
    acceptor.release();
    // With where it came in: workers serve global routers as they serve nobody else.
    expect(handed.map(({ on }) => on)).toEqual(['tier']);
    expect(acceptor.held).toBe(0);
    handed[0]?.socket.destroy();
    await once(second, 'close');
  });
});

test('connections that workers have been handed and do not take are bounded', async () => {
  const handed: Socket[] = [];
  let dropped = 0;
  const hangs = { ...taker(0, 250), hand: (socket: Socket) => void handed.push(socket) };
  const acceptor = new Acceptor({
    on: 'clients',
    timers: new ManualTime(),
    takers: () => [hangs],
    onDrop: () => (dropped += 1),
    waitingMax: 3,
  });
  const port = await acceptor.listen({ host: '127.0.0.1', port: 0 });
  const clients = Array.from({ length: 5 }, () => connect(port, '127.0.0.1'));
  for (const client of clients) client.on('error', () => undefined);
  await expect.poll(() => [handed.length, dropped]).toEqual([3, 2]);
  // What a worker has taken is the parent's no longer.
  handed[0]?.destroy();
  await expect.poll(() => clients.filter(({ closed }) => closed).length).toBe(3);
  clients.push(connect(port, '127.0.0.1'));
  await expect.poll(() => handed.length).toBe(4);
  for (const socket of [...handed, ...clients]) socket.destroy();
  await acceptor.close();
});
