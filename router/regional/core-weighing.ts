// What one request costs at each target that can take it: columns of numbers, filled by
// `core-weigh.ts`, kept until the next request is weighed. Nothing is allocated for a target that is
// only looked at; `at` makes an object of one that is chosen or shown.

import type { FilterReason } from '../../shared/model/decision.ts';
import type { PrefillSums } from '../../shared/model/cost-curve.ts';
import type { Load } from './core-load.ts';
import type { TargetState } from './core-state.ts';

export interface Scored {
  readonly target: TargetState;
  readonly load: Omit<Load, 'roomAtMs'>;
  readonly sums: PrefillSums;
  readonly promptTokens: number;
  /** What the index alone says. */
  readonly matchedTokens: number;
  readonly cachedTokens: number;
  readonly prefillMs: number;
  readonly costMs: number;
  /** The cost curve is learned, the target's own or its pool's. */
  readonly learned: boolean;
}

export interface Removed {
  readonly target: TargetState;
  readonly reason: FilterReason;
}

/** Columns of a candidate. */
export const COLUMN = {
  waitMs: 0,
  prefillMs: 1,
  costMs: 2,
  /** Of the prompt's sums. */
  uncached: 3,
  prompt: 4,
  context: 5,
  promptTokens: 6,
  matchedTokens: 7,
  cachedTokens: 8,
} as const;
export const COLUMNS = 9;

const FULL = 1;
const CLOSED = 2;
const LEARNED = 4;

export class Weighing {
  readonly removed: Removed[] = [];
  /** Of the pool of the request; candidates are those at `places`, in its order. */
  #pool: readonly TargetState[] = [];
  #count = 0;
  /** Of candidate k from `k · COLUMNS` on. */
  values = new Float64Array(16 * COLUMNS);
  /** Place of each in its pool's roster. */
  places = new Int32Array(16);
  #flags = new Uint8Array(16);
  /** A heap of candidates by cost; those taken from it so far are in `#ranked`, in order. */
  #heap = new Int32Array(16);
  #heaped = -1;
  #ranked = new Int32Array(16);
  #rankedCount = 0;
  /** Those that were asked for, each made once. */
  readonly #objects: Scored[] = [];
  readonly #objectsOf: number[] = [];

  get count(): number {
    return this.#count;
  }

  begin(pool: readonly TargetState[]): void {
    this.#pool = pool;
    if (this.removed.length > 0) this.removed.length = 0;
    this.#count = 0;
    this.#heaped = -1;
    this.#rankedCount = 0;
    this.#objects.length = 0;
    this.#objectsOf.length = 0;
    while (this.places.length < pool.length) this.#grow();
  }

