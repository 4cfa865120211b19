// Σ leases = open attempts after every event, whatever fails: the router hosts check it, here it is put under fire.

import { expect, test } from 'vitest';
import { Faults, type Fault } from './faults.ts';
import { DEMO, SMALL_TALK } from './test-worlds.ts';
import { World } from './world.ts';

const ALL_FAULTS: readonly Fault[] = [
  'engineCrash',
  'coreDeath',
  'engineFreeze',
  'engineUnreachable',
  'linkCut',
  'linkHold',
  'agentRestart',
  'routerRestart',
];

test.each([1, 2, 3, 4, 5, 6])(
  'every attempt has one lease, released once, and nothing is left after the storm (seed %i)',
  (seed) => {
    const world = new World({ seed, profile: DEMO, replicas: 4, routers: 2 });
    world.runUntilReady();
    const clients = world.clients({ ...SMALL_TALK, streamShare: 0.8, abandonShare: 0.15 });
    clients.closedLoop(32, 2_000);
    const untilMs = world.nowMs + 60_000;
    new Faults(world, { kinds: ALL_FAULTS, everyMs: 1_000, lastMs: 5_000, untilMs });
    world.run(60_000);
    clients.stop();
    world.run(120_000);
    // An agent's probe may be under way.
    for (let i = 0; i < 100 && world.engines.some((engine) => engine.openCalls > 0); i += 1) {
      world.run(10);
    }
    expect(world.recorder.ends()['open']).toBeUndefined();
    expect(world.recorder.complete().length).toBeGreaterThan(100);
    for (const router of world.routers) {
      expect(router.core?.leaseCount()).toBe(0);
      expect(router.openRequests).toBe(0);
    }
    for (const engine of world.engines) {
      expect(engine.openCalls).toBe(0);
      expect(engine.truth).toMatchObject({ openRequests: 0, heldBlocks: 0 });
    }
  },
);
