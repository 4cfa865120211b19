import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { PrefixLeaf } from '../../shared/protocol/messages.ts';
import { LeafTable } from './prefix-leaves.ts';

const end = fc.integer({ min: 1, max: 4 });
const slot = fc.integer({ min: 0, max: 5 });
const step = fc.oneof(
  fc.record({ kind: fc.constant('put' as const), slot, end, answer: fc.nat(500) }),
  fc.record({ kind: fc.constant('remove' as const), slot, end }),
  fc.record({ kind: fc.constant('clear' as const), slot }),
);

function leafOf(which: number, answerTokens: number): PrefixLeaf {
  return { hashLow: which * 77, hashHigh: which, promptTokens: which * 100, answerTokens };
}

function get(leaves: LeafTable, of: number, which: number): number | null {
  const first = leaves.first(which * 77, which);
  return first < 0 ? null : (leaves.at(first, of)?.answerTokens ?? null);
}

test('each target has its own answer of an end, whoever else holds it, came first or has gone', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const leaves = new LeafTable(100_000);
      const model = Array.from({ length: 6 }, () => new Map<number, number>());
      for (const next of steps) {
        const own = model[next.slot] as Map<number, number>;
        if (next.kind === 'put') {
          leaves.put(next.slot, leafOf(next.end, next.answer));
          own.set(next.end, next.answer);
        } else if (next.kind === 'remove') {
          leaves.remove(next.slot, next.end * 77, next.end);
          own.delete(next.end);
        } else {
          clear(leaves, next.slot);
          own.clear();
        }
        for (let which = 1; which <= 4; which += 1) {
          const holders = model.filter((held) => held.has(which));
          expect(leaves.first(which * 77, which) >= 0).toBe(holders.length > 0);
          for (let of = 0; of < 6; of += 1) {
            expect(get(leaves, of, which)).toBe(model[of]?.get(which) ?? null);
          }
        }
      }
      for (const [of, held] of model.entries()) {
        const listed = leaves.of(of).map(({ hashHigh, answerTokens }) => [hashHigh, answerTokens]);
        expect(new Map(listed as [number, number][])).toEqual(held);
        for (const leaf of leaves.of(of))
          expect(leaf).toEqual(leafOf(leaf.hashHigh, leaf.answerTokens));
      }
    }),
  );
});

test('at the budget the least recent leaf goes, and no target is left with what nobody can find', () => {
  const leaves = new LeafTable(4_000);
  for (let k = 1; k < 400; k += 1) {
    for (const of of [0, 1, 2]) leaves.put(of, leafOf(k, 10 * k + of));
  }
  expect(leaves.bytes).toBeLessThanOrEqual(4_000);
  expect(leaves.evictions).toBeGreaterThan(1_000);
  for (const of of [0, 1, 2]) {
    expect(get(leaves, of, 399)).toBe(3_990 + of);
    for (const leaf of leaves.of(of))
      expect(get(leaves, of, leaf.hashHigh)).toBe(leaf.answerTokens);
  }
  for (const of of [0, 1, 2]) clear(leaves, of);
  for (let k = 1; k < 400; k += 1) expect(leaves.first(k * 77, k)).toBe(-1);
});

/** In steps that end within a row or two. */
function clear(leaves: LeafTable, slot: number): void {
  let at = 0;
  while (leaves.count(slot) > 0) at = leaves.clearSome(slot, at, { looks: 2, takes: 1 });
}
