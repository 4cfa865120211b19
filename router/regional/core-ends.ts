// How a request ends without an answer of an engine: forgotten, or refused with a code, words and
// an honest time.

import type { Decision, DecisionReason } from '../../shared/model/decision.ts';
import type { RequestId } from '../../shared/model/ids.ts';
import { retryAfterMs } from '../policy/promises.ts';
import type { Failure, PoolState, RegionalState, RequestState } from './core-state.ts';
import { noteTurnWaitsNoMore } from './core-waiting-turns.ts';

/** ms until a retry makes sense where nothing says when capacity comes. */
const NO_CAPACITY_RETRY_MS = 2_000;

const COMING: ReadonlySet<string> = new Set(['starting', 'loading', 'warming']);

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
  const { queue, pace, heldPace } = request.pool;
  state.requests.delete(request.request.id);
  queue.remove(request.request.id);
  noteTurnWaitsNoMore(request);
  const { held } = queue;
  if (queue.size === held.requests) pace.emptied();
  if (held.requests === 0) heldPace.emptied();
}

export function refuse(
  state: RegionalState,
  request: RequestId,
  end: { decision: Decision; failure: Failure },
): void {
  const { code, message, retryAfterMs: after } = end.failure;
  state.emit({
    kind: 'refuse',
    request,
    decision: end.decision,
    code,
    message,
    retryAfterMs: after,
  });
}

/** What a refused request is told. */
export function failureOf(
  state: RegionalState,
  request: RequestState,
  reason: DecisionReason,
): Failure {
  if (request.failure !== null) return request.failure;
  if (reason === 'context_length') {
    return {
      code: 'context_length_exceeded',
      // Libraries know it by OpenAI's words, not by the code alone: LangChain makes an error of its own of it.
      message: "The prompt exceeds the model's maximum context length.",
      retryAfterMs: null,
    };
  }
  if (reason === 'unknown_revision') {
    const name = request.request.model.slice(0, 200);
    const message = `The model \`${name}\` is not served in the revision that is asked for.`;
    return { code: 'model_not_found', message, retryAfterMs: null };
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
