import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RecentMap } from './recent-map.ts';

type Step =
  | { readonly kind: 'set'; readonly key: number }
  | { readonly kind: 'delete'; readonly key: number }
  | { readonly kind: 'take' };

const key = fc.integer({ min: 0, max: 7 });
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ kind: fc.constant('set' as const), key }),
  fc.record({ kind: fc.constant('delete' as const), key }),
  fc.constant({ kind: 'take' as const }),
);

describe('a map that knows its order of use', () => {
  it('is as a Map in which what is set anew goes to the end', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const map = new RecentMap<number, number>();
        const model = new Map<number, number>();
        for (const [at, each] of steps.entries()) {
          if (each.kind === 'set') {
            map.set(each.key, at);
            model.delete(each.key);
            model.set(each.key, at);
          } else if (each.kind === 'delete') {
            expect(map.delete(each.key)).toBe(model.delete(each.key));
          } else {
            const [oldest = null] = model;
            expect(map.takeOldest()).toEqual(oldest);
            if (oldest !== null) model.delete(oldest[0]);
          }
          expect([map.size, [...map.values()]]).toEqual([model.size, [...model.values()]]);
          for (let k = 0; k < 8; k += 1) expect(map.get(k)).toBe(model.get(k));
        }
      }),
    );
  });

  it('goes on behind an entry that is removed while it is walked over', () => {
    const map = new RecentMap<string, number>();
    for (const [name, value] of Object.entries({ a: 1, b: 2, c: 3 })) map.set(name, value);
    const seen: number[] = [];
    for (const value of map.values()) {
      seen.push(value);
      map.takeOldest();
    }
    expect([seen, map.size]).toEqual([[1, 2, 3], 0]);
  });
});
