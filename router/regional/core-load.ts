// How busy a target is right now: its last report, made local in time, plus what this router has
// sent since, and the region's other routers as far as they say so.
//
//   wait = max(what is left of waitingPrefillMs + unacknowledged, slotWaitMs)
//
// An engine with work waiting computes, so a report's backlog shrinks with its age (policy/sight.ts). `full` =
// nothing more should go there while others have room (wait ≥ holdMs, or no slot); `closed` =
// nothing may: what more would do is unknown. A wait by an assumed curve is a guess that holds nobody back: as long as
// nobody has learned a curve, `unknownConcurrency` bounds each target.

import { prefillMs, sumsMs, together, type CostCurve } from '../../shared/model/cost-curve.ts';
import type { RegionalSettings } from '../../shared/model/settings.ts';
import { staticConcurrency } from '../policy/static-pool.ts';
import { backlogNowMs, type View } from '../policy/sight.ts';
import { ASSUMED_CURVE } from '../policy/unknown.ts';
import type { OthersWork } from '../policy/others-work.ts';
import type { PoolState, RegionalState, TargetState } from './core-state.ts';

const BLIND_WAKE_MS = 50;

export interface Load {
  readonly waitMs: number;
  readonly full: boolean;
  readonly closed: boolean;
  /**
   * When the hold alone will no longer make it full, if nothing else happens; null when it does
   * not.
   */
  readonly roomAtMs: number | null;
}

export interface CurveChoice {
  readonly curve: CostCurve;
  /** The target's own or its pool's, not assumed. */
  readonly learned: boolean;
}

/** How this router sees a pool's targets now. */
export function viewOf(state: RegionalState, pool: PoolState): View {
  return pool.sight.view(state.settings, state.links.size);
}

/** The pool's median curve, for targets that have none. */
export function poolCurve(pool: PoolState): CurveChoice {
  const median = pool.roster.medianCurve();
  return median === null
    ? { curve: ASSUMED_CURVE, learned: false }
    : { curve: median, learned: true };
}

export function curveOf(target: TargetState, fallback: () => CurveChoice): CurveChoice {
  const own = target.report?.prefillCost ?? null;
  return own === null ? fallback() : { curve: own, learned: true };
}

export function loadOf(target: TargetState, options: LoadOptions): Load {
  return target.replica.lostMs === null ? reportedLoad(target, options) : lostLoad(target, options);
}

/** Requests inside the engine: as reported, and what this router has sent since. */
export function runningNow(target: TargetState): number | null {
  const reported = target.report?.running ?? null;
  if (reported === null) return null;
  let sent = othersUnacked(target)?.requests ?? 0;
  for (const { facts } of target.unacked) sent += facts.requests ?? 1;
  return reported + sent;
}

/** The report's own backlog in ms at its time; null when it has none. */
export function reportedWaitMs(target: TargetState, curve: CostCurve): number | null {
  const { report } = target;
  if (report === null) return null;
  if (report.waitingPrefillMs !== null) return report.waitingPrefillMs;
  if (report.waitingPrefillTokens === null) return null;
  return report.waitingPrefillTokens <= 0 ? 0 : prefillMs(curve, report.waitingPrefillTokens, 0);
}

/** What routers themselves know of what they have sent: by name, so that a proof can leave it out. */
export const OWN_WORK = { ms: sumsMs };

/** What this router has sent and no report includes. */
export function unackedMs(target: TargetState, curve: CostCurve): number {
  return OWN_WORK.ms(curve, target.unackedSums);
}

/** What other routers have sent, where the agent says what of it its reports include; null where nothing is known of it. */
export function othersUnacked(target: TargetState): OthersWork | null {
  const { others } = target;
  return others !== null && target.replica.link?.tellsOthers === true ? others : null;
}

/**
 * Work there of this router and of others that shows no first token yet: where no report tells better, it is sure to wait
 * still.
 */
function openMs(target: TargetState, curve: CostCurve): number {
  const { openSums, others } = target;
  if (others === null || others.count === 0) return OWN_WORK.ms(curve, openSums);
  return OWN_WORK.ms(curve, together(openSums, others.open));
}

