// One request, all targets of its pool: send, queue, or refuse, as a value. Nothing is changed
// here, so that explain and serving decide alike; serving then draws, explain shows the
// probabilities. Candidates are shown where somebody asks for them: they take longer to write down than
// to weigh.

import type {
  Candidate,
  Decision,
  DecisionKind,
  DecisionReason,
  FilterReason,
} from '../../shared/model/decision.ts';
import { draw, drawProbabilities, mostProbable } from '../policy/pick.ts';
import { clampPriority, keyOf } from '../policy/queue-item.ts';
import { othersQueue, Shares, type Asker } from './core-share.ts';
import { roomForNew, type Room } from './core-working-set.ts';
import type { PoolState, RegionalState, RequestState, TargetState } from './core-state.ts';
import { isReady, NOBODY, targetsOf } from './core-ready.ts';
import { weigh } from './core-weigh.ts';
import { type Scored, type Weighing } from './core-weighing.ts';

/** Candidates that a decision shows; the best ones, those that it draws from among them. */
const CANDIDATES_SHOWN = 16;
/**
 * Who has waited so long waits for no better replica's turn, ms: others overtake it in all those whose turn it is
 * meanwhile.
 */
const OLD_MS = 3_000;

export interface Verdict {
  readonly decision: Decision;
  /** Set when the decision is to send. */
  readonly chosen: Scored | null;
  /** Valid until the next decision. */
  readonly weighing: Weighing;
  /** Working-set admission is about this request; null where it is not. */
  readonly room: Room | null;
}

/** Without a draw the most probable target stands for it, and the candidates are shown. */
export function decide(
  state: RegionalState,
  request: RequestState,
  options: { draw: boolean },
): Verdict {
  const verdict = decideIn(state, request, options);
  if (request.tooShort.length === 0) return verdict;
  const shows = !options.draw || request.request.explain === true;
  return shows ? withTooShort(verdict, request.tooShort) : verdict;
}

/** Its own pool's targets are shown first; of a longer list, the end is left out. */
function withTooShort(verdict: Verdict, pools: readonly PoolState[]): Verdict {
  const { decision } = verdict;
  const others = pools.flatMap((pool) =>
    targetsOf(pool).map((target): Candidate => {
      return { ...BLANK, target: idOf(target), removed: 'context_length' };
    }),
  );
  const candidates = [...decision.candidates, ...others].slice(0, CANDIDATES_SHOWN);
  return { ...verdict, decision: { ...decision, candidates } };
}

function decideIn(
  state: RegionalState,
  request: RequestState,
  options: { draw: boolean },
): Verdict {
  const weighing = weigh(state, request);
  const shows = !options.draw || request.request.explain === true;
  if (weighing.count === 0) {
    return verdict({ weighing, room: null, shows }, nothingLeft(request, weighing), NOBODY_DRAWN);
  }
  if (isLight(request)) return anyOf(state, request, { weighing, shows, draw: options.draw });
  const room = roomForNew(state, request, weighing);
  const seen: Seen = { weighing, room, shows };
  const rules = new Rules(state, request, seen);
  const held = rules.heldBy();
  if (held !== null) return verdict(seen, { kind: 'queue', reason: held }, NOBODY_DRAWN);
  const open = cheapestOpen(state, rules, weighing);
  if (open.length === 0) {
    return verdict(seen, { kind: 'queue', reason: 'all_full' }, NOBODY_DRAWN);
  }
  const costs = open.map((k) => weighing.costMs(k));
  const tied = drawProbabilities(costs, state.settings);
  // Another router's turn at the best one is waited for: elsewhere its prefix would be computed again. What the
  // probabilities of those in turn lack to 1 is the chance of that.
  const inTurn = tied.map((probability, n) =>
    probability > 0 && rules.isItsTurn(open[n] as number) ? probability : 0,
  );
  const isOld = state.nowMs - request.arrivedMs > OLD_MS;
  const probabilities = isOld ? onlyInTurn(inTurn, rules.cheapestInTurn(open)) : inTurn;
  const drawn = { candidates: open, probabilities };
  const drawnFrom = isOld ? probabilities : tied;
  const at = options.draw ? draw(drawnFrom, state.deps.random) : mostProbable(probabilities);
  const chosen = open[at];
  if (chosen === undefined || probabilities[at] === 0) {
    return verdict(seen, { kind: 'queue', reason: 'order' }, drawn);
  }
  const reason = sendReason(request, { chosen, weighing, probabilities });
  return verdict(seen, { kind: 'send', reason }, drawn, chosen);
}

