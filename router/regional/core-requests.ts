// A request's way through the router: arrival, queue, attempts, end. Whatever comes in, it is
// answered by exactly one of: an attempt under way, a place in the queue, a refusal, or an
// attempt's own end.

import type { Decision } from '../../shared/model/decision.ts';
import type { RouteRequest } from '../policy/request-events.ts';
import { admit, isBehindOthers, noteInflow } from './core-admission.ts';
import { bare, decide, hasReady, isLight, type Verdict } from './core-decide.ts';
import { failureOf, finish, refuse } from './core-ends.ts';
import { openAttempt } from './core-leases.ts';
import type { Failure, PoolState, RegionalState, RequestState } from './core-state.ts';

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
  const verdict = decide(state, entered, { draw: true });
  const waits = !isLight(entered) && isBehindOthers(entered.pool, verdict);
  if (!waits && verdict.chosen !== null && !isLight(entered)) noteInflow(state, entered, verdict);
  if (!waits || verdict.decision.kind === 'refuse') carryOut(state, entered, verdict);
  else admit(state, entered, verdict);
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
    engineModel: aliasOf(pool, request.model) ?? request.model,
    arrivedMs: state.nowMs,
    attempts: 0,
    tried: new Set(),
    metStale: false,
    earlier: null,
    lease: null,
    gone: false,
    failure: null,
  };
}

/** Carries a decision out. A request that has to wait enters the queue, or stays there. */
export function carryOut(state: RegionalState, request: RequestState, verdict: Verdict): void {
  const { decision, chosen } = verdict;
  if (chosen !== null) {
    openAttempt(state, request, { scored: chosen, decision, room: verdict.room });
  } else if (decision.kind === 'queue') {
    admit(state, request, verdict);
  } else {
    finish(state, request, { decision, failure: failureOf(state, request, decision.reason) });
  }
}

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

function aliasOf({ config: { aliases } }: PoolState, model: string): string | undefined {
  return Object.hasOwn(aliases, model) ? aliases[model] : undefined;
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
