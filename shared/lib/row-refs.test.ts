import fc from 'fast-check';
import { expect, test } from 'vitest';
import { RowRefs, ROW_REFS_MAX } from './row-refs.ts';

const row = fc.oneof(
  fc.constantFrom(-2, -1, 0, 0xfffd, 0xfffe, 0xffff, 0x1_0000, ROW_REFS_MAX - 1),
  fc.integer({ min: -2, max: ROW_REFS_MAX - 1 }),
);

test('gives back every reference and both kinds of none, also when it is longer', () => {
  fc.assert(
    fc.property(fc.array(row, { minLength: 1, maxLength: 50 }), (rows) => {
      const refs = new RowRefs(rows.length);
      expect(refs.get(0)).toBe(-1);
      for (const [at, one] of rows.entries()) refs.set(at, one);
      const longer = refs.widened(rows.length + 3);
      for (const [at, one] of rows.entries()) {
        expect(refs.get(at)).toBe(one);
        expect(longer.get(at)).toBe(one);
      }
      expect(longer.get(rows.length)).toBe(-1);
      expect(longer.widened(2)).toBe(longer);
    }),
  );
});
