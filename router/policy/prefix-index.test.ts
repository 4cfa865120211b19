import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Incarnation, ReplicaId } from '../../shared/model/ids.ts';
import { CHUNK_BYTES, type PromptChain } from '../../shared/model/prompt.ts';
import type { PrefixLeaf, PrefixMessage, PrefixRun } from '../../shared/protocol/messages.ts';
import { PrefixIndex } from './prefix-index.ts';

const NOTHING = new Uint32Array(0);

/** Equal beginnings of `path` give equal hashes, and nothing else does. */
function chain(path: readonly number[], turns: readonly number[] = []): PromptChain {
  const hashes = new Uint32Array(2 * path.length);
  let low = 1;
  path.forEach((step, k) => {
    low = (low * 5 + step + 1) >>> 0;
    hashes.set([low, k + 1], 2 * k);
  });
  const endAt = (chunks: number) => ({
    offset: chunks * CHUNK_BYTES + 100,
    chunks,
    hashLow: (hashes[2 * chunks - 2] ?? 1) + 1_000_000,
    hashHigh: chunks,
  });
  return {
    keySpace: 'text/1',
    bytes: path.length * CHUNK_BYTES + 100,
    hashes,
    turnEnds: turns.map(endAt),
    end: endAt(path.length),
    parts: {},
    tokenIds: null,
  };
}

function message(more: Partial<PrefixMessage>): PrefixMessage {
  return {
    kind: 'prefix',
    replica: 'r' as ReplicaId,
    rank: 0,
    incarnation: 'i1' as Incarnation,
    seq: 0,
    runs: [],
    leaves: [],
    evicted: NOTHING,
    ...more,
  };
}

function run(of: PromptChain, from = 0): PrefixRun {
  const { hashes } = of;
  return {
    parentLow: from === 0 ? 0 : (hashes[2 * from - 2] as number),
    parentHigh: from === 0 ? 0 : (hashes[2 * from - 1] as number),
    depth: from,
    hashes: hashes.slice(2 * from),
  };
}

function leafOf(of: PromptChain, answerTokens: number): PrefixLeaf {
  return { hashLow: of.end.hashLow, hashHigh: of.end.hashHigh, promptTokens: 300, answerTokens };
}

