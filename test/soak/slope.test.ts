import { describe, expect, test } from 'vitest';
import { seededRandom } from '../../shared/lib/random.ts';
import { isGood, slopeOf, type MemorySample } from './slope.ts';

const MIB = 1_048_576;

/** Noise that wanders, as a heap does between collections: each sample keeps 0.9 of the one before. */
function samples(
  seed: number,
  { perRequest, noiseMib, count = 200 }: { perRequest: number; noiseMib: number; count?: number },
): MemorySample[] {
  const random = seededRandom(seed);
  let noise = 0;
  return Array.from({ length: count }, (_, at) => {
    noise = 0.9 * noise + (random.next() - 0.5) * noiseMib * MIB;
    return { requests: 50_000 + at * 500, bytes: 120 * MIB + at * 500 * perRequest + noise };
  });
}

describe('the slope', () => {
  test('of a straight line is its own, and certain', () => {
    const slope = slopeOf(samples(1, { perRequest: 100, noiseMib: 0 }));
    expect(slope?.bytesPerRequest).toBeCloseTo(100, 6);
    expect(slope?.lower).toBeCloseTo(100, 4);
    expect(slope !== null && isGood(slope)).toBe(false);
  });

  test('lies above its lower bound about nine times in ten, also where neighbours are alike', () => {
    let above = 0;
    for (let seed = 1; seed <= 300; seed += 1) {
      const slope = slopeOf(samples(seed, { perRequest: 80, noiseMib: 2 }));
      if (slope !== null && slope.lower <= 80) above += 1;
    }
    expect(above).toBeGreaterThan(0.84 * 300);
    expect(above).toBeLessThan(0.97 * 300);
  });

  test('of a leak of 500 bytes a request is bad however the heap wanders, and of none good', () => {
    for (let seed = 1; seed <= 50; seed += 1) {
      const leak = slopeOf(samples(seed, { perRequest: 500, noiseMib: 2 }));
      const none = slopeOf(samples(seed, { perRequest: 0, noiseMib: 2 }));
      expect(leak !== null && isGood(leak)).toBe(false);
      expect(none !== null && isGood(none)).toBe(true);
    }
  });

  test('of too few samples, or over no requests, is not known', () => {
    expect(slopeOf(samples(1, { perRequest: 1, noiseMib: 0, count: 23 }))).toBeNull();
    const still = Array.from({ length: 30 }, () => ({ requests: 7, bytes: MIB }));
    expect(slopeOf(still)).toBeNull();
  });
});
