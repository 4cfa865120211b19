// The order in which held-back requests of a pool are released, and how many may wait.
//
//   1. priority (lower first)
//   2. a request whose deadline can be kept only if it goes now
//   3. the tenant that has been given the fewest tokens (virtual time: who comes back owes nothing)
//   4. least predicted prefill ms − ageCredit · age
//
// Those that are held back for KV room (`working-set.ts`) stand in a lane of their own: behind all others of
// the pool, among themselves by priority, tenant, and as `queue-held.ts` has it.
//
// (4) is the same as prefill + ageCredit · arrival for all times, so the order within a tenant is a
// plain heap, and a request is overtaken only by those that arrive within prefill/ageCredit after
// it: nobody starves.

import { BinaryHeap } from '../../shared/lib/binary-heap.ts';
import { ChurnMap } from '../../shared/lib/churn.ts';
import { clampPriority, keyOf, NOBODY_PAST, type Entry, type QueueItem } from './queue-item.ts';
import { pruneDead, topOf } from './queue-lane.ts';
import { Level, type PressingLook } from './queue-level.ts';

export class ReleaseQueue {
  readonly #levels: Level[] = [];
  readonly #entries = new ChurnMap<string, Entry>();
  readonly #givingUp = new BinaryHeap<Entry>((a, b) => a.item.giveUpMs < b.item.giveUpMs);
  #bytes = 0;
  #prefillMs = 0;
  #order = 0;
  #heldChanges = 0;

  /** Ever, of what is held back for KV room: another figure, another first one perhaps. */
  get heldChanges(): number {
    return this.#heldChanges;
  }