describe('a prefix index', () => {
  test('matches chunk by chunk from the start, for each target by itself', () => {
    const index = new PrefixIndex(1_000_000);
    const [a, b] = [index.addTarget(), index.addTarget()];
    index.apply(a, message({ runs: [run(chain([1, 2, 3, 4]))] }));
    index.apply(b, message({ runs: [run(chain([1, 2]))] }));
    const asked = chain([1, 2, 3, 9]);
    expect(index.match(a, asked).chunks).toBe(3);
    expect(index.match(b, asked).chunks).toBe(2);
    expect(index.match(a, chain([2, 3, 4])).chunks).toBe(0);
  });

  test('adds the exact tokens of a leaf where a turn goes on from it', () => {
    const index = new PrefixIndex(1_000_000);
    const a = index.addTarget();
    const first = chain([1, 2]);
    index.apply(a, message({ runs: [run(first)], leaves: [leafOf(first, 42)] }));
    const match = index.match(a, chain([1, 2, 3, 4], [2]));
    expect(match).toEqual({
      chunks: 2,
      leaf: { promptTokens: 300, answerTokens: 42 },
      leafOffset: 2 * CHUNK_BYTES + 100,
    });
  });

  test('finds the leaf of each target at its own depth, whoever is asked about first', () => {
    const index = new PrefixIndex(1_000_000);
    const [a, b, c] = [index.addTarget(), index.addTarget(), index.addTarget()];
    const [short, long] = [chain([1]), chain([1, 2, 3])];
    index.apply(a, message({ runs: [run(short)], leaves: [leafOf(short, 11)] }));
    index.apply(b, message({ runs: [run(long)], leaves: [leafOf(short, 12), leafOf(long, 13)] }));
    index.apply(c, message({ runs: [run(long)] }));
    const asked = chain([1, 2, 3, 4], [1, 3]);
    const depths = index.walk(asked);
    const answers = [a, b, c, b, a].map(
      (slot) => index.matchAt(slot, asked, depths[slot] as number).leaf?.answerTokens ?? null,
    );
    expect(answers).toEqual([11, 13, null, 13, 11]);
  });

  test('expects what it sent until the request ends without a first token', () => {
    const index = new PrefixIndex(1_000_000);
    const a = index.addTarget();
    const sent = chain([1, 2, 3]);
    index.hope(a, sent);
    expect(index.match(a, sent).chunks).toBe(3);
    expect(index.chunks(a)).toBe(0);
    index.apply(a, message({ runs: [run(chain([1, 2]))] }));
    index.hope(a, sent);
    index.unhope(a, sent.hashes);
    expect(index.match(a, sent).chunks).toBe(2);
  });

  test('forgets chunks and leaves that the agent says are evicted, hoped for or not', () => {
    const index = new PrefixIndex(1_000_000);
    const a = index.addTarget();
    const held = chain([1, 2, 3], [3]);
    index.apply(a, message({ runs: [run(held)], leaves: [leafOf(held, 5)] }));
    index.hope(a, held);
    const evicted = Uint32Array.of(
      held.end.hashLow,
      held.end.hashHigh,
      held.hashes[4] as number,
      held.hashes[5] as number,
    );
    index.apply(a, message({ seq: 1, evicted }));
    expect(index.match(a, held)).toEqual({ chunks: 2, leaf: null, leafOffset: 0 });
    expect(index.chunks(a)).toBe(2);
  });

  test('asks for a snapshot once when a delta is missing, and takes none until it comes', () => {
    const index = new PrefixIndex(1_000_000);
    const a = index.addTarget();
    index.apply(a, message({ runs: [run(chain([1]))] }));
    expect(index.apply(a, message({ seq: 1, runs: [run(chain([2]))] }))).toBe('applied');
    expect(index.apply(a, message({ seq: 3, runs: [run(chain([3]))] }))).toBe('resync');
    expect(index.apply(a, message({ seq: 4, runs: [run(chain([4]))] }))).toBe('ignored');
    const b = index.renew(a);
    expect(index.apply(b, message({ seq: 0, runs: [run(chain([5]))] }))).toBe('applied');
    expect(index.match(b, chain([5])).chunks).toBe(1);
    expect(index.match(b, chain([1])).chunks).toBe(0);
    expect(index.apply(b, message({ seq: 1, runs: [run(chain([6]))] }))).toBe('applied');
  });

  test('asks for a snapshot when deltas come after it was emptied', () => {
    const index = new PrefixIndex(1_000_000);
    const a = index.addTarget();
    index.apply(a, message({ runs: [run(chain([1]))] }));
    const b = index.renew(a);
    const delta = message({ seq: 1, incarnation: 'i2' as Incarnation });
    expect(index.apply(b, delta)).toBe('resync');
    expect(index.apply(b, { ...delta, seq: 2 })).toBe('ignored');
  });

  test('a removed target leaves nothing behind for the one that gets its slot', () => {
    const index = new PrefixIndex(1_000_000);
    const a = index.addTarget();
    const held = chain([1, 2], [2]);
    index.apply(a, message({ runs: [run(held)], leaves: [leafOf(held, 1)] }));
    index.removeTarget(a);
    expect(index.rows).toBe(0);
    expect(index.addTarget()).toBe(a);
    expect(index.match(a, held)).toEqual({ chunks: 0, leaf: null, leafOffset: 0 });
  });

  test('a full target that begins anew is emptied beside the messages after, and holds nothing meanwhile', () => {
    const index = new PrefixIndex(4_000_000);
    const [a, b] = [index.addTarget(), index.addTarget()];
    const many = Array.from({ length: 3_000 }, (_, k) => chain([k % 7, k], [2]));
    const runs = many.map((one) => run(one));
    index.apply(a, message({ runs, leaves: many.map((one) => leafOf(one, 1)) }));
    index.apply(b, message({ runs: runs.slice(0, 100) }));
    const rows = index.rows;
    const again = index.renew(a);
    expect(rows - index.rows).toBeLessThan(600);
    const nothing = { chunks: 0, leaf: null, leafOffset: 0 };
    for (const one of many) expect(index.match(again, one)).toEqual(nothing);
    expect(index.chunks(again)).toBe(0);
    index.apply(again, message({ runs: runs.slice(0, 10) }));
    for (let seq = 1; seq < 20; seq += 1) {
      const before = index.rows;
      index.apply(b, message({ seq }));
      expect(before - index.rows).toBeLessThan(600);
      const found = many.slice(0, 101).map((one) => index.match(b, one).chunks);
      expect(found).toEqual([...Array<number>(100).fill(2), 1]);
    }
    expect(index.rows).toBe(107);
    expect(index.chunks(again)).toBe(17);
    // The old slot is free, and nothing of it is left.
    const next = index.addTarget();
    expect(next).toBe(a);
    for (const one of many) expect(index.match(next, one)).toEqual(nothing);
  });

  test('targets that begin anew all at once wait for each other no longer than so many', () => {
    const index = new PrefixIndex(4_000_000);
    let slots = Array.from({ length: 40 }, () => index.addTarget());
    const fill = (slot: number, of: number): void => {
      const runs = Array.from({ length: 600 }, (_, k) => run(chain([of, k])));
      expect(index.apply(slot, message({ runs }))).toBe('applied');
    };
    slots.forEach(fill);
    for (let times = 0; times < 5; times += 1) {
      slots = slots.map((slot) => index.renew(slot));
      slots.forEach(fill);
    }
    expect(Math.max(...slots)).toBeLessThan(40 + 17);
    expect(slots.map((slot) => index.chunks(slot))).toEqual(Array<number>(40).fill(601));
  });

  test('tells 100 targets apart', () => {
    const index = new PrefixIndex(1_000_000);
    const slots = Array.from({ length: 100 }, () => index.addTarget());
    for (const slot of slots)
      index.apply(slot, message({ runs: [run(chain([7, slot % 5, slot]))] }));
    const depths = index.walk(chain([7, 3, 33, 1]));
    expect(slots.map((slot) => depths[slot])).toEqual(
      slots.map((slot) => (slot === 33 ? 3 : slot % 5 === 3 ? 2 : 1)),
    );
  });

  test('more targets than before, or fewer bytes: the rest still matches and the budget holds', () => {
    const index = new PrefixIndex(100_000);
    const slots = Array.from({ length: 32 }, () => index.addTarget());
    const shared = Array.from({ length: 500 }, (_, k) => chain([k]));
    for (const slot of slots) for (const one of shared) index.hope(slot, one);
    const before = index.evictions;
    while (slots.length < 600) slots.push(index.addTarget());
    expect(index.bytes).toBeLessThanOrEqual(100_000);
    expect(index.evictions).toBeGreaterThan(before);
    const left = shared.filter((one) => index.match(0, one).chunks === 1);
    expect(left.length).toBeGreaterThan(0);
    for (const one of left) expect(index.match(31, one).chunks).toBe(1);
    index.hope(599, chain([7]));
    expect(index.match(599, chain([7])).chunks).toBe(1);
    index.setBudget(20_000);
    expect(index.bytes).toBeLessThanOrEqual(20_000);
    for (const slot of slots) index.removeTarget(slot);
    expect(index.rows).toBe(0);
  });

  test('tells a new agent the whole chain after it moved, lost rows in its middle, and took others', () => {
    const index = new PrefixIndex(1_000_000);
    const [a, b] = [index.addTarget(), index.addTarget()];
    const long = Array.from({ length: 12 }, (_, k) => k % 3);
    const old = Array.from({ length: 300 }, (_, k) => chain([7, k, ...long.slice(2)]));
    index.apply(b, message({ runs: old.map((one) => run(one)) }));
    index.apply(a, message({ runs: [run(chain(long.slice(0, 5)))] }));
    index.apply(a, message({ seq: 1, runs: [run(chain([...long.slice(0, 5), 9, 9]), 5)] }));
    index.apply(a, message({ seq: 2, runs: [run(chain(long), 5)] }));
    index.setBudget(60_000);
    const copyOf = (): PrefixIndex => {
      const copy = new PrefixIndex(1_000_000);
      copy.addTarget();
      copy.apply(0, message(index.snapshot(a)));
      return copy;
    };
    expect(index.chunks(b)).toBeLessThan(3_000);
    expect(copyOf().chunks(0)).toBe(14);
    expect(copyOf().match(0, chain(long)).chunks).toBe(12);
    expect(copyOf().match(0, chain([...long.slice(0, 5), 9, 9])).chunks).toBe(7);
    // Out of order, as no honest agent does: what hangs on it cannot be found until it is back.
    const middle = chain(long).hashes.slice(2 * 7, 2 * 8);
    index.apply(a, message({ seq: 3, evicted: middle }));
    for (let k = 0; k < 40; k += 1) index.hope(b, chain([8, k, k]));
    expect(copyOf().match(0, chain(long)).chunks).toBe(7);
    expect(copyOf().chunks(0)).toBe(9);
    index.apply(a, message({ seq: 4, runs: [{ ...run(chain(long.slice(0, 8)), 7) }] }));
    expect(copyOf().match(0, chain(long)).chunks).toBe(12);
    expect(copyOf().chunks(0)).toBe(14);
  });

  test('hopes beside holders are taken back, confirmed and evicted like others', () => {
    const index = new PrefixIndex(1_000_000);
    let a = index.addTarget();
    const b = index.addTarget();
    let c = index.addTarget();
    const shared = chain([1, 2]);
    const depths = (): number[] => [a, b, c].map((slot) => index.match(slot, shared).chunks);
    index.hope(a, shared);
    index.hope(b, shared);
    index.apply(a, message({ runs: [run(shared)] }));
    index.hope(c, shared);
    expect(depths()).toEqual([2, 2, 2]);
    index.unhope(a, shared.hashes);
    index.unhope(b, shared.hashes);
    expect(depths()).toEqual([2, 0, 2]);
    a = index.renew(a);
    expect(depths()).toEqual([0, 0, 2]);
    expect(index.snapshot(c).runs).toEqual([]);
    index.apply(c, message({ runs: [run(shared)] }));
    expect(index.snapshot(c).runs).toHaveLength(1);
    c = index.renew(c);
    expect(index.rows).toBe(0);
  });

  test('a row costs the same with 1,000 targets as with one', () => {
    const bytesPerRow = (targets: number): number => {
      const index = new PrefixIndex(64 << 20);
      const slots = Array.from({ length: targets }, () => index.addTarget());
      for (let k = 0; k < 50_000; k += 1) index.hope(slots[k % targets] as number, chain([k]));
      return index.bytes / index.rows;
    };
    expect(bytesPerRow(1_000)).toBeCloseTo(bytesPerRow(1), 0);
  });

  test('stays within its byte budget, and what it forgets first is the least recent leaf', () => {
    const index = new PrefixIndex(200_000);
    const a = index.addTarget();
    const kept = chain([0, 0, 0]);
    for (let k = 1; k < 20_000; k += 1) {
      index.hope(a, chain([k]));
      index.hope(a, kept);
    }
    expect(index.bytes).toBeLessThanOrEqual(200_000);
    expect(index.evictions).toBeGreaterThan(10_000);
    expect(index.match(a, kept).chunks).toBe(3);
    expect(index.match(a, chain([1])).chunks).toBe(0);
  });
});

