// What waits in a pool's queue, and where it stands: the order's third and fourth rule (`queue.ts`) as one number.

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

export interface Entry {
  readonly item: QueueItem;
  readonly key: number;
  readonly order: number;
  live: boolean;
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

export function kindOf({ kind }: QueueItem): string {
  return kind ?? '';
}

export function isLive(entry: Entry): boolean {
  return entry.live;
}

export function before(a: Entry, b: Entry): boolean {
  return a.key < b.key || (a.key === b.key && a.order < b.order);
}

/** Latest start that keeps the deadline. */
export function latestStartMs(entry: Entry): number {
  return (entry.item.deadlineMs ?? Number.POSITIVE_INFINITY) - entry.item.prefillMs;
}

export function startsBefore(a: Entry, b: Entry): boolean {
  return latestStartMs(a) < latestStartMs(b);
}
