// Pools that ask for time (429, 503, 529): nobody is sent there until then, and afterwards they are taken up in steps
// (`ResumeRamp`), by their first tokens and by their own room: beyond one at a time only while their queue, by their reports
// and by what they owe this router, is below the start threshold. What is more urgent than what was refused is not held back.
// Who comes while others wait for the pool, no less urgent ones, waits behind them (`core-waiting.ts`).

import { pauseUntilMs } from '../policy/pause.ts';
import { ResumeRamp } from '../policy/resume-ramp.ts';
import { queueMs } from './core-regions.ts';
import type { GlobalState, LeaseState, RegionPool, RequestState } from './core-state.ts';
import type { WaitsFor } from './core-waiting.ts';
import type { Place } from './core-weigh.ts';

/** How soon, at the least, one that is held back by steps could go, ms: nobody knows better. */
const NEXT_STEP_MS = 250;

/** Until when the request may not go there; null: it may. `byPool`: it is not alone in that. */
export function pauseOf(
  state: GlobalState,
  pool: RegionPool,
  request: RequestState,
): { readonly untilMs: number; readonly byPool: boolean } | null {
  const ownMs = request.askedToWaitMs.get(pool.region.id) ?? 0;
  const poolMs = opensFor(state, pool, request);
  if (poolMs === null && ownMs <= state.nowMs) return null;
  const byPool = poolMs !== null && poolMs >= ownMs;
  return { untilMs: Math.max(poolMs ?? 0, ownMs), byPool };
}

/** What a client's own haste was refused for says nothing of how long others would wait: it alone waits. */
export function pauseFor(
  state: GlobalState,
  { request, region, pool }: LeaseState,
  retryAfterMs: number | null,
): void {
  const { nowMs } = state;
  const { priority, clientDeadlineMs } = request.request;
  if (clientDeadlineMs !== null) {
    request.askedToWaitMs.set(region.id, pauseUntilMs(0, retryAfterMs, nowMs));
    return;
  }
  const before = pool.pause !== null && pool.pause.untilMs > nowMs ? pool.pause : null;
  const untilMs = pauseUntilMs(before?.untilMs ?? 0, retryAfterMs, nowMs);
  pool.pause = { untilMs, priority: Math.min(priority, before?.priority ?? priority) };
  pool.pausedAnew ||= pool.held > 0 && untilMs > (before?.untilMs ?? 0);
  if (pool.ramp === null) pool.ramp = new ResumeRamp(untilMs, priority);
  else pool.ramp.again(untilMs, priority);
}

/** An attempt goes to a pool that is taken up again: so much prefill, ms. */
export function noteResumed({ nowMs }: GlobalState, lease: LeaseState, workMs: number): void {
  const { ramp } = lease.pool;
  if (ramp?.concerns(lease.request.request.priority) === true) ramp.sent(lease.id, workMs, nowMs);
}

/** Looks at the queue: those whose time has come, and as many of each pool as it may be sent now. */
export function letOut(state: GlobalState, place: (request: RequestState) => void): void {
  const { queue, nowMs } = state;
  for (const pool of queue.pools()) {
    if (pool.pausedAnew) refuseHopeless(state, pool, place);
    letOutOf(state, pool, place);
  }
  for (const request of queue.takeDue(nowMs)) if (queue.has(request.request.id)) place(request);
}

/** Forgets pauses that hold nobody back any more. */
export function settlePause({ nowMs }: GlobalState, pool: RegionPool): void {
  const { pause, ramp } = pool;
  if (ramp === null || (pause !== null && pause.untilMs > nowMs)) return;
  if (!ramp.isOver(pool.held, nowMs)) return;
  pool.pause = null;
  pool.ramp = null;
}

/** By when a request that waits for a pool is told that it waits in vain. */
export function waitsUntilMs(state: GlobalState, { arrivedMs, request }: RequestState): number {
  const clientMs = request.clientDeadlineMs ?? Number.POSITIVE_INFINITY;
  return arrivedMs + Math.min(clientMs, state.settings.queueMaxWaitMs);
}

/** What to wait for where a place is paused. */
export function waitFor(
  state: GlobalState,
  request: RequestState,
  { place, promptTokens }: { readonly place: Place; readonly promptTokens: number },
): WaitsFor {
  const pause = pauseOf(state, place.pool, request);
  if (pause === null || !pause.byPool) {
    return { dueMs: pause?.untilMs ?? state.nowMs, pool: null, workMs: 0, tokens: 0 };
  }
  const { pool, prefillMs, cachedTokens } = place;
  const isLight = request.request.work === 'light';
  return {
    dueMs: waitsUntilMs(state, request),
    pool,
    workMs: isLight ? 0 : prefillMs,
    tokens: isLight ? 1 : Math.max(1, promptTokens - cachedTokens),
  };
}

/** Until the pool has served all that waits for it here, as far as is known, ms. */
export function emptyInMs(state: GlobalState, pool: RegionPool): number {
  const pausedMs = Math.max(0, (pool.pause?.untilMs ?? 0) - state.nowMs);
  return pausedMs + pool.heldMs / Math.max(1, pool.sight?.readyReplicas ?? 0);
}

function opensFor(state: GlobalState, pool: RegionPool, request: RequestState): number | null {
  const { priority } = request.request;
  const untilMs = opensMs(state, pool, priority);
  if (untilMs !== null || pool.held === 0) return untilMs;
  const next = state.queue.next(pool, state.nowMs);
  const isBehind = next !== null && next !== request && next.request.priority <= priority;
  return isBehind ? state.nowMs + NEXT_STEP_MS : null;
}

function opensMs(state: GlobalState, pool: RegionPool, priority: number): number | null {
  const { pause, ramp } = pool;
  if (ramp === null) return null;
  const isPaused = pause !== null && pause.untilMs > state.nowMs;
  if (isPaused && priority >= pause.priority) return pause.untilMs;
  if (!ramp.concerns(priority) || ramp.isOver(pool.held, state.nowMs)) return null;
  if (ramp.takes(hasRoom(state, pool, ramp))) return null;
  return state.nowMs + NEXT_STEP_MS;
}

/**
 * By its own figures, as they are and as they have been of late, and by what it owes this router, which no report is too
 * late to tell; unknown is no room.
 */
function hasRoom(state: GlobalState, pool: RegionPool, ramp: ResumeRamp): boolean {
  const queue = queueMs(state, pool);
  const last = pool.lastQueuesMs[1];
  if (queue === null || last === null) return false;
  const owed = ramp.owedMs / Math.max(1, pool.sight?.readyReplicas ?? 0);
  return Math.max(queue, last, owed) < state.settings.spillStartMs;
}

function letOutOf(
  state: GlobalState,
  pool: RegionPool,
  place: (request: RequestState) => void,
): void {
  for (;;) {
    const next = state.queue.next(pool, state.nowMs);
    if (next === null) break;
    if (opensMs(state, pool, next.request.priority) !== null) return;
    place(next);
    // It waits for it still, whatever kept it: who stands behind it waits, too.
    if (next.heldBy === pool) return;
  }
  settlePause(state, pool);
}

/** The pause is longer than some may wait: they are told now. */
function refuseHopeless(
  state: GlobalState,
  pool: RegionPool,
  place: (request: RequestState) => void,
): void {
  pool.pausedAnew = false;
  const untilMs = pool.pause?.untilMs ?? 0;
  for (const request of state.queue.heldBy(pool)) {
    if (waitsUntilMs(state, request) < untilMs) place(request);
  }
}
