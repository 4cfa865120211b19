// What waits of one tenant at one priority for the same thing, by kind: those of a kind that cannot go now are left out
// without a look at each. Entries that left by another way than the top stay in their heap until they outnumber the rest.

import { BinaryHeap } from '../../shared/lib/binary-heap.ts';
import { before, isLive, kindOf, type Entry, type LookedPast } from './queue-item.ts';

/** A heap of fewer entries is not pruned. */
const PRUNE_FROM = 16;

export class Lane {
  readonly #heaps = new Map<string, BinaryHeap<Entry>>();
  readonly #goesBefore: (a: Entry, b: Entry) => boolean;

  constructor(goesBefore: (a: Entry, b: Entry) => boolean = before) {
    this.#goesBefore = goesBefore;
  }

  push(entry: Entry): void {
    const kind = kindOf(entry.item);
    let heap = this.#heaps.get(kind);
    if (heap === undefined) {
      heap = new BinaryHeap(this.#goesBefore);
      this.#heaps.set(kind, heap);
    }
    heap.push(entry);
  }

  /** The first that is not looked past. */
  first(past: LookedPast): Entry | null {
    let first: Entry | null = null;
    for (const [kind, heap] of this.#heaps) {
      if (past.kinds.has(kind)) continue;
      const entry = firstOf(heap, past.ids);
      if (entry !== null && (first === null || this.#goesBefore(entry, first))) first = entry;
    }
    return first;
  }

  /** Least key of those that wait; null where none does. */
  get leastKey(): number | null {
    let least: number | null = null;
    for (const heap of this.#heaps.values()) {
      const top = topOf(heap);
      if (top !== undefined) least = Math.min(least ?? top.key, top.key);
    }
    return least;
  }

  *entries(): Iterable<Entry> {
    for (const heap of this.#heaps.values()) {
      for (const entry of heap.values()) if (entry.live) yield entry;
    }
  }

  /** After one of a kind has left, with so many of the tenant's still waiting. */
  sweep(kind: string, waiting: number): void {
    const heap = this.#heaps.get(kind);
    if (heap === undefined) return;
    pruneDead(heap, waiting);
    if (topOf(heap) === undefined) this.#heaps.delete(kind);
  }
}

/** Drops entries that have left where they outnumber those that wait. */
export function pruneDead(heap: BinaryHeap<Entry>, waiting: number): void {
  if (heap.size > PRUNE_FROM && heap.size > 2 * waiting) heap.prune(isLive);
}

export function topOf(heap: BinaryHeap<Entry>): Entry | undefined {
  while (heap.peek()?.live === false) heap.pop();
  return heap.peek();
}

/** The first live entry that is not among those named; looks past a few only. */
function firstOf(heap: BinaryHeap<Entry>, without: ReadonlySet<string>): Entry | null {
  const top = topOf(heap);
  if (top === undefined) return null;
  if (!without.has(top.item.id)) return top;
  const skipped: Entry[] = [];
  let found: Entry | null = null;
  for (let entry = topOf(heap); entry !== undefined; entry = topOf(heap)) {
    if (!without.has(entry.item.id)) {
      found = entry;
      break;
    }
    skipped.push(entry);
    heap.pop();
  }
  for (const entry of skipped) heap.push(entry);
  return found;
}
