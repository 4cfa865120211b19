// How busy a target is right now: its last report, made local in time, plus what this router has
// sent since.
//
//   wait = max(max(0, waitingPrefillMs − age of the report) + own unacknowledged, slotWaitMs)
//
// An engine with work waiting computes, so a report's backlog shrinks with its age. `full` =
// nothing more should go there while others have room (wait ≥ holdMs, or no slot); `closed` =
// nothing may: what more would do is unknown.

import {
  prefillMs,
  sumsMs,
  type CostCurve,
  type PrefillSums,
} from '../../shared/model/cost-curve.ts';
import type { RegionalSettings } from '../../shared/model/settings.ts';
import { staticConcurrency } from '../policy/static-pool.ts';
import { ASSUMED_CURVE } from '../policy/unknown.ts';
import type { PoolState, TargetState } from './core-state.ts';

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

export function loadOf(
  target: TargetState,
  options: { curve: CostCurve; settings: RegionalSettings; nowMs: number },
): Load {
  return target.replica.lostMs === null ? reportedLoad(target, options) : lostLoad(target, options);
}

/** Requests inside the engine: as reported, and what this router has sent since. */
export function runningNow(target: TargetState): number | null {
  const reported = target.report?.running ?? null;
  if (reported === null) return null;
  let sent = 0;
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

/** What this router has sent and no report includes: by name, so that a proof can leave it out. */
export const OWN_WORK = {
  ms: (target: TargetState, curve: CostCurve): number => sumsMs(curve, target.unackedSums),
};

export function unackedMs(target: TargetState, curve: CostCurve): number {
  return OWN_WORK.ms(target, curve);
}

type Options = { curve: CostCurve; settings: RegionalSettings; nowMs: number };

function reportedLoad(target: TargetState, { curve, settings, nowMs }: Options): Load {
  const slotWaitMs = target.report?.slotWaitMs ?? 0;
  const running = runningNow(target);
  const reported = reportedWaitMs(target, curve);
  if (reported === null) {
    const waitMs = Math.max(sumsMs(curve, target.openSums), slotWaitMs);
    const inside = Math.max(target.leases.size, running ?? 0);
    const closed = inside >= settings.unknownConcurrency;
    return { waitMs, full: closed || waitMs >= settings.holdMs, closed, roomAtMs: null };
  }
  const shrinks = Math.max(0, reported - (nowMs - target.receivedMs));
  const waitMs = Math.max(shrinks + unackedMs(target, curve), slotWaitMs);
  const max = target.report?.runningMax ?? null;
  const noSlot = max !== null && running !== null && running >= max;
  const overMs = waitMs - settings.holdMs;
  return {
    waitMs,
    full: noSlot || overMs >= 0,
    closed: noSlot && slotWaitMs <= 0,
    roomAtMs:
      !noSlot && overMs >= 0 && shrinks > overMs && slotWaitMs < settings.holdMs
        ? nowMs + overMs + 1
        : null,
  };
}

/**
 * Without reports: this router's own work there; a static one up to its share of the last seen
 * peak.
 */
function lostLoad(target: TargetState, { curve, settings, nowMs }: Options): Load {
  const then = reportedWaitMs(target, curve) ?? 0;
  const left = Math.max(0, then - (nowMs - target.receivedMs));
  const waitMs = Math.max(left + unackedMs(target, curve), sumsMs(curve, target.openSums));
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

export function resetSums(sums: PrefillSums): void {
  sums.uncached = 0;
  sums.prompt = 0;
  sums.context = 0;
}
