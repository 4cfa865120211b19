import fc from 'fast-check';
import { expect, test } from 'vitest';
import { PrefixTable } from './prefix-table.ts';
import { seededRandom } from './random.ts';

/** Few distinct hashes in few buckets, so that probing, shifting back and eviction all happen. */
const hash = fc.record({
  low: fc.integer({ min: 0, max: 40 }),
  high: fc.integer({ min: 0, max: 2 }),
});
const command = fc.oneof(
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('insert' as const), hash }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('remove' as const), hash }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('touch' as const), hash }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('resize' as const),
      bytes: fc.integer({ min: 200, max: 4_000 }),
      columns: fc.integer({ min: 1, max: 4 }),
    }),
  },
);

test('holds what a map with a recency order and the same bound holds', () => {
  fc.assert(
    fc.property(fc.array(command, { maxLength: 300 }), (commands) => {
      const table = new PrefixTable({ bytesMax: 1_000, columns: 1 });
      // The first key is the least recent.
      const model = new Map<string, number>();
      let stamp = 0;
      for (const step of commands) {
        if (step.kind === 'resize') {
          table.resize({ bytesMax: step.bytes, columns: step.columns });
        } else {
          const { low, high } = step.hash;
          const key = `${low}/${high}`;
          const row = table.find(low, high);
          for (const near of [-1, 0, 1, 7, row]) expect(table.findNear(low, high, near)).toBe(row);
          expect(row >= 0).toBe(model.has(key));
          if (step.kind === 'insert') {
            stamp += 1;
            const at = table.insert(low, high);
            (table.columns[0] as Uint32Array)[at] = stamp;
            model.delete(key);
            model.set(key, stamp);
          } else if (row >= 0 && step.kind === 'remove') {
            table.remove(row);
            model.delete(key);
          } else if (row >= 0) {
            table.touch(row);
            const value = model.get(key) ?? 0;
            model.delete(key);
            model.set(key, value);
          }
        }
        for (const key of model.keys()) {
          if (model.size <= table.rowsMax) break;
          model.delete(key);
        }
        expect(table.size).toBe(model.size);
        expect(table.bytes).toBeLessThanOrEqual(Math.max(table.bytesMax, 8 * 64));
      }
      for (const [key, value] of model) {
        const [low, high] = key.split('/').map(Number) as [number, number];
        expect(table.columns[0]?.[table.find(low, high)]).toBe(value);
      }
    }),
  );
});

test('grows up to its byte budget and then lets the least recent row make room', () => {
  const evicted: number[] = [];
  const table = new PrefixTable({
    bytesMax: 100_000,
    columns: 2,
    onEvict: (row) => evicted.push(table.low(row)),
  });
  for (let k = 0; k < table.rowsMax + 10; k += 1) table.insert(k, 7);
  expect(table.rowsMax).toBeGreaterThan(2_500);
  expect(table.bytes).toBeLessThanOrEqual(100_000);
  expect(table.size).toBe(table.rowsMax);
  expect(evicted).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  expect(table.find(10, 7)).toBeGreaterThanOrEqual(0);
});

test('a large table finds every row while its shards are widened, and when all fall into one', () => {
  const random = seededRandom(3);
  for (const skewed of [false, true]) {
    const table = new PrefixTable({ bytesMax: 16 << 20, columns: 1 });
    const lows = new Set<number>();
    while (lows.size < 60_000) {
      const low = Math.floor(random.next() * 2 ** 32);
      // The uppermost bits of the table's own hash choose the shard.
      if (skewed && Math.imul(low, 0x9e3779b1) >>> 26 !== 7) continue;
      lows.add(low);
    }
    const keys = [...lows];
    for (const [k, low] of keys.entries()) {
      const made = table.insert(low, 0);
      (table.columns[0] as Uint32Array)[made] = k;
      if (k % 3 === 2) table.remove(table.find(keys[k - 1] as number, 0));
    }
    for (const [k, low] of keys.entries()) {
      const row = table.find(low, 0);
      if (k % 3 === 1) expect(row).toBe(-1);
      else if (table.columns[0]?.[row] !== k) throw new Error(`row ${row} is not that of ${k}`);
    }
    expect(table.bytes).toBeLessThanOrEqual(16 << 20);
  }
});

/** Undoes the multiplication of the table's own hash: a low word, beside a high one of 0, that has this hash. */
function lowOf(hash: number): number {
  let inverse = 1;
  for (let bits = 1; bits < 32; bits *= 2) {
    inverse = Math.imul(inverse, 2 - Math.imul(0x9e3779b1, inverse));
  }
  return Math.imul(hash, inverse) >>> 0;
}

test('finds what stands hundreds of buckets behind its home, whatever goes before it', () => {
  const random = seededRandom(5);
  const table = new PrefixTable({ bytesMax: 1 << 20, columns: 1 });
  const model = new Map<number, number>();
  for (let k = 0; k < 6_000; k += 1) {
    // Three of four have one home, the last one but for a few: they go on at the beginning.
    const home = k % 4 === 0 ? Math.floor(random.next() * 2 ** 26) : 0x3ff_f000;
    const low = lowOf(home + (k % 4 === 0 ? 0 : Math.floor(random.next() * 900)));
    if (random.next() < 0.7 && model.size < 800) {
      const row = table.insert(low, 0);
      (table.columns[0] as Uint32Array)[row] = k;
      model.set(low, k);
    } else {
      const keys = [...model.keys()];
      const key = keys[Math.floor(random.next() * keys.length)];
      if (key === undefined) continue;
      table.remove(table.find(key, 0));
      model.delete(key);
    }
    if (k % 50 > 0) continue;
    expect(table.find(low, 0) >= 0).toBe(model.has(low));
    for (const [key, value] of model) {
      if (table.columns[0]?.[table.find(key, 0)] !== value) throw new Error(`${key} at ${k}`);
    }
  }
  expect(model.size).toBeGreaterThan(500);
});

test('rows that were given up are had again in the order in which they went', () => {
  const table = new PrefixTable({ bytesMax: 10_000, columns: 1 });
  const rows = [0, 1, 2, 3, 4, 5].map((low) => table.insert(low, 7));
  const gone = [4, 1, 2, 3].map((low) => rows[low] as number);
  for (const row of gone) table.remove(row);
  expect([10, 11, 12, 13].map((low) => table.insert(low, 7))).toEqual(gone);
  expect(table.insert(14, 7)).toBe(6);
});