  /** Another candidate, by its place in the pool, whose columns are still to be filled. */
  add(place: number): void {
    this.places[this.#count] = place;
    this.#count += 1;
  }

  target(k: number): TargetState {
    return this.#pool[this.places[k] as number] as TargetState;
  }

  /** Nothing is asked of anybody: for prompts that add up, and for none. */
  clearColumns(): void {
    this.values.fill(0, 0, this.#count * COLUMNS);
  }

  setLoad(k: number, load: { readonly full: boolean; readonly closed: boolean; learned: boolean }) {
    this.#flags[k] =
      (load.full ? FULL : 0) | (load.closed ? CLOSED : 0) | (load.learned ? LEARNED : 0);
  }

  setLearnedLoad(k: number, full: boolean, closed: boolean): void {
    this.#flags[k] = LEARNED | (full ? FULL : 0) | (closed ? CLOSED : 0);
  }

  full(k: number): boolean {
    return ((this.#flags[k] as number) & FULL) !== 0;
  }

  closed(k: number): boolean {
    return ((this.#flags[k] as number) & CLOSED) !== 0;
  }

  value(k: number, column: (typeof COLUMN)[keyof typeof COLUMN]): number {
    return this.values[k * COLUMNS + column] as number;
  }

  costMs(k: number): number {
    return this.values[k * COLUMNS + COLUMN.costMs] as number;
  }

  /** The candidate with the i-th least cost, the first of equal ones; -1 beyond the last. */
  ranked(i: number): number {
    if (this.#heaped < 0) this.#heapify();
    while (this.#rankedCount <= i && this.#heaped > 0) {
      this.#ranked[this.#rankedCount] = this.#pop();
      this.#rankedCount += 1;
    }
    return i < this.#rankedCount ? (this.#ranked[i] as number) : -1;
  }

  at(k: number): Scored {
    const made = this.#objects[this.#objectsOf.indexOf(k)];
    if (made !== undefined) return made;
    const object = this.#make(k);
    this.#objects.push(object);
    this.#objectsOf.push(k);
    return object;
  }

  /** The least prefill of any candidate and its uncached tokens; null without candidates. */
  leastPrefill(): { tokens: number; prefillMs: number } | null {
    if (this.count === 0) return null;
    let best = 0;
    for (let k = 1; k < this.count; k += 1) {
      if (this.value(k, COLUMN.prefillMs) < this.value(best, COLUMN.prefillMs)) best = k;
    }
    return {
      tokens: this.value(best, COLUMN.uncached),
      prefillMs: this.value(best, COLUMN.prefillMs),
    };
  }

  /** What waits at all candidates together, ms. */
  waitMsOfAll(): number {
    let sum = 0;
    for (let k = 0; k < this.count; k += 1) sum += this.value(k, COLUMN.waitMs);
    return sum;
  }

  #make(k: number): Scored {
    const target = this.target(k);
    const flags = this.#flags[k] as number;
    return {
      target,
      load: {
        waitMs: this.value(k, COLUMN.waitMs),
        full: (flags & FULL) !== 0,
        closed: (flags & CLOSED) !== 0,
      },
      sums: {
        uncached: this.value(k, COLUMN.uncached),
        prompt: this.value(k, COLUMN.prompt),
        context: this.value(k, COLUMN.context),
      },
      promptTokens: this.value(k, COLUMN.promptTokens),
      matchedTokens: this.value(k, COLUMN.matchedTokens),
      cachedTokens: this.value(k, COLUMN.cachedTokens),
      prefillMs: this.value(k, COLUMN.prefillMs),
      costMs: this.costMs(k),
      learned: (flags & LEARNED) !== 0,
    };
  }

  #grow(): void {
    const room = 2 * this.places.length;
    const values = new Float64Array(room * COLUMNS);
    values.set(this.values);
    this.values = values;
    const places = new Int32Array(room);
    places.set(this.places);
    this.places = places;
    const flags = new Uint8Array(room);
    flags.set(this.#flags);
    this.#flags = flags;
    this.#heap = new Int32Array(room);
    this.#ranked = new Int32Array(room);
  }

  #less(a: number, b: number): boolean {
    const costA = this.costMs(a);
    const costB = this.costMs(b);
    return costA < costB || (costA === costB && a < b);
  }

  #heapify(): void {
    const count = this.#count;
    for (let k = 0; k < count; k += 1) this.#heap[k] = k;
    this.#heaped = count;
    for (let at = (count >> 1) - 1; at >= 0; at -= 1) this.#sink(at);
  }

  #pop(): number {
    const top = this.#heap[0] as number;
    this.#heaped -= 1;
    this.#heap[0] = this.#heap[this.#heaped] as number;
    this.#sink(0);
    return top;
  }

  #sink(start: number): void {
    const heap = this.#heap;
    let at = start;
    const item = heap[at] as number;
    for (let child = 2 * at + 1; child < this.#heaped; child = 2 * at + 1) {
      if (child + 1 < this.#heaped && this.#less(heap[child + 1] as number, heap[child] as number))
        child += 1;
      if (!this.#less(heap[child] as number, item)) break;
      heap[at] = heap[child] as number;
      at = child;
    }
    heap[at] = item;
  }
}
