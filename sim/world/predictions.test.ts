// Predicted against measured time to first token, under loads of which a quarter is not streamed: nobody sees the
// first tokens of that quarter, and nobody told the agents how many tokens a step of the engine takes.

import { expect, test } from 'vitest';
import { ENGINE_PROFILES } from '../engine/profiles.ts';
import { CHAT_SHAPE, type ConversationShape } from '../workloads/conversations.ts';
import { quantile } from './recorder.ts';
import { World } from './world.ts';

const SEEDS = [1, 2, 3, 4, 5];
/** A batch of eight, steps of 1,024 tokens; room for every conversation. */
const PROFILE = {
  ...ENGINE_PROFILES['cpu-tiny-llama']!,
  loadingMs: 500,
  kvBlocks: 4_096,
  jitterRatio: 0.03,
};
/** Contexts of some 3,000 tokens. */
const MIXED: ConversationShape = {
  ...CHAT_SHAPE,
  firstTokens: [1_500, 4_000],
  turnTokens: [100, 600],
  answerTokens: [16, 64],
  turns: [1, 5],
  thinkMs: [500, 3_000],
  streamShare: 0.75,
  bytesPerToken: 3.4,
};

/** Median of |predicted ÷ measured − 1| from 20 to 50 s after the load begins; the engines slow down at 10 s. */
function medianError(seed: number, load: { conversations: number; slowdown?: number }): number {
  const world = new World({ seed, profile: PROFILE, replicas: 2 });
  world.runUntilReady();
  world.clients(MIXED).closedLoop(load.conversations, 2_000);
  world.run(10_000);
  for (const engine of world.engines) engine.model.slow(load.slowdown ?? 1);
  world.run(10_000);
  const fromMs = world.nowMs;
  world.run(30_000);
  const errors: number[] = [];
  for (const row of world.recorder.rows) {
    const { firstTokenMs, sentMs, predictedTtftMs } = row;
    if (row.arrivedMs < fromMs || firstTokenMs === null || row.replicas.length !== 1) continue;
    errors.push(Math.abs(predictedTtftMs! / (firstTokenMs - sentMs!) - 1));
  }
  expect(errors.length).toBeGreaterThan(30);
  return quantile(errors, 0.5);
}

test.each(SEEDS)('at moderate load half of the predictions are within 10 % (seed %i)', (seed) => {
  expect(medianError(seed, { conversations: 10 })).toBeLessThan(0.1);
});

test.each(SEEDS)('with every slot taken half of them are within 25 % (seed %i)', (seed) => {
  expect(medianError(seed, { conversations: 48 })).toBeLessThan(0.25);
});

test.each(SEEDS)(
  'seconds after the engines have slowed down by 70 % they are within 20 % again (seed %i)',
  (seed) => {
    expect(medianError(seed, { conversations: 10, slowdown: 1.7 })).toBeLessThan(0.2);
  },
);
