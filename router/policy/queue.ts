// The order in which held-back requests of a pool are released, and how many may wait.
//
//   1. priority (lower first)
//   2. a request whose deadline can be kept only if it goes now
//   3. the tenant that has been given the fewest tokens (virtual time: who comes back owes nothing)
//   4. least predicted prefill ms − ageCredit · age
//
// Those that are held back for KV room (`working-set.ts`) stand in a lane of their own: behind all others of
// the pool, among themselves by priority, tenant, conversations that go on before those that begin, and arrival,
// later by `standsBackMs`.
//
// (4) is the same as prefill + ageCredit · arrival for all times, so the order within a tenant is a
// plain heap, and a request is overtaken only by those that arrive within prefill/ageCredit after
// it: nobody starves.

import { ChurnMap } from '../../shared/lib/churn.ts';
import { BinaryHeap } from '../../shared/lib/binary-heap.ts';

const PRIORITY_MAX = 100;
/** A conversation that goes on stands so far ahead of one that begins: longer than anything waits. */
const GOES_ON_AHEAD_MS = 86_400_000;

export interface QueueItem {
  readonly id: string;
  readonly tenant: string;
  readonly priority: number;
  readonly arrivedMs: number;
  readonly bytes: number;
  /** Uncached tokens: what the tenant is charged. */
  readonly tokens: number;
  readonly prefillMs: number;
  /** When the client gives up; null when unknown. */
  readonly deadlineMs: number | null;
  /** When it has waited as long as it may. */
  readonly giveUpMs: number;
  /** Requests of one kind can go to the same targets; one kind unless given. */
  readonly kind?: string;
  /** It is held back for KV room: a conversation whose cache was evicted, or one that begins. */
  readonly held?: 'returning' | 'new';
  /** Of those held back: as if it had come so much later, ms. */
  readonly standsBackMs?: number;
}

/** Whom a look at who goes next leaves out. */
export interface LookedPast {
  readonly ids: ReadonlySet<string>;
  readonly kinds: ReadonlySet<string>;
}

export const NOBODY_PAST: LookedPast = { ids: new Set(), kinds: new Set() };

interface Entry {
  readonly item: QueueItem;
  readonly key: number;
  readonly order: number;
  live: boolean;
}

type Heaps = Map<string, BinaryHeap<Entry>>;

interface Tenant {
  tokens: number;
  /** By kind: those of a kind that cannot go now are left out without a look at each. */
  readonly heaps: Heaps;
  /** The same, of those held back for KV room. */
  readonly held: Heaps;
  waiting: number;
}

interface Level {
  readonly priority: number;
  readonly tenants: Map<string, Tenant>;
  /** By the latest time at which a start still keeps the deadline. */
  readonly pressing: BinaryHeap<Entry>;
  virtualTokens: number;
  requests: number;
  bytes: number;
  prefillMs: number;
  /** Of those, held back for KV room. */
  heldRequests: number;
  heldPrefillMs: number;
  /** Of the held, conversations that go on. */
  returningRequests: number;
}