/**
 * Which candidates the request may go to beyond their being able to take it. A rule is asked only of
 * those that could win: a pool has a thousand.
 */
class Rules {
  readonly #state: RegionalState;
  readonly #request: RequestState;
  readonly #seen: Seen;
  /** Asked for only where other routers queue. */
  #asker: Asker | null = null;
  #shares: Shares | null = null;
  #home: number | null = null;
  #homeInTurn: boolean | null = null;

  constructor(state: RegionalState, request: RequestState, seen: Seen) {
    this.#state = state;
    this.#request = request;
    this.#seen = seen;
  }

  /** Why nobody can take it now; null where somebody can. */
  heldBy(): DecisionReason | null {
    const { weighing } = this.#seen;
    let free = false;
    let turn = false;
    for (let k = 0; k < weighing.count; k += 1) {
      if (weighing.full(k)) continue;
      free = true;
      if (!this.isItsTurn(k) && !this.#goesHome()) continue;
      if (this.hasRoom(k)) return null;
      turn = true;
    }
    if (turn) return 'kv_room';
    return free ? 'order' : 'all_full';
  }

  isItsTurn(k: number): boolean {
    const target = this.#seen.weighing.target(k);
    if (!othersQueue(target)) return true;
    this.#asker ??= askerOf(this.#state, this.#request, this.#seen.weighing);
    this.#home ??= this.#seen.weighing.home();
    this.#shares ??= new Shares(this.#state, this.#request.pool);
    return this.#shares.opensInMs(target, this.#asker, k === this.#home) === 0;
  }

  /** It waits for no turn at the one that alone holds most of its prompt: room anywhere lets it go there. */
  #goesHome(): boolean {
    this.#home ??= this.#seen.weighing.home();
    this.#homeInTurn ??= this.#home >= 0 && this.isItsTurn(this.#home);
    return this.#homeInTurn;
  }

  /** Place in `open` of the cheapest that takes work now; -1 for none. */
  cheapestInTurn(open: readonly number[]): number {
    const { weighing } = this.#seen;
    let best = -1;
    for (const [n, k] of open.entries()) {
      if (weighing.full(k) || !this.isItsTurn(k)) continue;
      if (best < 0 || weighing.costMs(k) < weighing.costMs(open[best] as number)) best = n;
    }
    return best;
  }

  hasRoom(k: number): boolean {
    const { room, weighing } = this.#seen;
    return room?.acts !== true || room.of(weighing.at(k)).state !== 'full';
  }
}

/**
 * With the oldest that waits here: whichever tenant's turn it is then, the router's comes with that. What waits for KV
 * room is told to no agent, and stands behind all that others tell of.
 */
function askerOf(
  state: RegionalState,
  { request, pool, arrivedMs }: RequestState,
  weighing: Weighing,
): Asker {
  const { priority } = request;
  if (pool.queue.get(request.id)?.held !== undefined) {
    return { priority, key: null, heldKey: null };
  }
  const prefillMs = weighing.leastPrefill()?.prefillMs ?? 0;
  const key = keyOf({ prefillMs, arrivedMs }, state.settings.ageCredit);
  const { topUnheld, leastKey } = pool.queue;
  const heldKey = topUnheld === clampPriority(priority) ? Math.min(key, leastKey ?? key) : key;
  return { priority, key, heldKey };
}

/** Nothing is left to other routers' turns: those in turn, or else the cheapest of all that are. */
function onlyInTurn(inTurn: readonly number[], cheapest: number): number[] {
  const sum = inTurn.reduce((total, probability) => total + probability, 0);
  return inTurn.map((probability, n) => {
    if (sum > 0) return probability / sum;
    return n === cheapest ? 1 : 0;
  });
}

