import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { HolderSets, HOLDERS_MAX } from './holder-sets.ts';

const member = fc.integer({ min: 0, max: 99 });
const step = fc.record({
  kind: fc.constantFrom('add' as const, 'add' as const, 'remove' as const, 'release' as const),
  row: fc.integer({ min: 0, max: 5 }),
  member,
});

function membersOf(sets: HolderSets, word: number): number[] {
  const members: number[] = [];
  sets.forEach(word, (one) => members.push(one));
  return members.sort((a, b) => a - b);
}

test('each word names the members of a set of its own, whatever is added, removed and given up', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), fc.nat(4), (steps, widen) => {
      const sets = new HolderSets(1_000_000);
      sets.reshape(100, 1_000_000);
      const words = Array<number>(6).fill(0);
      const model = words.map(() => new Set<number>());
      for (const [k, { kind, row, member: one }] of steps.entries()) {
        if (k % 50 === 49 && widen > 0) sets.reshape(100 + 40 * widen * k, 1_000_000);
        const word = words[row] as number;
        const own = model[row] as Set<number>;
        if (kind === 'add') {
          words[row] = sets.add(word, one);
          own.add(one);
        } else if (kind === 'remove') {
          words[row] = sets.remove(word, one);
          own.delete(one);
        } else {
          sets.release(word);
          words[row] = 0;
          own.clear();
        }
        for (let r = 0; r < 6; r += 1) {
          const expected = [...(model[r] as Set<number>)].sort((a, b) => a - b);
          expect(membersOf(sets, words[r] as number)).toEqual(expected);
          expect(words[r] === 0).toBe(expected.length === 0);
        }
        expect(sets.has(words[row] as number, one)).toBe(own.has(one));
        expect(sets.isOnly(words[row] as number, one)).toBe(own.has(one) && own.size === 1);
      }
      const united = new Uint32Array(4);
      for (const word of words) sets.unite(word, united);
      for (let one = 0; one < 100; one += 1) {
        const bit = ((united[one >>> 5] as number) >>> (one & 31)) & 1;
        expect(bit === 1).toBe(model.some((own) => own.has(one)));
      }
      for (const [row, word] of words.entries()) {
        const own = model[row] as Set<number>;
        const asked = new Uint32Array(3);
        for (const one of [...own].slice(0, 4)) asked[one >>> 5]! |= 1 << (one & 31);
        expect(sets.covers(word, asked)).toBe(!sets.isInline(word));
        const other = [...Array.from({ length: 90 }).keys()].find((one) => !own.has(one)) ?? 0;
        asked[other >>> 5]! |= 1 << (other & 31);
        expect(sets.covers(word, asked)).toBe(false);
      }
    }),
  );
});

describe('within its budget', () => {
  const BUDGET = 4_000;

  function withSets(count: number): { sets: HolderSets; words: number[] } {
    const sets = new HolderSets(BUDGET);
    sets.reshape(64, BUDGET);
    const words = Array.from({ length: count }, () => {
      let word = 0;
      for (const one of [1, 33, 63]) word = sets.add(word, one);
      return word;
    });
    return { sets, words };
  }

  test('a third member that finds no room is refused and counted; two always fit', () => {
    const { sets, words } = withSets(400);
    expect(sets.bytes).toBeLessThanOrEqual(BUDGET);
    expect(sets.refused).toBeGreaterThan(50);
    for (const word of words) expect(membersOf(sets, word).length).toBeGreaterThanOrEqual(2);
    expect(membersOf(sets, words[0] as number)).toEqual([1, 33, 63]);
  });

  test('wider sets are fewer: what lies within keeps its members', () => {
    const { sets, words } = withSets(300);
    const most = sets.placesWithin(1_000, BUDGET);
    sets.reshape(1_000, BUDGET);
    expect(sets.bytes).toBeLessThanOrEqual(BUDGET);
    for (const word of words) {
      const place = sets.placeOf(word);
      if (place >= 0 && place < most) expect(membersOf(sets, word)).toEqual([1, 33, 63]);
    }
    expect(sets.has(sets.add(words[0] as number, 999), 999)).toBe(true);
  });

  test('a member beyond all bounds is refused', () => {
    const sets = new HolderSets(BUDGET);
    expect(sets.add(0, HOLDERS_MAX)).toBe(0);
    expect(sets.refused).toBe(1);
  });
});
