// What an agent reports as waiting against what the engine model knows: near, never negative, and honest about others.

import { expect, test } from 'vitest';
import { segmentOf } from '../workloads/synthetic-prompt.ts';
import { quantile } from './recorder.ts';
import { DEMO, SMALL_TALK } from './test-worlds.ts';
import { World } from './world.ts';

function reportOf(world: World, index: number) {
  return world.agents[index]!.core!.status(world.nowMs).engines[0]!.targets[0]!.report;
}

/** Calls `look` for every replica every 50 ms. */
function watch(world: World, forMs: number, look: (replica: number) => void): void {
  for (let left = forMs; left > 0; left -= 50) {
    world.run(50);
    for (let replica = 0; replica < world.engines.length; replica++) look(replica);
  }
}

test.each([1, 2, 3])('waiting prefill is near the truth in mixed load (seed %i)', (seed) => {
  const world = new World({ seed, profile: DEMO, replicas: 3, routers: 2 });
  world.runUntilReady();
  world.clients({ ...SMALL_TALK, streamShare: 0.9, abandonShare: 0.1 }).closedLoop(40, 2_000);
  const errors: number[] = [];
  let busy = 0;
  watch(world, 60_000, (replica) => {
    const report = reportOf(world, replica);
    expect(report.waitingPrefillMs).toBeGreaterThanOrEqual(0);
    expect(report.unattributedTokens).toBe(0);
    const truthMs = world.engines[replica]!.truth.waitingPrefillMs;
    if (truthMs <= 20) return;
    busy++;
    errors.push(Math.abs(report.waitingPrefillMs! - truthMs) / truthMs);
  });
  expect(busy).toBeGreaterThan(500);
  expect(quantile(errors, 0.5)).toBeLessThan(0.1);
  expect(quantile(errors, 0.9)).toBeLessThan(0.4);
  const { prefillCost } = reportOf(world, 0);
  expect(prefillCost!.linearMsPerToken).toBeGreaterThan(0.85 * DEMO.linearMsPerToken);
  expect(prefillCost!.linearMsPerToken).toBeLessThan(1.15 * DEMO.linearMsPerToken);
});

test('traffic that bypasses the routers shows as unattributed while it waits, and no longer', () => {
  const world = new World({ seed: 1, profile: DEMO, replicas: 1, routers: 1 });
  world.runUntilReady();
  const engine = world.engines[0]!;
  for (let index = 0; index < 30; index++) {
    engine.call({
      id: `foreign-${index}`,
      tokenIds: segmentOf({ id: index, tokens: 3_000, bytesPerToken: 4, assistant: false })
        .tokenIds,
      answerIds: new Uint32Array(5),
      salt: 'f',
      firstToken: () => {},
      end: () => {},
    });
  }
  let most = 0;
  watch(world, 10_000, () => {
    most = Math.max(most, reportOf(world, 0).unattributedTokens ?? 0);
  });
  expect(most).toBeGreaterThan(5_000);
  world.run(30_000);
  expect(engine.truth.openRequests).toBe(0);
  expect(reportOf(world, 0).unattributedTokens).toBe(0);
});
