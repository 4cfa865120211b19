// Learns the prefill cost curve of an engine from finished prefills.
//
// Weighted recursive least squares on θ = (base, front, linear, context), with forgetting: every observation
// is a time and the features of the requests that finished prefill in it, and counts by its relative error,
// ((θ·x − ms)/ms)²; in users' traffic one of a few ms counts less, since a step that runs already, or an event loop
// that is late, moves it by as much: a slope drawn through short prompts alone would be nonsense for long ones. The
// prior is a quadratic term that is never forgotten: a coefficient whose data has no spread keeps it. Coefficients are never negative: of the 15 subsets of coefficients that may differ
// from zero, the feasible one with the least error is the solution, exactly.
//
// An engine's pace changes faster than the shape of its curve can be learned: decodes lengthen every step, other
// programs take processors, clocks sink. So the curve told is pace · θ, where pace is the median of ms ÷ θ·x over
// the last `paceOver` observations with the present θ: it vanishes as θ catches up. Exact tokens are told only when an
// answer ends; the pace does not wait for that, it takes a stretch with its estimated tokens as soon as it is over.
//
// Invariants: every coefficient is finite and ≥ 0; observing is O(1) in time and memory.

import type { CostCurve, PrefillSums } from '../../shared/model/cost-curve.ts';
import { solveNonNegative } from '../../shared/lib/non-negative.ts';

const SIZE = 4;

/** One observation: what was prefilled in `ms`. */
export interface PrefillObservation {
  readonly ms: number;
  /** Scheduler steps; a share of one where steps are shared with neighbours. */
  readonly steps: number;
  readonly sums: Readonly<PrefillSums>;
}

export interface CostLearnerSettings {
  /** What is believed before any data. */
  readonly prior: CostCurve;
  /** Weight that an observation keeps when the next one comes. */
  readonly forgetting: number;
  /** Relative standard deviation of one observation. */
  readonly noise: number;
  /** Absolute standard deviation of one in users' traffic, ms. */
  readonly jitterMs: number;
  /** Relative standard deviation of the prior's coefficients. */
  readonly priorSpread: number;
  /** Observations that the pace is measured over. */
  readonly paceOver: number;
}

/** A middling GPU: 10 ms a step, 10,000 tokens a second, attention felt from tens of thousands of tokens. */
export const DEFAULT_PRIOR: CostCurve = {
  baseMs: 10,
  frontMsPerToken: 0.001,
  linearMsPerToken: 0.1,
  contextMsPerToken2: 2e-6,
  stepTokens: 2_048,
};

export const COST_LEARNER_DEFAULTS = {
  forgetting: 0.98,
  noise: 0.05,
  jitterMs: 10,
  priorSpread: 5,
  paceOver: 5,
} as const;

/** One that the pace is measured by. */
interface Recent {
  /** Null where it was never only glimpsed. */
  readonly id: number | null;
  readonly x: Float64Array;
  readonly ms: number;
}

/** Above this relative error an observation counts less, in proportion (Huber), once there are enough. */
const HUBER = 0.3;
const HUBER_AFTER = 8;
/** A pace this near to 1 is the scatter of its observations. */
const PACE_SCATTER = 0.1;

export class CostLearner {
  private readonly settings: CostLearnerSettings;
  private stepTokens: number;
  private readonly information = new Float64Array(SIZE * SIZE);
  private readonly moment = new Float64Array(SIZE);
  private readonly priorPrecision = new Float64Array(SIZE);
  private prior = new Float64Array(SIZE);
  private theta = new Float64Array(SIZE);
  private count = 0;
  private recent: Recent[] = [];
  private pace = 1;

  constructor(settings: Partial<CostLearnerSettings> & { readonly prior: CostCurve }) {
    this.settings = { ...COST_LEARNER_DEFAULTS, ...settings };
    this.stepTokens = settings.prior.stepTokens;
    this.anchor(settings.prior, this.settings.priorSpread);
  }

  /** Observations so far. */
  get observations(): number {
    return this.count;
  }

  /**
   * Puts `curve` in the prior's place: a calibrated or inherited curve then holds where later data has no
   * spread. `spread` is its relative standard deviation. Data seen so far is forgotten.
   */
  anchor(curve: CostCurve, spread: number): void {
    this.stepTokens = curve.stepTokens;
    this.prior = toTheta(curve);
    this.theta = Float64Array.from(this.prior);
    const fallback = toTheta(this.settings.prior);
    for (let i = 0; i < SIZE; i += 1) {
      // A coefficient at zero still has a scale: a tenth of what the starting prior believes.
      const scale = Math.max(this.prior[i] ?? 0, (fallback[i] ?? 0) / 10);
      this.priorPrecision[i] = (this.settings.noise / (spread * scale)) ** 2;
    }
    this.information.fill(0);
    this.moment.fill(0);
    this.count = 0;
    this.recent = [];
    this.pace = 1;
  }

