// Every target of a pool as seen by one request: removed, with the reason, or with its costs.
//
// A pool may have a thousand targets, and a request looks at each: so the common case reads numbers
// only (`core-roster.ts`) and writes numbers only (`core-weighing.ts`). Common is a target whose
// reports come, whose agent has learned its cost curve and says what waits there; the others go the
// plain way, through the functions that say what is meant. `core-weigh.test.ts` holds both against a
// version that is plain throughout.

import { backlogNowMs } from '../policy/sight.ts';
import { sumsMs, type CostCurve } from '../../shared/model/cost-curve.ts';
import { CHUNK_BYTES, type PromptChain } from '../../shared/model/prompt.ts';
import { kthSmallest } from '../../shared/lib/select.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import { ejected } from '../policy/breaker.ts';
import { costMs } from '../policy/cost.ts';
import { filterTarget } from '../policy/filter.ts';
import { heldOut, type SlowTarget } from '../policy/slow-third.ts';
import { leastPromptTokens, PromptMeter } from '../policy/tokens.ts';
import {
  curveOf,
  loadOf,
  ownCurve,
  meanPromptMs,
  poolCurve,
  type CurveChoice,
  viewOf,
  withOwnMs,
} from './core-load.ts';
import { FIGURE, FIGURES, STANDING, writeCurve, type Roster } from './core-roster.ts';
import type { PoolState, RegionalState, RequestState, TargetState } from './core-state.ts';
import { COLUMN, COLUMNS, COLUMNS_SUMMED, type Weighing } from './core-weighing.ts';

/** Elements of a list prompt that are looked up in the index; the rest count as uncached. */
const PROMPTS_MATCHED = 64;

/**
 * Valid until the next request is weighed. Those that are held out for slowness come in where nobody
 * else has room: slow capacity is capacity.
 */
export function weigh(state: RegionalState, request: RequestState): Weighing {
  request.pool.roster.sync();
  const slow = request.pool.roster.degraded === 0 ? NOBODY : slowOut(request.pool);
  weighWithout(state, request, slow);
  if (slow.size > 0 && allFull(state.weighing)) weighWithout(state, request, NOBODY);
  return state.weighing;
}

function allFull(weighing: Weighing): boolean {
  for (let k = 0; k < weighing.count; k += 1) if (!weighing.full(k)) return false;
  return true;
}

/** Targets of a pool whose reports count, whatever the request. */
export function targetsOf(pool: PoolState): readonly TargetState[] {
  return pool.roster.targets;
}

/** Fit for users: ready, or slow and not among those of its pool that stay out for it. */
export function isReady(target: TargetState, slow: SlowOut): boolean {
  return couldServe(target) && !slow.has(target);
}

export type SlowOut = ReadonlySet<TargetState>;

/** Of a look at everybody who could serve. */
export const NOBODY: SlowOut = new Set();

/** Those that stay out for slowness now. */
export function slowOut(pool: PoolState): SlowOut {
  let slow: SlowTarget<TargetState>[] | null = null;
  for (const target of targetsOf(pool)) {
    const { report } = target;
    if (report?.phase !== 'degraded' || !couldServe(target)) continue;
    slow ??= [];
    slow.push({ target, key: target.key, slowRatio: report.slowRatio });
  }
  if (slow === null) return NOBODY;
  let members = 0;
  for (const target of targetsOf(pool)) if (couldServe(target)) members += 1;
  return heldOut(slow, members);
}

function couldServe({ report, replica }: TargetState): boolean {
  if (replica.state === 'out' || replica.down) return false;
  return report?.phase === 'ready' || isSlow(report);
}

function isSlow(report: TargetState['report']): boolean {
  return report?.phase === 'degraded' && report.degradedFor === 'slow';
}

function weighWithout(state: RegionalState, request: RequestState, slow: SlowOut): void {
  const { weighing } = state;
  weighing.begin(request.pool.roster.targets);
  filterPool(state, request, slow);
  measurePrompts(state, request);
  weighLoads(state, request);
  weighCosts(state, request);
}

/** Of a target that has asked to be left alone, the plain way tells until when. */
const NOT_PAUSED = STANDING.common | STANDING.paused;

