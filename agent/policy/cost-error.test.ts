import { expect, test } from 'vitest';
import { CostErrors } from './cost-error.ts';

test('nothing is said before eight prefills', () => {
  const errors = new CostErrors();
  for (let i = 0; i < 7; i += 1) errors.observe(100, 100);
  expect(errors.figures()).toBeNull();
  errors.observe(100, 100);
  expect(errors.figures()).toEqual({ p50: 0, p90: 0, bias: 0 });
});

test('size and direction are told apart', () => {
  const errors = new CostErrors();
  for (let i = 0; i < 50; i += 1) errors.observe(i % 2 === 0 ? 110 : 90, 100);
  expect(errors.figures()?.p50).toBeCloseTo(0.1);
  const low = new CostErrors();
  for (let i = 0; i < 50; i += 1) low.observe(88, 100);
  expect(low.figures()?.bias).toBeCloseTo(-0.12);
});

test('only the last 128 count, and nonsense does not', () => {
  const errors = new CostErrors();
  for (let i = 0; i < 1_000; i += 1) errors.observe(300, 100);
  errors.observe(1, 0);
  errors.observe(Number.NaN, 5);
  for (let i = 0; i < 128; i += 1) errors.observe(100, 100);
  expect(errors.figures()).toEqual({ p50: 0, p90: 0, bias: 0 });
});
