import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  CostLearner,
  DEFAULT_PRIOR,
  sharedSteps,
  type PrefillObservation,
} from './cost-learner.ts';
import { prefillMs } from '../../shared/model/cost-curve.ts';
import type { CostCurve } from '../../shared/model/cost-curve.ts';

const FIXTURES = new URL('../../test/fixtures/vllm-0.32.0/', import.meta.url);
/** The recorded engine ran with --max-num-batched-tokens 1024. */
const PRIOR: CostCurve = { ...DEFAULT_PRIOR, stepTokens: 1_024 };

/** A request that is prefilled alone. */
function loneObservation(
  ms: number,
  request: { readonly uncached: number; readonly cached: number },
  stepTokens: number,
): PrefillObservation {
  const { uncached, cached } = request;
  return {
    ms,
    steps: Math.max(1, Math.ceil(uncached / stepTokens)),
    sums: { uncached, prompt: cached + uncached, context: uncached * (cached + uncached / 2) },
  };
}

interface Recorded {
  readonly ttftMs: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

function read(name: string): unknown {
  return JSON.parse(readFileSync(new URL(name, FIXTURES), 'utf8'));
}

/** Lone requests: each is an observation from its sending to its first token. */
function lonePrefills(): PrefillObservation[] {
  const { alone } = read('prefill-cached.json') as { alone: Recorded[] };
  return alone.map((each) => {
    const { promptTokens, cachedTokens, ttftMs } = each;
    const tokens = { uncached: promptTokens - cachedTokens, cached: cachedTokens };
    return loneObservation(ttftMs, tokens, PRIOR.stepTokens);
  });
}

/** 24 requests sent at once, served in order: an observation between successive first tokens. */
function queuedPrefills(): PrefillObservation[] {
  const { requests } = read('load-24-requests.json') as { requests: Recorded[] };
  return requests.map((each, i) => {
    const ms = each.ttftMs - (requests[i - 1]?.ttftMs ?? 0);
    const lone = loneObservation(ms, { uncached: each.promptTokens, cached: 0 }, PRIOR.stepTokens);
    return { ...lone, steps: sharedSteps(each.promptTokens, PRIOR.stepTokens) };
  });
}

function learned(observations: readonly PrefillObservation[]): CostLearner {
  const learner = new CostLearner({ prior: PRIOR });
  for (const observation of observations) learner.observe(observation);
  return learner;
}

function errorOf(learner: CostLearner, observation: PrefillObservation): number {
  return Math.abs(learner.predictMs(observation) / observation.ms - 1);
}

function leaveOneOut(all: readonly PrefillObservation[]): number[] {
  return all.map((left) => errorOf(learned(all.filter((each) => each !== left)), left));
}

function oneAhead(all: readonly PrefillObservation[], after: number): number[] {
  const learner = learned([]);
  const errors = all.map((each) => {
    const error = errorOf(learner, each);
    learner.observe(each);
    return error;
  });
  return errors.slice(after);
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor((values.length - 1) / 2)] ?? Number.NaN;
}

describe('on a real vLLM', () => {
  test('lone prefills with and without cached tokens are met within 3 % (median, leave one out)', () => {
    expect(median(leaveOneOut(lonePrefills()))).toBeLessThan(0.03);
  });

  test('queued prefills are met within 6 % (median, leave one out)', () => {
    expect(median(leaveOneOut(queuedPrefills()))).toBeLessThan(0.06);
  });

  test('the next prefill is predicted within 6 % after six of them (median)', () => {
    expect(median(oneAhead(lonePrefills(), 6))).toBeLessThan(0.06);
    expect(median(oneAhead(queuedPrefills(), 6))).toBeLessThan(0.06);
  });

  test('a curve learned from lone prefills meets the queue of another day within 7 %', () => {
    const learner = learned(lonePrefills());
    expect(median(queuedPrefills().map((each) => errorOf(learner, each)))).toBeLessThan(0.07);
  });

  test('the step size need not be known: 2,048 in place of 1,024 costs a percent', () => {
    const unknown = lonePrefills().map((each) => ({
      ...each,
      steps: Math.max(1, Math.ceil(each.sums.uncached / 2_048)),
    }));
    const errors = unknown.map((left) => {
      const learner = new CostLearner({ prior: DEFAULT_PRIOR });
      for (const each of unknown) if (each !== left) learner.observe(each);
      return errorOf(learner, left);
    });
    expect(median(errors)).toBeLessThan(0.04);
  });
});

