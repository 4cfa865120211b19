// Where one router's queue stands among those of the others that it shares a pool with: by priority, then by the request
// that goes next, the oldest first, its length allowed for. So several routers release in one order, though none of
// them sees another's queue.

import type { QueuePlace } from '../../shared/model/report.ts';

export interface QueueClaim {
  /** Settles ties: no two claims have the same. */
  readonly order: number;
  /** Most urgent priority that it holds. */
  readonly topPriority: number;
  /**
   * When its next request came, less what its length costs, on the agent's clock; null where it was not told, or where
   * the router has released since: then it goes after those that are known.
   */
  readonly headMs: number | null;
  /** Nothing that it holds came before, by the same reckoning, whatever it has released since; null where not told. */
  readonly sinceMs: number | null;
}

/** `own` null: that router holds nothing, and a request that comes to it now is the youngest of all. */
export function placeOf(
  own: QueueClaim | null,
  others: readonly QueueClaim[],
  nowMs: number,
): QueuePlace {
  let othersTop: number | null = null;
  for (const { topPriority } of others) othersTop = Math.min(othersTop ?? topPriority, topPriority);
  const rivals = others.filter(({ topPriority }) => topPriority === othersTop);
  const first = own === null || own.topPriority !== othersTop ? null : own;
  const before = first === null ? rivals : rivals.filter((rival) => goesBefore(rival, first));
  const heads = rivals.flatMap(({ sinceMs }) => (sinceMs === null ? [] : [sinceMs]));
  const oldest = heads.length === 0 ? {} : { oldestAgeMs: nowMs - Math.min(...heads) };
  return { othersTop, othersAtTop: rivals.length, before: before.length, ...oldest };
}

function goesBefore(a: QueueClaim, b: QueueClaim): boolean {
  const aMs = a.headMs ?? Number.POSITIVE_INFINITY;
  const bMs = b.headMs ?? Number.POSITIVE_INFINITY;
  return aMs === bMs ? a.order < b.order : aMs < bMs;
}
