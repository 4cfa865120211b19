import fc from 'fast-check';
import { expect, test } from 'vitest';
import { CHUNK_BYTES } from '../../shared/model/prompt.ts';
import { chainOf, segmentOf, tokenIdsOf, type Segment } from './synthetic-prompt.ts';

const segments = fc.array(
  fc.record({
    id: fc.integer({ min: 0, max: 6 }),
    assistant: fc.boolean(),
  }),
  { minLength: 1, maxLength: 8 },
);

/** Equal ids have equal length and role. */
function build(rows: readonly { id: number; assistant: boolean }[]): Segment[] {
  return rows.map((row) =>
    segmentOf({
      id: row.id,
      tokens: 40 + row.id * 97,
      bytesPerToken: 4.1,
      assistant: row.id % 2 === 1,
    }),
  );
}

test('chains and token ids are equal exactly as far as the prompts are', () => {
  fc.assert(
    fc.property(segments, segments, segments, (shared, left, right) => {
      const a = [...build(shared), ...build(left)];
      const b = [...build(shared), ...build(right)];
      let same = 0;
      while (same < a.length && same < b.length && a[same]!.id === b[same]!.id) same++;
      const sameBytes = a.slice(0, same).reduce((sum, segment) => sum + segment.bytes, 0);
      const first = chainOf(a, 7).hashes;
      const second = chainOf(b, 7).hashes;
      let chunks = 0;
      while (
        2 * chunks < Math.min(first.length, second.length) &&
        first[2 * chunks] === second[2 * chunks] &&
        first[2 * chunks + 1] === second[2 * chunks + 1]
      ) {
        chunks++;
      }
      expect(chunks).toBe(Math.floor(sameBytes / CHUNK_BYTES));
      const tokens = tokenIdsOf(a.slice(0, same));
      expect([...tokenIdsOf(a).subarray(0, tokens.length)]).toEqual([...tokens]);
    }),
  );
});

test("a turn's end is a boundary of the next turn's prompt, and of no other salt's", () => {
  const first = build([
    { id: 2, assistant: false },
    { id: 4, assistant: false },
  ]);
  const answer = segmentOf({ id: 901, tokens: 50, bytesPerToken: 4, assistant: true });
  const next = [...first, answer, ...build([{ id: 6, assistant: false }])];
  expect(chainOf(next, 1).turnEnds).toEqual([chainOf(first, 1).end]);
  expect(chainOf(next, 2).turnEnds).not.toEqual([chainOf(first, 1).end]);
});