interface Model {
  held: Map<string, boolean>[];
}

const path = fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 1, maxLength: 6 });
const slotOf = fc.integer({ min: 0, max: 2 });
const step = fc.oneof(
  fc.record({ kind: fc.constant('grow' as const), slot: slotOf, path }),
  fc.record({ kind: fc.constant('evict' as const), slot: slotOf, path }),
  fc.record({ kind: fc.constant('empty' as const), slot: slotOf }),
);

test('equals a naive model after any sequence of growth, leaf-first eviction and reset', () => {
  fc.assert(
    fc.property(
      fc.array(step, { maxLength: 60 }),
      fc.array(path, { minLength: 5 }),
      (steps, asked) => {
        const index = new PrefixIndex(1_000_000);
        const model: Model = { held: [] };
        const seqs: number[] = [];
        const places: number[] = [];
        for (let slot = 0; slot < 3; slot += 1) {
          places.push(index.addTarget());
          index.apply(slot, message({}));
          model.held.push(new Map());
          seqs.push(0);
        }
        for (const next of steps) {
          const target = next.slot;
          const held = model.held[target] as Map<string, boolean>;
          if (next.kind === 'empty') {
            places[target] = index.renew(places[target] as number);
            index.apply(places[target], message({}));
            held.clear();
            seqs[target] = 0;
            continue;
          }
          const slot = places[target] as number;
          const seq = (seqs[target] ?? 0) + 1;
          seqs[target] = seq;
          const of = chain(next.path);
          if (next.kind === 'grow') {
            let known = 0;
            while (known < next.path.length && held.has(next.path.slice(0, known + 1).join()))
              known += 1;
            if (known < next.path.length)
              index.apply(slot, message({ seq, runs: [run(of, known)] }));
            else index.apply(slot, message({ seq }));
            for (let k = 1; k <= next.path.length; k += 1)
              held.set(next.path.slice(0, k).join(), true);
          } else {
            const key = next.path.join();
            const isLeaf =
              held.has(key) && ![...held.keys()].some((other) => other.startsWith(`${key},`));
            index.apply(slot, message({ seq, evicted: isLeaf ? of.hashes.slice(-2) : NOTHING }));
            if (isLeaf) held.delete(key);
          }
        }
        for (const [target, slot] of places.entries()) {
          const held = model.held[target] as Map<string, boolean>;
          expect(index.chunks(slot)).toBe(held.size);
          for (const one of asked) {
            let depth = 0;
            while (depth < one.length && held.has(one.slice(0, depth + 1).join())) depth += 1;
            expect(index.match(slot, chain(one)).chunks).toBe(depth);
          }
          const copy = new PrefixIndex(1_000_000);
          copy.addTarget();
          copy.apply(0, message(index.snapshot(slot)));
          expect(copy.chunks(0)).toBe(held.size);
          for (const one of asked) {
            expect(copy.match(0, chain(one)).chunks).toBe(index.match(slot, chain(one)).chunks);
          }
        }
      },
    ),
  );
});

test('a chunk takes as little once as many go as come: what comes together lies together again', () => {
  const index = new PrefixIndex(8 << 20);
  const slot = index.addTarget();
  const prompt = (k: number): PromptChain => chain([k, ...Array<number>(199).fill(0)]);
  let seq = 0;
  index.apply(slot, message({ seq }));
  const deepestFirst = ({ hashes }: PromptChain): Uint32Array => {
    const words: number[] = [];
    for (let k = hashes.length - 2; k >= 0; k -= 2)
      words.push(hashes[k] as number, hashes[k + 1] as number);
    return Uint32Array.from(words);
  };
  const bytes: number[] = [];
  for (let k = 0; k < 900; k += 1) {
    index.hope(slot, prompt(k));
    const evicted = k < 300 ? NOTHING : deepestFirst(prompt(k - 300));
    index.apply(slot, message({ seq: (seq += 1), evicted, runs: [run(prompt(k))] }));
    bytes.push(index.bytes / index.rows);
  }
  expect(index.rows).toBe(300 * 200);
  expect(index.evictions).toBe(0);
  expect(bytes.at(-1)).toBeLessThan((bytes[299] as number) * 1.05);
});
