import fc from 'fast-check';
import { expect, test } from 'vitest';
import { expFall } from './exp-fall.ts';

test('is the exponential, to nine digits', () => {
  fc.assert(
    fc.property(fc.double({ min: 0, max: 39.999, noNaN: true }), (x) => {
      expect(Math.abs(expFall(x) / Math.exp(-x) - 1)).toBeLessThan(2e-10);
    }),
  );
});

test('begins at one, and ends at nothing', () => {
  expect(expFall(0)).toBe(1);
  expect(expFall(39.9999)).toBeCloseTo(0, 15);
  expect(expFall(40)).toBe(0);
  expect(expFall(Number.POSITIVE_INFINITY)).toBe(0);
});
