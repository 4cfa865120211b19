import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { KvBlocks } from './kv-blocks.ts';
import type { BlocksStored, KvEvent } from './kv-event.ts';

const BLOCK = 16;

function keysOf(...numbers: readonly number[]): string[] {
  return numbers.map((each) => each.toString(16).padStart(16, '0'));
}

function stored(numbers: readonly number[], change: Partial<BlocksStored> = {}): BlocksStored {
  return {
    kind: 'stored',
    keys: keysOf(...numbers),
    parentKey: null,
    tokenIds: null,
    blockTokens: BLOCK,
    lora: null,
    salt: null,
    medium: 'GPU',
    group: 0,
    groupKind: 'full_attention',
    ...change,
  };
}

function removed(...numbers: readonly number[]): KvEvent {
  return { kind: 'removed', keys: keysOf(...numbers), medium: 'GPU', group: 0 };
}

function after(...events: readonly KvEvent[]): KvBlocks {
  const blocks = new KvBlocks();
  events.forEach((event, at) => blocks.apply(event, at));
  return blocks;
}

test('nothing is said before anything was heard', () => {
  expect(new KvBlocks().cachedTokens(1_000)).toBeNull();
  expect(after({ kind: 'cleared' }).cachedTokens(1_000)).toBe(0);
});

test('a block that is stored twice is there until it was removed twice', () => {
  const blocks = after(stored([1, 2]), stored([1]));
  expect(blocks.cachedTokens(null)).toBe(3 * BLOCK);
  blocks.apply(removed(1), 5);
  expect(blocks.cachedTokens(null)).toBe(2 * BLOCK);
  blocks.apply(removed(1), 6);
  blocks.apply(removed(1), 7);
  expect(blocks.cachedTokens(null)).toBe(BLOCK);
});

test('only full-attention blocks on the GPU count', () => {
  const blocks = after(
    stored([1], { medium: 'CPU' }),
    stored([2], { groupKind: 'sliding_window' }),
    stored([3], { medium: null, groupKind: null }),
    { ...removed(3), medium: 'DISK' } as KvEvent,
  );
  expect(blocks.cachedTokens(null)).toBe(BLOCK);
});

test('a cleared cache is empty', () => {
  const blocks = after(stored([1, 2]), { kind: 'cleared' }, stored([3]));
  expect(blocks.cachedTokens(null)).toBe(BLOCK);
});

test('keys of the same length that differ anywhere in their last 64 bits are different', () => {
  const blocks = after(stored([]), {
    ...stored([]),
    keys: ['ffffffff00000000', '00000000ffffffff'],
  });
  expect(blocks.size).toBe(2);
});

describe('after a gap', () => {
  test('nothing is said until as much was stored as the cache can hold', () => {
    const blocks = after(stored([1, 2, 3]));
    blocks.lost();
    blocks.apply(stored([4]), 1);
    expect(blocks.cachedTokens(2 * BLOCK)).toBeNull();
    expect(blocks.cachedTokens(null)).toBeNull();
    blocks.apply(stored([5]), 2);
    expect(blocks.cachedTokens(2 * BLOCK)).toBe(2 * BLOCK);
  });

  test('a cleared cache is known again at once', () => {
    const blocks = after(stored([1]));
    blocks.lost();
    blocks.apply({ kind: 'cleared' }, 1);
    expect(blocks.cachedTokens(null)).toBe(0);
  });

  test('the removal of what was forgotten changes nothing', () => {
    const blocks = after(stored([1]));
    blocks.lost();
    blocks.apply(removed(1), 1);
    blocks.apply({ kind: 'cleared' }, 2);
    expect(blocks.cachedTokens(null)).toBe(0);
  });
});

test('the horizon is the storing of the youngest block that was evicted', () => {
  const blocks = new KvBlocks();
  blocks.apply(stored([1]), 100);
  blocks.apply(stored([2]), 200);
  expect(blocks.horizonMs).toBe(-Infinity);
  blocks.apply(removed(2), 300);
  blocks.apply(removed(1), 400);
  expect(blocks.horizonMs).toBe(200);
});

test('another process begins with nothing heard', () => {
  const blocks = after(stored([1]), removed(1));
  blocks.reset();
  expect(blocks.cachedTokens(1)).toBeNull();
  expect(blocks.horizonMs).toBe(-Infinity);
});

test('what does not fit the table is unknown, never a wrong figure', () => {
  const blocks = new KvBlocks();
  const keys = Array.from({ length: 1_048_576 }, (_, at) => at.toString(16).padStart(16, '0'));
  blocks.apply(stored([], { keys, blockTokens: 1 }), 1);
  expect(blocks.cachedTokens(2_000_000)).toBe(1_048_576);
  blocks.apply(stored([1_048_576], { blockTokens: 1 }), 2);
  expect(blocks.cachedTokens(2_000_000)).toBeNull();
});

test('always as many tokens as a plain count of the events', () => {
  const number = fc.nat(20);
  const event = fc.oneof(
    { weight: 5, arbitrary: fc.array(number, { maxLength: 5 }).map((each) => stored(each)) },
    { weight: 4, arbitrary: fc.array(number, { maxLength: 5 }).map((each) => removed(...each)) },
    { weight: 1, arbitrary: fc.constant<KvEvent>({ kind: 'cleared' }) },
  );
  fc.assert(
    fc.property(fc.array(event, { minLength: 1, maxLength: 80 }), (events) => {
      const counts = new Map<string, number>();
      for (const each of events) {
        if (each.kind === 'cleared') counts.clear();
        else if (each.kind === 'stored')
          for (const key of each.keys) counts.set(key, (counts.get(key) ?? 0) + 1);
        else for (const key of each.keys) counts.set(key, Math.max(0, (counts.get(key) ?? 0) - 1));
      }
      const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
      expect(after(...events).cachedTokens(null)).toBe(total * BLOCK);
    }),
  );
});