function filterPool(state: RegionalState, request: RequestState, slow: SlowOut): void {
  const { weighing, nowMs } = state;
  const { roster } = request.pool;
  const { targets, figures, standing } = roster;
  const limits = roster.limits(request.engineModel);
  const broken = roster.breakers.tripped === 0 ? NOBODY : brokenIn(targets, slow, nowMs);
  const least = new LeastTokens(request);
  const isPicky = request.tried.size > 0 || request.revisions !== null;
  const plain = !isPicky && broken.size === 0 && slow.size === 0;
  const p95 = FIGURE.p95 * limits.length;
  for (let place = 0; place < limits.length; place += 1) {
    if (
      plain &&
      ((standing[place] as number) & NOT_PAUSED) === STANDING.common &&
      least.fits(figures[p95 + place] as number, limits[place] as number)
    ) {
      weighing.add(place);
      continue;
    }
    const target = targets[place] as TargetState;
    const reason = reasonAgainst(state, request, { target, slow, broken });
    if (reason === null) weighing.add(place);
    else weighing.removed.push({ target, reason });
  }
}

/** The plain way: each question by itself, the first that applies is the reason. */
function reasonAgainst(
  state: RegionalState,
  request: RequestState,
  seen: { target: TargetState; slow: SlowOut; broken: ReadonlySet<TargetState> },
): ReturnType<typeof filterTarget> {
  const { target, slow, broken } = seen;
  const { report, replica } = target;
  return filterTarget(
    {
      phase: isSlow(report) ? 'ready' : (report?.phase ?? null),
      models: report?.models ?? [],
      otherRevision: runsOther(request.revisions, report),
      slow: slow.has(target),
      link: replica.state,
      down: replica.down,
      breakerOpen: broken.has(target),
      paused: target.pausedUntilMs > state.nowMs,
      excluded: request.tried.has(target.key),
      leastPromptTokens: leastTokens(request, report),
    },
    request.engineModel,
  );
}

/** None is asked for, or it says that it runs one of them. */
export function runsOther(
  revisions: RequestState['revisions'],
  report: ReplicaReport | null,
): boolean {
  if (revisions === null) return false;
  const revision = report?.revision ?? UNKNOWN_REVISION;
  return revision === UNKNOWN_REVISION || !revisions.includes(revision);
}

/** Of replicas that do not say which they run. */
const UNKNOWN_REVISION = 'unknown';

/** Breakers that count now. */
function brokenIn(
  targets: readonly TargetState[],
  slow: SlowOut,
  nowMs: number,
): ReadonlySet<TargetState> {
  return ejected(
    targets.filter((target) => isReady(target, slow)),
    nowMs,
  );
}

/** Of a list prompt, each element has to fit by itself: the longest decides. */
function leastTokens({ request }: RequestState, report: ReplicaReport | null): number | null {
  let longest: number | null = null;
  if (request.truncates === true) return null;
  for (const prompt of request.prompts) {
    const least = leastPromptTokens(prompt, report);
    if (least !== null && least > (longest ?? 0)) longest = least;
  }
  return longest;
}

/** Of a limit: what is below so much of it is below it however numbers are rounded. */
const NEARLY = 0.999;

/** The same for many targets: the longest text and the longest list of token ids are the same for all. */
class LeastTokens {
  #bytes = 0;
  #tokens = 0;

  constructor({ request }: RequestState) {
    if (request.truncates === true) return;
    for (const { bytes, tokenIds } of request.prompts) {
      if (tokenIds === null) this.#bytes = Math.max(this.#bytes, bytes);
      else this.#tokens = Math.max(this.#tokens, tokenIds);
    }
  }

