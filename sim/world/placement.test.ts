// Where requests go: to their prefix while that is soonest, elsewhere when its queue costs more.

import { expect, test } from 'vitest';
import { quantile } from './recorder.ts';
import { DEMO, SMALL_TALK } from './test-worlds.ts';
import { World } from './world.ts';

/** Every conversation begins with the same 6,000 tokens: 1.2 s of prefill where they are not cached. */
function sharedPrompt(seed: number, conversationsPerS: number): World {
  const world = new World({ seed, profile: DEMO, replicas: 8, routers: 1 });
  world.runUntilReady();
  const shape = { ...SMALL_TALK, systemTokens: 6_000, systemShare: 1 } as const;
  const clients = world.clients({ ...shape, firstTokens: [50, 400], turns: [1, 3] });
  clients.openLoop(conversationsPerS);
  world.run(30_000);
  clients.stop();
  world.run(20_000);
  return world;
}

test('a shared prompt keeps light traffic together: the pull of a prefix is real', () => {
  const { recorder } = sharedPrompt(1, 0.5);
  expect(recorder.busiestShare()).toBeGreaterThan(0.9);
});

test.each([1, 2, 3])(
  'a shared 6k-token prompt does not pin eight replicas to one (seed %i)',
  (seed) => {
    const { recorder } = sharedPrompt(seed, 40);
    expect(recorder.busiestShare()).toBeLessThan(0.35);
    expect(recorder.sentByReplica().size).toBeGreaterThanOrEqual(4);
    expect(recorder.ends()).toEqual({ complete: recorder.rows.length });
    expect(recorder.cachedShare()).toBeGreaterThan(0.9);
  },
);

test.each([1, 2, 3])('later turns go where their prefix is, and κ says so (seed %i)', (seed) => {
  const world = new World({ seed, profile: DEMO, replicas: 4, routers: 2 });
  world.runUntilReady();
  const shape = { ...SMALL_TALK, systemTokens: 600, systemShare: 0.5, systemPrompts: 3 };
  const clients = world.clients({ ...shape, turns: [3, 8] });
  clients.closedLoop(24, 2_000);
  world.run(60_000);
  clients.stop();
  world.run(20_000);
  const { recorder } = world;
  expect(recorder.reuseShare(DEMO.blockTokens)).toBeGreaterThan(0.95);
  const errors = recorder
    .complete()
    .filter((row) => row.turn > 0)
    .map(({ predictedCachedTokens, end }) => {
      const reported = end.usage.cachedTokens ?? 0;
      return Math.abs((predictedCachedTokens ?? 0) - reported) / Math.max(1, reported);
    });
  expect(quantile(errors, 0.5)).toBeLessThan(0.02);
  expect(quantile(errors, 0.9)).toBeLessThan(0.05);
  for (const { core } of world.agents) {
    const { report } = core!.status(world.nowMs).engines[0]!.targets[0]!;
    expect(report.kappa).toBeGreaterThan(0.97);
    expect(report.kappa).toBeLessThan(1.03);
    expect(report.bytesPerToken?.mean).toBeCloseTo(SMALL_TALK.bytesPerToken, 1);
  }
});

test('the predicted time to the first token is near the measured one at moderate load', () => {
  const world = new World({ seed: 5, profile: DEMO, replicas: 4, routers: 2 });
  world.runUntilReady();
  world.clients({ ...SMALL_TALK, turns: [3, 8] }).closedLoop(24, 2_000);
  world.run(60_000);
  const errors = world.recorder
    .complete()
    .filter((row) => row.predictedTtftMs !== null)
    .map(({ predictedTtftMs, firstTokenMs, sentMs }) => {
      const measuredMs = firstTokenMs! - sentMs!;
      return Math.abs(predictedTtftMs! - measuredMs) / measuredMs;
    });
  expect(quantile(errors, 0.5)).toBeLessThan(0.1);
});
