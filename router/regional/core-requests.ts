// A request's way through the router: arrival, queue, attempts, end. Whatever comes in, it is answered by exactly one
// of: an attempt under way, a place in the queue, a refusal, or an attempt's own end.

import type { Decision, DecisionReason } from '../../shared/model/decision.ts';
import type { ErrorCode } from '../../shared/errors.ts';
import type { RequestId } from '../../shared/model/ids.ts';
import { predictedWaitMs, retryAfterMs, shedReason } from '../policy/shed.ts';
import type { RouteRequest } from './events.ts';
import { bare, decide, hasReady, pendingEtaMs, type Verdict } from './core-decide.ts';
import { openAttempt } from './core-leases.ts';
import { poolCurve } from './core-load.ts';
import type { Failure, PoolState, RegionalState, RequestState } from './core-state.ts';
import { prefillMs as curveMs } from '../../shared/model/cost-curve.ts';
import { ASSUMED_BYTES_PER_TOKEN } from '../policy/tokens.ts';

/** ms until a retry makes sense where nothing says when capacity comes. */
const NO_CAPACITY_RETRY_MS = 2_000;

export function arrive(state: RegionalState, request: RouteRequest): void {
  state.budget.request(state.nowMs);
  if (state.draining) {
    refuse(state, request.id, {
      decision: bare('refuse', 'draining'),
      failure: { code: 'draining', message: 'This router is shutting down.', retryAfterMs: 1_000 },
    });
    return;
  }
  const entered = enter(state, request);
  if ('decision' in entered) {
    refuse(state, request.id, entered);
    return;
  }
  state.requests.set(request.id, entered);
  if (entered.pool.queue.size === 0) {
    carryOut(state, entered, decide(state, entered, { draw: true }));
    return;
  }
  admit(state, entered, null);
}

/** The request with its pool, or why there is none. Changes nothing. */
export function enter(
  state: RegionalState,
  request: RouteRequest,
): RequestState | { decision: Decision; failure: Failure } {
  const pool = poolFor(state, request.model);
  if (pool === null || pool === 'unknown') return unknownModel(request.model, pool === null);
  return {
    request,
    pool,
    engineModel: pool.config.aliases[request.model] ?? request.model,
    arrivedMs: state.nowMs,
    attempts: 0,
    tried: new Set(),
    lease: null,
    gone: false,
    failure: null,
  };
}

/** Says which requests entered the queue in this event and have not left it again. */
export function announceQueued(state: RegionalState): void {
  for (const { request, decision } of state.announced) {
    const waits = state.requests.get(request)?.pool.queue.has(request) ?? false;
    if (waits) state.emit({ kind: 'queued', request, decision });
  }
  state.announced = [];
}

/** Carries a decision out. A request that has to wait enters the queue, or stays there. */
export function carryOut(state: RegionalState, request: RequestState, verdict: Verdict): void {
  const { decision, chosen } = verdict;
  if (chosen !== null) {
    openAttempt(state, request, { scored: chosen, decision });
  } else if (decision.kind === 'queue') {
    admit(state, request, verdict);
  } else {
    finish(state, request, { decision, failure: failureOf(state, request, decision.reason) });
  }
}

/** Ends a request without an answer of an engine. */
export function finish(
  state: RegionalState,
  request: RequestState,
  end: { decision: Decision; failure: Failure },
): void {
  forget(state, request);
  refuse(state, request.request.id, end);
}

export function forget(state: RegionalState, request: RequestState): void {
  state.requests.delete(request.request.id);
  request.pool.queue.remove(request.request.id);
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
  return reason === null ? null : { reason, waitMs };
}

/** Queues a request, within the limits; a retry keeps its age and is not measured again. */
function admit(state: RegionalState, request: RequestState, known: Verdict | null): void {
  const { pool } = request;
  const verdict = known ?? decide(state, request, { draw: true });
  if (verdict.decision.kind === 'refuse') {
    carryOut(state, request, verdict);
    return;
  }
  const shed = request.attempts > 0 ? null : shedVerdict(state, request, verdict);
  if (shed !== null && !(shed.reason === 'queue_full' && makeRoom(state, request))) {
    if (shed.reason === 'queue_full') state.limit('queue');
    shedRequest(state, request, { ...shed, verdict });
    return;
  }
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
    },
    state.settings.ageCredit,
  );
  pool.pace.started(state.nowMs);
  pool.dirty = true;
  const { decision } = verdict;
  const waiting: Decision =
    decision.kind === 'queue'
      ? decision
      : { ...decision, kind: 'queue', reason: 'order', target: null };
  state.announced.push({ request: asked.id, decision: waiting });
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

