import fc from 'fast-check';
import { expect, test } from 'vitest';
import { kthSmallest } from './select.ts';

const value = fc.oneof(
  fc.integer({ min: -3, max: 3 }),
  fc.double({ noNaN: true, min: -1e6, max: 1e6 }),
);

test('finds what sorting would put there, among equal values too', () => {
  fc.assert(
    fc.property(fc.array(value, { minLength: 1, maxLength: 60 }), fc.nat(), (values, at) => {
      const k = at % values.length;
      const sorted = values.toSorted((a, b) => a - b);
      const room = new Float64Array([...values, -9e9]);
      expect(kthSmallest(room, values.length, k)).toBe(sorted[k]);
    }),
  );
});
