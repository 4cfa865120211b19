// What stands for a figure that a target does not report: its pool's median, never zero and never
// full.

import { prefillMs, type CostCurve } from '../../shared/model/cost-curve.ts';

/**
 * For a pool where nobody has learned a curve: about 2,000 tokens per second. Predictions from it
 * are not shown.
 */
export const ASSUMED_CURVE: CostCurve = {
  baseMs: 20,
  frontMsPerToken: 0.01,
  linearMsPerToken: 0.5,
  contextMsPerToken2: 0,
  stepTokens: 2_048,
};

/** Prompt by which curves are ordered, tokens. */
export const TYPICAL_TOKENS = 2_048;

/** The lower median of the known values; null when none is known. */
export function medianKnown(values: readonly (number | null)[]): number | null {
  const known = values.filter((value) => value !== null).sort((a, b) => a - b);
  return known[(known.length - 1) >> 1] ?? null;
}

/** The curve whose prefill of a typical prompt is the median: a real one, not a mixture. */
export function medianCurve(curves: readonly (CostCurve | null)[]): CostCurve | null {
  const known = curves.filter((curve) => curve !== null);
  known.sort((a, b) => prefillMs(a, TYPICAL_TOKENS, 0) - prefillMs(b, TYPICAL_TOKENS, 0));
  return known[(known.length - 1) >> 1] ?? null;
}
