// How long a request of a pool would wait, by what waits, what comes ahead of it, and how fast it goes.

import { medianKnown } from '../policy/unknown.ts';
import { LEAST_ITL_MS } from '../policy/deadlines.ts';
import { clampPriority } from '../policy/queue-item.ts';
import { predictedWaitMs } from '../policy/shed.ts';
import { pendingEtaMs } from './core-decide.ts';
import { curveOf, loadOf, poolCurve, viewOf } from './core-load.ts';
import type { PoolState, RegionalState, RequestState } from './core-state.ts';
import { isReady, NOBODY, targetsOf } from './core-ready.ts';

export interface PoolOutlook {
  /** Prefill ms that waits in targets. */
  readonly backlogMs: number;
  readonly targets: number;
}

/** Of a request of this priority that comes now and waits for anything but KV room. */
export function waitOutlookMs(
  state: RegionalState,
  pool: PoolState,
  at: PoolOutlook & { readonly priority: number },
): number {
  const { queue, pace, inflow } = pool;
  const priority = clampPriority(at.priority);
  const ahead = queue.ahead(priority);
  const own = inflow.before(priority, state.nowMs);
  return predictedWaitMs({
    backlogMs: at.backlogMs,
    ahead,
    othersMs: othersAheadMs(pool, priority, ahead.prefillMs),
    targets: at.targets,
    inflow: { ...own, workPerMs: own.workPerMs * routersOf(pool) },
    msPerRelease: pace.msPerRelease(state.nowMs),
    etaMs: at.targets > 0 ? 0 : (pendingEtaMs(pool) ?? 0),
  });
}

/** Of all that could serve, whatever the request. */
export function poolOutlook(state: RegionalState, pool: PoolState): PoolOutlook {
  const { settings, nowMs } = state;
  const view = viewOf(state, pool);
  let backlogMs = 0;
  let targets = 0;
  for (const target of targetsOf(pool)) {
    if (!isReady(target, NOBODY)) continue;
    const choice = curveOf(target, () => poolCurve(pool));
    backlogMs += loadOf(target, { ...choice, settings, view, nowMs }).waitMs;
    targets += 1;
  }
  return { backlogMs, targets };
}

/** Work that is turned away is told when there is room for it: ms from now. */
export function turnAway(
  state: RegionalState,
  pool: PoolState,
  away: { readonly priority: number; readonly workMs: number; readonly roomInMs: number },
): number {
  const { nowMs, deps } = state;
  const priority = clampPriority(away.priority);
  return pool.promises.give(
    { ...away, priority },
    { nowMs, rate: rateOf(pool), random: deps.random },
  );
}

/** Prefill ms that this router's share of the pool does per ms. */
export function rateOf(pool: PoolState): number {
  let ready = 0;
  for (const target of targetsOf(pool)) if (isReady(target, NOBODY)) ready += 1;
  return Math.max(1, ready) / routersOf(pool);
}

/** From the first token to the last, ms, where the client sees nothing before; 0 where it sees the first. */
export function answerMs(request: RequestState): number {
  const { stream, work, maxTokens } = request.request;
  if (stream || (work ?? 'generation') !== 'generation') return 0;
  const tokens = Math.min(maxTokens ?? Number.POSITIVE_INFINITY, request.pool.meanOutputTokens);
  const itls = targetsOf(request.pool).map(({ report }) => report?.itlMs ?? null);
  return tokens * (medianKnown(itls) ?? LEAST_ITL_MS);
}

/**
 * What other routers hold that goes before: what waits there is taken to be as urgent as what waits here. One that holds
 * nothing here goes behind all of theirs that is not less urgent.
 */
function othersAheadMs(pool: PoolState, priority: number, aheadMs: number): number {
  const { queued } = freshest(pool) ?? {};
  if (queued === undefined) return 0;
  const top = queued.place === undefined ? queued.topPriority : queued.place.othersTop;
  if (top === null || top > priority) return 0;
  const othersMs = Math.max(0, queued.prefillMs - pool.told.prefillMs);
  const ownMs = pool.queue.prefillMs - pool.queue.held.prefillMs;
  return ownMs > 0 ? othersMs * Math.min(1, aheadMs / ownMs) : othersMs;
}

/** Routers of the region as agents count them: at least this one. */
export function routersOf(pool: PoolState): number {
  return Math.max(1, freshest(pool)?.routers ?? 1);
}

/** Of the youngest report. */
export function freshest(
  pool: PoolState,
): { routers: number; queued: NonNullable<ReportOf>['queued'] } | null {
  let report: ReportOf = null;
  let receivedMs = Number.NEGATIVE_INFINITY;
  for (const target of targetsOf(pool)) {
    if (target.report === null || target.receivedMs <= receivedMs) continue;
    ({ report, receivedMs } = target);
  }
  return report;
}

type ReportOf = ReturnType<typeof targetsOf>[number]['report'];
