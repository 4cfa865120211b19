import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { AwayMemory, type AwayCursor, type AwayNote } from './away-memory.ts';

const note = (key: string, more: Partial<AwayNote> = {}): AwayNote => ({
  key,
  tokens: 100,
  sinceMs: 0,
  zones: null,
  ...more,
});

/** A global router: what it has been told so far. */
class Reader {
  readonly known = new Map<string, number>();
  /** Every key that was ever said to it. */
  readonly heard = new Set<string>();
  readonly zone: string | null;
  #cursor: AwayCursor | null = null;
  snapshots = 0;

  constructor(zone: string | null) {
    this.zone = zone;
  }

  read(memory: AwayMemory, nowMs: number): void {
    const told = memory.tell(this.zone, this.#cursor, nowMs);
    this.#cursor = told.cursor;
    if (told.snapshot) {
      this.snapshots += 1;
      this.known.clear();
    }
    for (const { key, tokens } of told.here) this.known.set(key, tokens);
    for (const key of [...told.gone, ...this.known.keys()]) this.heard.add(key);
    for (const key of told.gone) this.known.delete(key);
  }
}

test('a reader that was away for longer than the journal goes is told everything', () => {
  const memory = new AwayMemory();
  const reader = new Reader(null);
  memory.note(note('first'), 0, 10);
  reader.read(memory, 0);
  for (let k = 0; k < 40_000; k += 1) memory.note(note(`k${k % 7}`), k, 5);
  reader.read(memory, 40_000);
  expect(reader.snapshots).toBe(2);
  expect([...reader.known.keys()].toSorted()).toHaveLength(5);
});

test('nothing is remembered where nothing may be', () => {
  const memory = new AwayMemory();
  expect(memory.note(note('k'), 0, 0)).toBe(false);
  expect(memory.size).toBe(0);
});

test('what is idle for its life is forgotten, the others are not', () => {
  const memory = new AwayMemory();
  memory.note(note('old'), 0, 10);
  memory.note(note('young'), 500, 10);
  memory.expire(999, 1_000);
  expect(memory.size).toBe(2);
  memory.expire(1_000, 1_000);
  expect(memory.tell(null, null, 1_000).here).toEqual([
    { key: 'young', tokens: 100, idleMs: 500, awayForMs: 1_000 },
  ]);
});

describe('whatever happens', () => {
  const ZONES = ['eu', 'asia', null] as const;
  const step = fc.record({
    what: fc.constantFrom('note', 'expire', 'read'),
    key: fc.integer({ min: 0, max: 11 }),
    by: fc.integer({ min: 0, max: 400 }),
    reader: fc.nat(ZONES.length - 1),
  });
  /** A tenant's zones do not change with its conversations: of a key, always the same. */
  const zonesOf = (key: number): readonly string[] | null =>
    [null, ['eu'], ['asia'], ['eu', 'asia'], []][key % 5] ?? null;

  test('each reader knows what there is and it may see, and never a key that it may not', () => {
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 200 }),
        fc.integer({ min: 1, max: 9 }),
        (steps, max) => {
          const memory = new AwayMemory();
          const readers = ZONES.map((zone) => new Reader(zone));
          let nowMs = 0;
          for (const { what, key, by, reader } of steps) {
            nowMs += by;
            if (what === 'note') memory.note(note(`k${key}`, { zones: zonesOf(key) }), nowMs, max);
            if (what === 'expire') memory.expire(nowMs, 1_000);
            expect(memory.size).toBeLessThanOrEqual(max);
            if (what !== 'read') continue;
            const who = readers[reader] as Reader;
            who.read(memory, nowMs);
            const all = memory.tell(who.zone, null, nowMs).here.map((each) => each.key);
            expect([...who.known.keys()].toSorted()).toEqual(all.toSorted());
            for (const known of [...all, ...who.heard]) {
              const zones = zonesOf(Number(known.slice(1)));
              expect(zones === null || (who.zone !== null && zones.includes(who.zone))).toBe(true);
            }
          }
        },
      ),
      { numRuns: 200 },
    );
  });
});
