// Whether a target has room now, or when time alone will make some: what a queue asks of every target
// of its pool after every event. Common targets are answered from their figures, the others by
// `loadOf`; both say the same.

import { backlogNowMs } from '../policy/sight.ts';
import {
  curveOf,
  loadOf,
  poolCurve,
  viewOf,
  wakeInMs,
  withOwnMs,
  type CurveChoice,
  type Load,
} from './core-load.ts';
import { FIGURE, STANDING } from './core-roster.ts';
import type { PoolState, RegionalState, TargetState } from './core-state.ts';

export type Room = Pick<Load, 'full' | 'roomAtMs'>;

const NO_ROOM: Room = { full: true, roomAtMs: null };
const ROOM: Room = { full: false, roomAtMs: null };

/** Fit for users, slow or not. The pool's roster has been brought up to date. */
export function serves({ roster }: PoolState, place: number): boolean {
  const { standing, figures, targets } = roster;
  if (((standing[place] as number) & STANDING.fit) !== 0) return true;
  const { replica } = targets[place] as TargetState;
  const ready = figures[FIGURE.serves * targets.length + place] === 1;
  return ready && replica.state !== 'out' && !replica.down;
}

/** Of the target at that place of the roster, which has been brought up to date. */
export function roomNow(state: RegionalState, pool: PoolState, place: number): Room {
  const { figures, targets } = pool.roster;
  const standing = pool.roster.standing[place] as number;
  const { settings, nowMs } = state;
  const view = viewOf(state, pool);
  const fallback = (): CurveChoice => poolCurve(pool);
  const hasCurve = (standing & STANDING.curve) !== 0;
  if ((standing & STANDING.told) === 0 || (!hasCurve && !fallback().learned)) {
    const target = targets[place] as TargetState;
    return loadOf(target, { ...curveOf(target, fallback), settings, view, nowMs });
  }
  if ((standing & STANDING.noSlot) !== 0) return NO_ROOM;
  const reported = figures[FIGURE.waitingPrefillMs * targets.length + place] as number;
  const ageMs = nowMs - (figures[FIGURE.receivedMs * targets.length + place] as number);
  const shrinks = backlogNowMs(view, reported, ageMs);
  let waitMs = shrinks;
  let slotWaitMs = 0;
  if ((standing & STANDING.more) !== 0) {
    const target = targets[place] as TargetState;
    waitMs = withOwnMs(view, target, { ms: shrinks, curve: curveOf(target, fallback).curve });
    slotWaitMs = target.report?.slotWaitMs ?? 0;
  }
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
