import fc from 'fast-check';
import { expect, test } from 'vitest';
import { solveNonNegative } from './non-negative.ts';

/** A = MᵀM + εI is positive definite. */
function problem(m: readonly number[], b: readonly number[]): [Float64Array, Float64Array] {
  const n = b.length;
  const a = new Float64Array(n * n);
  for (let i = 0; i < n; i += 1) {
    for (let j = 0; j < n; j += 1) {
      let sum = i === j ? 0.1 : 0;
      for (let k = 0; k < n; k += 1) sum += (m[k * n + i] ?? 0) * (m[k * n + j] ?? 0);
      a[i * n + j] = sum;
    }
  }
  return [a, Float64Array.from(b)];
}

function valueAt(a: Float64Array, b: Float64Array, x: ArrayLike<number>): number {
  let value = 0;
  for (let i = 0; i < b.length; i += 1) {
    value -= (b[i] ?? 0) * (x[i] ?? 0);
    for (let j = 0; j < b.length; j += 1) {
      value += 0.5 * (x[i] ?? 0) * (a[i * b.length + j] ?? 0) * (x[j] ?? 0);
    }
  }
  return value;
}

test('the unconstrained minimum is found where it is not negative', () => {
  const x = solveNonNegative(Float64Array.of(2, 0, 0, 4), Float64Array.of(2, 8));
  expect([...(x ?? [])]).toEqual([1, 2]);
});

test('a coefficient that would be negative is zero, and the others make the best of it', () => {
  const x = solveNonNegative(Float64Array.of(2, 1, 1, 2), Float64Array.of(3, -3));
  expect([...(x ?? [])]).toEqual([1.5, 0]);
});

test('no feasible point is better', () => {
  const number = fc.double({ min: -5, max: 5, noNaN: true });
  fc.assert(
    fc.property(
      fc.array(number, { minLength: 16, maxLength: 16 }),
      fc.array(number, { minLength: 4, maxLength: 4 }),
      fc.array(
        fc.array(fc.double({ min: 0, max: 5, noNaN: true }), { minLength: 4, maxLength: 4 }),
      ),
      (m, b, others) => {
        const [a, rhs] = problem(m, b);
        const x = solveNonNegative(a, rhs);
        if (x === null) {
          // Every subset with its minimum inside has been refused: zero is the minimum.
          expect(Math.max(...b)).toBeLessThanOrEqual(1e-9);
          return;
        }
        for (const value of x) expect(value).toBeGreaterThanOrEqual(0);
        const best = valueAt(a, rhs, x);
        for (const other of others)
          expect(valueAt(a, rhs, other)).toBeGreaterThanOrEqual(best - 1e-6);
        expect(best).toBeLessThanOrEqual(1e-9);
      },
    ),
  );
});
