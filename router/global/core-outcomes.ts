// What the end of an attempt means: for its region (breaker, pause), for what is learned, and for its request, which ends
// with it or is decided anew as a whole.

import type { Usage } from '../../shared/protocol/messages.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import { closeLease, noteServed } from './core-attempts.ts';
import { bare } from './core-decide.ts';
import { isLostRouter, isNewLoss } from './core-lost-router.ts';
import { pauseFor } from './core-pause.ts';
import { failedAt, unreachable } from './core-regions.ts';
import { finish, forget, place } from './core-requests.ts';
import type { Failure, GlobalState, LeaseState, RequestState } from './core-state.ts';
import { heard, isAnswer } from './core-silence.ts';
import { chainOf } from './core-conversation.ts';

const FIRST_TOKEN_LATE = 'first_token_timeout';
/** Weight of one answer in what is learned. */
const WEIGHT = 0.05;
const MODELS_MAX = 1_024;
/** What an engine may say that it wrote or read, at most: all regions go by what is learned of any. */
const ANSWER_MAX_TOKENS = 32_768;
const BYTES_PER_TOKEN = { least: 0.25, most: 64 };
/** Of the earlier turns of a prompt, share in the cache from which they were a conversation of it. */
const MATCHED_RATIO = 0.5;

export function attemptEnded(
  state: GlobalState,
  lease: LeaseState,
  { result, committed }: { result: AttemptResult; committed: boolean },
): void {
  const { request } = lease;
  closeLease(state, lease, result);
  if (isAnswer(result)) heard(state, lease.region);
  const isLost = isLostRouter(state, lease, result);
  if (lease.withdrawn || (isLost && !isNewLoss(state, lease.region))) {
    lease.region.breaker.neutral(lease.id);
  } else noteHealth(state, lease, result);
  if (result.kind === 'complete') {
    if (result.usage !== null) learn(state, request, result.usage);
    noteServed(state, lease, result.usage?.completionTokens ?? 0);
  }
  if (committed || request.gone) forget(state, request);
  else if (lease.withdrawn && result.kind !== 'complete') place(state, request);
  else if (isRetryable(result)) retry(state, lease, { result, isLost });
  else forget(state, request);
}

function isRetryable(result: AttemptResult): boolean {
  return (
    result.kind === 'backPressure' ||
    result.kind === 'connectFailed' ||
    result.kind === 'staleConnection' ||
    result.kind === 'serverFault'
  );
}

function noteHealth(state: GlobalState, lease: LeaseState, result: AttemptResult): void {
  const { region, request } = lease;
  const { breaker } = region;
  if (result.kind === 'complete') {
    breaker.succeeded(lease.id);
    return;
  }
  if (result.kind === 'backPressure') pauseFor(state, lease, result.retryAfterMs);
  const isLate = result.kind === 'serverFault' && result.cause === FIRST_TOKEN_LATE;
  const isImpatient = isLate && lease.byClient;
  const isLight = request.request.work === 'light';
  const isBroken = result.kind === 'serverFault' && !isImpatient && !isLight;
  if (result.kind === 'connectFailed') unreachable(state, region);
  if (result.kind === 'connectFailed' || isBroken) failedAt(state, region, lease.id);
  else breaker.neutral(lease.id);
}

function learn(state: GlobalState, request: RequestState, usage: Usage): void {
  const asked = request.request;
  const chain = chainOf(asked);
  if (chain === null) return;
  if (asked.maxTokens !== 0) {
    const written = Math.min(usage.completionTokens, ANSWER_MAX_TOKENS);
    state.meanOutputTokens += WEIGHT * (written - state.meanOutputTokens);
  }
  if (chain.tokenIds === null && Object.keys(chain.parts).length === 0 && usage.promptTokens > 0) {
    const { least, most } = BYTES_PER_TOKEN;
    const measured = Math.min(most, Math.max(least, chain.bytes / usage.promptTokens));
    const { model } = request.demanded;
    const before = state.bytesPerToken.get(model) ?? measured;
    const room = state.bytesPerToken.size < MODELS_MAX || state.bytesPerToken.has(model);
    if (room) state.bytesPerToken.set(model, before + WEIGHT * (measured - before));
  }
  const earlier = (chain.turnEnds.at(-1)?.offset ?? 0) / Math.max(1, chain.bytes);
  if (earlier > 0 && usage.cachedTokens !== null) {
    const cached = usage.cachedTokens / Math.max(1, usage.promptTokens);
    state.matched.note(asked.tenant, cached >= MATCHED_RATIO * earlier);
  }
  if (request.promisedTokens !== null && usage.cachedTokens !== null) {
    const promised = Math.min(request.promisedTokens, usage.promptTokens);
    request.promiseKept = usage.cachedTokens >= MATCHED_RATIO * promised;
  }
}

function retry(
  state: GlobalState,
  lease: LeaseState,
  { result, isLost }: { readonly result: AttemptResult; readonly isLost: boolean },
): void {
  const { settings, nowMs } = state;
  const { request, region } = lease;
  if (isLost) request.lostIn.add(region.id);
  request.failure = failureOf(state, lease, result);
  // Once: a region whose new connections break too has failed it.
  const isStale = result.kind === 'staleConnection' && !request.metStale;
  if (isStale) request.metStale = true;
  if (!isStale && !isLost && result.kind !== 'backPressure') request.tried.add(region.id);
  // What a region takes along when it dies is no more than was under way there: nothing new goes in, and nobody is to pay.
  const isFree = isStale || isLost || region.breaker.state(nowMs) === 'open';
  const attemptsMax = settings.maxAttempts + Number(request.metStale) + request.lostIn.size;
  const { clientDeadlineMs } = request.request;
  const { failure } = request;
  if (clientDeadlineMs !== null && nowMs >= request.arrivedMs + clientDeadlineMs) {
    const decision = bare('shed', 'deadline_unreachable');
    finish(state, request, { decision, failure: { ...failure, code: 'upstream_timeout' } });
  } else if (request.attempts >= attemptsMax) {
    finish(state, request, { decision: bare('refuse', 'attempts_exhausted'), failure });
  } else if (!isFree && !state.budget.charge(nowMs, settings)) {
    state.limit('retry_budget');
    finish(state, request, { decision: bare('refuse', 'retry_budget'), failure });
  } else {
    place(state, request);
  }
}

function failureOf(state: GlobalState, { pool }: LeaseState, result: AttemptResult): Failure {
  if (result.kind === 'backPressure') {
    const pausedMs = (pool.pause?.untilMs ?? 0) - state.nowMs;
    return {
      code: 'fleet_saturated',
      message: 'Every region that may serve this request is busy.',
      retryAfterMs: Math.max(1_000, pausedMs, result.retryAfterMs ?? 0),
    };
  }
  const isLate =
    result.kind === 'serverFault' &&
    (result.cause === FIRST_TOKEN_LATE || result.cause === 'region_silent');
  return {
    code: isLate ? 'upstream_timeout' : 'upstream_failed',
    message: isLate
      ? 'The region gave no answer in time.'
      : 'The region failed before it gave an answer.',
    retryAfterMs: 1_000,
  };
}
