// Engines that die: before the first token nobody notices, afterwards the client is told, and nothing of the old
// process is believed of the new one.

import { expect, test } from 'vitest';
import { CHAT_SHAPE } from '../workloads/conversations.ts';
import { DEMO, SMALL_TALK } from './test-worlds.ts';
import { World } from './world.ts';

/** One turn each: 1,500 tokens in (0.3 s), 100 out (0.8 s and more). */
const ONE_TURN = {
  ...CHAT_SHAPE,
  firstTokens: [1_500, 1_500],
  answerTokens: [100, 100],
  turns: [1, 1],
} as const;

function readyWorld(seed: number, replicas: number): World {
  const world = new World({ seed, profile: DEMO, replicas, routers: 1 });
  world.runUntilReady();
  return world;
}

test.each(['crash', 'killCore'] as const)(
  'an engine lost before the first token (%s) is a failover that no client sees',
  (how) => {
    const world = readyWorld(1, 3);
    world.clients(ONE_TURN, { tries: 1 }).burst(6);
    world.run(100);
    const { rows } = world.recorder;
    expect(rows.every((row) => row.firstTokenMs === null)).toBe(true);
    const lost = world.engines.find(({ replica }) =>
      rows.some((row) => row.replicas[0] === replica),
    )!;
    lost[how]();
    world.run(20_000);
    expect(world.recorder.ends()).toEqual({ complete: rows.length });
    const moved = rows.filter((row) => row.replicas.length > 1);
    expect(moved.length).toBeGreaterThan(0);
    for (const row of moved) expect(row.replicas[0]).toBe(lost.replica);
  },
);

test('an engine lost after the first token is an error, never a second stream', () => {
  const world = readyWorld(2, 3);
  world.clients(ONE_TURN, { tries: 1 }).burst(3);
  const { rows } = world.recorder;
  world.runUntil(() => rows.every((row) => row.firstTokenMs !== null), 5_000);
  const open = rows.filter((row) => row.end === null);
  for (const engine of world.engines) engine.crash();
  world.run(20_000);
  expect(open.length).toBeGreaterThan(0);
  for (const row of open) {
    expect(row.end).toEqual({ kind: 'interrupted', cause: 'reset' });
    expect(row.replicas).toHaveLength(1);
  }
});

const REBIRTHS = [
  { tellsStartTime: true, loadingMs: 5_000 },
  { tellsStartTime: false, loadingMs: 5_000 },
  // Between two scrapes.
  { tellsStartTime: true, loadingMs: 100 },
  { tellsStartTime: false, loadingMs: 100 },
];

test.each(REBIRTHS)('a new engine process starts with an empty index and ledger: %o', (given) => {
  const { tellsStartTime, loadingMs } = given;
  const world = new World({ seed: 3, profile: DEMO, replicas: 1, routers: 1, tellsStartTime });
  world.runUntilReady();
  const clients = world.clients(SMALL_TALK, { tries: 1 });
  clients.closedLoop(10, 500);
  world.run(15_000);
  const [engine, router] = [world.engines[0]!, world.routers[0]!];
  const before = router.target(engine.replica)!;
  expect(before.indexChunks).toBeGreaterThan(50);
  clients.stop();
  engine.restart(loadingMs);
  const reborn = (): boolean => router.target(engine.replica)!.incarnation !== before.incarnation;
  if (loadingMs > 3_000) {
    world.runUntil(() => router.target(engine.replica)!.phase === 'loading', 3_000);
  }
  world.runUntil(reborn, 10_000);
  world.runUntil(() => router.target(engine.replica)!.phase === 'ready', 60_000);
  world.run(1_000);
  const after = router.target(engine.replica)!;
  expect(after.indexChunks).toBe(0);
  expect(after.leases).toBe(0);
  expect(after.report).toMatchObject({ waitingPrefillTokens: 0, running: 0 });
  expect(router.core!.leaseCount()).toBe(0);
});

test('a frozen engine is left alone until it moves again', () => {
  const world = readyWorld(4, 3);
  const clients = world.clients(SMALL_TALK, { tries: 3 });
  clients.closedLoop(18, 2_000);
  world.run(10_000);
  const frozen = world.engines[0]!;
  frozen.freeze();
  world.run(30_000);
  const { phase } = world.routers[0]!.target(frozen.replica)!;
  expect(phase).toBe('degraded');
  const sentBefore = world.recorder.sentByReplica().get(frozen.replica)!;
  world.run(10_000);
  expect(world.recorder.sentByReplica().get(frozen.replica)).toBe(sentBefore);
  frozen.thaw();
  world.runUntil(() => world.routers[0]!.target(frozen.replica)!.phase === 'ready', 120_000);
  clients.stop();
  world.run(60_000);
  expect(world.recorder.ends()['open']).toBeUndefined();
});
