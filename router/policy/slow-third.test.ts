import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { heldOut, type SlowTarget } from './slow-third.ts';

function slow(...ratios: (number | null)[]): SlowTarget<number>[] {
  return ratios.map((slowRatio, at) => ({ target: at, key: `r${at}`, slowRatio }));
}

describe('of the slow replicas of a pool', () => {
  const cases: [string, (number | null)[], number, number[]][] = [
    ['none stays out of a pool of one', [9], 1, []],
    ['none stays out of a pool of two', [9], 2, []],
    ['one of three stays out', [4], 3, [0]],
    ['the slowest of two stays out of a pool of three', [4, 5], 3, [1]],
    ['one stays out of a pool of five', [4, 6, 5], 5, [1]],
    [
      'two of nine slow in a pool of ten stay out with the third slowest',
      [4, 5, 6, 7],
      10,
      [3, 2, 1],
    ],
    ['none stays out when all are slow', [4, 5, 6], 3, []],
    ['one whose ratio nobody tells counts as the slowest', [4, null, 5], 4, [1]],
    ['equal ones go by their key', [4, 4, 4], 6, [0, 1]],
  ];
  test.each(cases)('%s', (_, ratios, members, expected) => {
    expect([...heldOut(slow(...ratios), members)]).toEqual(expected);
  });

  test('never more than a third of the pool stays out, and none that is less slow than one in use', () => {
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: 3, max: 100, noNaN: true }), { maxLength: 12 }),
        fc.nat(12),
        (ratios, sound) => {
          const members = ratios.length + sound;
          const out = heldOut(slow(...ratios), members);
          expect(out.size).toBeLessThanOrEqual(Math.floor(members / 3));
          expect(out.size < members || members === 0).toBe(true);
          const used = ratios.filter((_, at) => !out.has(at));
          for (const at of out) {
            expect(ratios[at]).toBeGreaterThanOrEqual(Math.max(0, ...used));
          }
        },
      ),
    );
  });

  test('the order in which they are looked at changes nothing', () => {
    const some = slow(4, 4, 6, 5);
    expect(new Set(heldOut(some.toReversed(), 8))).toEqual(new Set(heldOut(some, 8)));
  });
});
