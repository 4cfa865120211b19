import { expect, test } from 'vitest';
import { quantile, spreadOf } from './quantile.ts';

test('a quantile of nothing is unknown', () => {
  expect(quantile([], 0.5)).toBeNull();
  expect(spreadOf([])).toEqual({ count: 0, p50: null, p90: null, p95: null });
});

test('a quantile lies between its neighbours, whatever the order of the values', () => {
  expect(quantile([3, 1, 2], 0.5)).toBe(2);
  expect(quantile([4, 1], 0.5)).toBe(2.5);
  expect(quantile([1, 2, 3, 4, 5], 0.9)).toBeCloseTo(4.6);
  expect(quantile([7], 0.9)).toBe(7);
});
