// Whether a target has room now, or when time alone will make some: what a queue asks of every target
// of its pool after every event. Common targets are answered from their figures, the others by
// `loadOf`; both say the same.

import { backlogNowMs } from '../policy/sight.ts';
import {
  curveOf,
  loadOf,
  ownOpenMs,
  poolCurve,
  runningNow,
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
  const { figures, targets } = pool.roster;
  const { replica } = targets[place] as TargetState;
  const ready = figures[place * FIGURES + FIGURE.serves] === 1;
  return ready && replica.state !== 'out' && !replica.down;
}

/** Of the target at that place of the roster, which has been brought up to date. */
export function roomNow(state: RegionalState, pool: PoolState, place: number): Room {
  const { figures, targets } = pool.roster;
  const { settings, nowMs } = state;
  const view = viewOf(state, pool);
  const target = targets[place] as TargetState;
  const from = place * FIGURES;
  const reported = figures[from + FIGURE.waitingPrefillMs] as number;
  const curve = target.report?.prefillCost ?? null;
  if (Number.isNaN(reported) || curve === null || target.replica.lostMs !== null) {
    const chosen = curveOf(target, () => poolCurve(pool));
    return loadOf(target, { ...chosen, settings, view, nowMs });
  }
  const slotWaitMs = figures[from + FIGURE.slotWaitMs] as number;
  const running = runningNow(target) ?? Number.NaN;
  if (running >= (figures[from + FIGURE.runningMax] as number)) return NO_ROOM;
  const shrinks = backlogNowMs(view, reported, nowMs - target.receivedMs);
  const unacked = target.unackedSums.prompt <= 0 ? 0 : unackedMs(target, curve);
  const waitMs = Math.max(shrinks + unacked, slotWaitMs, ownOpenMs(view, target, curve));
  const overMs = waitMs - view.holdMs;
  if (overMs < 0) return ROOM;
  const shrinking = shrinks > overMs && slotWaitMs < view.holdMs;
  return shrinking ? { full: true, roomAtMs: nowMs + wakeInMs(view, overMs) } : NO_ROOM;
}

/** More than so many of the pool's targets have room now. The pool's roster has been brought up to date. */
export function haveRoom(state: RegionalState, pool: PoolState, moreThan: number): boolean {
  const { length } = pool.roster.targets;
  let room = 0;
  for (let place = 0; place < length && room + length - place > moreThan; place += 1) {
    if (serves(pool, place) && !roomNow(state, pool, place).full) room += 1;
    if (room > moreThan) return true;
  }
  return false;
}