  /** False also where the model is not served, whose limit is -1. */
  fits(bytesPerTokenP95: number, limit: number): boolean {
    if (limit < 0 || this.#tokens > limit) return false;
    if (this.#bytes < NEARLY * limit * bytesPerTokenP95) return true;
    return !(this.#bytes / bytesPerTokenP95 > limit);
  }
}

function measurePrompts(state: RegionalState, request: RequestState): void {
  const { prompts } = request.request;
  if (prompts.length !== 1) state.weighing.clearColumns();
  for (let p = 0; p < prompts.length; p += 1) measurePrompt(state, request, p);
}

function measurePrompt(state: RegionalState, request: RequestState, p: number): void {
  const { index, weighing } = state;
  const { prompts } = request.request;
  const chain = prompts[p];
  if (chain === undefined) return;
  const { columns, places, count } = weighing;
  const { targets, figures, slots } = request.pool.roster;
  const meter = new PromptMeter(chain);
  const limits = request.pool.roster.limits(request.engineModel);
  const write = prompts.length === 1 ? setPrompt : addPrompt;
  const depths = p < PROMPTS_MATCHED ? index.walk(chain) : null;
  if (depths !== null && prompts.length === 1 && meter.isText) {
    measureText(state, request, { chain, depths, meter });
    return;
  }
  for (let k = 0; k < count; k += 1) {
    const place = places[k] as number;
    const slot = slots[place] as number;
    const chunks = depths === null ? 0 : (depths[slot] as number);
    meter.holds(chunks, depths === null ? null : index.leafAt(slot, chain, chunks));
    if (meter.hasParts) meter.partTokens = meter.partTokensOf(weighing.target(k).report);
    meter.contextTokens = limits[place] as number;
    meter.read(figures, FIGURE.bytesPerToken * targets.length + place, targets.length);
    write(columns, k, meter.found);
  }
}

/**
 * The same for one prompt of text alone: most targets hold some chunks of it and no leaf, and what `PromptMeter` and
 * `setPrompt` then say is written down here in one piece, which takes half the time.
 */
function measureText(
  { index, weighing }: RegionalState,
  request: RequestState,
  prompt: { chain: PromptChain; depths: Int32Array; meter: PromptMeter },
): void {
  const { chain, depths, meter } = prompt;
  const { columns, places, count } = weighing;
  const { targets, figures, slots } = request.pool.roster;
  const limits = request.pool.roster.limits(request.engineModel);
  const [, , , promptTokens, matchedTokens, cachedTokens, contexts] = columns as SevenColumns;
  const { bytes } = chain;
  const { length } = targets;
  const bytesPerToken = FIGURE.bytesPerToken * length;
  const blockTokens = FIGURE.blockTokens * length;
  const kappa = FIGURE.kappa * length;
  let last = -1;
  let ends = false;
  for (let k = 0; k < count; k += 1) {
    const place = places[k] as number;
    const slot = slots[place] as number;
    const chunks = depths[slot] as number;
    if (chunks !== last) {
      last = chunks;
      ends = index.hasLeaf(chain, chunks);
    }
    const match = ends ? index.leafAt(slot, chain, chunks) : null;
    if (match !== null) {
      meter.holds(chunks, match);
      meter.contextTokens = limits[place] as number;
      meter.read(figures, bytesPerToken + place, length);
      setPrompt(columns, k, meter.found);
      continue;
    }
    const perToken = figures[bytesPerToken + place] as number;
    const block = figures[blockTokens + place] as number;
    const asked = Math.floor(bytes / perToken + 0.5);
    const tokens = Math.max(1, Math.min(asked, limits[place] as number));
    const matched = Math.min(tokens - 1, Math.floor((chunks * CHUNK_BYTES) / perToken));
    const share = figures[kappa + place] as number;
    const kept = Math.floor(Math.floor(matched / block) * block * share);
    const cached = Math.min(kept, tokens - 1);
    const uncached = tokens - cached;
    promptTokens[k] = tokens;
    matchedTokens[k] = matched;
    cachedTokens[k] = cached;
    contexts[k] = uncached * (cached + uncached / 2);
  }
}

function setPrompt(columns: Weighing['columns'], k: number, found: Float64Array): void {
  const prompt = found[0] as number;
  const cached = found[2] as number;
  const uncached = prompt - cached;
  (columns[COLUMN.promptTokens] as Float64Array)[k] = prompt;
  (columns[COLUMN.matchedTokens] as Float64Array)[k] = found[1] as number;
  (columns[COLUMN.cachedTokens] as Float64Array)[k] = cached;
  (columns[COLUMN.context] as Float64Array)[k] = uncached * (cached + uncached / 2);
}

type Column = Float64Array;
/** By `COLUMN`. */
type SevenColumns = [Column, Column, Column, Column, Column, Column, Column];

const ONE: Weighing['columns'] = Array.from({ length: COLUMNS }, () => new Float64Array(1));

function addPrompt(columns: Weighing['columns'], k: number, found: Float64Array): void {
  setPrompt(ONE, 0, found);
  for (let c = COLUMNS_SUMMED; c < COLUMNS; c += 1) {
    const column = columns[c] as Float64Array;
    column[k] = (column[k] as number) + (ONE[c]?.[0] as number);
  }
}

/** Figures of curves: of a roster's targets, or of one for all of a pool. */
interface Curves {
  readonly figures: Float64Array;
  /** Of targets. */
  readonly count: number;
}

/** A curve as that of the only target. */
function curvesOf(curve: CostCurve): Curves {
  const only = { figures: new Float64Array(FIGURES), count: 1, place: 0 };
  writeCurve(only, curve);
  return only;
}

/** What a candidate's prefill is reckoned from. */
class Sums {
  readonly #prompt: Float64Array;
  readonly #cached: Float64Array;
  readonly #context: Float64Array;
  readonly #figures: Float64Array;
  readonly #base: number;
  readonly #front: number;
  readonly #linear: number;
  readonly #perContext: number;
  readonly #step: number;

  constructor({ columns }: Weighing, { figures, count }: Curves) {
    this.#prompt = columns[COLUMN.promptTokens] as Float64Array;
    this.#cached = columns[COLUMN.cachedTokens] as Float64Array;
    this.#context = columns[COLUMN.context] as Float64Array;
    this.#figures = figures;
    this.#base = FIGURE.baseMs * count;
    this.#front = FIGURE.frontMsPerToken * count;
    this.#linear = FIGURE.linearMsPerToken * count;
    this.#perContext = FIGURE.contextMsPerToken2 * count;
    this.#step = FIGURE.stepTokens * count;
  }

  /** ms of candidate k's prefill by the curve of the target at that place: `sumsMs`, number by number. */
  ms(k: number, place: number): number {
    const figures = this.#figures;
    const prompt = this.#prompt[k] as number;
    const uncached = prompt - (this.#cached[k] as number);
    if (prompt <= 0) return 0;
    const steps = Math.max(1, Math.ceil(uncached / (figures[this.#step + place] as number)));
    return (
      (figures[this.#base + place] as number) * steps +
      (figures[this.#front + place] as number) * prompt +
      (figures[this.#linear + place] as number) * uncached +
      (figures[this.#perContext + place] as number) * (this.#context[k] as number)
    );
  }
}

/** What waits at each candidate, and its prefill of this request. */
function weighLoads(state: RegionalState, request: RequestState): void {
  const { weighing, nowMs } = state;
  const view = viewOf(state, request.pool);
  const { columns, places, count } = weighing;
  const waits = columns[COLUMN.waitMs] as Float64Array;
  const prefills = columns[COLUMN.prefillMs] as Float64Array;
  const { figures, standing, targets } = request.pool.roster;
  const sums = new Sums(weighing, { figures, count: targets.length });
  const waiting = FIGURE.waitingPrefillMs * targets.length;
  const received = FIGURE.receivedMs * targets.length;
  const { holdMs } = view;
  const fallback = lazily(() => poolCurve(request.pool));
  for (let k = 0; k < count; k += 1) {
    const place = places[k] as number;
    const bits = standing[place] as number;
    if ((bits & STANDING.common) === 0) {
      weighPlainly(state, k, fallback);
      continue;
    }
    const ageMs = nowMs - (figures[received + place] as number);
    let waitMs = backlogNowMs(view, figures[waiting + place] as number, ageMs);
    if ((bits & STANDING.more) !== 0) {
      const target = weighing.target(k);
      waitMs = withOwnMs(view, target, { ms: waitMs, curve: ownCurve(target) });
    }
    const noSlot = (bits & STANDING.noSlot) !== 0;
    weighing.setLearnedLoad(k, noSlot || waitMs >= holdMs, (bits & STANDING.closed) !== 0);
    waits[k] = waitMs;
    prefills[k] = sums.ms(k, place);
  }
}

/** Reports do not come, or say too little: the functions that say what then holds. */
function weighPlainly(state: RegionalState, k: number, fallback: () => CurveChoice): void {
  const { weighing, settings, nowMs } = state;
  const { columns } = weighing;
  const target = weighing.target(k);
  const { curve, learned } = curveOf(target, fallback);
  const view = viewOf(state, target.replica.pool);
  const load = loadOf(target, { curve, learned, settings, view, nowMs });
  const prompt = weighing.value(k, COLUMN.promptTokens);
  const uncached = prompt - weighing.value(k, COLUMN.cachedTokens);
  const sums = { uncached, prompt, context: weighing.value(k, COLUMN.context) };
  (columns[COLUMN.waitMs] as Float64Array)[k] = load.waitMs;
  (columns[COLUMN.prefillMs] as Float64Array)[k] = sumsMs(curve, sums);
  weighing.setLoad(k, { full: load.full, closed: load.closed, learned });
}

function weighCosts(state: RegionalState, request: RequestState): void {
  const { weighing, settings } = state;
  const { pool } = request;
  const { roster } = pool;
  const { figures, targets } = roster;
  const { columns, places, count } = weighing;
  const waits = columns[COLUMN.waitMs] as Float64Array;
  const prefills = columns[COLUMN.prefillMs] as Float64Array;
  const costs = columns[COLUMN.costMs] as Float64Array;
  const common = new CommonFigures(weighing, roster);
  const itl = FIGURE.itlMs * targets.length;
  const kvUsageRatio = FIGURE.kvUsageRatio * targets.length;
  const preemptions = FIGURE.preemptionsPerMin * targets.length;
  const fallback = lazily(() => poolCurve(pool));
  const outputTokens = Math.min(
    request.request.maxTokens ?? Number.POSITIVE_INFINITY,
    pool.meanOutputTokens,
  );
  const input = {
    waitMs: 0,
    prefillMs: 0,
    outputTokens,
    // Numbers from the start: fields that have held null keep every number in an object of its own.
    itlMs: 0.5 as number | null,
    itlMinMs: common.itlMinMs,
    kvUsageRatio: 0.5 as number | null,
    preemptionsPerMin: 0,
    meanPromptMs: 0,
    delayMs: 0,
  };
  const crowding = pool.sight.crowding(settings) - 1;
  const delayed = crowding > 0 ? new Sums(weighing, curvesOf(fallback().curve)) : null;
  for (let k = 0; k < count; k += 1) {
    const place = places[k] as number;
    const itlMs = figures[itl + place] as number;
    const kvUsage = figures[kvUsageRatio + place] as number;
    input.waitMs = waits[k] as number;
    input.prefillMs = prefills[k] as number;
    input.itlMs = Number.isNaN(itlMs) ? common.itlMs : itlMs;
    input.kvUsageRatio = Number.isNaN(kvUsage) ? common.kvUsageRatio : kvUsage;
    input.preemptionsPerMin = figures[preemptions + place] as number;
    input.meanPromptMs = 0;
    if (input.preemptionsPerMin > 0) {
      const { curve } = curveOf(weighing.target(k), fallback);
      input.meanPromptMs = meanPromptMs(curve, pool);
    }
    if (delayed !== null) input.delayMs = crowding * delayed.ms(k, 0);
    costs[k] = costMs(input, settings);
  }
}

/** What stands for figures that a target does not report: its candidates' medians. */
class CommonFigures {
  readonly itlMinMs: number | null;
  readonly #weighing: Weighing;
  readonly #roster: Roster;
  #itlMs: number | null | undefined;
  #kvUsageRatio: number | null | undefined;

  constructor(weighing: Weighing, roster: Roster) {
    this.#weighing = weighing;
    this.#roster = roster;
    const { figures, targets } = roster;
    const itl = FIGURE.itlMs * targets.length;
    let least = Number.POSITIVE_INFINITY;
    for (let k = 0; k < weighing.count; k += 1) {
      const itlMs = figures[itl + (weighing.places[k] as number)] as number;
      if (itlMs < least) least = itlMs;
    }
    this.itlMinMs = least === Number.POSITIVE_INFINITY ? null : least;
  }

  get itlMs(): number | null {
    if (this.#itlMs === undefined) this.#itlMs = this.#median(FIGURE.itlMs);
    return this.#itlMs;
  }

  get kvUsageRatio(): number | null {
    if (this.#kvUsageRatio === undefined) this.#kvUsageRatio = this.#median(FIGURE.kvUsageRatio);
    return this.#kvUsageRatio;
  }

  #median(figure: number): number | null {
    const { count, places } = this.#weighing;
    const { figures, targets } = this.#roster;
    const known = new Float64Array(count);
    let size = 0;
    for (let k = 0; k < count; k += 1) {
      const value = figures[figure * targets.length + (places[k] as number)] as number;
      if (!Number.isNaN(value)) known[size++] = value;
    }
    return size === 0 ? null : kthSmallest(known, size, (size - 1) >> 1);
  }
}

function lazily(make: () => CurveChoice): () => CurveChoice {
  let made: CurveChoice | null = null;
  return () => (made ??= make());
}
