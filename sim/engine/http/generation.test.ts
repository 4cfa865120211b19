// A request for several answers is taken whole, however long the machine is at it.

import { expect, test } from 'vitest';
import { seededRandom } from '../../../shared/lib/random.ts';
import { EngineModel } from '../model.ts';
import { ENGINE_PROFILES, type EngineProfile } from '../profiles.ts';
import { EngineDriver } from './driver.ts';
import { GenerationRun } from './generation.ts';

/** Longer than a step with a prefill, ms. */
const LATE_MS = 1_000;

test('nothing is heard of an answer before the last of its request is in', () => {
  let nowMs = 0;
  // Every look at the clock is late.
  const clock = { nowMs: () => (nowMs += LATE_MS), wallMs: () => 0 };
  const timers = { after: () => () => {}, every: () => () => {} };
  const listener = { serving() {}, blocks() {}, rested() {}, stopped() {} };
  const profile = ENGINE_PROFILES['demo'] as EngineProfile;
  const model = new EngineModel(profile, seededRandom(1), { nowMs, loadingMs: 0 });
  const driver = new EngineDriver(model, { clock, timers }, listener);
  driver.catchUp();
  const prompts = [1, 2, 3].map((word) => new Uint32Array(20).fill(word));
  const wish = { maxTokens: 4, minTokens: 0, ignoreEos: true, stop: [], includeStop: false };
  const run = new GenerationRun(driver, { id: 'a', prompts, n: 2, seed: 1, forced: null, ...wish });
  const heard: number[] = [];
  const fault = run.submit({
    token: ({ index }) => void heard.push(index),
    ended() {},
    failed() {},
  });
  expect([fault, heard]).toEqual([null, []]);
  driver.catchUp();
  expect(new Set(heard)).toEqual(new Set([0, 1, 2, 3, 4, 5]));
});
