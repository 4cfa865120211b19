// More work than the engines can do: it waits in the routers, in order, and everything is answered or refused.

import { expect, test } from 'vitest';
import { CHAT_SHAPE, type ConversationShape } from '../workloads/conversations.ts';
import { quantile } from './recorder.ts';
import { DEMO, SMALL_TALK } from './test-worlds.ts';
import { World } from './world.ts';

const ONE_TURN: ConversationShape = {
  ...CHAT_SHAPE,
  firstTokens: [800, 1_200],
  answerTokens: [5, 20],
  turns: [1, 1],
};

/** Nobody comes back for its prefix: what a working set would hold back is not the matter here. */
function worldOf(seed: number, routers: number, more = {}): World {
  const router = { workingSetBound: null, ...more };
  const world = new World({ seed, profile: DEMO, replicas: 2, routers, router });
  world.runUntilReady();
  return world;
}

test.each([1, 2, 3])('a more urgent request overtakes all that wait (seed %i)', (seed) => {
  const world = worldOf(seed, 1);
  world.clients(ONE_TURN, { priority: 5 }).burst(60);
  world.run(500);
  const before = world.recorder.rows.length;
  world.clients(ONE_TURN, { priority: 0 }).burst(20);
  world.run(60_000);
  const { rows } = world.recorder;
  expect(world.recorder.ends()).toEqual({ complete: 80 });
  const urgentLast = Math.max(...rows.slice(before).map((row) => row.sentMs!));
  const overtaken = rows.slice(0, before).filter((row) => row.sentMs! > rows.at(-1)!.arrivedMs + 5);
  expect(overtaken.length).toBeGreaterThan(30);
  for (const row of overtaken) expect(row.sentMs!).toBeGreaterThanOrEqual(urgentLast);
});

test.each([1, 2])('short work goes first and long work does not starve (%i routers)', (routers) => {
  const world = worldOf(7, routers);
  world.clients({ ...ONE_TURN, firstTokens: [100, 200] }).openLoop(10);
  world.clients({ ...ONE_TURN, firstTokens: [6_000, 6_000] }).openLoop(1.3);
  world.run(60_000);
  const waits = (long: boolean): number[] =>
    world.recorder.rows
      .filter((row) => row.promptTokens > 1_000 === long && row.arrivedMs < world.nowMs - 20_000)
      .map((row) => (row.sentMs ?? Infinity) - row.arrivedMs);
  expect(quantile(waits(false), 0.5)).toBeLessThan(quantile(waits(true), 0.5));
  // A request is overtaken only by those that arrive within prefill / ageCredit after it: 1.2 s / 0.25 here.
  expect(Math.max(...waits(true))).toBeLessThan(15_000);
});

test.each([1, 2, 3])(
  'far over capacity everything is answered or refused with an honest wait (seed %i)',
  (seed) => {
    const world = worldOf(seed, 2, { queueMaxWaitMs: 5_000 });
    const clients = world.clients(ONE_TURN, { tries: 1 });
    clients.openLoop(40);
    world.run(30_000);
    clients.stop();
    world.run(30_000);
    const { rows } = world.recorder;
    const ends = world.recorder.ends();
    expect(ends['open']).toBeUndefined();
    expect(ends['refused:saturated']).toBeGreaterThan(100);
    expect(ends['complete']).toBeGreaterThan(200);
    for (const { end } of rows) {
      if (end?.kind !== 'refused') continue;
      expect(end.code).toMatch(/^(saturated|queue_timeout)$/);
      expect(end.retryAfterMs).toBeGreaterThanOrEqual(1_000);
      expect(end.retryAfterMs).toBeLessThanOrEqual(60_000);
    }
    // Two engines at 5,000 tokens a second: what is accepted keeps them busy.
    expect(ends['complete']! / 35).toBeGreaterThan(7);
  },
);

test.each([1, 2, 4])('%i routers together hold engines to little more than the hold', (routers) => {
  const world = worldOf(5, routers, { holdMs: 60 });
  world.clients(ONE_TURN).burst(120);
  const waiting: number[] = [];
  for (let left = 9_000; left > 0; left -= 20) {
    world.run(20);
    for (const engine of world.engines) waiting.push(engine.truth.waitingPrefillMs);
  }
  // A request's prefill is 0.25 s: one under way, and one more from each router at most.
  expect(quantile(waiting.slice(100), 0.95)).toBeLessThan(60 + 250 * (1 + routers));
  expect(quantile(waiting.slice(100), 0.5)).toBeGreaterThan(10);
  world.run(60_000);
  expect(world.recorder.ends()).toEqual({ complete: 120 });
});

test('a client that leaves the queue leaves nothing behind', () => {
  const world = worldOf(1, 1);
  const clients = world.clients({
    ...SMALL_TALK,
    turns: [1, 1],
    abandonShare: 1,
    abandonAfterMs: [300, 900],
  });
  clients.burst(80);
  world.run(30_000);
  expect(world.recorder.ends()['open']).toBeUndefined();
  expect(world.recorder.ends()['clientGone']).toBeGreaterThan(40);
  expect(world.routers[0]!.queued).toBe(0);
  expect(world.routers[0]!.core!.leaseCount()).toBe(0);
});
