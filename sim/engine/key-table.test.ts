import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { KeyTable } from './key-table.ts';

describe('key table', () => {
  // Few low bits, so that keys meet and wrap around the end; high bits, so that equal low bits are not equal keys.
  const key = fc.tuple(fc.nat(18), fc.nat(3)).map(([low, high]) => high * 2 ** 32 + low);
  const call = fc.record({ kind: fc.constantFrom('set', 'delete', 'clear', 'fork'), key });

  it('agrees with a map whatever is done, and a fork leaves the original alone', () => {
    fc.assert(
      fc.property(fc.array(call, { maxLength: 120 }), (calls) => {
        let table = new KeyTable(8);
        let map = new Map<number, number>();
        let original: { table: KeyTable; map: Map<number, number> } | null = null;
        calls.forEach(({ kind, key: each }, at) => {
          if (kind === 'set' && (map.size < 8 || map.has(each))) {
            table.set(each, at);
            map.set(each, at);
          } else if (kind === 'delete') {
            table.delete(each);
            map.delete(each);
          } else if (kind === 'clear' && at % 7 === 0) {
            table.clear();
            map.clear();
          } else if (kind === 'fork') {
            original = { table, map };
            table = table.fork();
            map = new Map(map);
          }
          for (const now of original === null ? [{ table, map }] : [{ table, map }, original]) {
            expect(now.table.size).toBe(now.map.size);
            expect(now.table.get(each)).toBe(now.map.get(each) ?? -1);
            for (const [known, block] of now.map) expect(now.table.get(known)).toBe(block);
          }
        });
      }),
      { numRuns: 300 },
    );
  });
});
