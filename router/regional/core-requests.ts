// A request's way through the router: arrival, queue, attempts, end. Whatever comes in, it is
// answered by exactly one of: an attempt under way, a place in the queue, a refusal, or an
// attempt's own end.

import type { Decision } from '../../shared/model/decision.ts';
import { alsoDemanded, demandedModel, type DemandedModel } from '../policy/model-grant.ts';
import type { RouteRequest } from '../policy/request-events.ts';
import { admit, isBehindOthers, noteInflow } from './core-admission.ts';
import { bare, decide, hasReady, isLight, type Verdict } from './core-decide.ts';
import { failureOf, finish, refuse } from './core-ends.ts';
import { openAttempt } from './core-leases.ts';
import type { Failure, PoolState, RegionalState, RequestState } from './core-state.ts';
import { runsOther, targetsOf } from './core-ready.ts';
import { FIT, fitIn, type Fit } from './core-weigh.ts';

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
  const waits = !isLight(entered) && isBehindOthers(state, entered, verdict);
  if (!waits && verdict.chosen !== null && !isLight(entered)) noteInflow(state, entered, verdict);
  if (!waits || verdict.decision.kind === 'refuse') carryOut(state, entered, verdict);
  else admit(state, entered, verdict);
}

/** The request with its pool, or why there is none. Changes nothing. */
export function enter(
  state: RegionalState,
  request: RouteRequest,
): RequestState | { decision: Decision; failure: Failure } {
  const demanded = demandedIn(state, request);
  const chosen = poolFor(state, demanded, request);
  const { model } = demanded;
  if (chosen === null || chosen === 'unknown') return unknownModel(model, chosen === null);
  const { pool, tooShort } = chosen;
  const pinned = pinnedBy(pool, model);
  return {
    request,
    pool,
    tooShort,
    engineModel: aliasOf(pool, model) ?? model,
    revisions: alsoDemanded(demanded, pinned).revisions,
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

/** What it asks for by its name, and what the tier before or its tenant leaves of that. */
function demandedIn(state: RegionalState, request: RouteRequest): DemandedModel {
  const { model, revisions = null } = request;
  const isName = (name: string): boolean => {
    for (const pool of state.pools.values()) if (serves(pool, name)) return true;
    return false;
  };
  return alsoDemanded(demandedModel(model, isName), revisions);
}

const NONE: readonly PoolState[] = [];

interface Chosen {
  readonly pool: PoolState;
  readonly tooShort: readonly PoolState[];
}

/**
 * `unknown`: not yet known whether a pool serves it. Null: none does. Of several one that has a revision that is asked for,
 * then one into whose context it fits, with its answer rather than without, then one that is ready.
 */
function poolFor(
  state: RegionalState,
  { model, revisions }: DemandedModel,
  request: RouteRequest,
): Chosen | 'unknown' | null {
  let first: PoolState | null = null;
  let others = false;
  let open = false;
  for (const pool of state.pools.values()) {
    if (serves(pool, model)) {
      others = first !== null;
      first ??= pool;
    }
    open ||= pool.config.models.length === 0 && !pool.reported;
  }
  if (first === null) return open ? 'unknown' : null;
  if (!others) return { pool: first, tooShort: NONE };
  const serving = [...state.pools.values()].filter((pool) => serves(pool, model));
  const ranked = serving.map((pool) => ({
    pool,
    runs: runsAny(pool, revisions),
    fit: isLong(request) ? fitIn(pool, request, aliasOf(pool, model) ?? model) : FIT.nothing,
    ready: hasReady(pool),
  }));
  const best = ranked.reduce((a, b) => (isBetter(b, a) ? b : a));
  const short = ranked.filter(({ runs, fit }) => runs === best.runs && fit < best.fit);
  return { pool: best.pool, tooShort: short.map(({ pool }) => pool) };
}

/** By its configuration, or else by what its agents tell. */
function serves(pool: PoolState, model: string): boolean {
  const { models } = pool.config;
  return models.length > 0 ? models.includes(model) : namesOf(pool).has(model);
}

interface Rank {
  readonly runs: boolean;
  readonly fit: Fit;
  readonly ready: boolean;
}

/** The first in the configuration of those that are as good. */
function isBetter(a: Rank, than: Rank): boolean {
  if (a.runs !== than.runs) return a.runs;
  if (a.fit !== than.fit) return a.fit > than.fit;
  return a.ready && !than.ready;
}

/** Its length counts: an engine has to take it whole. */
function isLong({ truncates, work }: RouteRequest): boolean {
  return truncates !== true && work !== 'light';
}

function runsAny(pool: PoolState, revisions: DemandedModel['revisions']): boolean {
  if (revisions === null) return true;
  return targetsOf(pool).some(({ report }) => !runsOther(revisions, report));
}

/** The one revision that a public name stands for; null: every one. */
function pinnedBy({ config: { revisions = {} } }: PoolState, model: string): string[] | null {
  const revision = Object.hasOwn(revisions, model) ? revisions[model] : undefined;
  return revision === undefined ? null : [revision];
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
