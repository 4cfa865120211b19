// The slope of a handful of measurements that have a noise of their own: the median of the slopes between all pairs
// (Theil and Sen), which one odd sample does not move, and how far it may lie off: the interval that holds 90 % of those
// slopes' medians, by Kendall's rank statistic.

import { quantile } from '../../test/engines/quantile.ts';

export interface Sample {
  readonly at: number;
  readonly value: number;
}

export interface Slope {
  readonly slope: number;
  readonly low: number;
  readonly high: number;
}

/** Of a normal distribution: 5 % lie beyond it on either side. */
const Z_90 = 1.645;

/** Null of fewer than three samples. */
export function slopeOf(samples: readonly Sample[]): Slope | null {
  const count = samples.length;
  if (count < 3) return null;
  const slopes: number[] = [];
  for (const [index, one] of samples.entries()) {
    for (const two of samples.slice(index + 1)) {
      slopes.push((two.value - one.value) / (two.at - one.at));
    }
  }
  const deviation = Math.sqrt((count * (count - 1) * (2 * count + 5)) / 18);
  const aside = Math.min(0.5, (Z_90 * deviation) / (2 * slopes.length));
  const at = (q: number): number => quantile(slopes, q) ?? Number.NaN;
  return { slope: at(0.5), low: at(0.5 - aside), high: at(0.5 + aside) };
}
