// A request's way through the global router: arrival, a wait for a pause to end, attempts, end. It is answered by exactly
// one of: an attempt under way, a place in the queue, a refusal, or an attempt's own end.

import type { GlobalDecision } from '../../shared/model/global-decision.ts';
import type { RequestId } from '../../shared/model/ids.ts';
import { alsoDemanded, demandedModel, granted } from '../policy/model-grant.ts';
import type { RouteRequest } from '../policy/request-events.ts';
import { openAttempt } from './core-attempts.ts';
import { bare, decide, type Verdict } from './core-decide.ts';
import { emptyInMs, letOut } from './core-pause.ts';
import type { Failure, GlobalState, RegionPool, RequestState } from './core-state.ts';
import { mayServe } from './core-weigh.ts';

const RETRY_MS = 1_000;

export function arrive(state: GlobalState, request: RouteRequest): void {
  state.budget.request(state.nowMs);
  if (state.draining) {
    refuse(state, request.id, {
      decision: bare('refuse', 'draining'),
      failure: { code: 'draining', message: 'This router is shutting down.', retryAfterMs: 1_000 },
    });
    return;
  }
  const entered = enter(state, request);
  state.requests.set(request.id, entered);
  place(state, entered);
  noteNamed(state, entered);
}

/** Once: what came of what it said of its conversation. */
function noteNamed(state: GlobalState, { named }: RequestState): void {
  if (named === null) return;
  const { crowded, hint, paceKey } = named;
  if (crowded) state.limit('crowded_conversation_id');
  if (hint !== null) state.emit({ kind: 'hinted', result: hint });
  if (paceKey !== null) state.pace.note(paceKey, state.nowMs, state.settings.affinityMax);
}

export function enter(state: GlobalState, request: RouteRequest): RequestState {
  return {
    request,
    demanded: alsoDemanded(
      demandedModel(request.model, (name) => isServed(state, name)),
      request.revisions ?? null,
    ),
    arrivedMs: state.nowMs,
    attempts: 0,
    tried: new Set(),
    lostIn: new Set(),
    metStale: false,
    askedToWaitMs: new Map(),
    counted: false,
    lease: null,
    againMs: null,
    heldBy: null,
    gone: false,
    failure: null,
    named: null,
    promisedTokens: null,
    promiseKept: null,
  };
}

/** Decides, and carries it out. */
export function place(state: GlobalState, request: RequestState): void {
  const verdict = decide(state, request, { random: state.deps.random });
  const { decision, chosen, weighing } = verdict;
  noteFlow(state, request, verdict);
  if (decision.kind === 'queue') {
    wait(state, request, verdict);
    return;
  }
  if (chosen === null || weighing === null) {
    finish(state, request, { decision, failure: failureOf(state, request, verdict) });
    return;
  }
  if (decision.kind === 'spill') {
    chosen.pool.purse.spend(chosen.prefillMs, state.nowMs);
    chosen.pool.spilledIn += 1;
    if (verdict.gate !== null) verdict.gate.spilledOut += 1;
  }
  state.queue.leave(request, { served: true });
  openAttempt(state, request, { decision, place: chosen, weighing });
}

/** Looks again at those that wait and may go, or (`all`) at everybody: what is allowed has changed. */
export function lookAtQueue(state: GlobalState, all: boolean): void {
  if (state.queue.size === 0) return;
  if (all) for (const request of state.queue.everybody()) place(state, request);
  letOut(state, (request) => place(state, request));
}

/** Attempts whose tenant may no longer be served where they are, and of which nobody has seen anything, are called back. */
export function withdraw(state: GlobalState): void {
  for (const lease of state.leases.values()) {
    if (lease.aborting || lease.firstTokenMs !== null) continue;
    const { request, demanded } = lease.request;
    const tenant = state.tenant(request.tenant);
    const configured = state.regions.get(lease.region.id) === lease.region;
    const allowed = tenant !== null && granted(tenant.models, demanded) !== null && configured;
    if (allowed && mayServe(lease.region, tenant)) continue;
    lease.aborting = true;
    lease.withdrawn = true;
    state.emit({ kind: 'abort', lease: lease.id, reason: 'no_longer_allowed' });
  }
}

export function finish(
  state: GlobalState,
  request: RequestState,
  end: { decision: GlobalDecision; failure: Failure },
): void {
  forget(state, request);
  refuse(state, request.request.id, end);
}

export function forget(state: GlobalState, request: RequestState): void {
  state.queue.leave(request, { served: false });
  state.requests.delete(request.request.id);
}

function refuse(
  state: GlobalState,
  request: RequestId,
  { decision, failure }: { decision: GlobalDecision; failure: Failure },
): void {
  state.emit({ kind: 'refuse', request, decision, ...failure });
}