  get size(): number {
    return this.#entries.size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Predicted prefill of all that waits. */
  get prefillMs(): number {
    return this.#entries.size === 0 ? 0 : this.#prefillMs;
  }

  /** Most urgent priority that waits; null when nothing does. */
  get topPriority(): number | null {
    return this.#levels.find((level) => level.requests > 0)?.priority ?? null;
  }

  /** What is held back for KV room. */
  get held(): { requests: number; prefillMs: number } {
    const sum = { requests: 0, prefillMs: 0 };
    for (const level of this.#levels) {
      sum.requests += level.heldRequests;
      sum.prefillMs += level.heldPrefillMs;
    }
    return sum;
  }

  /** Most urgent priority of what waits for anything but KV room; null when nothing does. */
  get topUnheld(): number | null {
    return this.#levels.find((level) => level.requests > level.heldRequests)?.priority ?? null;
  }

  /**
   * What waits longest at `topUnheld`, its length allowed for, whoever goes next there: when it came, plus
   * prefill / ageCredit, times ageCredit. Null when nothing does.
   */
  get leastKey(): number | null {
    const level = this.#levels.find((candidate) => candidate.requests > candidate.heldRequests);
    return level?.leastKey ?? null;
  }

  /** When the first of those held back for KV room may enter without; null where none is. */
  get leastEntersMs(): number | null {
    let least: number | null = null;
    for (const level of this.#levels) {
      const entersMs = level.leastEntersMs;
      if (entersMs !== null) least = Math.min(least ?? entersMs, entersMs);
    }
    return least;
  }

  has(id: string): boolean {
    return this.#entries.has(id);
  }

  get(id: string): QueueItem | null {
    return this.#entries.get(id)?.item ?? null;
  }

  ids(): Iterable<string> {
    return this.#entries.keys();
  }

  /** Arrival of the one that waits longest; null when nothing does. */
  get oldestMs(): number | null {
    let oldest: number | null = null;
    for (const { item } of this.#entries.values())
      oldest = Math.min(oldest ?? item.arrivedMs, item.arrivedMs);
    return oldest;
  }

  /** When the next one has waited as long as it may; null when nothing waits. */
  get nextGiveUpMs(): number | null {
    return topOf(this.#givingUp)?.item.giveUpMs ?? null;
  }

  /** One that has waited as long as it may. */
  overdue(nowMs: number): QueueItem | null {
    const top = topOf(this.#givingUp);
    return top !== undefined && top.item.giveUpMs <= nowMs ? top.item : null;
  }

  push(item: QueueItem, ageCredit: number): void {
    this.remove(item.id);
    const entry = { item, key: keyOf(item, ageCredit), order: (this.#order += 1), live: true };
    this.#entries.set(item.id, entry);
    this.#givingUp.push(entry);
    this.#level(item).push(entry);
    this.#prefillMs += item.prefillMs;
    this.#bytes += item.bytes;
    if (item.held !== undefined) this.#heldChanges += 1;
  }

  /** Takes it out without charging its tenant. */
  remove(id: string): QueueItem | null {
    const entry = this.#entries.get(id);
    if (entry === undefined) return null;
    entry.live = false;
    this.#entries.delete(id);
    this.#prefillMs -= entry.item.prefillMs;
    this.#bytes -= entry.item.bytes;
    if (entry.item.held !== undefined) this.#heldChanges += 1;
    if (this.#entries.size === 0) this.#prefillMs = 0;
    this.#level(entry.item).remove(entry.item);
    pruneDead(this.#givingUp, this.size);
    return entry.item;
  }

  /** Takes it out as released: its tenant is charged. */
  release(id: string): QueueItem | null {
    const item = this.get(id);
    if (item === null) return null;
    this.#level(item).charge(item);
    return this.remove(id);
  }

  /**
   * Who would go next, without those looked past. `pressWithinMs`: a deadline that is lost unless the
   * request starts within this time is pressing. `held`: of those that are held back for KV room.
   */
  next(options: PressingLook & { held?: boolean }): QueueItem | null {
    const held = options.held === true;
    for (const level of this.#levels) {
      if ((held ? level.heldRequests : level.requests) === 0) continue;
      const urgent = held ? null : level.pressing(options);
      const entry = urgent ?? level.fairest(options, held);
      if (entry !== null) return entry.item;
    }
    return null;
  }

  /** Whether a deadline is pressing at `topUnheld`. */
  presses(nowMs: number, pressWithinMs: number): boolean {
    const level = this.#levels.find((candidate) => candidate.requests > candidate.heldRequests);
    const options = { nowMs, pressWithinMs, past: NOBODY_PAST };
    return level !== undefined && level.pressing(options) !== null;
  }

  /**
   * The one to give up first when there is no room: the least urgent priority, there the last to be
   * released.
   */
  worst(): QueueItem | null {
    const level = this.#levels.findLast((candidate) => candidate.requests > 0);
    return level?.worst()?.item ?? null;
  }

  /** What waits at this priority or a more urgent one, for KV room or for anything else. */
  ahead(priority: number, held = false): { requests: number; prefillMs: number } {
    const sum = { requests: 0, prefillMs: 0 };
    for (const level of this.#levels) {
      if (level.priority > clampPriority(priority)) break;
      const { heldRequests, heldPrefillMs } = level;
      sum.requests += held ? heldRequests : level.requests - heldRequests;
      sum.prefillMs += held ? heldPrefillMs : level.prefillMs - heldPrefillMs;
    }
    return sum;
  }

  /** What waits at a less urgent priority. */
  behind(priority: number): { requests: number; bytes: number } {
    const sum = { requests: 0, bytes: 0 };
    for (const level of this.#levels) {
      if (level.priority <= clampPriority(priority)) continue;
      sum.requests += level.requests;
      sum.bytes += level.bytes;
    }
    return sum;
  }

  /** Conversations that go on, held back for KV room at this priority or a more urgent one. */
  returningAhead(priority: number): number {
    let sum = 0;
    for (const level of this.#levels) {
      if (level.priority <= clampPriority(priority)) sum += level.returningRequests;
    }
    return sum;
  }

  #level(item: QueueItem): Level {
    const priority = clampPriority(item.priority);
    const at = this.#levels.findIndex((level) => level.priority >= priority);
    const found = this.#levels[at];
    if (found?.priority === priority) return found;
    const level = new Level(priority);
    this.#levels.splice(at < 0 ? this.#levels.length : at, 0, level);
    return level;
  }
}
