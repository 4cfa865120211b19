// What waits in a pool's queue, and where it stands: the order's third and fourth rule (`queue.ts`) as one number.

const PRIORITY_MAX = 100;

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
  /** Of those held back: from when on it enters without room; when it came unless given. */
  readonly entersMs?: number;
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
  item: Pick<QueueItem, 'prefillMs' | 'arrivedMs' | 'held' | 'entersMs'>,
  ageCredit: number,
): number {
  if (item.held === undefined) return item.prefillMs + ageCredit * item.arrivedMs;
  return item.entersMs ?? item.arrivedMs;
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

export function newer(a: Entry, b: Entry): boolean {
  const [aMs, bMs] = [a.item.arrivedMs, b.item.arrivedMs];
  return aMs > bMs || (aMs === bMs && a.order > b.order);
}

/** Latest start that keeps the deadline. */
export function latestStartMs(entry: Entry): number {
  return (entry.item.deadlineMs ?? Number.POSITIVE_INFINITY) - entry.item.prefillMs;
}

export function startsBefore(a: Entry, b: Entry): boolean {
  return latestStartMs(a) < latestStartMs(b);
}
