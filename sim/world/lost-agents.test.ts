// Agents that go away: while all are gone the reports are at fault, not the engines; one among many is out after the grace.

import { expect, test } from 'vitest';
import { DEMO, SMALL_TALK } from './test-worlds.ts';
import { World } from './world.ts';

function busyWorld(seed: number, replicas: number, routers: number): World {
  const world = new World({ seed, profile: DEMO, replicas, routers });
  world.runUntilReady();
  world.clients(SMALL_TALK, { tries: 1 }).closedLoop(4 * replicas, 2_000);
  world.run(10_000);
  return world;
}

function endsSince(world: World, fromMs: number): Set<string> {
  const rows = world.recorder.rows.filter((row) => row.arrivedMs >= fromMs && row.end !== null);
  return new Set(rows.map(({ end }) => (end!.kind === 'refused' ? end!.code : end!.kind)));
}

test.each([1, 4])('a pool of %i whose agents all die is served past the grace', (replicas) => {
  const world = busyWorld(1, replicas, 2);
  const fromMs = world.nowMs;
  for (const agent of world.agents) agent.stop();
  world.run(120_000);
  for (const agent of world.agents) agent.start();
  world.run(30_000);
  expect(endsSince(world, fromMs)).toEqual(new Set(['complete']));
  expect(world.routers[0]!.readyReplicas).toBe(replicas);
});

test('one of four agents that dies takes its replica out after the grace, and back when it returns', () => {
  const world = busyWorld(2, 4, 1);
  const [agent, engine] = [world.agents[0]!, world.engines[0]!];
  agent.stop();
  const fromMs = world.nowMs;
  world.run(20_000);
  expect(world.recorder.sentByReplica(fromMs).get(engine.replica)).toBeGreaterThan(0);
  world.run(12_000);
  const afterMs = world.nowMs;
  world.run(20_000);
  expect(world.recorder.sentByReplica(afterMs).has(engine.replica)).toBe(false);
  agent.start();
  world.run(5_000);
  const backMs = world.nowMs;
  world.run(20_000);
  expect(world.recorder.sentByReplica(backMs).get(engine.replica)).toBeGreaterThan(0);
  expect(endsSince(world, fromMs)).toEqual(new Set(['complete']));
});

test('a host that dies with agent and engine costs a connect failure, no client', () => {
  const world = busyWorld(3, 4, 1);
  const fromMs = world.nowMs;
  world.agents[0]!.stop();
  world.engines[0]!.crash();
  world.run(60_000);
  const { rows } = world.recorder;
  const tried = rows.filter(
    (row) => row.arrivedMs >= fromMs && row.replicas.includes(world.engines[0]!.replica),
  );
  expect(tried.length).toBeLessThan(10);
  expect(endsSince(world, fromMs)).toEqual(new Set(['complete']));
});
