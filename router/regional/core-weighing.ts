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
  promptTokens: 3,
  matchedTokens: 4,
  cachedTokens: 5,
  /** Of the prompt's sums (shared/model/cost-curve.ts); the others follow from its tokens. */
  context: 6,
} as const;
export const COLUMNS = 7;
/** The first of those that add up over several prompts. */
export const COLUMNS_SUMMED = COLUMN.promptTokens;

/** Candidates that are put in order at a time: mostly all that are asked for. */
const RANKED_AT_ONCE = 16;

const FULL = 1;
const CLOSED = 2;
const LEARNED = 4;

export class Weighing {
  readonly removed: Removed[] = [];
  /** Of the pool of the request; candidates are those at `places`, in its order. */
  #pool: readonly TargetState[] = [];
  #count = 0;
  /** By `COLUMN`; of each candidate one number, so that a pass over one column reads no other. */
  columns: readonly Float64Array[] = columnsOf(16);
  /** Place of each in its pool's roster. */
  places = new Int32Array(16);
  #flags = new Uint8Array(16);
  /** Those of the least cost so far asked for, in order. */
  #ranked = new Int32Array(16);
  #rankedCount = 0;
  /** Those that were asked for, each made once. */
  readonly #objects: Scored[] = [];
  /** Of a candidate, which of these it is, from 1 on. */
  #objectOf = new Int32Array(16);

  get count(): number {
    return this.#count;
  }

  begin(pool: readonly TargetState[]): void {
    this.#pool = pool;
    if (this.removed.length > 0) this.removed.length = 0;
    this.#count = 0;
    this.#rankedCount = 0;
    this.#objects.length = 0;
    while (this.places.length < pool.length) this.#grow();
    this.#objectOf.fill(0, 0, pool.length);
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
    for (const column of this.columns) column.fill(0, 0, this.#count);
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
    return this.columns[column]?.[k] as number;
  }

  costMs(k: number): number {
    return this.columns[COLUMN.costMs]?.[k] as number;
  }

  /** The candidate with the i-th least cost, the first of equal ones; -1 beyond the last. */
  ranked(i: number): number {
    while (this.#rankedCount <= i && this.#rankedCount < this.#count) this.#rankMore();
    return i < this.#rankedCount ? (this.#ranked[i] as number) : -1;
  }

  at(k: number): Scored {
    const made = this.#objects[(this.#objectOf[k] as number) - 1];
    if (made !== undefined) return made;
    const object = this.#make(k);
    this.#objectOf[k] = this.#objects.push(object);
    return object;
  }

  /** No other candidate has as much of the prompt cached. */
  cachesMost(k: number): boolean {
    const cached = this.columns[COLUMN.cachedTokens] as Float64Array;
    const most = cached[k] as number;
    for (let other = 0; other < this.#count; other += 1) {
      if (other !== k && (cached[other] as number) >= most) return false;
    }
    return true;
  }

  /** The candidate that alone holds at least half of the prompt; -1 where none does. */
  home(): number {
    const cached = this.columns[COLUMN.cachedTokens] as Float64Array;
    let home = -1;
    let next = 0;
    for (let k = 0; k < this.#count; k += 1) {
      const tokens = cached[k] as number;
      if (home >= 0 && tokens <= (cached[home] as number)) next = Math.max(next, tokens);
      else {
        next = home < 0 ? 0 : (cached[home] as number);
        home = k;
      }
    }
    if (home < 0 || (cached[home] as number) === next) return -1;
    return 2 * (cached[home] as number) >= this.value(home, COLUMN.promptTokens) ? home : -1;
  }

  /** The least prefill of any candidate and its uncached tokens; null without candidates. */
  leastPrefill(): { tokens: number; prefillMs: number } | null {
    if (this.#count === 0) return null;
    const prefills = this.columns[COLUMN.prefillMs] as Float64Array;
    let best = 0;
    for (let k = 1; k < this.#count; k += 1) {
      if ((prefills[k] as number) < (prefills[best] as number)) best = k;
    }
    return { tokens: this.#uncached(best), prefillMs: prefills[best] as number };
  }

  /** What waits at all candidates together, ms. */
  waitMsOfAll(): number {
    let sum = 0;
    for (let k = 0; k < this.count; k += 1) sum += this.value(k, COLUMN.waitMs);
    return sum;
  }

  #uncached(k: number): number {
    return this.value(k, COLUMN.promptTokens) - this.value(k, COLUMN.cachedTokens);
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
        uncached: this.#uncached(k),
        prompt: this.value(k, COLUMN.promptTokens),
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
    const columns = columnsOf(room);
    for (let c = 0; c < COLUMNS; c += 1) columns[c]?.set(this.columns[c] ?? []);
    this.columns = columns;
    const places = new Int32Array(room);
    places.set(this.places);
    this.places = places;
    const flags = new Uint8Array(room);
    flags.set(this.#flags);
    this.#flags = flags;
    this.#ranked = new Int32Array(room);
    this.#objectOf = new Int32Array(room);
  }

  /** The next few in order: one pass, in which most candidates are compared once. */
  #rankMore(): void {
    const costs = this.columns[COLUMN.costMs] as Float64Array;
    const ranked = this.#ranked;
    const from = this.#rankedCount;
    const last = from === 0 ? -1 : (ranked[from - 1] as number);
    const lastMs = last < 0 ? Number.NEGATIVE_INFINITY : (costs[last] as number);
    const most = Math.min(from + RANKED_AT_ONCE, this.#count);
    let end = from;
    let worstMs = Number.POSITIVE_INFINITY;
    for (let k = 0; k < this.#count; k += 1) {
      const ms = costs[k] as number;
      if (end === most && ms >= worstMs) continue;
      if (ms < lastMs || (ms === lastMs && k <= last)) continue;
      let at = end < most ? end : most - 1;
      for (; at > from && (costs[ranked[at - 1] as number] as number) > ms; at -= 1) {
        ranked[at] = ranked[at - 1] as number;
      }
      ranked[at] = k;
      if (end < most) end += 1;
      worstMs = costs[ranked[end - 1] as number] as number;
    }
    this.#rankedCount = end;
  }
}

function columnsOf(room: number): Float64Array[] {
  return Array.from({ length: COLUMNS }, () => new Float64Array(room));
}
