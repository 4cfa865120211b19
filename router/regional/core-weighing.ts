// What one request costs at each target that can take it: columns of numbers, filled by
// `core-weigh.ts`, kept until the next request is weighed. Nothing is allocated for a target that is
// only looked at; `at` makes an object of one that is chosen or shown.

import type { FilterReason } from '../../shared/model/decision.ts';
import type { PrefillSums } from '../../shared/model/cost-curve.ts';
import type { Load } from './core-load.ts';
import type { RequestState, TargetState } from './core-state.ts';

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
  /** Whom it is about; null before the first. */
  request: RequestState | null = null;
  readonly removed: Removed[] = [];
  /** Those that can take the request, in the pool's order: candidate k is `targets[k]`. */
  readonly targets: TargetState[] = [];
  /** Of candidate k from `k · COLUMNS` on. */
  values = new Float64Array(16 * COLUMNS);
  /** Place of each in its pool's roster. */
  places = new Int32Array(16);
  #flags = new Uint8Array(16);
  /** A heap of candidates by cost; those taken from it so far are in `#ranked`, in order. */
  #heap = new Int32Array(16);
  #heaped = -1;
  readonly #ranked: number[] = [];
  /** Those that were asked for, each made once. */
  readonly #objects: Scored[] = [];

  get count(): number {
    return this.targets.length;
  }

  begin(request: RequestState | null): void {
    this.request = request;
    this.removed.length = 0;
    this.targets.length = 0;
    this.#heaped = -1;
    this.#ranked.length = 0;
    this.#objects.length = 0;
  }

  /** Another candidate, whose columns are still to be filled. */
  add(target: TargetState, place: number): void {
    const k = this.targets.length;
    if (k >= this.places.length) this.#grow();
    this.targets.push(target);
    this.places[k] = place;
  }

  /** Nothing is asked of anybody: for prompts that add up, and for none. */
  clearColumns(): void {
    this.values.fill(0, 0, this.targets.length * COLUMNS);
  }

  setLoad(k: number, load: { readonly full: boolean; readonly closed: boolean; learned: boolean }) {
    this.#flags[k] =
      (load.full ? FULL : 0) | (load.closed ? CLOSED : 0) | (load.learned ? LEARNED : 0);
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
    while (this.#ranked.length <= i && this.#heaped > 0) this.#ranked.push(this.#pop());
    return this.#ranked[i] ?? -1;
  }

  at(k: number): Scored {
    return (this.#objects[k] ??= this.#make(k));
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
    const target = this.targets[k] as TargetState;
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
  }

  #less(a: number, b: number): boolean {
    const costA = this.costMs(a);
    const costB = this.costMs(b);
    return costA < costB || (costA === costB && a < b);
  }

  #heapify(): void {
    const count = this.targets.length;
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
