// Whether a target has room now, or when time alone will make some: what a queue asks of every target
// of its pool after every event. Common targets are answered from their figures, the others by
// `loadOf`; both say the same.

import { backlogNowMs } from '../policy/sight.ts';
import {
  curveOf,
  loadOf,
  ownOpenMs,
  poolCurve,
  unackedMs,
  viewOf,
  wakeInMs,
  type Load,
} from './core-load.ts';
import { FIGURE, FIGURES } from './core-roster.ts';
import type { PoolState, RegionalState, TargetState } from './core-state.ts';

export type Room = Pick<Load, 'full' | 'roomAtMs'>;

const NO_ROOM: Room = { full: true, roomAtMs: null };
const ROOM: Room = { full: false, roomAtMs: null };

/** Fit for users, slow or not. The pool's roster has been brought up to date. */
export function serves(pool: PoolState, place: number): boolean {
  const { common, figures, targets } = pool.roster;
  if (common[place] === 1) return true;
  const { replica } = targets[place] as TargetState;
  const ready = figures[place * FIGURES + FIGURE.serves] === 1;
  return ready && replica.state !== 'out' && !replica.down;
}

/** Of the target at that place of the roster, which has been brought up to date. */
export function roomNow(state: RegionalState, pool: PoolState, place: number): Room {
  const { common, figures, targets } = pool.roster;
  const { settings, nowMs } = state;
  const view = viewOf(state, pool);
  const target = targets[place] as TargetState;
  const curve = target.report?.prefillCost ?? null;
  if (common[place] !== 1 || curve === null) {
    const chosen = curveOf(target, () => poolCurve(pool));
    return loadOf(target, { ...chosen, settings, view, nowMs });
  }
  const from = place * FIGURES;
  const slotWaitMs = figures[from + FIGURE.slotWaitMs] as number;
  const running =
    (figures[from + FIGURE.running] as number) + (figures[from + FIGURE.unackedRequests] as number);
  // No comparison with what is unknown holds.
  if (running >= (figures[from + FIGURE.runningMax] as number)) return NO_ROOM;
  const reported = figures[from + FIGURE.waitingPrefillMs] as number;
  const shrinks = backlogNowMs(view, reported, nowMs - target.receivedMs);
  const unacked = target.unackedSums.prompt <= 0 ? 0 : unackedMs(target, curve);
  const waitMs = Math.max(shrinks + unacked, slotWaitMs, ownOpenMs(view, target, curve));
  const overMs = waitMs - view.holdMs;
  if (overMs < 0) return ROOM;
  const shrinking = shrinks > overMs && slotWaitMs < view.holdMs;
  return shrinking ? { full: true, roomAtMs: nowMs + wakeInMs(view, overMs) } : NO_ROOM;
}

/**
 * How many of a pool's targets have room at one moment, counted no further than it is asked for. The pool's roster has
 * been brought up to date.
 */
export class RoomCount {
  readonly #state: RegionalState;
  readonly #pool: PoolState;
  /** Among the places before this one. */
  #room = 0;
  #place = 0;

  constructor(state: RegionalState, pool: PoolState) {
    this.#state = state;
    this.#pool = pool;
  }

  isMoreThan(count: number): boolean {
    const { length } = this.#pool.roster.targets;
    while (this.#room <= count && this.#room + length - this.#place > count) {
      const place = this.#place;
      if (serves(this.#pool, place) && !roomNow(this.#state, this.#pool, place).full) {
        this.#room += 1;
      }
      this.#place += 1;
    }
    return this.#room > count;
  }
}
