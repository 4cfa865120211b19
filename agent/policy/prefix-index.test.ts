import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { PrefixIndex, type PrefixDelta, type PrefixHold } from './prefix-index.ts';
import type { ChainFacts } from '../../shared/protocol/messages.ts';

/** Tokens per chunk are then 1. */
const BYTES_PER_TOKEN = 512;

/** A conversation as a path of small numbers; the chunk after `path` is hashed as the path itself. */
function chainOf(
  path: readonly number[],
  options: { turnEnds?: readonly string[] } = {},
): ChainFacts {
  const hashes = path.flatMap((_, i) => words(`c${path.slice(0, i + 1).join('.')}`));
  const [endLow, endHigh] = words(`e${path.join('.')}`);
  const turnEnds = (options.turnEnds ?? []).flatMap((name) => words(name));
  return {
    hashes: Uint32Array.from(hashes),
    endLow,
    endHigh,
    turnEnds: Uint32Array.from(turnEnds),
  };
}

const names = new Map<string, number>();
function words(name: string): [number, number] {
  let id = names.get(name);
  if (id === undefined) names.set(name, (id = names.size + 1));
  return [id, id % 7];
}

/** What a router makes of the messages. */
class Mirror {
  readonly chunks = new Map<string, string>();
  readonly leaves = new Map<string, string>();

  apply(delta: PrefixDelta | null): void {
    if (delta === null) return;
    for (let i = 0; i < delta.evicted.length; i += 2) {
      this.chunks.delete(`${delta.evicted[i]}/${delta.evicted[i + 1]}`);
      this.leaves.delete(`${delta.evicted[i]}/${delta.evicted[i + 1]}`);
    }
    for (const run of delta.runs) {
      let parent = run.depth === 0 ? 'root' : `${run.parentLow}/${run.parentHigh}`;
      for (let i = 0; i < run.hashes.length; i += 2) {
        const key = `${run.hashes[i]}/${run.hashes[i + 1]}`;
        if (parent !== 'root') expect(this.chunks.has(parent)).toBe(true);
        this.chunks.set(key, parent);
        parent = key;
      }
    }
    for (const leaf of delta.leaves) {
      this.leaves.set(
        `${leaf.hashLow}/${leaf.hashHigh}`,
        `${leaf.promptTokens}+${leaf.answerTokens}`,
      );
    }
  }
}

interface NaiveNode {
  readonly parent: string | null;
  touched: number;
  pins: number;
  confirmed: boolean;
  readonly leaf: boolean;
}

/** The same rules over a Map, with nothing clever. */
class Naive {
  readonly nodes = new Map<string, NaiveNode>();
  private clock = 0;

  open(path: readonly number[]): string | null {
    let parent: string | null = null;
    path.forEach((_, i) => {
      const key = words(`c${path.slice(0, i + 1).join('.')}`).join('/');
      if (!this.nodes.has(key)) {
        this.nodes.set(key, { parent, touched: 0, pins: 0, confirmed: false, leaf: false });
      }
      parent = key;
    });
    this.touch(parent);
    if (parent !== null) (this.nodes.get(parent) as NaiveNode).pins += 1;
    return parent;
  }

  touch(key: string | null): void {
    for (let at = key; at !== null; at = this.nodes.get(at)?.parent ?? null) {
      this.clock += 1;
      (this.nodes.get(at) as NaiveNode).touched = this.clock;
    }
  }

  confirm(key: string | null): void {
    for (let at = key; at !== null; at = this.nodes.get(at)?.parent ?? null) {
      (this.nodes.get(at) as NaiveNode).confirmed = true;
    }
  }

  complete(key: string | null, end: string): void {
    if (!this.nodes.has(end)) {
      this.nodes.set(end, { parent: key, touched: 0, pins: 0, confirmed: true, leaf: true });
    }
    this.touch(end);
  }

  release(key: string | null): void {
    if (key === null) return;
    (this.nodes.get(key) as NaiveNode).pins -= 1;
    for (let at: string | null = key; at !== null;) {
      const node: NaiveNode = this.nodes.get(at) as NaiveNode;
      if (node.pins > 0 || node.confirmed || this.hasChildren(at)) return;
      this.nodes.delete(at);
      at = node.parent;
    }
  }

