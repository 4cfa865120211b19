import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../shared/lib/random.ts';
import { slopeOf } from './slope.ts';

describe('the slope', () => {
  it('is that of the line on which all samples lie, with no room for another', () => {
    const samples = [0, 10, 20, 30].map((at) => ({ at, value: 5 + 3 * at }));
    expect(slopeOf(samples)).toEqual({ slope: 3, low: 3, high: 3 });
  });

  it('is not moved by one odd sample', () => {
    const samples = Array.from({ length: 11 }, (_, at) => ({ at, value: at === 6 ? 900 : 2 * at }));
    expect(slopeOf(samples)?.slope).toBe(2);
  });

  it('is unknown of two samples', () => {
    expect(
      slopeOf([
        { at: 0, value: 0 },
        { at: 1, value: 1 },
      ]),
    ).toBeNull();
  });

  it('holds the true slope in its interval nine times in ten', () => {
    const random = seededRandom(4);
    const noise = (): number =>
      Array.from({ length: 12 }, () => random.next()).reduce((a, b) => a + b) - 6;
    let held = 0;
    for (let run = 0; run < 400; run += 1) {
      const samples = Array.from({ length: 11 }, (_, at) => ({ at, value: at + 3 * noise() }));
      const { low, high } = slopeOf(samples)!;
      if (low <= 1 && 1 <= high) held += 1;
    }
    expect(held / 400).toBeGreaterThan(0.85);
    expect(held / 400).toBeLessThan(0.97);
  });
});
