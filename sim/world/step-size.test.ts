// Predictions where nobody tells how many tokens a step of the engine computes: three machines, three true sizes, a quarter
// of the requests not streamed, decodes beside the prefills.

import { expect, test } from 'vitest';
import { ENGINE_PROFILES } from '../engine/profiles.ts';
import { CHAT_SHAPE, type ConversationShape } from '../workloads/conversations.ts';
import { quantile } from './recorder.ts';
import { World } from './world.ts';

const BIG: ConversationShape = {
  ...CHAT_SHAPE,
  firstTokens: [500, 12_000],
  turnTokens: [100, 3_000],
  answerTokens: [50, 200],
  turns: [1, 5],
  thinkMs: [500, 3_000],
  streamShare: 0.75,
};
const SMALL: ConversationShape = { ...BIG, firstTokens: [1_500, 4_000], turnTokens: [100, 600] };
const MACHINES = [
  ['cpu-tiny-llama', SMALL, 10],
  ['h100-llama-8b', BIG, 12],
  ['h100x2-qwen-32b', BIG, 8],
] as const;
const CASES = MACHINES.flatMap(([name, shape, conversations]) =>
  [1_024, 4_096, 16_384].map((stepTokens) => ({ name, shape, conversations, stepTokens })),
);

/** Median of |predicted ÷ measured − 1| from 15 to 45 s after the load begins. */
function medianError(of: (typeof CASES)[number], seed: number): number {
  const machine = { ...ENGINE_PROFILES[of.name]!, loadingMs: 500, kvBlocks: 27_500 };
  const profile = { ...machine, jitterRatio: 0.03, maxNumBatchedTokens: of.stepTokens };
  const world = new World({ seed, profile, replicas: 2 });
  world.runUntilReady();
  world.clients(of.shape).closedLoop(of.conversations, 2_000);
  world.run(15_000);
  const fromMs = world.nowMs;
  world.run(30_000);
  const errors = world.recorder.rows.flatMap((row) => {
    const { sentMs, firstTokenMs, predictedTtftMs, replicas, arrivedMs } = row;
    if (arrivedMs < fromMs || sentMs === null || firstTokenMs === null) return [];
    return replicas.length === 1 ? [Math.abs(predictedTtftMs! / (firstTokenMs - sentMs) - 1)] : [];
  });
  expect(errors.length).toBeGreaterThan(30);
  return quantile(errors, 0.5);
}

test.each(CASES)(
  '$name, steps of $stepTokens tokens: half of the predictions are within 10 %',
  (of) => {
    expect(medianError(of, 1)).toBeLessThan(0.1);
  },
);