test('six calibration prefills are enough for a curve', () => {
  const truth: CostCurve = {
    baseMs: 18,
    frontMsPerToken: 0.002,
    linearMsPerToken: 0.05,
    contextMsPerToken2: 1.5e-6,
    stepTokens: 1_024,
  };
  const learner = learned(
    [0, 8_192].flatMap((cached) =>
      [256, 2_048, 8_192].map((uncached) =>
        loneObservation(prefillMs(truth, uncached, cached), { uncached, cached }, 1_024),
      ),
    ),
  );
  for (const [uncached, cached] of [
    [100, 0],
    [1_000, 4_000],
    [16_000, 0],
    [500, 30_000],
  ] as const) {
    const predicted = prefillMs(learner.curve(), uncached, cached);
    expect(predicted / prefillMs(truth, uncached, cached)).toBeCloseTo(1, 1);
  }
});

test('a coefficient without spread in its data keeps its prior', () => {
  const anchored = new CostLearner({ prior: PRIOR });
  const calibrated: CostCurve = {
    baseMs: 10,
    frontMsPerToken: 0.003,
    linearMsPerToken: 0.04,
    contextMsPerToken2: 2e-6,
    stepTokens: 1_024,
  };
  anchored.anchor(calibrated, 0.5);
  // Nothing but 500-token prompts without a prefix, exactly as slow as calibrated: nothing to learn.
  const ms = prefillMs(calibrated, 500, 0);
  for (let i = 0; i < 500; i += 1) {
    anchored.observe(loneObservation(ms, { uncached: 500, cached: 0 }, 1_024));
  }
  expect(anchored.curve().frontMsPerToken).toBeCloseTo(0.003, 6);
  expect(anchored.curve().contextMsPerToken2).toBeCloseTo(2e-6, 9);
  expect(prefillMs(anchored.curve(), 500, 8_000) / prefillMs(calibrated, 500, 8_000)).toBeCloseTo(
    1,
    3,
  );
});

test('follows an engine that becomes twice as slow', () => {
  const learner = new CostLearner({ prior: PRIOR });
  const truth: CostCurve = { ...PRIOR, contextMsPerToken2: 0 };
  const sizes = [200, 900, 3_000, 7_000];
  const feed = (factor: number, rounds: number): void => {
    for (let i = 0; i < rounds; i += 1) {
      const uncached = sizes[i % sizes.length] ?? 200;
      const ms = factor * prefillMs(truth, uncached, 0);
      learner.observe(loneObservation(ms, { uncached, cached: 0 }, 1_024));
    }
  };
  feed(1, 100);
  expect(prefillMs(learner.curve(), 3_000, 0) / prefillMs(truth, 3_000, 0)).toBeCloseTo(1, 2);
  feed(2, 200);
  expect(prefillMs(learner.curve(), 3_000, 0) / prefillMs(truth, 3_000, 0)).toBeGreaterThan(1.9);
});

test('five observations at another pace are enough to tell it, whatever their sizes', () => {
  const learner = new CostLearner({ prior: PRIOR });
  const observed = (factor: number, uncached: number): PrefillObservation =>
    loneObservation(factor * prefillMs(PRIOR, uncached, 0), { uncached, cached: 0 }, 1_024);
  for (let i = 0; i < 60; i += 1) learner.observe(observed(1, 200 + 137 * i));
  for (const uncached of [300, 5_000, 900, 2_400, 7_000]) learner.observe(observed(1.7, uncached));
  for (const uncached of [500, 3_000, 9_000]) {
    const pace = prefillMs(learner.curve(), uncached, 0) / prefillMs(PRIOR, uncached, 0);
    expect(pace).toBeGreaterThan(1.55);
    expect(pace).toBeLessThan(1.85);
  }
});

