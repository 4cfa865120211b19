// What waits for KV room, of one tenant at one priority:
//
//   1. conversations that go on
//   2. those that begin and may enter without room by now
//   3. the others, the newest first
//
// (1) and (2) in the order in which they may. While more begin than find room, in order of arrival each of them would
// wait behind all before it. With the newest first most find room within moments; few wait long, none is passed by who
// comes after it may enter, and where the load stays larger than the pool all wait as long as in order of arrival.

import {
  before,
  clampPriority,
  newer,
  type Entry,
  type LookedPast,
  type QueueItem,
} from './queue-item.ts';
import { Lane } from './queue-lane.ts';

export interface HeldLook {
  readonly nowMs: number;
  readonly past: LookedPast;
}

export class HeldLane {
  readonly #returning = new Lane();
  /** Those that begin, in both orders. */
  readonly #oldest = new Lane();
  readonly #newest = new Lane(newer);

  push(entry: Entry): void {
    if (entry.item.held === 'returning') return this.#returning.push(entry);
    this.#oldest.push(entry);
    this.#newest.push(entry);
  }

  /** The first that is not looked past. */
  first({ nowMs, past }: HeldLook): Entry | null {
    const returning = this.#returning.first(past);
    if (returning !== null) return returning;
    const oldest = this.#oldest.first(past);
    return oldest === null || entersBy(oldest, nowMs) ? oldest : this.#newest.first(past);
  }

  /** When the first of them may enter without room; null where none waits. */
  get leastKey(): number | null {
    const keys = [this.#returning.leastKey, this.#oldest.leastKey].filter((key) => key !== null);
    return keys.length === 0 ? null : Math.min(...keys);
  }

  *entries(): Iterable<Entry> {
    yield* this.#returning.entries();
    yield* this.#oldest.entries();
  }

  /** After one of a kind has left, with so many of the tenant's still waiting. */
  sweep(kind: string, waiting: number): void {
    for (const lane of [this.#returning, this.#oldest, this.#newest]) lane.sweep(kind, waiting);
  }
}

/** Where one that waits for room stands, whichever router it waits in. */
export interface HeldPlace {
  readonly tenant: string;
  readonly priority: number;
  readonly returning: boolean;
  readonly arrivedMs: number;
  readonly entersMs: number;
}

export function heldPlaceOf(item: QueueItem): HeldPlace {
  const { tenant, arrivedMs, entersMs = arrivedMs } = item;
  const priority = clampPriority(item.priority);
  return { tenant, priority, returning: item.held === 'returning', arrivedMs, entersMs };
}

/**
 * Of two routers' first ones: which of them one queue would let in first. Of one priority that is told within a tenant
 * alone: tenants take turns by what each router has given them.
 */
export function heldFirst(a: HeldPlace, than: HeldPlace, nowMs: number): boolean {
  if (a.priority !== than.priority) return a.priority < than.priority;
  if (a.tenant !== than.tenant) return false;
  const [rankA, rankB] = [placeRank(a, nowMs), placeRank(than, nowMs)];
  if (rankA !== rankB) return rankA < rankB;
  return rankA === NEW ? a.arrivedMs > than.arrivedMs : a.entersMs < than.entersMs;
}

function placeRank({ returning, entersMs }: HeldPlace, nowMs: number): number {
  return returning ? 0 : entersMs <= nowMs ? 1 : NEW;
}

/** Of two tenants' first ones. */
export function heldBefore(a: Entry, b: Entry, nowMs: number): boolean {
  const [rankA, rankB] = [rankOf(a, nowMs), rankOf(b, nowMs)];
  if (rankA !== rankB) return rankA < rankB;
  return rankA === NEW ? newer(a, b) : before(a, b);
}

const NEW = 2;

function rankOf(entry: Entry, nowMs: number): number {
  if (entry.item.held === 'returning') return 0;
  return entersBy(entry, nowMs) ? 1 : NEW;
}

function entersBy(entry: Entry, nowMs: number): boolean {
  return entry.key <= nowMs;
}
