import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { heldFirst, heldPlaceOf, type HeldPlace } from './queue-held.ts';
import { NOBODY_PAST, type QueueItem } from './queue-item.ts';
import { ReleaseQueue } from './queue.ts';

const place = (more: Partial<HeldPlace> = {}): HeldPlace => ({
  ...{ tenant: 't', priority: 0, returning: false, arrivedMs: 0, entersMs: 15_000 },
  ...more,
});
const first = (a: Partial<HeldPlace>, than: Partial<HeldPlace>, nowMs = 1_000): boolean =>
  heldFirst(place(a), place(than), nowMs);

describe('of two that wait for room in two routers', () => {
  test('the newer one goes first', () => {
    expect(first({ arrivedMs: 900 }, { arrivedMs: 100 })).toBe(true);
    expect(first({ arrivedMs: 100 }, { arrivedMs: 900 })).toBe(false);
    expect(first({ arrivedMs: 100 }, { arrivedMs: 100 })).toBe(false);
  });

  test('one that may enter by age goes before those that came after it, the oldest first', () => {
    const [old, older] = [{ entersMs: 900 }, { entersMs: 800 }];
    expect(first(old, { arrivedMs: 900 })).toBe(true);
    expect(first({ arrivedMs: 900 }, old)).toBe(false);
    expect([first(older, old), first(old, older)]).toEqual([true, false]);
    expect(first(old, { arrivedMs: 850 }, 840)).toBe(false);
  });

  test('one that goes on goes before those that begin, however old', () => {
    expect(first({ returning: true, arrivedMs: 999 }, { entersMs: 500 })).toBe(true);
    expect(first({ entersMs: 500 }, { returning: true, arrivedMs: 999 })).toBe(false);
  });

  test('the more urgent goes first, whosever it is; at one priority nothing is said of two tenants', () => {
    expect(first({ priority: -1, tenant: 'u' }, { returning: true })).toBe(true);
    expect(first({ returning: true }, { priority: -1, tenant: 'u' })).toBe(false);
    expect(first({ tenant: 'u', arrivedMs: 900 }, {})).toBe(false);
    expect(first({}, { tenant: 'u', arrivedMs: 900 })).toBe(false);
  });
});

interface ItemFacts {
  readonly priority: number;
  readonly held: 'new' | 'returning';
  readonly arrivedMs: number;
  readonly patienceMs: number;
}

test('the order between two routers is that of one queue that holds both', () => {
  const item = fc.record({
    priority: fc.integer({ min: -1, max: 1 }),
    held: fc.constantFrom('new' as const, 'returning' as const),
    arrivedMs: fc.integer({ min: 0, max: 1_000 }),
    patienceMs: fc.integer({ min: 1, max: 1_000 }),
  });
  const itemOf = (id: string, of: ItemFacts): QueueItem => ({
    ...{ id, tenant: 't', bytes: 1, tokens: 1, prefillMs: 1, deadlineMs: null, giveUpMs: 1e9 },
    ...{ priority: of.priority, held: of.held, arrivedMs: of.arrivedMs },
    entersMs: of.arrivedMs + of.patienceMs,
  });
  fc.assert(
    fc.property(item, item, fc.integer({ min: 0, max: 2_000 }), (here, there, nowMs) => {
      const [a, b] = [itemOf('a', here), itemOf('b', there)];
      const queue = new ReleaseQueue();
      for (const each of [a, b]) queue.push(each, 0.25);
      const one = queue.next({ nowMs, pressWithinMs: 0, past: NOBODY_PAST, held: true });
      const [goes, waits] = one?.id === 'a' ? [a, b] : [b, a];
      expect(heldFirst(heldPlaceOf(waits), heldPlaceOf(goes), nowMs)).toBe(false);
    }),
  );
});