describe('what is only glimpsed', () => {
  const observed = (factor: number, uncached: number): PrefillObservation =>
    loneObservation(factor * prefillMs(PRIOR, uncached, 0), { uncached, cached: 0 }, 1_024);
  const paceAt = (learner: CostLearner, uncached: number): number =>
    prefillMs(learner.curve(), uncached, 0) / prefillMs(PRIOR, uncached, 0);
  const learned60 = (): CostLearner => {
    const learner = new CostLearner({ prior: PRIOR });
    for (let i = 0; i < 60; i += 1) learner.observe(observed(1, 200 + 137 * i));
    return learner;
  };

  test('tells the pace before any answer has ended, and teaches nothing else', () => {
    const learner = learned60();
    [300, 5_000, 900, 2_400].forEach((uncached, id) => {
      learner.glimpse(id, observed(1.7, uncached));
    });
    expect([paceAt(learner, 500), paceAt(learner, 9_000)]).toEqual([
      expect.closeTo(1.7, 1),
      expect.closeTo(1.7, 1),
    ]);
    for (let id = 10; id < 15; id += 1) learner.glimpse(id, observed(1, 1_000));
    expect(paceAt(learner, 9_000)).toBeCloseTo(1, 1);
  });

  test('is corrected in its place when it is observed', () => {
    const learner = learned60();
    for (let id = 0; id < 5; id += 1) learner.glimpse(id, observed(2, 1_000));
    // They had twice the tokens that their routers had estimated: nothing was slow.
    for (let id = 0; id < 5; id += 1) learner.observe(observed(1, 2_000), id);
    expect(paceAt(learner, 3_000)).toBeCloseTo(1, 1);
  });

  test('says nothing of the present any more when newer ones have been glimpsed', () => {
    const learner = learned60();
    learner.glimpse(0, observed(3, 1_000));
    for (let id = 1; id < 6; id += 1) learner.glimpse(id, observed(1, 1_000));
    for (let i = 0; i < 3; i += 1) learner.observe(observed(3, 1_000), 0);
    expect(paceAt(learner, 3_000)).toBeLessThan(1.35);
  });
});

test('short prompts that come some ms late say little of long ones', () => {
  const calibrated: CostCurve = { ...PRIOR, baseMs: 17, linearMsPerToken: 0.2 };
  const learner = new CostLearner({ prior: PRIOR });
  learner.anchor(calibrated, 0.5);
  const short = [
    { uncached: 5, lateMs: 9 },
    { uncached: 12, lateMs: 8 },
    { uncached: 60, lateMs: 0 },
    { uncached: 30, lateMs: 5 },
  ];
  for (const [id, { uncached, lateMs }] of short.entries()) {
    const ms = prefillMs(calibrated, uncached, 0) + lateMs;
    learner.observe(loneObservation(ms, { uncached, cached: 0 }, 1_024), id);
  }
  const change = prefillMs(learner.curve(), 8_192, 0) / prefillMs(calibrated, 8_192, 0);
  expect(change).toBeGreaterThan(0.8);
  expect(change).toBeLessThan(1.2);
});

test('one outlier among many moves the curve little', () => {
  const learner = new CostLearner({ prior: PRIOR });
  const exact = (uncached: number): PrefillObservation =>
    loneObservation(prefillMs(PRIOR, uncached, 0), { uncached, cached: 0 }, 1_024);
  for (let i = 0; i < 60; i += 1) learner.observe(exact(200 + 137 * i));
  learner.observe({ ...exact(1_000), ms: 10 * exact(1_000).ms });
  expect(prefillMs(learner.curve(), 1_000, 0) / prefillMs(PRIOR, 1_000, 0)).toBeLessThan(1.1);
});

test('no observation whatever makes a coefficient negative or infinite', () => {
  const observation = fc.record({
    ms: fc.oneof(fc.double({ min: -10, max: 1e7 }), fc.constant(Number.NaN)),
    uncached: fc.integer({ min: 0, max: 200_000 }),
    cached: fc.integer({ min: 0, max: 200_000 }),
  });
  fc.assert(
    fc.property(fc.array(observation, { maxLength: 60 }), (all) => {
      const learner = new CostLearner({ prior: PRIOR });
      for (const { ms, ...tokens } of all) learner.observe(loneObservation(ms, tokens, 1_024));
      for (const value of Object.values(learner.curve())) {
        expect(Number.isFinite(value) && value >= 0).toBe(true);
      }
    }),
    { numRuns: 200 },
  );
});
