// Several routers that queue for one pool release as one queue would: by priority, by age, without leaving a replica idle
// and without filling it beyond the hold. Controls: the same with what the agents say of the others' queues taken out.
// Longer: `npm run prove -- overload`.

import { expect, test } from 'vitest';
import {
  orderFailures,
  PER_S_AT_CAPACITY,
  runOrder,
  SHAPE,
  UNPLACED,
  UNTOLD,
  worldOf,
} from '../proofs/overload.ts';
import { FlowClients, type FlowRow } from './overload.ts';
import { quantile } from './recorder.ts';

test.each([
  [1, 2, 1.5],
  [2, 8, 1.2],
  [3, 8, 2],
])('seed %i: %i routers at %f of capacity release as one does', (seed, routers, load) => {
  const alone = runOrder(seed, { routers: 1, load });
  expect(orderFailures(alone, runOrder(seed, { routers, load }))).toEqual([]);
});

test('without what agents say of the others, priorities and the hold are lost between eight routers', () => {
  const untold = runOrder(3, { routers: 8, load: 2, wire: UNTOLD });
  expect(untold.inversions).toBeGreaterThan(20);
  const unplaced = runOrder(3, { routers: 8, load: 2, wire: UNPLACED });
  expect(unplaced.inversions).toBeLessThan(untold.inversions / 4);
  expect(unplaced.overMsP95).toBeGreaterThan(600);
});

test('a tenant with little work waits less than one with much, whatever router it asks', () => {
  const world = worldOf(4, { routers: 4 });
  const clients = new FlowClients(world);
  clients.start(
    { name: 'much', tenant: 'much', perS: 1.4 * PER_S_AT_CAPACITY, ...SHAPE },
    { name: 'little', tenant: 'little', perS: 0.2 * PER_S_AT_CAPACITY, ...SHAPE },
  );
  world.run(16_000);
  const waits = (name: string): number[] =>
    clients.rows
      .filter((row) => row.flow.name === name && row.arrivedMs < world.nowMs - 4_000)
      .map((row) => (row.sentMs ?? world.nowMs) - row.arrivedMs);
  expect(quantile(waits('little'), 0.5)).toBeLessThan(quantile(waits('much'), 0.5) / 2);
  expect(Math.max(...waits('little'))).toBeLessThan(4_000);
});

test('long embeddings neither block chats nor starve behind them', () => {
  const world = worldOf(6, { routers: 2 });
  const clients = new FlowClients(world);
  const [chatTokens, inputTokens] = [500, 8_000];
  clients.start(
    {
      name: 'chat',
      perS: (0.9 * PER_S_AT_CAPACITY * 900) / chatTokens,
      promptTokens: [400, 600],
      answerTokens: [5, 20],
    },
    {
      name: 'embeddings',
      perS: (0.4 * PER_S_AT_CAPACITY * 900) / inputTokens,
      promptTokens: [inputTokens, inputTokens],
      answerTokens: [0, 0],
      streamed: false,
      work: 'prefill',
    },
  );
  world.run(16_000);
  const waits = (name: string): number[] =>
    clients.rows
      .filter((row) => row.flow.name === name && row.arrivedMs < world.nowMs - 9_000)
      .map((row) => (row.sentMs ?? world.nowMs) - row.arrivedMs);
  expect(waits('embeddings').length).toBeGreaterThan(4);
  expect(quantile(waits('chat'), 0.5)).toBeLessThan(quantile(waits('embeddings'), 0.5));
  // 1.6 s of prefill / 0.25: overtaken by what comes within 6.4 s, and not past that.
  expect(Math.max(...waits('embeddings'))).toBeLessThan(9_000);
});

test.each([
  ['and closes its links', false, 1_000],
  // Nobody closes them: an agent gives up after 3 s without an answer.
  ['with its host', true, 5_000],
])('a router that dies with urgent work queued, %s, holds nobody back', (_, unheard, afterMs) => {
  const world = worldOf(5, { routers: 3 });
  const [urgent, ...others] = world.routers;
  const clients = new FlowClients(world);
  clients.start({ name: 'usual', perS: 1.5 * PER_S_AT_CAPACITY, routers: others, ...SHAPE });
  world.run(1_000);
  clients.burst({ name: 'urgent', perS: 0, priority: -1, routers: [urgent!], ...SHAPE }, 200);
  world.run(2_000);
  const servedIn = (ms: number): number => {
    const before = clients.rows.filter(isServed).length;
    world.run(ms);
    return (clients.rows.filter(isServed).length - before) / (ms / 1_000);
  };
  // The urgent work has all of the pool.
  expect(servedIn(1_000)).toBeLessThan(0.15 * PER_S_AT_CAPACITY);
  urgent!.stop(unheard);
  world.run(afterMs);
  expect(servedIn(4_000)).toBeGreaterThan((unheard ? 0.7 : 0.9) * PER_S_AT_CAPACITY);
});

function isServed({ flow, firstTokenMs }: FlowRow): boolean {
  return flow.name === 'usual' && firstTokenMs !== null;
}
