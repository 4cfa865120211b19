import { describe, expect, test } from 'vitest';
import { prefillMs, type CostCurve } from '../../shared/model/cost-curve.ts';
import { REGIONAL_DEFAULTS } from '../../shared/model/settings.ts';
import { costMs, type CostInput } from './cost.ts';

/** 8,000 tokens per second. */
const CURVE: CostCurve = {
  baseMs: 0,
  frontMsPerToken: 0,
  linearMsPerToken: 0.125,
  contextMsPerToken2: 0,
  stepTokens: 1_000_000,
};

const IDLE: CostInput = {
  waitMs: 0,
  prefillMs: 0,
  outputTokens: 0,
  itlMs: 10,
  itlMinMs: 10,
  kvUsageRatio: 0,
  preemptionsPerMin: 0,
  meanPromptMs: 0,
  delayMs: 0,
};

const cost = (more: Partial<CostInput>): number => costMs({ ...IDLE, ...more }, REGIONAL_DEFAULTS);

describe('the cost of a target', () => {
  test.each([
    // wait + prefill: 30,000 tokens / 8,000 per s
    [{ prefillMs: prefillMs(CURVE, 30_000, 0) }, 3_750],
    [{ waitMs: 900, prefillMs: 500 }, 1_400],
    [{ waitMs: 900, prefillMs: 500, delayMs: 500 }, 1_900],
    // α·outputTokens·(itl − itl_min) = 0.1 · 200 · 5
    [{ outputTokens: 200, itlMs: 15 }, 100],
    // λ·K/(1 − K) = 150 · 0.5/0.5, 150 · 0.9/0.1, and K is 0.98 at most: 150 · 49
    [{ kvUsageRatio: 0.5 }, 150],
    [{ kvUsageRatio: 0.9 }, 1_350],
    [{ kvUsageRatio: 1 }, 7_350],
    // 12 per minute = 0.2 per s · 500 ms of a mean prompt · 1 s
    [{ preemptionsPerMin: 12, meanPromptMs: 500 }, 100],
    // what nobody knows is left out
    [{ kvUsageRatio: null, itlMs: null, itlMinMs: null, preemptionsPerMin: null }, 0],
  ] as [Partial<CostInput>, number][])('%j is %d ms', (input, expected) => {
    expect(cost(input)).toBeCloseTo(expected, 6);
  });

  test('a cached prefix is worth its prefill: beyond that queue, traffic goes elsewhere', () => {
    // 6,000 shared tokens and 200 of its own: 25 ms with the prefix, 775 ms without.
    const withPrefix = prefillMs(CURVE, 200, 6_000);
    const without = prefillMs(CURVE, 6_200, 0);
    expect([withPrefix, without]).toEqual([25, 775]);
    expect(cost({ waitMs: 749, prefillMs: withPrefix })).toBeLessThan(cost({ prefillMs: without }));
    expect(cost({ waitMs: 751, prefillMs: withPrefix })).toBeGreaterThan(
      cost({ prefillMs: without }),
    );
  });
});