/** The candidates that are drawn from, in the pool's order: as many as may tie, the cheapest. */
function cheapestOpen(state: RegionalState, rules: Rules, weighing: Weighing): number[] {
  const open: number[] = [];
  for (let i = 0; i < weighing.count && open.length < state.settings.tieCandidates; i += 1) {
    const k = weighing.ranked(i);
    if (weighing.closed(k) || !rules.hasRoom(k)) continue;
    let at = open.length;
    for (; at > 0 && (open[at - 1] as number) > k; at -= 1) open[at] = open[at - 1] as number;
    open[at] = k;
  }
  return open;
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
  seen: { weighing: Weighing; shows: boolean; draw: boolean },
): Verdict {
  const { weighing, shows } = seen;
  const { count } = weighing;
  const probabilities = Array.from({ length: count }, () => 1 / count);
  const at = seen.draw ? draw(probabilities, state.deps.random) : mostProbable(probabilities);
  const first = count === 1 ? 'only_candidate' : 'tie_draw';
  const outcome = { kind: 'send', reason: request.attempts > 0 ? 'failover' : first } as const;
  const drawn = { candidates: probabilities.map((_, k) => k), probabilities };
  return verdict({ weighing, room: null, shows }, outcome, drawn, at);
}

interface Seen {
  readonly weighing: Weighing;
  readonly room: Room | null;
  /** The candidates are asked for. */
  readonly shows: boolean;
}

/** Those that are drawn from, each with its probability; the rest have none. */
interface Drawn {
  readonly candidates: readonly number[];
  readonly probabilities: readonly number[];
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
  if (isOtherRevision(reasons)) return { kind: 'refuse', reason: 'unknown_revision' };
  if (pendingEtaMs(request.pool) !== null) return { kind: 'queue', reason: 'no_capacity_yet' };
  if (request.attempts > 0) return { kind: 'refuse', reason: 'attempts_exhausted' };
  if (reasons.has('context_length') && !reasons.has('breaker')) {
    return { kind: 'refuse', reason: 'context_length' };
  }
  return { kind: 'refuse', reason: 'no_replica' };
}

/** Nobody runs it, and nobody who is on the way will. */
function isOtherRevision(reasons: ReadonlySet<FilterReason>): boolean {
  if (!reasons.has('revision')) return false;
  for (const reason of reasons) if (reason !== 'revision' && reason !== 'model') return false;
  return true;
}

function sendReason(
  request: RequestState,
  seen: { chosen: number; weighing: Weighing; probabilities: readonly number[] },
): DecisionReason {
  const { chosen, weighing } = seen;
  if (request.attempts > 0) return 'failover';
  if (weighing.count === 1) return 'only_candidate';
  if (weighing.cachesMost(chosen)) return 'prefix';
  let tied = 0;
  for (const probability of seen.probabilities) if (probability > 0) tied += 1;
  return tied > 1 ? 'tie_draw' : 'least_cost';
}

function verdict(
  { weighing, room, shows }: Seen,
  outcome: Outcome,
  drawn: Drawn,
  chosen: number | null = null,
): Verdict {
  const candidates = shows ? candidatesOf(weighing, room, drawn) : [];
  const picked = chosen === null ? null : weighing.at(chosen);
  const target = picked === null ? null : idOf(picked.target);
  const { kind, reason } = outcome;
  return { decision: { kind, reason, target, candidates }, chosen: picked, weighing, room };
}

function candidatesOf(weighing: Weighing, room: Room | null, drawn: Drawn): Candidate[] {
  const candidates: Candidate[] = [];
  for (let i = 0; i < CANDIDATES_SHOWN; i += 1) {
    const k = weighing.ranked(i);
    if (k < 0) break;
    const probability = drawn.probabilities[drawn.candidates.indexOf(k)] ?? 0;
    candidates.push(shown(weighing.at(k), probability, room));
  }
  for (const { target: removed, reason } of weighing.removed) {
    if (candidates.length >= CANDIDATES_SHOWN) break;
    candidates.push({ ...BLANK, target: idOf(removed), removed: reason });
  }
  return candidates;
}

const NOBODY_DRAWN: Drawn = { candidates: [], probabilities: [] };

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
