// Whether a request may wait, and its place in the queue. The queue is bounded in requests, bytes
// and time; at the bound, a more urgent request takes the place of the least urgent one.

import { prefillMs as curveMs } from '../../shared/model/cost-curve.ts';
import type { Decision, DecisionReason } from '../../shared/model/decision.ts';
import type { RequestId } from '../../shared/model/ids.ts';
import { clampPriority, type QueueItem } from '../policy/queue-item.ts';
import { shedReason } from '../policy/shed.ts';
import { ASSUMED_BYTES_PER_TOKEN } from '../policy/tokens.ts';
import { bare, hasReady, type Verdict } from './core-decide.ts';
import { finish } from './core-ends.ts';
import { isBehindSiblings } from './core-held-order.ts';
import { goesOn, heldPlace, noteHeld, roomPaceMs } from './core-working-set.ts';
import { poolCurve } from './core-load.ts';
import { answerMs, rateOf, turnAway, waitOutlookMs } from './core-outlook.ts';
import type { RegionalState, RequestState } from './core-state.ts';
import { noteTurnWaits } from './core-waiting-turns.ts';

/** Queues a request, within the limits; a retry keeps its age and is not measured again. */
export function admit(state: RegionalState, request: RequestState, verdict: Verdict): void {
  const { pool } = request;
  const shed = request.attempts > 0 ? null : shedVerdict(state, request, verdict);
  noteReturn(state, request, verdict);
  if (shed !== null) {
    if (shed.reason === 'queue_full') state.limit('queue');
    shedRequest(state, request, { ...shed, verdict });
    return;
  }
  noteInflow(state, request, verdict);
  makeRoom(state, request);
  const work = expectedWork(request, verdict);
  const held = waitsForRoom(state, request, verdict) ? noteHeld(state, request) : null;
  const { request: asked } = request;
  const deadlineMs =
    asked.clientDeadlineMs === null
      ? null
      : request.arrivedMs + asked.clientDeadlineMs - answerMs(request);
  pool.queue.push(
    {
      id: asked.id,
      tenant: asked.tenant,
      priority: asked.priority,
      arrivedMs: request.arrivedMs,
      bytes: asked.bodyBytes,
      ...work,
      kind: kindOf(request),
      deadlineMs,
      giveUpMs: Math.min(
        request.arrivedMs + state.settings.queueMaxWaitMs,
        (deadlineMs ?? Number.POSITIVE_INFINITY) - work.prefillMs,
      ),
      ...held,
    },
    state.settings.ageCredit,
  );
  if (held === null) {
    pool.pace.started(state.nowMs);
    noteTurnWaits(request, verdict);
  }
  pool.dirty = true;
  const { decision } = verdict;
  const waiting: Decision =
    decision.kind === 'queue'
      ? decision
      : { ...decision, kind: 'queue', reason: 'order', target: null };
  state.announced.push({ request: asked.id, decision: waiting });
}

/** What can go to the same targets: the model or adapter, and what has failed it there. */
function kindOf({ engineModel, tried }: RequestState): string {
  return JSON.stringify([engineModel, ...tried]);
}

/** A new conversation goes behind those that wait for KV room, also where it would find some. */
export function waitsForRoom(
  state: RegionalState,
  request: RequestState,
  { room, decision }: Verdict,
): boolean {
  if (room?.acts !== true) return false;
  const { pool } = request;
  if (decision.reason === 'kv_room' || pool.queue.held.requests > 0) return true;
  return isBehindSiblings(state, pool, heldPlace(state, request));
}

/** Whether others of its pool have to go first. */
export function isBehindOthers(
  state: RegionalState,
  request: RequestState,
  { room }: Verdict,
): boolean {
  const { pool } = request;
  if (room?.acts !== true) return pool.queue.size > pool.queue.held.requests;
  return pool.queue.size > 0 || isBehindSiblings(state, pool, heldPlace(state, request));
}

/** Says which requests entered the queue in this event and have not left it again. */
export function announceQueued(state: RegionalState): void {
  for (const { request, decision } of state.announced) {
    const waits = state.requests.get(request)?.pool.queue.has(request) ?? false;
    if (waits) state.emit({ kind: 'queued', request, decision });
  }
  state.announced = [];
}

/** What it brings counts for those who wait behind it. Told of once a request, when it is placed. */
export function noteInflow(state: RegionalState, request: RequestState, verdict: Verdict): void {
  if (request.attempts > 0) return;
  const { prefillMs } = expectedWork(request, verdict);
  request.pool.inflow.note(clampPriority(request.request.priority), prefillMs, state.nowMs);
}

