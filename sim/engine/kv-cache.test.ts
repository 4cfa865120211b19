import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { KvCache } from './kv-cache.ts';

/** Takes as many blocks and publishes them under the keys. */
function fill(cache: KvCache, keys: readonly number[]): number[] {
  return keys.map((key) => {
    const block = cache.allocate();
    cache.publish(block, key);
    return block;
  });
}

describe('KV cache', () => {
  it('finds published blocks after they were released, until they are handed out again', () => {
    const cache = new KvCache(4);
    cache.release(fill(cache, [10, 11]));
    expect([cache.find(10), cache.find(11)].every((block) => block >= 0)).toBe(true);
    fill(cache, [20, 21]);
    expect(cache.find(10)).toBeGreaterThanOrEqual(0);
    fill(cache, [22]);
    expect(cache.find(11)).toBe(-1);
    expect(cache.find(10)).toBeGreaterThanOrEqual(0);
  });

  it("evicts what was freed first, and of one request's blocks the last first", () => {
    const cache = new KvCache(6);
    const first = fill(cache, [1, 2, 3]);
    const second = fill(cache, [4, 5, 6]);
    cache.release(first);
    cache.release(second);
    const gone: number[] = [];
    for (let taken = 0; taken < 6; taken += 1) {
      cache.allocate();
      for (const key of [1, 2, 3, 4, 5, 6]) {
        if (cache.find(key) < 0 && !gone.includes(key)) gone.push(key);
      }
    }
    expect(gone).toEqual([3, 2, 1, 6, 5, 4]);
  });

  it('does not hand out a block that somebody holds', () => {
    const cache = new KvCache(2);
    fill(cache, [1, 2]);
    expect(cache.allocate()).toBe(-1);
  });

  it('keeps a block until its last holder lets go', () => {
    const cache = new KvCache(2);
    const blocks = fill(cache, [1]);
    cache.hold(blocks[0]!);
    cache.release(blocks);
    expect(cache.heldBlocks).toBe(1);
    cache.release(blocks);
    expect(cache.heldBlocks).toBe(0);
  });

  it('keeps both of two blocks with equal content, finds the older, and evicts each by itself', () => {
    const evicted: number[] = [];
    const cache = new KvCache(3, { removed: (key) => evicted.push(key) });
    const [first] = fill(cache, [7]);
    const [second] = fill(cache, [7]);
    expect([cache.find(7), cache.cachedBlocks, cache.copies().get(7) ?? 0]).toEqual([first, 1, 2]);
    cache.release([first!]);
    fill(cache, [1, 2]);
    expect([cache.find(7), cache.copies().get(7) ?? 0, evicted]).toEqual([second, 1, [7]]);
    cache.release([second!]);
    fill(cache, [3]);
    expect([cache.find(7), cache.copies().get(7) ?? 0, evicted]).toEqual([-1, 0, [7, 7]]);
  });

  it('hands out blocks without findable content before all others, last first', () => {
    const cache = new KvCache(5);
    const first = fill(cache, [1, 2]);
    const tail = [cache.allocate(), cache.allocate()];
    cache.release([...first, ...tail]);
    const order = Array.from({ length: 5 }, () => cache.allocate());
    expect(order).toEqual([tail[1], tail[0], 4, first[1], first[0]]);
  });

  it('forgets all content when nothing is held, and nothing otherwise', () => {
    const cache = new KvCache(3);
    const blocks = fill(cache, [1, 2]);
    expect([cache.clear(), cache.cachedBlocks]).toEqual([false, 2]);
    cache.release(blocks);
    expect([cache.clear(), cache.cachedBlocks, cache.find(1)]).toEqual([true, 0, -1]);
  });

  it('goes on in a fork without a trace in the original', () => {
    const cache = new KvCache(3);
    cache.release(fill(cache, [1, 2, 3]));
    const fork = cache.fork();
    fork.release(fill(fork, [4, 1]));
    expect([1, 2, 3, 4].map((key) => fork.find(key) >= 0)).toEqual([true, false, false, true]);
    expect([1, 2, 3, 4].map((key) => cache.find(key) >= 0)).toEqual([true, true, true, false]);
    expect([cache.cachedBlocks, fork.cachedBlocks]).toEqual([3, 2]);
    expect([cache.copies().get(1) ?? 0, fork.copies().get(1) ?? 0]).toEqual([1, 2]);
  });

  it('agrees with a plain list of free blocks under any order of calls', () => {
    const call = fc.oneof(
      fc.record({
        kind: fc.constant('take' as const),
        keys: fc.array(fc.nat(12), { maxLength: 4 }),
      }),
      fc.record({ kind: fc.constant('reuse' as const), key: fc.nat(12) }),
      fc.record({ kind: fc.constant('release' as const), at: fc.nat(20) }),
    );
    fc.assert(
      fc.property(fc.array(call, { maxLength: 60 }), (calls) => {
        const size = 8;
        const cache = new KvCache(size);
        const free = Array.from({ length: size }, (_, block) => block);
        const keyOf = new Map<number, number>();
        const held: number[][] = [];
        for (const each of calls) {
          if (each.kind === 'take') {
            const blocks: number[] = [];
            for (const key of each.keys) {
              const expected = free.shift() ?? -1;
              expect(cache.allocate()).toBe(expected);
              if (expected < 0) break;
              keyOf.delete(expected);
              if (key > 0) {
                cache.publish(expected, key);
                keyOf.set(expected, key);
              }
              blocks.push(expected);
            }
            if (blocks.length > 0) held.push(blocks);
          } else if (each.kind === 'reuse') {
            const expected = [...keyOf].find(([, key]) => key === each.key)?.[0] ?? -1;
            expect(cache.find(each.key)).toBe(expected);
            if (expected < 0) continue;
            cache.hold(expected);
            const at = free.indexOf(expected);
            if (at >= 0) free.splice(at, 1);
            held.push([expected]);
          } else if (held.length > 0) {
            const [blocks] = held.splice(each.at % held.length, 1);
            cache.release(blocks!);
            const still = new Set(held.flat());
            const freed = blocks!.toReversed().filter((block) => !still.has(block));
            free.unshift(...freed.filter((block) => !keyOf.has(block)));
            free.push(...freed.filter((block) => keyOf.has(block)));
          }
          expect(cache.freeBlocks).toBe(free.length);
          expect(cache.heldBlocks).toBe(new Set(held.flat()).size);
          expect(cache.cachedBlocks).toBe(new Set(keyOf.values()).size);
          for (let key = 0; key <= 12; key += 1) {
            const copies = [...keyOf.values()].filter((each) => each === key).length;
            expect(cache.copies().get(key) ?? 0).toBe(copies);
          }
        }
      }),
    );
  });
});
