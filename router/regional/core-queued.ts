// What this router tells the agents of a pool that it holds back: on change, at most once per report interval.
//
// What waits for KV room is not told: it claims no share of what other routers may release.

import type { Queued } from '../../shared/protocol/messages.ts';
import { reportIntervalMs } from '../policy/report-interval.ts';
import type { PoolState, QueueTold, RegionalState } from './core-state.ts';

/**
 * For so long reports may still count this router as queueing after it said that it no longer does.
 */
const COUNTED_FOR_MS = 1_500;
/** Age that stands for a deadline that is lost unless the request goes now, ms: before all that are merely old. */
const PRESSING_AGE_MS = 3_600_000;
/** Age credit below which length is not weighed against age. */
const CREDIT_MIN = 1e-3;

/** Age, its length allowed for, of a request with that key in the queue's order (policy/queue.ts), ms. */
export function agedMs({ nowMs, settings }: RegionalState, key: number): number {
  return nowMs - key / Math.max(settings.ageCredit, CREDIT_MIN);
}

/** A deadline is pressing when it is lost unless its request goes within so many holds. */
const PRESS_HOLDS = 2;

export function pressWithinMs({ settings }: RegionalState): number {
  return PRESS_HOLDS * settings.holdMs;
}

export function tellQueued(state: RegionalState, pool: PoolState): void {
  if (state.nowMs < toldAgainMs(state, pool)) return;
  if (pool.told.requests > 0) pool.countedUntilMs = state.nowMs + COUNTED_FOR_MS;
  pool.told = queuedNow(pool);
  pool.toldAtMs = state.nowMs;
  const message = queuedMessage(state, pool);
  for (const link of state.links.values()) {
    if (link.pool === pool) state.emit({ kind: 'send', link: link.id, message });
  }
}

/** When `tellQueued` has something to say; null when it has not. */
export function tellWakeMs(state: RegionalState, pool: PoolState): number | null {
  const atMs = toldAgainMs(state, pool);
  return Number.isFinite(atMs) ? atMs : null;
}

/** As last told, with the age of the request that goes next now. */
export function queuedMessage(state: RegionalState, pool: PoolState): Queued {
  const headAgeMs = headAge(state, pool);
  const { told } = pool;
  return {
    kind: 'queued',
    pool: pool.id,
    ...told,
    ...(headAgeMs === null || told.requests === 0 ? {} : { headAgeMs }),
  };
}

/**
 * The age, its length allowed for, of what has waited longest: whichever tenant's turn it is here, the router's turn
 * comes with that.
 */
function headAge(state: RegionalState, { queue }: PoolState): number | null {
  const key = queue.leastKey;
  if (key === null) return null;
  const pressed = queue.presses(state.nowMs, pressWithinMs(state));
  return Math.round(agedMs(state, key)) + (pressed ? PRESSING_AGE_MS : 0);
}

function queuedNow({ queue }: PoolState): QueueTold {
  const { held } = queue;
  return {
    requests: queue.size - held.requests,
    prefillMs: Math.max(0, Math.round(queue.prefillMs - held.prefillMs)),
    topPriority: queue.topUnheld,
  };
}

/** When it is told next; infinite where nothing is to be said. */
function toldAgainMs(state: RegionalState, pool: PoolState): number {
  const { told, toldAtMs } = pool;
  const now = queuedNow(pool);
  const same =
    told.requests === now.requests &&
    told.prefillMs === now.prefillMs &&
    told.topPriority === now.topPriority;
  if (same) return Number.POSITIVE_INFINITY;
  return toldAtMs + reportIntervalMs(state.settings.minReportIntervalMs, state.links.size);
}
