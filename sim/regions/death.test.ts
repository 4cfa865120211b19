// A region that dies, or is cut off, under load: virtual time, real global cores.

import { describe, expect, test } from 'vitest';
import { Clients, type ClientLoad } from './clients.ts';
import { loadLocally } from './local-load.ts';
import { RegionsWorld } from './world.ts';

const PLACE = { zone: 'asia', routers: 2, tokensPerMs: 8, holdMs: 60, replicas: 10 };
const TOKENS = 800;
/** All of a region's replicas, in requests. */
const CAPACITY_PER_S = (10 * 8_000) / TOKENS;
const DIES_MS = 30_000;

/** Two regions with so much of their capacity asked of each; the nearer one dies. */
function twoRegions(ratio: number) {
  const world = new RegionsWorld({
    ...{ seed: 3, globals: 2, lateMs: [0, 200] },
    regions: [
      { id: 'near', rttMs: 10, ...PLACE },
      { id: 'far', rttMs: 40, ...PLACE },
    ],
  });
  const load: ClientLoad = {
    ...{ tenant: 't', firstTokens: TOKENS, turnTokens: 100, answerTokens: 50 },
    ...{ goesOn: 0, thinkMs: 1_000, maxTurns: 1 },
    perS: (at) => (at < 5_000 ? 0 : ratio * CAPACITY_PER_S),
  };
  const clients = new Clients(world, load, { name: 'c', firstId: 0 });
  loadLocally(world, world.region('far'), { ratio, promptTokens: TOKENS });
  return { world, clients };
}

describe('a region that dies under load', () => {
  test('costs no client its answer: what nobody has seen is asked again elsewhere', () => {
    const { world, clients } = twoRegions(0.4);
    world.run(DIES_MS);
    world.region('near').model.kill();
    const before = clients.figures.answered;
    world.run(DIES_MS + 20_000);
    expect([...clients.figures.refused]).toEqual([]);
    expect(clients.figures.answered - before).toBeGreaterThan(0.9 * 20 * 0.4 * CAPACITY_PER_S);
  });

  test('gets its requests back when it lives again', () => {
    const { world, clients } = twoRegions(0.4);
    world.run(DIES_MS);
    const { model } = world.region('near');
    model.kill();
    world.run(DIES_MS + 20_000);
    model.revive();
    const before = model.firstTokens;
    world.run(DIES_MS + 120_000);
    expect(model.firstTokens - before).toBeGreaterThan(0.3 * CAPACITY_PER_S * 60);
    expect([...clients.figures.refused]).toEqual([]);
  });

  test.each([
    [0.45, true],
    [0.6, false],
  ])(
    'can be carried by the other where both were at %f of their capacity: %s',
    (ratio, carries) => {
      const { world } = twoRegions(ratio);
      world.run(DIES_MS);
      world.region('near').model.kill();
      world.run(DIES_MS + 60_000);
      const queueMs = world.region('far').model.queueMs();
      if (carries) expect(queueMs).toBeLessThan(1_000);
      else expect(queueMs).toBeGreaterThan(5_000);
    },
  );
});

test('a region whose links are cut is used for the grace, then by nobody, and again when they are back', () => {
  const { world, clients } = twoRegions(0.3);
  const { model } = world.region('near');
  const servedIn = (ms: number): number => {
    const before = model.firstTokens;
    world.run(world.timeline.nowMs + ms);
    return model.firstTokens - before;
  };
  world.run(DIES_MS);
  for (const k of [0, 1]) world.cut(k, 'near');
  expect(servedIn(9_000)).toBeGreaterThan(0.8 * 9 * 0.3 * CAPACITY_PER_S);
  world.run(world.timeline.nowMs + 3_000);
  expect(servedIn(10_000)).toBe(0);
  for (const k of [0, 1]) world.rejoin(k, 'near');
  world.run(world.timeline.nowMs + 2_000);
  expect(servedIn(10_000)).toBeGreaterThan(0.8 * 10 * 0.3 * CAPACITY_PER_S);
  expect([...clients.figures.refused]).toEqual([]);
});