/** One that was turned away has come back: no room is kept for it any longer. */
function noteReturn(state: RegionalState, request: RequestState, verdict: Verdict): void {
  if (request.request.comesAgain !== true || request.attempts > 0) return;
  const workMs = expectedWork(request, verdict).prefillMs;
  const priority = clampPriority(request.request.priority);
  request.pool.promises.kept({ priority, workMs }, state.nowMs);
}

export interface Shed {
  readonly reason: DecisionReason;
  /** Until there would be room for it, ms. */
  readonly roomInMs: number;
}

/** What shedding would answer now; null when the request may wait. Changes nothing. */
export function shedVerdict(
  state: RegionalState,
  request: RequestState,
  verdict: Verdict,
): Shed | null {
  const { pool } = request;
  const { clientDeadlineMs, bodyBytes, comesAgain, priority } = request.request;
  const waitMs = predictedQueueMs(state, request, verdict);
  const { prefillMs } = expectedWork(request, verdict);
  const needed = { waitMs, prefillMs, answerMs: answerMs(request) };
  const nearMs = pool.promises.nearMs(clampPriority(priority), state.nowMs);
  const reason = shedReason(
    {
      ...needed,
      keptMs: comesAgain === true ? 0 : nearMs / rateOf(pool),
      clientLeftMs:
        clientDeadlineMs === null ? null : request.arrivedMs + clientDeadlineMs - state.nowMs,
      queue: { requests: pool.queue.size, bytes: pool.queue.bytes },
      bytes: bodyBytes,
    },
    state.settings,
  );
  if (reason === null || (reason === 'queue_full' && canMakeRoom(state, request))) return null;
  return { reason, roomInMs: roomInMs(state, request, { reason, ...needed }) };
}

/** Until a request that is as this one finds its wait short enough, or a place. */
function roomInMs(
  state: RegionalState,
  { pool, request }: RequestState,
  shed: { reason: DecisionReason; waitMs: number; prefillMs: number; answerMs: number },
): number {
  const { waitMs, prefillMs, answerMs: lastsMs } = shed;
  if (shed.reason === 'queue_full') return waitMs / Math.max(1, pool.queue.size);
  if (shed.reason === 'wait_limit') return waitMs - state.settings.queueMaxWaitMs;
  const patienceMs = request.clientDeadlineMs ?? Number.POSITIVE_INFINITY;
  return waitMs - Math.max(0, patienceMs - prefillMs - lastsMs);
}

function shedRequest(
  state: RegionalState,
  request: RequestState,
  shed: Shed & { readonly verdict: Verdict },
): void {
  const { decision } = shed.verdict;
  const { pool } = request;
  const cold = !hasReady(pool);
  const workMs = expectedWork(request, shed.verdict).prefillMs;
  const { priority } = request.request;
  finish(state, request, {
    decision: { ...decision, kind: 'shed', reason: shed.reason, target: null },
    failure: {
      code: cold ? 'warming_up' : 'saturated',
      message: cold
        ? 'The model is being loaded and cannot take this request in time.'
        : 'All replicas of this model are busy.',
      retryAfterMs: turnAway(state, pool, { priority, workMs, roomInMs: shed.roomInMs }),
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
    const { priority, prefillMs: workMs } = worst as QueueItem;
    finish(state, victim, {
      decision: bare('shed', 'queue_full'),
      failure: {
        code: 'saturated',
        message: 'More urgent requests have filled the queue of this model.',
        retryAfterMs: turnAway(state, request.pool, { priority, workMs, roomInMs: 0 }),
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
  if (waitsForRoom(state, request, verdict)) return predictedRoomWaitMs(state, request);
  return waitOutlookMs(state, pool, {
    backlogMs: weighing.waitMsOfAll(),
    targets: weighing.count,
    priority: request.request.priority,
  });
}

/**
 * Until KV room comes for it: those that go on wait for none that begin, and nobody for longer than it takes to enter by
 * age. A wait that was foretold too long turns away who would have been served.
 */
export function predictedRoomWaitMs(state: RegionalState, request: RequestState): number {
  const { queue } = request.pool;
  const { priority } = request.request;
  const ahead = goesOn(request)
    ? queue.returningAhead(priority)
    : queue.ahead(priority, true).requests;
  const byAgeMs = state.settings.newConversationWaitMs / rateOf(request.pool);
  return ahead * Math.min(roomPaceMs(state, request.pool), byAgeMs);
}