export class ReleaseQueue {
  readonly #levels: Level[] = [];
  readonly #entries = new ChurnMap<string, Entry>();
  readonly #givingUp = new BinaryHeap<Entry>((a, b) => a.item.giveUpMs < b.item.giveUpMs);
  #bytes = 0;
  #prefillMs = 0;
  #order = 0;

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
    let least: number | null = null;
    for (const { heaps } of level?.tenants.values() ?? []) {
      for (const heap of heaps.values()) {
        const top = topOf(heap);
        if (top !== undefined) least = Math.min(least ?? top.key, top.key);
      }
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
    const level = this.#level(clampPriority(item.priority));
    const entry = {
      item,
      key: keyOf(item, ageCredit),
      order: (this.#order += 1),
      live: true,
    };
    this.#entries.set(item.id, entry);
    this.#givingUp.push(entry);
    const tenant = this.#tenant(level, item.tenant);
    if (tenant.waiting === 0) tenant.tokens = Math.max(tenant.tokens, level.virtualTokens);
    tenant.waiting += 1;
    heapOf(laneOf(tenant, item), kindOf(item)).push(entry);
    if (item.deadlineMs !== null && item.held === undefined) level.pressing.push(entry);
    countHeld(level, item, 1);
    level.requests += 1;
    level.bytes += item.bytes;
    level.prefillMs += item.prefillMs;
    this.#prefillMs += item.prefillMs;
    this.#bytes += item.bytes;
  }

  /** Takes it out without charging its tenant. */
  remove(id: string): QueueItem | null {
    const entry = this.#entries.get(id);
    if (entry === undefined) return null;
    entry.live = false;
    this.#entries.delete(id);
    const level = this.#level(clampPriority(entry.item.priority));
    const tenant = this.#tenant(level, entry.item.tenant);
    tenant.waiting -= 1;
    countHeld(level, entry.item, -1);
    level.requests -= 1;
    level.bytes -= entry.item.bytes;
    level.prefillMs = level.requests === 0 ? 0 : level.prefillMs - entry.item.prefillMs;
    this.#prefillMs -= entry.item.prefillMs;
    this.#bytes -= entry.item.bytes;
    if (this.#entries.size === 0) this.#prefillMs = 0;
    this.#sweep(level, tenant, entry.item);
    return entry.item;
  }

  /** Takes it out as released: its tenant is charged. */
  release(id: string): QueueItem | null {
    const entry = this.#entries.get(id);
    if (entry === undefined) return null;
    const level = this.#level(clampPriority(entry.item.priority));
    const tenant = this.#tenant(level, entry.item.tenant);
    level.virtualTokens = Math.max(level.virtualTokens, tenant.tokens);
    tenant.tokens += entry.item.tokens;
    return this.remove(id);
  }

  /**
   * Who would go next, without those looked past. `pressWithinMs`: a deadline that is lost unless the
   * request starts within this time is pressing. `held`: of those that are held back for KV room.
   */
  next(options: {
    nowMs: number;
    pressWithinMs: number;
    past: LookedPast;
    held?: boolean;
  }): QueueItem | null {
    const held = options.held === true;
    for (const level of this.#levels) {
      if ((held ? level.heldRequests : level.requests) === 0) continue;
      const urgent = held ? null : pressing(level, options);
      const entry = urgent ?? fairest(level, options.past, held);
      if (entry !== null) return entry.item;
    }
    return null;
  }

  /** Whether a deadline is pressing at `topUnheld`. */
  presses(nowMs: number, pressWithinMs: number): boolean {
    const level = this.#levels.find((candidate) => candidate.requests > candidate.heldRequests);
    const options = { nowMs, pressWithinMs, past: NOBODY_PAST };
    return level !== undefined && pressing(level, options) !== null;
  }

  /**
   * The one to give up first when there is no room: the least urgent priority, there the last to be
   * released.
   */
  worst(): QueueItem | null {
    const level = this.#levels.findLast((candidate) => candidate.requests > 0);
    if (level === undefined) return null;
    let worst: Entry | null = null;
    for (const tenant of level.tenants.values()) {
      for (const heap of [...tenant.heaps.values(), ...tenant.held.values()]) {
        for (const entry of heap.values()) {
          if (entry.live && (worst === null || goesBefore(worst, entry))) worst = entry;
        }
      }
    }
    return worst?.item ?? null;
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

  #level(priority: number): Level {
    const at = this.#levels.findIndex((level) => level.priority >= priority);
    const found = this.#levels[at];
    if (found?.priority === priority) return found;
    const level: Level = {
      priority,
      tenants: new Map(),
      pressing: new BinaryHeap(startsBefore),
      virtualTokens: 0,
      requests: 0,
      bytes: 0,
      prefillMs: 0,
      heldRequests: 0,
      heldPrefillMs: 0,
      returningRequests: 0,
    };
    this.#levels.splice(at < 0 ? this.#levels.length : at, 0, level);
    return level;
  }

  #tenant(level: Level, name: string): Tenant {
    let tenant = level.tenants.get(name);
    if (tenant === undefined) {
      tenant = { tokens: level.virtualTokens, heaps: new Map(), held: new Map(), waiting: 0 };
      level.tenants.set(name, tenant);
    }
    return tenant;
  }

  /**
   * Entries that left by another way than the top go when they outnumber the rest, a tenant when it
   * owes nothing.
   */
  #sweep(level: Level, tenant: Tenant, left: QueueItem): void {
    const heap = heapOf(laneOf(tenant, left), kindOf(left));
    if (heap.size > 16 && heap.size > 2 * tenant.waiting) heap.prune(isLive);
    if (topOf(heap) === undefined) laneOf(tenant, left).delete(kindOf(left));
    if (level.pressing.size > 16 && level.pressing.size > 2 * level.requests) {
      level.pressing.prune(isLive);
    }
    if (this.#givingUp.size > 16 && this.#givingUp.size > 2 * this.size) {
      this.#givingUp.prune(isLive);
    }
    if (level.requests === 0) {
      level.tenants.clear();
      level.virtualTokens = 0;
    } else if (tenant.waiting === 0 && tenant.tokens <= level.virtualTokens) {
      level.tenants.delete(left.tenant);
    }
  }
}

