import { expect, test } from 'vitest';
import { seededRandom } from '../../shared/lib/random.ts';
import { addToSums, emptySums, prefillMs } from '../../shared/model/cost-curve.ts';
import type { CostCurve } from '../../shared/model/cost-curve.ts';
import { StepFit, type PrefillStretch } from './step-fit.ts';

/** A GPU whose step has a noticeable base. */
function engineOf(stepTokens: number): CostCurve {
  return {
    baseMs: 25,
    frontMsPerToken: 0.0004,
    linearMsPerToken: 0.03,
    contextMsPerToken2: 5e-8,
    stepTokens,
  };
}

function lone(curve: CostCurve, uncached: number, cached: number, factor = 1): PrefillStretch {
  const sums = emptySums();
  addToSums(sums, uncached, cached);
  return { ms: factor * prefillMs(curve, uncached, cached), lone: true, instants: 1, sums };
}

/** `count` prompts of up to 12,000 tokens, times ±3 %. */
function feed(fit: StepFit, engine: CostCurve, count: number, seed = 1): void {
  const random = seededRandom(seed);
  for (let i = 0; i < count; i += 1) {
    const uncached = 100 + Math.floor(random.next() * 12_000);
    const cached = random.next() < 0.5 ? 0 : Math.floor(random.next() * 10_000);
    fit.observe(lone(engine, uncached, cached, 0.97 + 0.06 * random.next()));
  }
}

test.each([1_024, 2_048, 4_096, 8_192])('finds out that a step computes %i tokens', (tokens) => {
  const fit = new StepFit(null);
  feed(fit, engineOf(tokens), 200);
  expect(fit.curve().stepTokens).toBe(tokens);
});

test('follows an engine that comes back with other steps', () => {
  const fit = new StepFit(null);
  feed(fit, engineOf(1_024), 200);
  feed(fit, engineOf(8_192), 200);
  expect(fit.curve().stepTokens).toBe(8_192);
});

test('what was told is never changed', () => {
  const fit = new StepFit(3_000);
  feed(fit, engineOf(1_024), 200);
  expect(fit.curve().stepTokens).toBe(3_000);
});

test('where the size makes no difference, none takes over', () => {
  const fit = new StepFit(null);
  const before = fit.curve().stepTokens;
  for (let i = 0; i < 200; i += 1) fit.observe(lone(engineOf(16_384), 100 + i, 0));
  expect(fit.curve().stepTokens).toBe(before);
});

test('an inherited curve is told as it came, its step size with it', () => {
  const fit = new StepFit(null);
  const inherited = engineOf(8_192);
  fit.anchor(inherited, 0.5);
  expect(fit.curve()).toEqual(inherited);
});

test('an inherited curve of an unusual step size costs what it cost in long prompts', () => {
  const inherited = engineOf(6_000);
  const fit = new StepFit(null);
  fit.anchor(inherited, 0.5);
  const ratio = prefillMs(fit.curve(), 60_000, 0) / prefillMs(inherited, 60_000, 0);
  expect(ratio).toBeCloseTo(1, 1);
});

test('an engine that tells its step size ends the search; what was learned stays', () => {
  const fit = new StepFit(null);
  feed(fit, engineOf(4_096), 100);
  const before = prefillMs(fit.curve(), 60_000, 0);
  fit.tell(6_000);
  expect(fit.curve().stepTokens).toBe(6_000);
  expect(prefillMs(fit.curve(), 60_000, 0) / before).toBeCloseTo(1, 1);
  feed(fit, engineOf(1_024), 200, 2);
  expect(fit.curve().stepTokens).toBe(6_000);
});
