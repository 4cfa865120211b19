// What waits at each candidate, what its prefill of a request takes, and what it costs to send it there
// (policy/cost.ts): columns of the weighing.
//
// Common targets are read from their figures, the others by the functions that say what is meant.

import { sumsMs, type CostCurve } from '../../shared/model/cost-curve.ts';
import { kthSmallest } from '../../shared/lib/select.ts';
import { costMs } from '../policy/cost.ts';
import { backlogNowMs } from '../policy/sight.ts';
import {
  curveOf,
  loadOf,
  meanPromptMs,
  poolCurve,
  viewOf,
  withOwnMs,
  type CurveChoice,
} from './core-load.ts';
import { FIGURE, FIGURES, STANDING, writeCurve, type Roster } from './core-roster.ts';
import type { RegionalState, RequestState } from './core-state.ts';
import { COLUMN, type Weighing } from './core-weighing.ts';

/** Figures of curves: of a roster's targets, or of one for all of a pool. */
type Curves = Pick<Roster, 'figures' | 'count'>;

/** A curve as that of the only target, until the next call. */
function curvesOf(curve: CostCurve): Curves {
  writeCurve(ONLY, curve);
  return ONLY;
}

/** Asked for once in a decision at least: never a new one. */
const ONLY = { figures: new Float64Array(FIGURES), count: 1, place: 0 };

/** What a candidate's prefill is reckoned from. */
class Sums {
  readonly #prompt: Float64Array;
  readonly #cached: Float64Array;
  readonly #context: Float64Array;
  readonly #figures: Float64Array;
  readonly #count: number;

  constructor({ columns }: Weighing, { figures, count }: Curves) {
    this.#prompt = columns[COLUMN.promptTokens] as Float64Array;
    this.#cached = columns[COLUMN.cachedTokens] as Float64Array;
    this.#context = columns[COLUMN.context] as Float64Array;
    this.#figures = figures;
    this.#count = count;
  }

  /** ms of candidate k's prefill by the curve of the target at that place: `sumsMs`, number by number. */
  ms(k: number, place: number): number {
    const figures = this.#figures;
    const count = this.#count;
    const prompt = this.#prompt[k] as number;
    const uncached = prompt - (this.#cached[k] as number);
    if (prompt <= 0) return 0;
    const steps = Math.max(
      1,
      Math.ceil(uncached / (figures[FIGURE.stepTokens * count + place] as number)),
    );
    return (
      (figures[FIGURE.baseMs * count + place] as number) * steps +
      (figures[FIGURE.frontMsPerToken * count + place] as number) * prompt +
      (figures[FIGURE.linearMsPerToken * count + place] as number) * uncached +
      (figures[FIGURE.contextMsPerToken2 * count + place] as number) * (this.#context[k] as number)
    );
  }
}

/** What waits at each candidate, and its prefill of this request. */
export function weighLoads(state: RegionalState, request: RequestState): void {
  const { weighing, nowMs } = state;
  const view = viewOf(state, request.pool);
  const { columns, places, count } = weighing;
  const waits = columns[COLUMN.waitMs] as Float64Array;
  const prefills = columns[COLUMN.prefillMs] as Float64Array;
  const { roster } = request.pool;
  const { figures, standing } = roster;
  const sums = new Sums(weighing, roster);
  const waiting = FIGURE.waitingPrefillMs * roster.count;
  const received = FIGURE.receivedMs * roster.count;
  const { holdMs } = view;
  const fallback = lazily(() => poolCurve(request.pool));
  let borrowed: Sums | null = null;
  for (let k = 0; k < count; k += 1) {
    const place = places[k] as number;
    const bits = standing[place] as number;
    const hasCurve = (bits & STANDING.curve) !== 0;
    if ((bits & STANDING.told) === 0 || (!hasCurve && !fallback().learned)) {
      weighPlainly(state, k, fallback);
      continue;
    }
    const ageMs = nowMs - (figures[received + place] as number);
    let waitMs = backlogNowMs(view, figures[waiting + place] as number, ageMs);
    if ((bits & STANDING.more) !== 0) {
      const target = weighing.target(k);
      waitMs = withOwnMs(view, target, { ms: waitMs, curve: curveOf(target, fallback).curve });
    }
    const noSlot = (bits & STANDING.noSlot) !== 0;
    weighing.setLearnedLoad(k, noSlot || waitMs >= holdMs, (bits & STANDING.closed) !== 0);
    waits[k] = waitMs;
    if (!hasCurve) borrowed ??= new Sums(weighing, curvesOf(fallback().curve));
    prefills[k] = hasCurve || borrowed === null ? sums.ms(k, place) : borrowed.ms(k, 0);
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

/** Once `weighLoads` has been. */
export function weighCosts(state: RegionalState, request: RequestState): void {
  const { weighing, settings } = state;
  const { pool } = request;
  const { roster } = pool;
  const { figures } = roster;
  const { columns, places, count } = weighing;
  const waits = columns[COLUMN.waitMs] as Float64Array;
  const prefills = columns[COLUMN.prefillMs] as Float64Array;
  const costs = columns[COLUMN.costMs] as Float64Array;
  const common = new CommonFigures(weighing, roster);
  const itl = FIGURE.itlMs * roster.count;
  const kvUsageRatio = FIGURE.kvUsageRatio * roster.count;
  const preemptions = FIGURE.preemptionsPerMin * roster.count;
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
  const crowding = pool.sight.crowding(settings, viewOf(state, pool)) - 1;
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
    const { figures } = roster;
    const itl = FIGURE.itlMs * roster.count;
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
    const { figures, count: targets } = this.#roster;
    const known = new Float64Array(count);
    let size = 0;
    for (let k = 0; k < count; k += 1) {
      const value = figures[figure * targets + (places[k] as number)] as number;
      if (!Number.isNaN(value)) known[size++] = value;
    }
    return size === 0 ? null : kthSmallest(known, size, (size - 1) >> 1);
  }
}

function lazily(make: () => CurveChoice): () => CurveChoice {
  let made: CurveChoice | null = null;
  return () => (made ??= make());
}
