// Whether a request may wait, and its place in the queue. The queue is bounded in requests, bytes
// and time; at the bound, a more urgent request takes the place of the least urgent one.

import { prefillMs as curveMs } from '../../shared/model/cost-curve.ts';
import type { Decision, DecisionReason } from '../../shared/model/decision.ts';
import type { RequestId } from '../../shared/model/ids.ts';
import { predictedWaitMs, retryAfterMs, shedReason } from '../policy/shed.ts';
import { ASSUMED_BYTES_PER_TOKEN } from '../policy/tokens.ts';
import { bare, hasReady, pendingEtaMs, type Verdict } from './core-decide.ts';
import { finish } from './core-ends.ts';
import { noteHeld } from './core-working-set.ts';
import { poolCurve } from './core-load.ts';
import type { PoolState, RegionalState, RequestState } from './core-state.ts';

/** Queues a request, within the limits; a retry keeps its age and is not measured again. */
export function admit(state: RegionalState, request: RequestState, verdict: Verdict): void {
  const { pool } = request;
  const shed = request.attempts > 0 ? null : shedVerdict(state, request, verdict);
  if (shed !== null) {
    if (shed.reason === 'queue_full') state.limit('queue');
    shedRequest(state, request, { ...shed, verdict });
    return;
  }
  makeRoom(state, request);
  const held = waitsForRoom(pool, verdict) ? noteHeld(state, request) : null;
  const work = expectedWork(request, verdict);
  const { request: asked } = request;
  const deadlineMs =
    asked.clientDeadlineMs === null ? null : request.arrivedMs + asked.clientDeadlineMs;
  pool.queue.push(
    {
      id: asked.id,
      tenant: asked.tenant,
      priority: asked.priority,
      arrivedMs: request.arrivedMs,
      bytes: asked.bodyBytes,
      ...work,
      deadlineMs,
      giveUpMs: Math.min(
        request.arrivedMs + state.settings.queueMaxWaitMs,
        (deadlineMs ?? Number.POSITIVE_INFINITY) - work.prefillMs,
      ),
      ...(held === null ? {} : { held }),
    },
    state.settings.ageCredit,
  );
  if (held === null) pool.pace.started(state.nowMs);
  pool.dirty = true;
  const { decision } = verdict;
  const waiting: Decision =
    decision.kind === 'queue'
      ? decision
      : { ...decision, kind: 'queue', reason: 'order', target: null };
  state.announced.push({ request: asked.id, decision: waiting });
}

/** A new conversation goes behind those that wait for KV room, also where it would find some. */
export function waitsForRoom({ queue }: PoolState, { room, decision }: Verdict): boolean {
  if (room?.acts !== true) return false;
  return decision.reason === 'kv_room' || queue.held.requests > 0;
}

/** Whether others of its pool have to go first. */
export function isBehindOthers({ queue }: PoolState, { room }: Verdict): boolean {
  return queue.size > (room?.acts === true ? 0 : queue.held.requests);
}

/** Says which requests entered the queue in this event and have not left it again. */
export function announceQueued(state: RegionalState): void {
  for (const { request, decision } of state.announced) {
    const waits = state.requests.get(request)?.pool.queue.has(request) ?? false;
    if (waits) state.emit({ kind: 'queued', request, decision });
  }
  state.announced = [];
}

/** What shedding would answer now; null when the request may wait. Changes nothing. */
export function shedVerdict(
  state: RegionalState,
  request: RequestState,
  verdict: Verdict,
): { reason: DecisionReason; waitMs: number } | null {
  const { pool } = request;
  const { clientDeadlineMs, bodyBytes } = request.request;
  const waitMs = predictedQueueMs(state, request, verdict);
  const reason = shedReason(
    {
      waitMs,
      prefillMs: expectedWork(request, verdict).prefillMs,
      clientLeftMs:
        clientDeadlineMs === null ? null : request.arrivedMs + clientDeadlineMs - state.nowMs,
      queue: { requests: pool.queue.size, bytes: pool.queue.bytes },
      bytes: bodyBytes,
    },
    state.settings,
  );
  if (reason === null || (reason === 'queue_full' && canMakeRoom(state, request))) return null;
  return { reason, waitMs };
}

function shedRequest(
  state: RegionalState,
  request: RequestState,
  shed: { reason: DecisionReason; waitMs: number; verdict: Verdict },
): void {
  const { decision } = shed.verdict;
  const cold = !hasReady(request.pool);
  finish(state, request, {
    decision: { ...decision, kind: 'shed', reason: shed.reason, target: null },
    failure: {
      code: cold ? 'warming_up' : 'saturated',
      message: cold
        ? 'The model is being loaded and cannot take this request in time.'
        : 'All replicas of this model are busy.',
      retryAfterMs: retryAfterMs(shed.waitMs, state.deps.random),
    },
  });
}

/** Whether it fits once all that is less urgent is given up. */
function canMakeRoom({ settings }: RegionalState, { pool, request }: RequestState): boolean {
  const { queue } = pool;
  const less = queue.behind(request.priority);
  return (
    queue.size - less.requests < settings.queueMaxRequests &&
    queue.bytes - less.bytes + request.bodyBytes <= settings.queueMaxBytes
  );
}

/** Gives up less urgent requests until this one fits; a retry has a place however full it is. */
function makeRoom(state: RegionalState, request: RequestState): void {
  if (request.attempts > 0) return;
  const { queue } = request.pool;
  const { settings } = state;
  const needed = request.request.bodyBytes;
  while (queue.size >= settings.queueMaxRequests || queue.bytes + needed > settings.queueMaxBytes) {
    const worst = queue.worst();
    const victim = worst === null ? undefined : state.requests.get(worst.id as RequestId);
    if (victim === undefined) return;
    state.limit('queue');
    const waitMs = request.pool.queue.prefillMs;
    finish(state, victim, {
      decision: bare('shed', 'queue_full'),
      failure: {
        code: 'saturated',
        message: 'More urgent requests have filled the queue of this model.',
        retryAfterMs: retryAfterMs(waitMs, state.deps.random),
      },
    });
  }
}

/**
 * Uncached tokens and prefill where it would go best; without candidates, by the pool's median
 * curve.
 */
function expectedWork(
  request: RequestState,
  verdict: Verdict,
): { tokens: number; prefillMs: number } {
  const best = verdict.weighing.leastPrefill();
  if (best !== null) return best;
  let tokens = 0;
  for (const prompt of request.request.prompts) {
    tokens += prompt.tokenIds ?? Math.ceil(prompt.bytes / ASSUMED_BYTES_PER_TOKEN);
  }
  return { tokens, prefillMs: curveMs(poolCurve(request.pool).curve, tokens, 0) };
}

function predictedQueueMs(state: RegionalState, request: RequestState, verdict: Verdict): number {
  const { pool } = request;
  const { weighing } = verdict;
  if (waitsForRoom(pool, verdict)) return predictedRoomWaitMs(state, request);
  return predictedWaitMs({
    backlogMs: weighing.waitMsOfAll(),
    ahead: pool.queue.ahead(request.request.priority),
    targets: weighing.count,
    msPerRelease: pool.pace.msPerRelease(state.nowMs),
    etaMs: weighing.count > 0 ? 0 : (pendingEtaMs(pool) ?? 0),
  });
}

/** Until KV room comes: as fast as it has come lately. */
function predictedRoomWaitMs(state: RegionalState, { pool, request }: RequestState): number {
  const ahead = pool.queue.ahead(request.priority, true).requests;
  return ahead * (pool.heldPace.msPerRelease(state.nowMs) ?? 0);
}
