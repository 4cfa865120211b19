// Each profile against the published figures that its comment cites.

import { describe, expect, it } from 'vitest';

import { seededRandom } from '../../shared/lib/random.ts';
import { prefillMs } from '../../shared/model/cost-curve.ts';
import type { EngineEvent } from './events.ts';
import { EngineModel } from './model.ts';
import { drain } from './model-test-harness.ts';
import { ENGINE_PROFILES, kvCapacityTokens, trueCostCurve } from './profiles.ts';
import { tokenSequence } from './sequence.ts';

function warm(name: string): EngineModel {
  const profile = { ...ENGINE_PROFILES[name]!, coldSteps: 0, coldShapeMs: 0, jitterRatio: 0 };
  const model = new EngineModel(profile, seededRandom(1), { nowMs: 0, loadingMs: 0 });
  model.advance(0);
  return model;
}

/** `sequences` prompts at once, of that many tokens each and with nothing in common. */
function run(
  name: string,
  load: { sequences: number; tokens: number; answer: number },
): EngineEvent[] {
  const model = warm(name);
  for (let at = 0; at < load.sequences; at += 1) {
    const ids = Uint32Array.from({ length: load.tokens }, (_, index) => at * 1e6 + index);
    const sequence = tokenSequence(ids, model.profile.blockTokens);
    const request = { id: `${at}`, sequence, answerTokens: load.answer } as const;
    expect(model.submit({ ...request, finishReason: 'length' }, 0)).toEqual({ ok: true });
  }
  return drain(model);
}

function ttftMs(name: string, tokens: number): number {
  const events = run(name, { sequences: 1, tokens, answer: 1 });
  return events.find((event) => event.kind === 'token')!.atMs;
}

/** Between the last two tokens of all, when nobody is in prefill any more. */
function tpotMs(name: string, sequences: number, tokens: number): number {
  const events = run(name, { sequences, tokens, answer: 12 + 2 * sequences });
  const times = new Set(events.filter((event) => event.kind === 'token').map(({ atMs }) => atMs));
  const [before, last] = [...times].filter((_, at) => at < 10 + 2 * sequences).slice(-2);
  return last! - before!;
}

describe('prefill of a lone prompt', () => {
  it.each([
    ['h100-llama-8b', 2_048, 78, 0.08],
    ['h100-llama-8b', 8_192, 250, 0.08],
    ['h100-llama-8b', 16_384, 510, 0.08],
    ['h100-llama-8b', 32_768, 1_173, 0.08],
    ['h100-llama-8b', 49_152, 1_988, 0.08],
    ['h100x8-llama-70b', 1_024, 78, 0.15],
    ['h100x8-llama-70b', 2_048, 137, 0.15],
    ['h100x8-llama-70b', 4_096, 390, 0.15],
    ['h100x8-llama-70b', 8_100, 835, 0.15],
    ['a100x8-llama-70b', 2_048, 274, 0.03],
    ['a100x8-llama-70b', 8_100, 1_530, 0.03],
    ['h100x4-llama-70b', 4_096, 0.055 * 4_096 + 28, 0.03],
  ])('%s: %d tokens take the published %d ms', (name, tokens, publishedMs, tolerance) => {
    expect(Math.abs(ttftMs(name, tokens) / publishedMs - 1)).toBeLessThan(tolerance);
  });

  it('h100x2-qwen-32b: 8,192 tokens within the published 400 to 510 ms, 20,480 tokens/s around 4k', () => {
    expect(ttftMs('h100x2-qwen-32b', 8_192)).toBeGreaterThan(400);
    expect(ttftMs('h100x2-qwen-32b', 8_192)).toBeLessThan(510);
    const slope =
      (5_000 - 3_000) / (ttftMs('h100x2-qwen-32b', 5_000) - ttftMs('h100x2-qwen-32b', 3_000));
    expect(Math.abs(slope * 1_000 - 20_480)).toBeLessThan(0.03 * 20_480);
  });

  it('a100-llama-8b: within the published 8.5k to 13k tokens/s', () => {
    for (const tokens of [2_048, 4_096, 8_192, 16_384]) {
      const perSecond = (tokens / ttftMs('a100-llama-8b', tokens)) * 1_000;
      expect(perSecond).toBeGreaterThan(8_500);
      expect(perSecond).toBeLessThan(13_000);
    }
  });
});

describe('time per output token', () => {
  it.each([
    ['h100x8-llama-70b', 1, 30.6],
    ['h100x8-llama-70b', 4, 31.8],
    ['h100x8-llama-70b', 16, 34.2],
    ['h100x8-llama-70b', 32, 38.6],
    ['h100x8-llama-70b', 64, 50.2],
    ['a100x8-llama-70b', 1, 45],
    ['a100x8-llama-70b', 64, 71.6],
    ['a100-llama-8b', 1, 1_000 / 75],
    ['a100-llama-8b', 8, (8 * 1_000) / (75 * 6.6)],
  ])('%s with %d sequences: the published %d ms, within 4 %%', (name, sequences, publishedMs) => {
    expect(Math.abs(tpotMs(name, sequences, 512) / publishedMs - 1)).toBeLessThan(0.04);
  });

  it('h100-llama-8b: no more than the published 9.6 ms up to 64 sequences of 204 tokens', () => {
    for (const sequences of [1, 16, 64]) {
      const ms = tpotMs('h100-llama-8b', sequences, 204);
      expect(ms).toBeGreaterThan(3.5);
      expect(ms).toBeLessThan(9.6);
    }
  });
});

describe('every profile', () => {
  it.each([
    ['h100x2-qwen-32b', 307_328],
    ['h100x4-llama-70b', 461_376],
    ['cpu-tiny-llama', 32_768],
  ])('%s holds the measured %d tokens of KV', (name, tokens) => {
    expect(kvCapacityTokens(ENGINE_PROFILES[name]!)).toBe(tokens);
  });

  it.each(Object.keys(ENGINE_PROFILES))('%s prefills as its true cost curve says', (name) => {
    const { profile, maxModelLen } = warm(name);
    const tokens = Math.min(maxModelLen - 1, 20_000);
    const curve = prefillMs(trueCostCurve(profile), tokens, 0);
    expect(ttftMs(name, tokens)).toBeCloseTo(profile.frontMs + curve, 6);
  });
});
