// Engines that publish KV events: what their agents know of the cache, and what that is worth when somebody else
// uses the cache too.

import { describe, expect, test } from 'vitest';
import { ENGINE_PROFILES } from '../engine/profiles.ts';
import { CHAT_SHAPE } from '../workloads/conversations.ts';
import type { KvHeard } from '../../agent/policy/kv-hearing.ts';
import { ForeignClients } from './foreign.ts';
import { DEMO, SMALL_TALK } from './test-worlds.ts';
import { World, type WorldOptions } from './world.ts';

const { blockTokens } = DEMO;

function worldOf(change: Partial<WorldOptions> = {}): World {
  const options = { seed: 3, profile: DEMO, replicas: 1, kvEvents: true, ...change };
  const world = new World(options);
  world.runUntilReady();
  return world;
}

/** What the agent says that the engine caches, and what it does. */
function cached(world: World): { said: number | null; true: number; heard: KvHeard } {
  const [target] = world.agents[0]!.core!.status(world.nowMs).engines[0]!.targets;
  const held = [...world.engines[0]!.model.cachedKeys().values()].reduce(
    (sum, count) => sum + count,
    0,
  );
  return { said: target!.report.kvCachedTokens, true: held * blockTokens, heard: target!.kvEvents };
}

describe('what the agent says that the cache holds', () => {
  test('is what it holds, to the block, evictions included', () => {
    const world = worldOf();
    world.clients(SMALL_TALK).closedLoop(6, 2_000);
    for (let i = 0; i < 10; i += 1) {
      world.run(6_000);
      pause(world);
      const { said, true: real } = cached(world);
      expect(said).toBe(real);
      world.engines[0]!.thaw();
    }
    expect(cached(world).said).toBeGreaterThan(60_000);
  });

  test('stays so over gaps that a replay fills', () => {
    const world = worldOf();
    world.clients(SMALL_TALK).closedLoop(6, 1_000);
    for (let i = 0; i < 10; i += 1) {
      world.run(1_000);
      world.engines[0]!.kvFeeds[0]!.drop(3);
    }
    world.run(1_000);
    pause(world);
    const { said, true: real, heard } = cached(world);
    expect(heard.gaps).toBeGreaterThan(5);
    expect(heard.lostGaps).toBe(0);
    expect(said).toBe(real);
  });

  test('is unknown after a gap that nothing fills', () => {
    const world = worldOf();
    world.clients(SMALL_TALK).closedLoop(2, 500);
    world.run(2_000);
    const [feed] = world.engines[0]!.kvFeeds;
    feed!.drop(1);
    world.runUntil(() => {
      feed!.forget();
      return cached(world).heard.lostGaps > 0;
    }, 10_000);
    expect(cached(world).said).toBeNull();
    expect(world.agents[0]!.counts.get('kv_events_lost')).toBe(1);
  });

  test('is known to an agent that comes later, from a replay', () => {
    const world = worldOf();
    world.clients(SMALL_TALK).closedLoop(6, 1_000);
    world.run(5_000);
    world.agents[0]!.stop();
    world.run(1_000);
    world.agents[0]!.start();
    world.run(10_000);
    pause(world);
    const { said, true: real } = cached(world);
    expect(said).toBe(real);
  });

  test('begins anew with another engine process', () => {
    const world = worldOf({ tellsStartTime: false });
    world.clients(SMALL_TALK).closedLoop(6, 1_000);
    world.run(5_000);
    const before = cached(world).said ?? 0;
    world.engines[0]!.restart();
    world.runUntilReady();
    world.run(2_000);
    pause(world);
    const { said, true: real } = cached(world);
    expect(said).toBe(real);
    expect(said).toBeLessThan(before);
  });
});

/** Stops the engine between two requests and lets everything on the way arrive: a step stores before it publishes. */
function pause(world: World): void {
  const [engine] = world.engines;
  world.runUntil(() => engine!.openCalls === 0, 60_000, 1);
  engine!.freeze();
  world.run(5);
}

/** Cached tokens that routers were promised and the engine did not have, as a share of those promised. */
function brokenShare(kvEvents: boolean): number {
  let promised = 0;
  let broken = 0;
  for (const seed of [1, 2]) {
    const profile = { ...ENGINE_PROFILES['demo']!, loadingMs: 500, linearMsPerToken: 0.05 };
    const world = worldOf({ seed, profile, kvEvents });
    const talk = { firstTokens: [500, 3_000], turns: [3, 8], thinkMs: [1_000, 6_000] } as const;
    world.clients({ ...CHAT_SHAPE, ...talk }).closedLoop(10, 2_000);
    const shape = { promptTokens: [500, 4_000], answerTokens: 30 } as const;
    new ForeignClients(world.context, world.engines[0]!, shape).closedLoop(3, 1_000);
    world.run(40_000);
    for (const row of world.recorder.complete()) {
      const told = row.predictedCachedTokens ?? 0;
      promised += told;
      broken += Math.max(0, told - (row.end.usage.cachedTokens ?? 0));
    }
  }
  return broken / promised;
}

test('where foreign traffic takes half of the cache, less than half as many promises are broken', () => {
  expect(brokenShare(true)).toBeLessThan(0.5 * brokenShare(false));
});