/** As the order has it: whole, and bounded. */
export function clampPriority(priority: number): number {
  const whole = Number.isFinite(priority) ? Math.round(priority) : 0;
  return Math.max(-PRIORITY_MAX, Math.min(PRIORITY_MAX, whole));
}

/** Where an item stands in the order: the least goes first. */
export function keyOf(
  item: Pick<QueueItem, 'prefillMs' | 'arrivedMs' | 'held' | 'standsBackMs'>,
  ageCredit: number,
): number {
  if (item.held === undefined) return item.prefillMs + ageCredit * item.arrivedMs;
  const standsAt = item.arrivedMs + (item.standsBackMs ?? 0);
  return standsAt - (item.held === 'returning' ? GOES_ON_AHEAD_MS : 0);
}

function kindOf({ kind }: QueueItem): string {
  return kind ?? '';
}

function laneOf(tenant: Tenant, { held }: QueueItem): Heaps {
  return held === undefined ? tenant.heaps : tenant.held;
}

function heapOf(heaps: Heaps, kind: string): BinaryHeap<Entry> {
  let heap = heaps.get(kind);
  if (heap === undefined) {
    heap = new BinaryHeap(before);
    heaps.set(kind, heap);
  }
  return heap;
}

function isPast({ item }: Entry, past: LookedPast): boolean {
  return past.ids.has(item.id) || past.kinds.has(kindOf(item));
}

function countHeld(level: Level, item: QueueItem, by: 1 | -1): void {
  if (item.held === undefined) return;
  level.heldRequests += by;
  if (item.held === 'returning') level.returningRequests += by;
  level.heldPrefillMs = level.heldRequests === 0 ? 0 : level.heldPrefillMs + by * item.prefillMs;
}

function isLive(entry: Entry): boolean {
  return entry.live;
}

function before(a: Entry, b: Entry): boolean {
  return a.key < b.key || (a.key === b.key && a.order < b.order);
}

/** Across both lanes of a level: those held back for KV room go last. */
function goesBefore(a: Entry, b: Entry): boolean {
  const [heldA, heldB] = [a.item.held !== undefined, b.item.held !== undefined];
  return heldA === heldB ? before(a, b) : heldB;
}

/** Latest start that keeps the deadline. */
function latestStartMs(entry: Entry): number {
  return (entry.item.deadlineMs ?? Number.POSITIVE_INFINITY) - entry.item.prefillMs;
}

function startsBefore(a: Entry, b: Entry): boolean {
  return latestStartMs(a) < latestStartMs(b);
}

function pressing(
  level: Level,
  options: { nowMs: number; pressWithinMs: number; past: LookedPast },
): Entry | null {
  const top = topOf(level.pressing);
  if (top === undefined || isPast(top, options.past)) return null;
  const latest = latestStartMs(top);
  const canBeKept = latest >= options.nowMs;
  return canBeKept && latest <= options.nowMs + options.pressWithinMs ? top : null;
}

function fairest(level: Level, past: LookedPast, held: boolean): Entry | null {
  let best: Tenant | null = null;
  let bestEntry: Entry | null = null;
  for (const tenant of level.tenants.values()) {
    if (tenant.waiting === 0 || (best !== null && tenant.tokens > best.tokens)) continue;
    const entry = firstIn(held ? tenant.held : tenant.heaps, past);
    if (entry === null) continue;
    const ahead = best === null || tenant.tokens < best.tokens || before(entry, bestEntry ?? entry);
    if (!ahead) continue;
    best = tenant;
    bestEntry = entry;
  }
  return bestEntry;
}

function topOf(heap: BinaryHeap<Entry>): Entry | undefined {
  while (heap.peek()?.live === false) heap.pop();
  return heap.peek();
}

/** The first of a tenant's in one lane. */
function firstIn(heaps: Heaps, past: LookedPast): Entry | null {
  let first: Entry | null = null;
  for (const [kind, heap] of heaps) {
    if (past.kinds.has(kind)) continue;
    const entry = firstOf(heap, past.ids);
    if (entry !== null && (first === null || before(entry, first))) first = entry;
  }
  return first;
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