  evict(capacity: number): void {
    let spared = 0;
    while ([...this.nodes.values()].filter((node) => !node.leaf).length > capacity) {
      let oldest: string | null = null;
      for (const [key, node] of this.nodes) {
        if (oldest === null || node.touched < (this.nodes.get(oldest)?.touched ?? 0)) oldest = key;
      }
      if (oldest === null || spared > this.nodes.size) return;
      const node = this.nodes.get(oldest) as NaiveNode;
      // A parent is always younger than its children: the oldest has none.
      expect(this.hasChildren(oldest)).toBe(false);
      if (node.pins === 0) this.nodes.delete(oldest);
      else {
        this.touch(oldest);
        spared += 1;
      }
    }
  }

  private hasChildren(key: string): boolean {
    return [...this.nodes.values()].some((node) => node.parent === key);
  }
}

type Step =
  | { readonly kind: 'open'; readonly path: readonly number[] }
  | { readonly kind: 'first' | 'complete' | 'fail'; readonly which: number }
  | { readonly kind: 'drain' | 'snapshot' };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('open' as const),
      path: fc.array(fc.integer({ min: 0, max: 2 }), { maxLength: 7 }),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constantFrom('first' as const, 'complete' as const, 'fail' as const),
      which: fc.nat({ max: 9 }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constantFrom('drain' as const, 'snapshot' as const) }),
  },
);

test('does what the naive rules do, and deltas keep a router equal to it', () => {
  fc.assert(
    fc.property(
      fc.array(step, { maxLength: 120 }),
      fc.integer({ min: 2, max: 30 }),
      (steps, capacity) => {
        const index = new PrefixIndex();
        const naive = new Naive();
        let mirror = new Mirror();
        const open: { hold: PrefixHold; key: string | null; path: readonly number[] }[] = [];
        steps.forEach((each, nowMs) => {
          if (each.kind === 'open') {
            const { hold } = index.open(chainOf(each.path), nowMs);
            open.push({ hold, key: naive.open(each.path), path: each.path });
          } else if (each.kind === 'drain') {
            mirror.apply(index.drain());
          } else if (each.kind === 'snapshot') {
            mirror = new Mirror();
            index.drain();
            mirror.apply(index.snapshot());
          } else if ('which' in each && open.length > 0) {
            const at = each.which % open.length;
            const { hold, key, path } = open[at] as (typeof open)[number];
            if (each.kind !== 'fail') {
              index.confirm(hold);
              naive.confirm(key);
            }
            if (each.kind === 'complete') {
              index.complete(hold, { promptTokens: nowMs, answerTokens: 0, tailTokens: 0 }, nowMs);
              naive.complete(key, words(`e${path.join('.')}`).join('/'));
            }
            if (each.kind !== 'first') {
              index.release(hold);
              naive.release(key);
              open.splice(at, 1);
            }
          }
          index.evict(capacity, BYTES_PER_TOKEN);
          naive.evict(capacity);
          const chunks = [...naive.nodes.values()].filter((node) => !node.leaf).length;
          expect([index.chunks, index.leaves]).toEqual([chunks, naive.nodes.size - chunks]);
        });
        mirror.apply(index.drain());
        const keysOf = (leaf: boolean): string[] =>
          [...naive.nodes]
            .filter(([, node]) => node.leaf === leaf)
            .map(([key]) => key)
            .sort();
        expect([...mirror.chunks.keys()].sort()).toEqual(keysOf(false));
        expect([...mirror.leaves.keys()].sort()).toEqual(keysOf(true));
        const fresh = new Mirror();
        fresh.apply(index.snapshot());
        expect(fresh.chunks).toEqual(mirror.chunks);
        expect(fresh.leaves).toEqual(mirror.leaves);
      },
    ),
    { numRuns: 300 },
  );
});