  /** An observation whose tokens are estimates: it counts for the pace until it is observed under its `id`. */
  glimpse(id: number, observation: PrefillObservation): void {
    if (isNonsense(observation)) return;
    this.keepRecent({ id, x: featuresOf(observation), ms: observation.ms });
  }

  /**
   * Learns from one observation; a nonsensical one (no time, no tokens) changes nothing. One without `id` was
   * measured alone on a quiet engine, one with it is of users' traffic.
   */
  observe(observation: PrefillObservation, id: number | null = null): void {
    const { ms } = observation;
    if (isNonsense(observation)) return;
    const x = featuresOf(observation);
    const error = Math.abs((this.pace * this.dot(x)) / ms - 1);
    const outlying = this.count >= HUBER_AFTER && error > HUBER;
    const { forgetting, noise, jitterMs } = this.settings;
    const scatterMs = id === null ? 0 : jitterMs / noise;
    const weight = (outlying ? HUBER / error : 1) / (ms * ms + scatterMs * scatterMs);
    for (let i = 0; i < SIZE; i += 1) {
      const xi = x[i] ?? 0;
      for (let j = 0; j < SIZE; j += 1) {
        const at = i * SIZE + j;
        const old = this.information[at] ?? 0;
        this.information[at] = forgetting * old + weight * xi * (x[j] ?? 0);
      }
      this.moment[i] = forgetting * (this.moment[i] ?? 0) + weight * xi * ms;
    }
    this.count += 1;
    this.solve();
    if (id === null) return this.keepRecent({ id, x, ms });
    // What was glimpsed has its place in time; one that has left it says nothing of the present.
    this.recent = this.recent.map((each) => (each.id === id ? { id, x, ms } : each));
    this.pace = this.paceNow();
  }

  /** What it last took says nothing of the present any more. */
  forgetPace(): void {
    this.recent = [];
    this.pace = 1;
  }

  private keepRecent(recent: Recent): void {
    this.recent.push(recent);
    if (this.recent.length > this.settings.paceOver) this.recent.shift();
    this.pace = this.paceNow();
  }

  /** ms that the present curve gives the observation's features. */
  predictMs(observation: Omit<PrefillObservation, 'ms'>): number {
    return this.pace * this.dot(featuresOf(observation));
  }

  curve(): CostCurve {
    const { pace } = this;
    return {
      baseMs: pace * (this.theta[0] ?? 0),
      frontMsPerToken: pace * (this.theta[1] ?? 0),
      linearMsPerToken: pace * (this.theta[2] ?? 0),
      contextMsPerToken2: pace * (this.theta[3] ?? 0),
      stepTokens: this.stepTokens,
    };
  }

  private solve(): void {
    const matrix = Float64Array.from(this.information);
    const vector = Float64Array.from(this.moment);
    for (let i = 0; i < SIZE; i += 1) {
      const at = i * SIZE + i;
      const precision = this.priorPrecision[i] ?? 0;
      matrix[at] = (matrix[at] ?? 0) + precision;
      vector[i] = (vector[i] ?? 0) + precision * (this.prior[i] ?? 0);
    }
    this.theta = solveNonNegative(matrix, vector) ?? this.theta;
  }

  private paceNow(): number {
    const { recent } = this;
    if (recent.length < this.settings.paceOver) return 1;
    const ratios = recent.map(({ x, ms }) => ms / this.dot(x)).sort((a, b) => a - b);
    const middle = ratios[(ratios.length - 1) >> 1] ?? 1;
    const scatter = Math.abs(middle - 1) <= PACE_SCATTER;
    return scatter || !Number.isFinite(middle) ? 1 : middle;
  }

  private dot(x: Float64Array): number {
    let sum = 0;
    for (let i = 0; i < SIZE; i += 1) sum += (this.theta[i] ?? 0) * (x[i] ?? 0);
    return sum;
  }
}

/** Steps between two first-token instants of a busy engine: a step is shared with the neighbours. */
export function sharedSteps(uncached: number, stepTokens: number): number {
  return Math.max(1, uncached / stepTokens);
}

function isNonsense({ ms, sums }: PrefillObservation): boolean {
  return !(ms > 0) || !Number.isFinite(ms) || !(sums.prompt > 0);
}

function featuresOf(observation: Omit<PrefillObservation, 'ms'>): Float64Array {
  const { steps, sums } = observation;
  return Float64Array.of(steps, sums.prompt, sums.uncached, sums.context);
}

function toTheta(curve: CostCurve): Float64Array<ArrayBuffer> {
  return Float64Array.of(
    curve.baseMs,
    curve.frontMsPerToken,
    curve.linearMsPerToken,
    curve.contextMsPerToken2,
  );
}
