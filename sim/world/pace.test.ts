// How soon predictions follow engines that become slow while their answers are long: exact tokens are told only when
// an answer ends, 10 s and more after its first token.

import { expect, test } from 'vitest';
import { ENGINE_PROFILES } from '../engine/profiles.ts';
import { CHAT_SHAPE, type ConversationShape } from '../workloads/conversations.ts';
import { quantile } from './recorder.ts';
import { World } from './world.ts';

const LONG_ANSWERS: ConversationShape = {
  ...CHAT_SHAPE,
  firstTokens: [500, 12_000],
  turnTokens: [100, 3_000],
  answerTokens: [300, 900],
  turns: [1, 5],
  thinkMs: [500, 3_000],
  streamShare: 0.75,
};

/** |predicted ÷ measured − 1| of requests sent 15 to 30 s after the engines have slowed down by 70 %. */
function errorsAfterSlowdown(profileName: string, seed: number): number[] {
  const profile = {
    ...ENGINE_PROFILES[profileName]!,
    loadingMs: 500,
    coldSteps: 0,
    coldShapeMs: 0,
  };
  const world = new World({ seed, profile: { ...profile, jitterRatio: 0.03 }, replicas: 2 });
  world.runUntilReady();
  world.clients(LONG_ANSWERS).closedLoop(24, 4_000);
  world.run(40_000);
  for (const engine of world.engines) engine.model.slow(1.7);
  world.run(15_000);
  const fromMs = world.nowMs;
  world.run(15_000);
  return world.recorder.rows.flatMap(({ sentMs, firstTokenMs, predictedTtftMs, replicas }) => {
    if (sentMs === null || sentMs < fromMs || firstTokenMs === null || replicas.length !== 1)
      return [];
    return [Math.abs(predictedTtftMs! / (firstTokenMs - sentMs) - 1)];
  });
}

test.each(['h100-llama-8b', 'h100x2-qwen-32b'])(
  '%s: 15 s after it half of the predictions are within 15 %%',
  (profileName) => {
    const errors = [1, 2, 3].flatMap((seed) => errorsAfterSlowdown(profileName, seed));
    expect(errors.length).toBeGreaterThan(30);
    expect(quantile(errors, 0.5)).toBeLessThan(0.15);
  },
);
