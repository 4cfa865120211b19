import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { PrefixDelta } from './prefix-index.ts';
import { partsOf } from './prefix-parts.ts';

const word = fc.integer({ min: 0, max: 0xffff_ffff });
const delta = fc
  .record({
    runs: fc.array(
      fc.record({
        parentLow: word,
        parentHigh: word,
        depth: fc.nat(9),
        hashes: fc
          .array(fc.tuple(word, word), { minLength: 1, maxLength: 30 })
          .map((pairs) => Uint32Array.from(pairs.flat())),
      }),
      { maxLength: 8 },
    ),
    leaves: fc.array(
      fc.record({ hashLow: word, hashHigh: word, promptTokens: word, answerTokens: word }),
      { maxLength: 30 },
    ),
    evicted: fc.array(fc.tuple(word, word), { maxLength: 30 }),
  })
  .map(({ evicted, ...parts }): PrefixDelta => ({
    ...parts,
    evicted: Uint32Array.from(evicted.flat()),
  }));

/** Each chunk with what it hangs on, in order. */
function chunksOf({ runs }: PrefixDelta): number[][] {
  return runs.flatMap(({ parentLow, parentHigh, depth, hashes }) =>
    Array.from({ length: hashes.length / 2 }, (_, k) => [
      depth + k,
      k === 0 ? parentLow : (hashes[2 * k - 2] ?? 0),
      k === 0 ? parentHigh : (hashes[2 * k - 1] ?? 0),
      hashes[2 * k] ?? 0,
      hashes[2 * k + 1] ?? 0,
    ]),
  );
}

test('parts say together what the whole says, in order, and none holds more than it may', () => {
  fc.assert(
    fc.property(delta, fc.integer({ min: 1, max: 40 }), (whole, most) => {
      const parts = partsOf(whole, most);
      expect(parts.flatMap(chunksOf)).toEqual(chunksOf(whole));
      expect(parts.flatMap(({ leaves }) => leaves)).toEqual(whole.leaves);
      expect(parts.flatMap(({ evicted }) => [...evicted])).toEqual([...whole.evicted]);
      const sizes = parts.map(
        (part) => chunksOf(part).length + part.leaves.length + part.evicted.length / 2,
      );
      expect(Math.max(...sizes)).toBeLessThanOrEqual(most);
      expect(sizes.slice(0, -1).every((size) => size === most)).toBe(true);
    }),
  );
});

test('an index that is empty is one part: it has to be said that nothing is held', () => {
  const nothing = { runs: [], leaves: [], evicted: new Uint32Array(0) };
  expect(partsOf(nothing)).toEqual([nothing]);
});
