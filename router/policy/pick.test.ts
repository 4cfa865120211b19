import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { seededRandom } from '../../shared/lib/random.ts';
import { REGIONAL_DEFAULTS } from '../../shared/model/settings.ts';
import { draw, drawProbabilities, mostProbable } from './pick.ts';

const probabilities = (costs: number[]): number[] => drawProbabilities(costs, REGIONAL_DEFAULTS);
/** In tenths of a ms: often equal, often near. */
const costs = fc
  .array(fc.integer({ min: 0, max: 5_000 }), { minLength: 1, maxLength: 40 })
  .map((tenths) => tenths.map((value) => value / 10));

describe('the pick', () => {
  test('weighs near ties by exp(−gap / max(5 ms, 5 %))', () => {
    // least 200 → tie 10 ms; 205: e^−0.5 = 0.607; 210: e^−1 = 0.368; 211 is no tie
    const weights = [1, Math.exp(-0.5), Math.exp(-1), 0];
    const sum = weights.reduce((a, b) => a + b);
    probabilities([200, 205, 210, 211]).forEach((probability, k) => {
      expect(probability).toBeCloseTo((weights[k] ?? 0) / sum, 9);
    });
  });

  test('takes the least cost where nothing is near', () => {
    expect(probabilities([900, 25, 775])).toEqual([0, 1, 0]);
    expect(probabilities([])).toEqual([]);
  });

  test('probabilities sum to 1, at most 8 are drawn, cheaper is never less likely', () => {
    fc.assert(
      fc.property(costs, (values) => {
        const found = probabilities(values);
        expect(found.reduce((a, b) => a + b)).toBeCloseTo(1, 9);
        expect(found.filter((probability) => probability > 0).length).toBeLessThanOrEqual(8);
        const best = mostProbable(found);
        expect(values[best]).toBe(Math.min(...values));
        found.forEach((p, a) =>
          found.forEach((q, b) => {
            if (p > 0 && q > 0 && (values[a] ?? 0) < (values[b] ?? 0)) {
              expect(p).toBeGreaterThanOrEqual(q);
            }
          }),
        );
      }),
    );
  });

  test('draws in proportion', () => {
    const random = seededRandom(7);
    const wanted = [0.5, 0, 0.3, 0.2];
    const counts = [0, 0, 0, 0];
    for (let k = 0; k < 20_000; k += 1) {
      const at = draw(wanted, random);
      counts[at] = (counts[at] ?? 0) + 1;
    }
    counts.forEach((count, k) => expect(count / 20_000).toBeCloseTo(wanted[k] ?? 0, 1));
    expect(counts[1]).toBe(0);
    expect(draw([0, 0], random)).toBe(-1);
  });
});
