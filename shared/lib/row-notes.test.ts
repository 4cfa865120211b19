import fc from 'fast-check';
import { expect, test } from 'vitest';
import { RowNotes } from './row-notes.ts';

const row = fc.integer({ min: 0, max: 60 });
const step = fc.record({ row, keep: fc.boolean(), word: fc.integer({ min: 1, max: 1 << 30 }) });

test('holds what a map holds, whatever has gone, and what moves has its note where it is then', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const notes = new RowNotes(100_000);
      const model = new Map<number, number>();
      for (const { row: at, keep, word } of steps) {
        if (keep) {
          expect(notes.set(at, word, word + 1)).toBe(true);
          model.set(at, word);
        } else {
          notes.delete(at);
          model.delete(at);
        }
        expect(notes.first(at)).toBe(model.get(at) ?? 0);
      }
      expect(notes.size).toBe(model.size);
      const lost: number[] = [];
      notes.rebuild(
        100_000,
        (at) => (at % 2 === 0 ? 1_000 - at : -1),
        (at) => lost.push(at),
      );
      expect(lost).toEqual([]);
      for (let at = 0; at <= 60; at += 1) {
        const word = at % 2 === 0 ? (model.get(at) ?? 0) : 0;
        expect(notes.first(1_000 - at)).toBe(word);
        expect(notes.second(1_000 - at)).toBe(word === 0 ? 0 : word + 1);
      }
    }),
  );
});

test('refuses at its budget what it has no note of, and says what a smaller one loses', () => {
  const notes = new RowNotes(20_000);
  const kept: number[] = [];
  for (let at = 0; at < 3_000; at += 1) if (notes.set(at, at + 1, 0)) kept.push(at);
  expect(notes.bytes).toBeLessThanOrEqual(20_000);
  expect(kept.length).toBeGreaterThan(500);
  expect(notes.refused).toBe(3_000 - kept.length);
  for (const at of kept) expect(notes.set(at, at + 7, 0)).toBe(true);
  const lost: [row: number, first: number][] = [];
  notes.rebuild(
    4_000,
    (at) => at,
    (at, first) => lost.push([at, first]),
  );
  expect(notes.bytes).toBeLessThanOrEqual(4_000);
  expect(lost.length).toBe(kept.length - notes.size);
  for (const [at, first] of lost) expect([first, notes.first(at)]).toEqual([at + 7, 0]);
});