/** Where all places are taken, one of whom takes most gives way, or it is refused itself. */
function wait(state: GlobalState, request: RequestState, verdict: Verdict): void {
  const { decision, waitsFor, weighing } = verdict;
  if (waitsFor === null) return;
  const { queue, settings } = state;
  if (queue.has(request.request.id)) {
    queue.wait(request, waitsFor);
    return;
  }
  const limits = { requests: settings.queueMaxRequests, bytes: settings.queueMaxBytes };
  const going = queue.givingWayTo(request, limits);
  if (going === null) {
    const pools = (weighing?.places ?? []).map(({ pool }) => pool);
    giveUpPlace(state, request, pools);
    return;
  }
  for (const other of going) giveUpPlace(state, other, other.heldBy === null ? [] : [other.heldBy]);
  queue.wait(request, waitsFor);
  state.announced.push({ request: request.request.id, decision });
}

function giveUpPlace(
  state: GlobalState,
  request: RequestState,
  pools: readonly RegionPool[],
): void {
  state.limit('queue');
  const failure = saturated(state, request, pools);
  finish(state, request, { decision: bare('shed', 'queue_full'), failure });
}

/** Its home's gate counts it, and knows what flows: that once, also where it waits. */
function noteFlow(state: GlobalState, request: RequestState, { gate, weighing }: Verdict): void {
  const home = weighing?.home ?? null;
  if (weighing === null || home === null) return;
  const { kind } = weighing.conversation;
  if (kind === 'none') return;
  const again = request.counted;
  request.counted = true;
  if (kind === 'new' && weighing.places.length > 1 && !again) {
    home.pool.flow.came(home.prefillMs, state.nowMs);
  }
  const asking = { uncachedTokens: weighing.promptTokens, again };
  if (gate !== null) gate.gate.admits(asking, state.settings, state.nowMs);
}

// ── what a refused request is told ────────────────────────────────────────────────────────────────────

function failureOf(state: GlobalState, request: RequestState, verdict: Verdict): Failure {
  const { reason } = verdict.decision;
  if (reason === 'wait_limit' || reason === 'deadline_unreachable') {
    const pools = (verdict.weighing?.places ?? []).map(({ pool }) => pool);
    return saturated(state, request, pools);
  }
  const model = request.demanded.model.slice(0, 200);
  // What a changed policy forbids is no failure of a region that was asked before.
  if (reason === 'residency') {
    const message = 'No region in which this tenant may be served can take the request.';
    return { code: 'residency_violation', message, retryAfterMs: null };
  }
  if (request.failure !== null && reason !== 'model_not_allowed') return request.failure;
  if (reason === 'model_not_allowed' || (reason === 'unknown_model' && !isServed(state, model))) {
    const message = `The model \`${model}\` does not exist.`;
    return { code: 'model_not_found', message, retryAfterMs: null };
  }
  if (reason === 'context_length') {
    // Libraries know it by OpenAI's words, not by the code alone.
    const message = "The prompt exceeds the model's maximum context length.";
    return { code: 'context_length_exceeded', message, retryAfterMs: null };
  }
  if (reason === 'unknown_revision') {
    const message = `The model \`${model}\` is not served in the revision that is asked for.`;
    return { code: 'model_not_found', message, retryAfterMs: null };
  }
  if (reason === 'unknown_model') {
    const message = `The model \`${model}\` is not served in a region in which this tenant may be served.`;
    return { code: 'model_not_available_in_region', message, retryAfterMs: null };
  }
  const message = 'No region that may serve this request is available.';
  return { code: 'no_healthy_region', message, retryAfterMs: jittered(state, 2 * RETRY_MS) };
}

/** Somewhere, for somebody. */
function isServed(state: GlobalState, model: string): boolean {
  for (const region of state.regions.values()) {
    for (const pool of region.pools.values()) {
      if (pool.sight?.models.some(({ name }) => name === model) === true) return true;
    }
  }
  return false;
}

/** By when the first of these has served what waits for it here, and not before what it was told. */
function saturated(
  state: GlobalState,
  request: RequestState,
  pools: readonly RegionPool[],
): Failure {
  const roomMs = pools.map((pool) => {
    const ownMs = (request.askedToWaitMs.get(pool.region.id) ?? 0) - state.nowMs;
    return Math.max(emptyInMs(state, pool), ownMs);
  });
  const afterMs = roomMs.length === 0 ? 0 : Math.min(...roomMs);
  const told = request.failure?.retryAfterMs ?? 0;
  const message = 'Every region that may serve this request is busy.';
  const retryAfterMs = jittered(state, Math.max(RETRY_MS, afterMs, told));
  return { code: 'fleet_saturated', message, retryAfterMs };
}

/** Up to a quarter later, so that they do not come together; a minute at most: libraries take no more. */
function jittered(state: GlobalState, ms: number): number {
  return Math.min(60_000, Math.round(ms * (1 + state.deps.random.next() / 4)));
}
