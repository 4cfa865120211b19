// One request, all targets of its pool: send, queue, or refuse, as a value. Nothing is changed
// here, so that explain and serving decide alike; serving then draws, explain shows the
// probabilities.

import type {
  Candidate,
  Decision,
  DecisionKind,
  DecisionReason,
} from '../../shared/model/decision.ts';
import { draw, drawProbabilities, mostProbable } from '../policy/pick.ts';
import { shareInMs } from './core-share.ts';
import { roomForNew, type Room } from './core-working-set.ts';
import type { PoolState, RegionalState, RequestState, TargetState } from './core-state.ts';
import { isReady, NOBODY, targetsOf, weigh, type Scored, type Weighing } from './core-weigh.ts';

/** Candidates that a decision shows; the best ones. */
const CANDIDATES_SHOWN = 16;

export interface Verdict {
  readonly decision: Decision;
  /** Set when the decision is to send. */
  readonly chosen: Scored | null;
  readonly weighing: Weighing;
  /** Working-set admission is about this request; null where it is not. */
  readonly room: Room | null;
}

/** `random` null: the most probable target stands for the draw. */
export function decide(
  state: RegionalState,
  request: RequestState,
  options: { draw: boolean },
): Verdict {
  const weighing = weigh(state, request);
  const { scored } = weighing;
  if (scored.length === 0) {
    return verdict({ weighing, room: null }, nothingLeft(request, weighing), []);
  }
  if (isLight(request)) return anyOf(state, request, { weighing, draw: options.draw });
  const room = roomForNew(state, request, scored);
  const seen: Seen = { weighing, room };
  const shared = scored.filter(
    ({ target }) => shareInMs(state, target, request.request.priority) === 0,
  );
  const allowed =
    room?.acts === true ? shared.filter((one) => room.of(one).state !== 'full') : shared;
  if (!allowed.some((candidate) => !candidate.load.full)) {
    const reason = shared.some(({ load }) => !load.full)
      ? 'kv_room'
      : scored.some(({ load }) => !load.full)
        ? 'order'
        : 'all_full';
    return verdict(seen, { kind: 'queue', reason }, []);
  }
  const open = allowed.filter((candidate) => !candidate.load.closed);
  const probabilities = drawProbabilities(
    open.map((candidate) => candidate.costMs),
    state.settings,
  );
  const at = options.draw ? draw(probabilities, state.deps.random) : mostProbable(probabilities);
  const chosen = open[at] ?? null;
  if (chosen === null) return verdict(seen, { kind: 'queue', reason: 'all_full' }, []);
  const outcome = {
    kind: 'send',
    reason: sendReason(request, { chosen, scored, probabilities }),
  } as const;
  const drawn = open.map((candidate, k) => ({ candidate, probability: probabilities[k] ?? 0 }));
  return { ...verdict(seen, outcome, drawn, chosen.target), chosen };
}

/** The engine's front end alone answers it: it takes no share of what is weighed, and waits for nothing. */
export function isLight({ request }: RequestState): boolean {
  return request.work === 'light';
}

/** Targets on their way to readiness, with the least expected time; null when there are none. */
export function pendingEtaMs(pool: PoolState): number | null {
  let least: number | null = null;
  for (const target of targetsOf(pool)) {
    const { report, replica } = target;
    if (replica.state !== 'fresh' || report === null) continue;
    if (report.phase !== 'loading' && report.phase !== 'warming') continue;
    least = Math.min(least ?? Number.POSITIVE_INFINITY, report.etaMs ?? 0);
  }
  return least;
}

/** Slowness never empties a pool. */
export function hasReady(pool: PoolState): boolean {
  for (const target of targetsOf(pool)) if (isReady(target, NOBODY)) return true;
  return false;
}

export function bare(kind: DecisionKind, reason: DecisionReason): Decision {
  return { kind, reason, target: null, candidates: [] };
}

