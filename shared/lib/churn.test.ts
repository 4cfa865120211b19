import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ChurnMap, ChurnSet } from './churn.ts';

const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('add' as const), key: fc.nat(40) }) },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('delete' as const), key: fc.nat(40) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('clear' as const), key: fc.nat(0) }) },
  // A walk that deletes some of what it has yet to come to.
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('sweep' as const), key: fc.nat(40) }) },
);

test('holds what a Map and a Set hold, in the same order, and is walked as they are', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 600 }), (steps) => {
      const map = new ChurnMap<number, number>();
      const set = new ChurnSet<number>();
      const plain = new Map<number, number>();
      for (const [at, { kind, key }] of steps.entries()) {
        if (kind === 'add') {
          map.set(key, at);
          set.add(key);
          plain.set(key, at);
        } else if (kind === 'delete') {
          expect(map.delete(key)).toBe(plain.has(key));
          expect(set.delete(key)).toBe(plain.delete(key));
        } else if (kind === 'clear') for (const each of [map, set, plain]) each.clear();
        else expect([...swept(map, key)]).toEqual([...swept(plain, key)]);
        if (kind === 'sweep') for (const gone of set) if (gone > key) set.delete(gone);
        expect([map.size, set.size]).toEqual([plain.size, plain.size]);
        expect([map.has(key), set.has(key)]).toEqual([plain.has(key), plain.has(key)]);
        expect(map.get(key)).toBe(plain.get(key));
      }
      expect([...map]).toEqual([...plain]);
      expect([...map.keys()]).toEqual([...plain.keys()]);
      expect([...map.values()]).toEqual([...plain.values()]);
      expect([...set]).toEqual([...plain.keys()]);
    }),
  );
});

/** Keys that a walk comes to which deletes those above `limit`. */
function* swept(of: Walked, limit: number): Generator<number> {
  for (const key of of.keys()) {
    for (const other of [...of.keys()]) if (other > limit) of.delete(other);
    yield key;
  }
}

type Walked = Pick<ChurnMap<number, number>, 'keys' | 'delete'>;

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as (how: { type: 'minor' | 'major' }) => void;

/** Bytes that have grown old of 6,000 entries that came and went, 20 at a time, after a table had grown old. */
function grownOld(map: Churned): number {
  const old = (): number =>
    getHeapSpaceStatistics().find(({ space_name: name }) => name === 'old_space')
      ?.space_used_size ?? Number.NaN;
  for (let key = 0; key < 20; key += 1) map.set(key, null);
  collect({ type: 'major' });
  const before = old();
  for (let key = 20; key < 6_000; key += 1) {
    map.set(
      key,
      Array.from({ length: 100 }, () => key),
    );
    map.delete(key - 20);
    if (key % 100 === 0) collect({ type: 'minor' });
  }
  return old() - before;
}

interface Churned {
  set(key: number, value: unknown): unknown;
  delete(key: number): boolean;
}

test('what has gone does not grow old, as it does in a Map one of whose tables has', () => {
  expect(grownOld(new ChurnMap())).toBeLessThan(300_000);
  expect(grownOld(new Map())).toBeGreaterThan(1_000_000);
});
