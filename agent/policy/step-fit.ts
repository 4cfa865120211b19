// Learns the cost curve together with the tokens that one scheduler step computes.
//
// No engine but SGLang tells its step size, and it decides how often the base is paid. So where nobody has told it,
// one learner for each usual size sees every observation, and each is judged by how well it foretold them:
//   loss = decaying mean of min(|predicted ÷ measured − 1|, 1)²
// The curve told is that of the present size; another size takes over when its loss is clearly less.
//
// Invariants: as many learners as sizes; observing is O(sizes); a size that was told is never changed.

import type { CostCurve } from '../../shared/model/cost-curve.ts';
import type { PrefillSums } from '../../shared/model/cost-curve.ts';
import { CostLearner, DEFAULT_PRIOR, sharedSteps } from './cost-learner.ts';
import type { CostLearnerSettings, PrefillObservation } from './cost-learner.ts';

/** What was prefilled in `ms`, whatever the engine's step size. */
export interface PrefillStretch {
  readonly ms: number;
  /** One request, on an engine that was idle. */
  readonly lone: boolean;
  /** First-token instants, each the end of a step of its own. */
  readonly instants: number;
  readonly sums: Readonly<PrefillSums>;
}

/** One and the same when it is glimpsed and when it is observed. */
export interface ObservedStretch extends PrefillStretch {
  readonly id: number;
}

/** Sizes that engines are run with; the first is believed until another foretells better. */
const SIZES = [DEFAULT_PRIOR.stepTokens, 1_024, 4_096, 8_192, 16_384] as const;
const KEEP = 0.98;
/** Relative spread of a curve that was learned with another step size. */
const TOLD_SPREAD = 1;
/** Observations before a size may be given up. */
const LEAST_OBSERVATIONS = 12;
/** A size takes over whose loss is below this share of the present one's. */
const CLEARLY = 0.8;

interface Candidate {
  readonly learner: CostLearner;
  readonly stepTokens: number;
  loss: number;
}

export class StepFit {
  private readonly settings: Partial<CostLearnerSettings>;
  private candidates: readonly Candidate[];
  private present: Candidate;
  private weight = 0;
  private judged = 0;

  /** `stepTokens`: where it is known. */
  constructor(stepTokens: number | null, settings: Partial<CostLearnerSettings> = {}) {
    this.settings = settings;
    this.present = this.candidate(stepTokens ?? SIZES[0]);
    const others = stepTokens === null ? SIZES.slice(1) : [];
    this.candidates = [this.present, ...others.map((size) => this.candidate(size))];
  }

  /** Since the curve was last anchored. */
  get observations(): number {
    return this.present.learner.observations;
  }

  curve(): CostCurve {
    return this.present.learner.curve();
  }

  /** ms that the present curve gives. */
  predictMs(stretch: Omit<PrefillStretch, 'ms'>): number {
    return predictedMs(this.present, stretch);
  }

  /** A stretch whose tokens its routers have only estimated: it says something about the pace. */
  glimpse(stretch: ObservedStretch): void {
    for (const { learner, stepTokens } of this.candidates)
      learner.glimpse(stretch.id, observationOf(stretch, stepTokens));
  }

  /** No prefill for long: the curve told is the fitted one, until new ones tell the pace. */
  forgetPace(): void {
    for (const { learner } of this.candidates) learner.forgetPace();
  }

  /** `id`: of a stretch that was glimpsed before. */
  observe(stretch: PrefillStretch & { readonly id?: number }): void {
    this.weight = KEEP * this.weight + 1;
    this.judged += 1;
    for (const each of this.candidates) {
      const error = predictedMs(each, stretch) / stretch.ms - 1;
      const loss = Number.isFinite(error) ? Math.min(1, Math.abs(error)) ** 2 : 1;
      each.loss += (loss - each.loss) / this.weight;
      each.learner.observe(observationOf(stretch, each.stepTokens), stretch.id ?? null);
    }
    this.choose();
  }

  /** What was learned so far becomes what is believed where later data says nothing. */
  settle(spread: number): void {
    for (const { learner } of this.candidates) learner.anchor(learner.curve(), spread);
    this.forgetLosses();
  }

  /** Puts an inherited curve in the prior's place; with it comes its step size. */
  anchor(curve: CostCurve, spread: number): void {
    const same = this.candidates.find((each) => each.stepTokens === curve.stepTokens);
    if (same !== undefined) this.present = same;
    for (const { learner, stepTokens } of this.candidates)
      learner.anchor(withSteps(curve, stepTokens), spread);
    this.forgetLosses();
  }

  /** The engine tells its step size: nothing is to be found out any more. */
  tell(stepTokens: number): void {
    if (this.candidates.length === 1 && this.present.stepTokens === stepTokens) return;
    const known = this.candidates.find((each) => each.stepTokens === stepTokens);
    const told = known ?? this.candidate(stepTokens);
    if (known === undefined) told.learner.anchor(withSteps(this.curve(), stepTokens), TOLD_SPREAD);
    this.present = told;
    this.candidates = [told];
  }

  private candidate(stepTokens: number): Candidate {
    const prior = { ...(this.settings.prior ?? DEFAULT_PRIOR), stepTokens };
    return { learner: new CostLearner({ ...this.settings, prior }), stepTokens, loss: 0 };
  }

  private choose(): void {
    if (this.judged < LEAST_OBSERVATIONS) return;
    let best = this.present;
    for (const each of this.candidates) if (each.loss < best.loss) best = each;
    if (best.loss < CLEARLY * this.present.loss) this.present = best;
  }

  private forgetLosses(): void {
    this.weight = 0;
    this.judged = 0;
    for (const each of this.candidates) each.loss = 0;
  }
}

function predictedMs(
  { learner, stepTokens }: Candidate,
  stretch: Omit<PrefillStretch, 'ms'>,
): number {
  return learner.predictMs(observationOf({ ...stretch, ms: 0 }, stepTokens));
}

function observationOf(stretch: PrefillStretch, stepTokens: number): PrefillObservation {
  const { ms, lone, instants, sums } = stretch;
  const steps = lone
    ? Math.max(1, Math.ceil(sums.uncached / stepTokens))
    : Math.max(instants, sharedSteps(sums.uncached, stepTokens));
  return { ms, steps, sums };
}

/** The curve told for another step size: what a long prompt's steps cost goes over into its tokens. */
function withSteps(curve: CostCurve, stepTokens: number): CostCurve {
  const moved = curve.baseMs / curve.stepTokens - curve.baseMs / stepTokens;
  const linearMsPerToken = Math.max(0, curve.linearMsPerToken + moved);
  return { ...curve, linearMsPerToken, stepTokens };
}
