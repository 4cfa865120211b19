// Whether an id that a client gives stands for a conversation. Turns of one follow each other: a next one comes when the
// last has been answered. An id under which requests come much faster stands for many, and says nothing of where any of them
// has its cache: it is then left out of account, so that one id for everything neither pins a tenant's traffic to a region
// nor takes it past the spill gate.
//
//   count    of its requests, halved every PACE_HALF_LIFE_MS
//   crowded  from PACE_MAX on: so many at once (an agent's parallel calls are fewer), or 1.1 a second for long

import { RecentMap } from '../../shared/lib/recent-map.ts';

export const PACE_MAX = 16;
export const PACE_HALF_LIFE_MS = 10_000;

interface Pace {
  readonly count: number;
  readonly atMs: number;
}

export class TurnPace {
  /** The least recently used first. */
  readonly #paces = new RecentMap<string, Pace>();

  isCrowded(key: string, nowMs: number): boolean {
    return this.#countOf(key, nowMs) >= PACE_MAX;
  }

  /** A request under it has come. `max`: keys that are remembered. */
  note(key: string, nowMs: number, max: number): void {
    const count = this.#countOf(key, nowMs) + 1;
    this.#paces.set(key, { count, atMs: nowMs });
    if (this.#paces.size > max) this.#paces.takeOldest();
  }

  #countOf(key: string, nowMs: number): number {
    const pace = this.#paces.get(key);
    if (pace === undefined) return 0;
    return pace.count * 2 ** (-Math.max(0, nowMs - pace.atMs) / PACE_HALF_LIFE_MS);
  }
}
