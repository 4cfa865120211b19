// When many agents fall silent together, the reports are at fault and not the engines.
//
// A pool is static when the replicas with fresh reports are fewer than half of those that were
// fresh a window ago, or when it has one replica only: a replica whose grace then ends stays in
// use, up to its last seen peak of running requests, until it fails us itself.

/** Fresh replicas of a pool over time: as much of the past as a window needs. */
export class FreshHistory {
  readonly #changes: { atMs: number; count: number }[] = [];

  note(count: number, nowMs: number, keepMs: number): void {
    const last = this.#changes.at(-1);
    if (last?.count !== count) this.#changes.push({ atMs: nowMs, count });
    while ((this.#changes[1]?.atMs ?? Number.POSITIVE_INFINITY) <= nowMs - keepMs) {
      this.#changes.shift();
    }
  }

  /**
   * The count that held at a time. Before the first note nothing is known, so the most seen since stands for
   * it: a router that has just started does not take a loss of all its agents for how things always were.
   */
  at(timeMs: number): number {
    let count: number | null = null;
    for (const change of this.#changes) {
      if (change.atMs > timeMs) break;
      count = change.count;
    }
    return count ?? this.#changes.reduce((most, change) => Math.max(most, change.count), 0);
  }
}

export interface PoolFreshness {
  /** Replicas of the pool that have not left. */
  readonly members: number;
  readonly freshNow: number;
  readonly freshBefore: number;
}

export function isStatic(pool: PoolFreshness): boolean {
  return pool.members === 1 || pool.freshNow < pool.freshBefore / 2;
}

/**
 * Requests that one router may keep on a static replica: its share of the last seen peak, at least
 * one.
 */
export function staticConcurrency(peakRunning: number, routers: number): number {
  return Math.max(1, Math.ceil(peakRunning / Math.max(1, routers)));
}