/** Gives up a less urgent request for this one; false where there is none. */
function makeRoom(state: RegionalState, request: RequestState): boolean {
  const { queue } = request.pool;
  const { settings } = state;
  const needed = request.request.bodyBytes;
  while (
    queue.size + 1 > settings.queueMaxRequests ||
    queue.bytes + needed > settings.queueMaxBytes
  ) {
    if ((queue.bottomPriority ?? Number.NEGATIVE_INFINITY) <= request.request.priority)
      return false;
    const worst = queue.worst();
    const victim = worst === null ? undefined : state.requests.get(worst.id as RequestId);
    if (victim === undefined) return false;
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
  return true;
}

/** Uncached tokens and prefill where it would go best; without candidates, by the pool's median curve. */
function expectedWork(
  request: RequestState,
  verdict: Verdict,
): { tokens: number; prefillMs: number } {
  const { scored } = verdict.weighing;
  let best: { tokens: number; prefillMs: number } | null = null;
  for (const { prefillMs, sums } of scored) {
    if (best === null || prefillMs < best.prefillMs) best = { tokens: sums.uncached, prefillMs };
  }
  if (best !== null) return best;
  let tokens = 0;
  for (const prompt of request.request.prompts) {
    tokens += prompt.tokenIds ?? Math.ceil(prompt.bytes / ASSUMED_BYTES_PER_TOKEN);
  }
  return { tokens, prefillMs: curveMs(poolCurve(request.pool).curve, tokens, 0) };
}

function predictedQueueMs(state: RegionalState, request: RequestState, verdict: Verdict): number {
  const { pool } = request;
  const { scored } = verdict.weighing;
  return predictedWaitMs({
    backlogMs: scored.reduce((sum, candidate) => sum + candidate.load.waitMs, 0),
    ahead: pool.queue.ahead(request.request.priority),
    targets: scored.length,
    msPerRelease: pool.pace.msPerRelease(state.nowMs),
    etaMs: scored.length > 0 ? 0 : (pendingEtaMs(pool) ?? 0),
  });
}

function failureOf(state: RegionalState, request: RequestState, reason: DecisionReason): Failure {
  if (request.failure !== null) return request.failure;
  if (reason === 'context_length') {
    return {
      code: 'context_length_exceeded',
      message: "The prompt is longer than the model's context.",
      retryAfterMs: null,
    };
  }
  return noReplica(state, request.pool);
}

function noReplica(state: RegionalState, pool: PoolState): Failure {
  let coming = false;
  for (const replica of pool.replicas) {
    if (replica.gone) continue;
    coming ||= replica.targets.some((target) => COMING.has(target.report?.phase ?? ''));
  }
  return {
    code: coming ? 'warming_up' : 'no_replica',
    message: coming
      ? 'The replicas of this model are starting.'
      : 'No replica of this model is available.',
    retryAfterMs: retryAfterMs(NO_CAPACITY_RETRY_MS, state.deps.random),
  };
}

const COMING: ReadonlySet<string> = new Set(['starting', 'loading', 'warming']);

/** `unknown`: not yet known whether a pool serves it. Null: none does. */
function poolFor(state: RegionalState, model: string): PoolState | 'unknown' | null {
  let found: PoolState | null = null;
  let open = false;
  for (const pool of state.pools.values()) {
    const { models } = pool.config;
    const serves = models.length > 0 ? models.includes(model) : namesOf(pool).has(model);
    if (serves && (found === null || (!hasReady(found) && hasReady(pool)))) found = pool;
    open ||= models.length === 0 && !pool.reported;
  }
  return found ?? (open ? 'unknown' : null);
}

/** Names by which a pool without configured models can be asked. */
export function namesOf(pool: PoolState): Set<string> {
  const { aliases } = pool.config;
  const publics = Object.keys(aliases).filter((name) => pool.names.has(aliases[name] ?? ''));
  return publics.length === 0 ? pool.names : new Set([...pool.names, ...publics]);
}

function unknownModel(model: string, certain: boolean): { decision: Decision; failure: Failure } {
  const name = model.slice(0, 200);
  return {
    decision: bare('refuse', certain ? 'unknown_model' : 'no_replica'),
    failure: certain
      ? {
          code: 'model_not_found',
          message: `The model \`${name}\` does not exist.`,
          retryAfterMs: null,
        }
      : {
          code: 'no_replica',
          message: 'No replica has reported its models yet.',
          retryAfterMs: 1_000,
        },
  };
}

function refuse(
  state: RegionalState,
  request: RequestId,
  end: { decision: Decision; failure: Failure },
): void {
  const { code, message, retryAfterMs: after }: { code: ErrorCode } & Failure = end.failure;
  state.emit({
    kind: 'refuse',
    request,
    decision: end.decision,
    code,
    message,
    retryAfterMs: after,
  });
}
