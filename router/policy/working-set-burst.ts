// Room beyond the bound for a while: the pool fills, and conversations that fit only with it go in at once.
//
//   room    = BURST_ROOM · (1 − pressed)
//   pressed = share of the last PRESSED_MS or so in which some router of the pool held somebody back: 1 − (1 − own)^routers
//
// and 1 at once where a crowd waits, more than will find room in time.
//
// A burst passes before those whose cache it evicts have cost more than the wait of those whom it lets in. Where somebody
// always waits the load is no burst: the room closes within half a minute, and turns find their caches as without it.

import type { BoundSettings } from './working-set-control.ts';

/** Of a KV cache. */
const BURST_ROOM = 0.1;
/** Time constant of what was seen, ms. */
const PRESSED_MS = 30_000;

export class BurstRoom {
  #pressed = 0;
  #routers = 1;
  #waiting = false;
  #atMs: number | null = null;

  /** A bound with that room on top, no further than it may be eased. */
  beyond(bound: number, { workingSetBoundMax }: Pick<BoundSettings, 'workingSetBoundMax'>): number {
    const room = BURST_ROOM * (1 - this.#pressed) ** this.#routers;
    return Math.max(bound, Math.min(bound + room, workingSetBoundMax));
  }

  /** One look at this router's own lane; what was seen last has been so until now. */
  look(
    seen: { readonly waiting: boolean; readonly crowd: boolean; readonly routers: number },
    nowMs: number,
  ): void {
    const passedMs = Math.max(0, nowMs - (this.#atMs ?? nowMs));
    const weight = -Math.expm1(-passedMs / PRESSED_MS);
    this.#pressed += weight * ((this.#waiting ? 1 : 0) - this.#pressed);
    if (seen.crowd) this.#pressed = 1;
    this.#waiting = seen.waiting;
    this.#routers = seen.routers;
    this.#atMs = nowMs;
  }
}
