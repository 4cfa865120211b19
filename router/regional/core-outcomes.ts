// What the end of an attempt means: for its target (breaker, pause, static rule), for its pool's
// means, and for its request, which ends with it or is decided anew as a whole.

import type { AttemptOutcome, Usage } from '../../shared/protocol/messages.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import { pauseUntilMs } from '../policy/pause.ts';
import { bare, decide, isLight } from './core-decide.ts';
import { noteDown } from './core-freshness.ts';
import { releaseLease } from './core-leases.ts';
import { noteAway } from './core-region.ts';
import { finish, forget } from './core-ends.ts';
import { noteTurn } from './core-working-set.ts';
import { carryOut } from './core-requests.ts';
import type {
  Failure,
  LeaseState,
  RegionalState,
  RequestState,
  TargetState,
} from './core-state.ts';

const FIRST_TOKEN_LATE = 'first_token_timeout';
/** Weight of one answer in a pool's means. */
const MEAN_WEIGHT = 0.05;

export function attemptEnded(
  state: RegionalState,
  lease: LeaseState,
  end: { result: AttemptResult; committed: boolean },
): void {
  const { request, target } = lease;
  const { result, committed } = end;
  const usage = result.kind === 'complete' ? result.usage : null;
  releaseLease(state, lease, { outcome: outcomeOf(result), usage });
  noteHealth(state, lease, result);
  if (usage !== null) {
    learn(request, usage);
    noteTurn(state, lease, usage);
  }
  if (committed || result.kind === 'complete') {
    const tokens = usage === null ? lease.facts.promptTokens : historyOf(usage);
    noteAway(state, lease, tokens);
  }
  request.pool.dirty = true;
  const over = committed || request.gone || !isRetryable(result);
  if (over) forget(state, request);
  else retry(state, request, { result, target });
}

/**
 * The first-token deadline has passed: once more if the target gives first tokens to others, else
 * no more.
 */
export function firstTokenLate(state: RegionalState, lease: LeaseState): void {
  if (lease.aborting) return;
  const { target } = lease;
  const windowMs = state.settings.firstTokenExtendWindowMs;
  const lively = state.nowMs - target.firstTokenMs <= windowMs;
  if (lively && !lease.extended && !lease.byClient) {
    lease.extended = true;
    state.emit({ kind: 'extend', lease: lease.id, timeoutMs: extensionMs(state, lease) });
    return;
  }
  lease.aborting = true;
  state.emit({ kind: 'abort', lease: lease.id, reason: FIRST_TOKEN_LATE });
}

function extensionMs(state: RegionalState, lease: LeaseState): number {
  const { clientDeadlineMs } = lease.request.request;
  if (clientDeadlineMs === null) return lease.timeoutMs;
  const leftMs = lease.request.arrivedMs + clientDeadlineMs - state.nowMs;
  return Math.max(0, Math.min(lease.timeoutMs, leftMs));
}

function outcomeOf(result: AttemptResult): AttemptOutcome {
  switch (result.kind) {
    case 'complete':
      return 'complete';
    case 'clientGone':
      return 'aborted';
    case 'clientError':
    case 'backPressure':
    case 'connectFailed':
    case 'staleConnection':
      return 'refused';
    case 'serverFault':
      return result.cause === FIRST_TOKEN_LATE ? 'aborted' : 'failed';
  }
}

/** Tokens that the next turn goes on from. */
function historyOf({ promptTokens, completionTokens }: Usage): number {
  return promptTokens + completionTokens;
}

function isRetryable(result: AttemptResult): boolean {
  return (
    result.kind === 'backPressure' ||
    result.kind === 'connectFailed' ||
    result.kind === 'staleConnection' ||
    result.kind === 'serverFault'
  );
}

function noteHealth(state: RegionalState, lease: LeaseState, result: AttemptResult): void {
  const { target } = lease;
  const { settings, nowMs } = state;
  if (result.kind === 'complete') {
    // A front end answers beside a dead engine: that it did speaks for nothing.
    if (!lease.orphan && !isLight(lease.request)) target.breaker.succeeded(lease.id);
    return;
  }
  if (result.kind === 'backPressure') {
    target.pausedUntilMs = pauseUntilMs(target.pausedUntilMs, result.retryAfterMs, nowMs);
    target.replica.pool.roster.touch(target);
  }
  const broken = result.kind === 'serverFault' && !isLight(lease.request);
  const fault = result.kind === 'connectFailed' || broken;
  const impatient =
    lease.byClient && result.kind === 'serverFault' && result.cause === FIRST_TOKEN_LATE;
  if (!fault || impatient || lease.orphan) {
    target.breaker.neutral(lease.id);
    return;
  }
  const wasClosed = target.breaker.state(nowMs) === 'closed';
  target.breaker.failed(lease.id, nowMs, settings);
  if (wasClosed && target.breaker.state(nowMs) === 'open') {
    state.log('warn', 'breaker_open', { replica: target.replica.id, rank: target.rank });
  }
  if (target.replica.lostMs !== null) noteDown(state, target.replica);
}

/** Means of generations: an answer without decode would take their output for short. */
function learn(request: RequestState, usage: Usage): void {
  const { pool } = request;
  if (request.request.maxTokens === 0) return;
  pool.meanOutputTokens += MEAN_WEIGHT * (usage.completionTokens - pool.meanOutputTokens);
  pool.meanPromptTokens += MEAN_WEIGHT * (usage.promptTokens - pool.meanPromptTokens);
}

function retry(
  state: RegionalState,
  request: RequestState,
  end: { result: AttemptResult; target: TargetState },
): void {
  const { settings, nowMs } = state;
  const { result, target } = end;
  request.failure = failureOf(result, target, nowMs);
  // Once: a target whose new connections break too has failed it.
  const free = result.kind === 'staleConnection' && !request.metStale;
  if (free) request.metStale = true;
  if (!free && result.kind !== 'backPressure') request.tried.add(target.key);
  const attemptsMax = settings.maxAttempts + Number(request.metStale);
  const { clientDeadlineMs } = request.request;
  const failure = request.failure;
  if (clientDeadlineMs !== null && nowMs >= request.arrivedMs + clientDeadlineMs) {
    const decision = bare('shed', 'deadline_unreachable');
    finish(state, request, { decision, failure: { ...failure, code: 'upstream_timeout' } });
  } else if (request.attempts >= attemptsMax || request.pool.removed) {
    finish(state, request, { decision: bare('refuse', 'attempts_exhausted'), failure });
  } else if (!state.budget.charge(nowMs, settings)) {
    state.limit('retry_budget');
    finish(state, request, { decision: bare('refuse', 'retry_budget'), failure });
  } else {
    carryOut(state, request, decide(state, request, { draw: true }));
  }
}

function failureOf(result: AttemptResult, target: TargetState, nowMs: number): Failure {
  if (result.kind === 'backPressure') {
    return {
      code: 'saturated',
      message: 'All replicas of this model are busy.',
      retryAfterMs: Math.max(1_000, target.pausedUntilMs - nowMs),
    };
  }
  const late = result.kind === 'serverFault' && result.cause === FIRST_TOKEN_LATE;
  return {
    code: late ? 'upstream_timeout' : 'upstream_failed',
    message: late
      ? 'The replica gave no answer in time.'
      : 'The replica failed before it gave an answer.',
    retryAfterMs: 1_000,
  };
}