/** Light work goes to any that can take work at all, however full: each as probable as the others. */
function anyOf(
  state: RegionalState,
  request: RequestState,
  seen: { weighing: Weighing; draw: boolean },
): Verdict {
  const { scored } = seen.weighing;
  const probabilities = scored.map(() => 1 / scored.length);
  const at = seen.draw ? draw(probabilities, state.deps.random) : mostProbable(probabilities);
  const chosen = scored[at] as Scored;
  const first = scored.length === 1 ? 'only_candidate' : 'tie_draw';
  const outcome = { kind: 'send', reason: request.attempts > 0 ? 'failover' : first } as const;
  const drawn = scored.map((candidate, k) => ({ candidate, probability: probabilities[k] ?? 0 }));
  const { weighing } = seen;
  return { ...verdict({ weighing, room: null }, outcome, drawn, chosen.target), chosen };
}

interface Seen {
  readonly weighing: Weighing;
  readonly room: Room | null;
}

interface Outcome {
  readonly kind: DecisionKind;
  readonly reason: DecisionReason;
}

function nothingLeft(request: RequestState, weighing: Weighing): Outcome {
  const reasons = new Set(weighing.removed.map((removed) => removed.reason));
  if (isLight(request)) {
    return { kind: 'refuse', reason: request.attempts > 0 ? 'attempts_exhausted' : 'no_replica' };
  }
  if (reasons.has('paused')) return { kind: 'queue', reason: 'all_full' };
  if (pendingEtaMs(request.pool) !== null) return { kind: 'queue', reason: 'no_capacity_yet' };
  if (request.attempts > 0) return { kind: 'refuse', reason: 'attempts_exhausted' };
  if (reasons.has('context_length') && !reasons.has('breaker')) {
    return { kind: 'refuse', reason: 'context_length' };
  }
  return { kind: 'refuse', reason: 'no_replica' };
}

function sendReason(
  request: RequestState,
  seen: {
    chosen: Scored;
    scored: readonly Scored[];
    probabilities: readonly number[];
  },
): DecisionReason {
  const { chosen, scored } = seen;
  if (request.attempts > 0) return 'failover';
  if (scored.length === 1) return 'only_candidate';
  const most = scored.every(
    (other) => other === chosen || other.cachedTokens < chosen.cachedTokens,
  );
  if (most) return 'prefix';
  const tied = seen.probabilities.filter((probability) => probability > 0).length;
  return tied > 1 ? 'tie_draw' : 'least_cost';
}

function verdict(
  { weighing, room }: Seen,
  outcome: Outcome,
  drawn: readonly { candidate: Scored; probability: number }[],
  target: TargetState | null = null,
): Verdict {
  const probabilityOf = new Map(drawn.map((entry) => [entry.candidate, entry.probability]));
  const best = weighing.scored.toSorted((a, b) => a.costMs - b.costMs).slice(0, CANDIDATES_SHOWN);
  const candidates = best.map((scored) => shown(scored, probabilityOf.get(scored) ?? 0, room));
  for (const { target: removed, reason } of weighing.removed) {
    if (candidates.length >= CANDIDATES_SHOWN) break;
    candidates.push({ ...BLANK, target: idOf(removed), removed: reason });
  }
  const decision = { ...outcome, target: target === null ? null : idOf(target), candidates };
  return { decision, chosen: null, weighing, room };
}

const BLANK = {
  costMs: null,
  waitMs: null,
  prefillMs: null,
  predictedTtftMs: null,
  promptTokens: null,
  cachedTokens: null,
  full: false,
  kvRoom: null,
  drawProbability: 0,
} as const;

function shown(scored: Scored, drawProbability: number, room: Room | null): Candidate {
  const { load, prefillMs } = scored;
  return {
    target: idOf(scored.target),
    removed: null,
    costMs: scored.costMs,
    waitMs: load.waitMs,
    prefillMs,
    predictedTtftMs: scored.learned ? load.waitMs + prefillMs : null,
    promptTokens: scored.promptTokens,
    cachedTokens: scored.cachedTokens,
    full: load.full,
    kvRoom: room?.of(scored) ?? null,
    drawProbability,
  };
}

function idOf(target: TargetState): { replica: TargetState['replica']['id']; rank: number } {
  return { replica: target.replica.id, rank: target.rank };
}
