import fc from 'fast-check';
import { expect, test } from 'vitest';
import { BodyBudget, type BodyHold } from './body-budget.ts';

test('bodies never hold more than each and all may, and give back exactly what they held', () => {
  const step = fc.tuple(fc.nat(4), fc.oneof(fc.nat(60), fc.constant(null)));
  fc.assert(
    fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
      const budget = new BodyBudget({ bodyBytes: 100, bodyBytesMax: 250 });
      const holds: BodyHold[] = Array.from({ length: 5 }, () => budget.open());
      const held = [0, 0, 0, 0, 0];
      for (const [who, bytes] of steps) {
        const mine = held[who] ?? 0;
        if (bytes === null) {
          holds[who]?.release();
          held[who] = 0;
        } else {
          const all = held.reduce((sum, each) => sum + each, 0);
          const limit =
            mine + bytes > 100 ? 'body_bytes' : all + bytes > 250 ? 'body_bytes_max' : null;
          expect(holds[who]?.take(bytes)).toBe(limit);
          if (limit === null) held[who] = mine + bytes;
        }
        expect(budget.heldBytes).toBe(held.reduce((sum, each) => sum + each, 0));
      }
      for (const hold of holds) hold.release();
      expect(budget.heldBytes).toBe(0);
    }),
  );
});