test('an index restored from a snapshot gives the same snapshot', () => {
  const index = new PrefixIndex();
  for (const path of [[1, 2, 3], [1, 2, 4, 5], [6], [1, 7]]) {
    const { hold } = index.open(chainOf(path), 0);
    index.confirm(hold);
    index.complete(hold, { promptTokens: 10, answerTokens: 5, tailTokens: 1 }, 0);
    index.release(hold);
  }
  const { runs, leaves } = index.snapshot();
  const restored = new PrefixIndex();
  restored.restore(runs, leaves);
  const [a, b] = [new Mirror(), new Mirror()];
  a.apply(index.snapshot());
  b.apply(restored.snapshot());
  expect(b.chunks).toEqual(a.chunks);
  expect(b.leaves).toEqual(a.leaves);
  expect(restored.chunks).toBe(7);
});

describe('a leaf', () => {
  const finish = (index: PrefixIndex, path: readonly number[], nowMs: number): void => {
    const { hold } = index.open(chainOf(path), nowMs);
    index.confirm(hold);
    index.complete(hold, { promptTokens: 100, answerTokens: 40, tailTokens: 2 }, nowMs);
    index.release(hold);
  };

  test('adds tail and answer to the occupancy until its conversation goes on', () => {
    const index = new PrefixIndex();
    finish(index, [1, 2], 1_000);
    expect(index.occupancyTokens(BYTES_PER_TOKEN)).toBe(2 + 42);
    const { gapsMs } = index.open(chainOf([1, 2, 3, 4], { turnEnds: ['e1.2'] }), 6_000);
    expect(gapsMs).toEqual([5_000]);
    expect(index.occupancyTokens(BYTES_PER_TOKEN)).toBe(4);
  });

  test('counts one gap, however often its prompt is continued', () => {
    const index = new PrefixIndex();
    finish(index, [1, 2], 1_000);
    index.open(chainOf([1, 2, 3], { turnEnds: ['e1.2'] }), 2_000);
    expect(index.open(chainOf([1, 2, 9], { turnEnds: ['e1.2'] }), 9_000).gapsMs).toEqual([]);
  });
});

test('a request that ends without a first token leaves nothing that nobody else vouches for', () => {
  const index = new PrefixIndex();
  const shared = index.open(chainOf([1, 2]), 0);
  const failing = index.open(chainOf([1, 2, 3, 4]), 1);
  index.release(failing.hold);
  expect(index.chunks).toBe(2);
  index.confirm(shared.hold);
  index.release(shared.hold);
  expect(index.chunks).toBe(2);
});

test('the working set is what was touched within τ or is held by open requests', () => {
  const index = new PrefixIndex();
  const old = index.open(chainOf([1, 2, 3]), 0);
  index.confirm(old.hold);
  const held = index.open(chainOf([4, 5]), 0);
  index.release(old.hold);
  index.open(chainOf([1, 6]), 10_000);
  expect(index.workingSetTokens(5_000, [held.hold], BYTES_PER_TOKEN)).toBe(2 + 2);
  expect(index.workingSetTokens(0, [], BYTES_PER_TOKEN)).toBe(6);
});

describe('evicting before an instant', () => {
  const open = (index: PrefixIndex, path: readonly number[], nowMs: number): PrefixHold =>
    index.open(chainOf(path), nowMs).hold;

  test('takes what was last used earlier, and leaves what was used since', () => {
    const index = new PrefixIndex();
    for (const [first, nowMs] of [
      [1, 100],
      [2, 200],
      [3, 300],
    ] as const) {
      const hold = open(index, [first, 9], nowMs);
      index.confirm(hold);
      index.release(hold);
    }
    index.evictBefore(-Infinity);
    expect(index.chunks).toBe(6);
    index.evictBefore(250);
    expect(index.chunks).toBe(2);
    const runs = index.snapshot().runs.map((run) => run.hashes[0]);
    expect(runs).toEqual([words('c3')[0]]);
  });

  test('spares what an open request holds, whatever its age, and ends', () => {
    const index = new PrefixIndex();
    const held = open(index, [1, 2, 3], 100);
    index.confirm(held);
    index.evictBefore(1_000);
    expect(index.chunks).toBe(3);
    index.release(held);
    index.evictBefore(1_001);
    expect(index.chunks).toBe(0);
  });
});