/** What waits there: what is left of its report, what has been sent since, and for a slot. */
export function withOwnMs(
  view: View,
  target: TargetState,
  left: { readonly ms: number; readonly curve: CostCurve },
): number {
  const { ms, curve } = left;
  const others = othersUnacked(target);
  const sentMs =
    others === null
      ? unackedMs(target, curve)
      : OWN_WORK.ms(curve, together(target.unackedSums, others.unacked));
  const waitMs = Math.max(ms + sentMs, target.report?.slotWaitMs ?? 0);
  return view.blind ? Math.max(waitMs, openMs(target, curve)) : waitMs;
}

export interface LoadOptions extends CurveChoice {
  readonly settings: RegionalSettings;
  readonly view: View;
  readonly nowMs: number;
}

function reportedLoad(target: TargetState, options: LoadOptions): Load {
  const { curve, learned, view, nowMs } = options;
  const slotWaitMs = target.report?.slotWaitMs ?? 0;
  const running = runningNow(target);
  const reported = reportedWaitMs(target, curve);
  if (reported === null || !learned) return unknownLoad(target, options, reported);
  const shrinks = backlogNowMs(view, reported, nowMs - target.receivedMs);
  const waitMs = withOwnMs(view, target, { ms: shrinks, curve });
  const max = target.report?.runningMax ?? null;
  const noSlot = max !== null && running !== null && running >= max;
  const overMs = waitMs - view.holdMs;
  return {
    waitMs,
    full: noSlot || overMs >= 0,
    closed: noSlot && slotWaitMs <= 0,
    roomAtMs:
      !noSlot && overMs >= 0 && shrinks > overMs && slotWaitMs < view.holdMs
        ? nowMs + wakeInMs(view, overMs)
        : null,
  };
}

/** It does not say what waits, or nobody knows how long that takes. */
function unknownLoad(target: TargetState, options: LoadOptions, reportedMs: number | null): Load {
  const { curve, learned, settings, view } = options;
  const slotWaitMs = target.report?.slotWaitMs ?? 0;
  const running = runningNow(target) ?? 0;
  const waitMs = Math.max(reportedMs ?? 0, openMs(target, curve), slotWaitMs);
  const inside = Math.max(target.leases.size, running);
  const noSlot = running >= (target.report?.runningMax ?? Number.POSITIVE_INFINITY);
  const closed = inside >= settings.unknownConcurrency || (noSlot && slotWaitMs <= 0);
  const heldMs = learned ? waitMs : slotWaitMs;
  return { waitMs, full: closed || noSlot || heldMs >= view.holdMs, closed, roomAtMs: null };
}

/** Where reports come late, what is over need not fall by the ms. */
export function wakeInMs(view: View, overMs: number): number {
  return Math.max(overMs + 1, view.blind ? BLIND_WAKE_MS : 0);
}

/**
 * Without reports: this router's own work there, and what others say of theirs; a static one up to its share of the last
 * seen peak.
 */
function lostLoad(target: TargetState, { curve, settings, nowMs }: LoadOptions): Load {
  const then = reportedWaitMs(target, curve) ?? 0;
  const left = Math.max(0, then - (nowMs - target.receivedMs));
  const waitMs = Math.max(left + unackedMs(target, curve), openMs(target, curve));
  const { peakRunning, report } = target;
  const peak = Math.max(peakRunning.current, peakRunning.previous);
  const share = staticConcurrency(peak, report?.routers ?? 1);
  const bound =
    target.replica.state === 'static' ? share : Math.max(share, settings.unknownConcurrency);
  const closed = target.leases.size >= bound;
  return { waitMs, full: closed || waitMs >= settings.holdMs, closed, roomAtMs: null };
}

/** ms of a prompt of the pool's mean length with nothing cached. */
export function meanPromptMs(curve: CostCurve, pool: PoolState): number {
  return prefillMs(curve, pool.meanPromptTokens, 0);
}
