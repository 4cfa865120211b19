// What prefills of one target cost: learned from its first tokens, calibrated while it is alone, told to routers once
// it can be relied on; and whether the engine has become far slower than calibration had it.

import type { CoreContext } from './core-context.ts';
import { BusyRate } from './policy/busy-rate.ts';
import { CostErrors } from './policy/cost-error.ts';
import { PrefillObserver } from './policy/prefill-observer.ts';
import type { ObservedEngine } from './policy/prefill-observer.ts';
import { paceOf, SlowWatch, tellsPace } from './policy/slow-watch.ts';
import { StepFit } from './policy/step-fit.ts';
import type { PrefillStretch } from './policy/step-fit.ts';
import { addToSums, emptySums } from '../shared/model/cost-curve.ts';
import type { CostCurve } from '../shared/model/cost-curve.ts';
import type { ResumeState } from '../shared/protocol/messages.ts';

/** Observations after which a curve that was neither calibrated nor inherited is told to routers. */
const ENOUGH_OBSERVATIONS = 4;
/** Relative spread of a calibrated or inherited curve. */
const ANCHOR_SPREAD = 0.5;
/** Relative spread of an earlier engine life's curve: the same model on the same machine, most likely. */
const REBORN_SPREAD = 1;

/**
 * Without a prefill for so long, ms, the engine's last pace is none of now. A replica that was slow for a moment is given
 * no work for the cost that it tells, and would tell it for ever.
 */
const PACE_KEPT_MS = 60_000;

/** Of one prompt. */
export interface PromptTokens {
  readonly uncached: number;
  readonly cached: number;
}

export class TargetCost {
  readonly errors = new CostErrors();
  readonly busy = new BusyRate();
  readonly slow: SlowWatch;
  readonly observer = new PrefillObserver();
  private readonly learner: StepFit;
  private readonly stepsAreSet: boolean;
  /** It was calibrated, or another agent's. */
  private anchored = false;
  /** What calibration had prefills take, however the engine does since. */
  private calibratedCurve: CostCurve | null = null;
  private measured = false;
  /** When prefills last told the pace; null: nothing is to be forgotten. */
  private pacedAtMs: number | null = null;

  constructor(settings: CoreContext['settings']) {
    this.stepsAreSet = settings.stepTokens !== null;
    this.learner = new StepFit(settings.stepTokens);
    this.slow = new SlowWatch(settings);
  }

  /** The best guess, from the first moment on. */
  curve(): CostCurve {
    return this.learner.curve();
  }

  /** The curve that routers may rely on; null until calibrated, inherited or learned. */
  get known(): CostCurve | null {
    const learned = this.observations >= ENOUGH_OBSERVATIONS;
    return this.anchored || learned ? this.curve() : null;
  }

  /** Since the curve was last anchored. */
  get observations(): number {
    return this.learner.observations;
  }

  /** The engine is another process. */
  reborn(): void {
    this.observer.clear();
    this.errors.clear();
    this.slow.reset();
    this.calibratedCurve = null;
    this.measured = false;
    if (this.known !== null) this.learner.settle(REBORN_SPREAD);
    this.anchored = false;
  }

  /** Takes over what routers remember of this engine life. */
  resume({ prefillCost, prefillTps }: ResumeState): void {
    if (prefillTps !== null) this.busy.adopt(prefillTps);
    if (prefillCost === null) return;
    this.learner.anchor(prefillCost, ANCHOR_SPREAD);
    this.anchored = true;
    this.calibratedCurve = prefillCost;
  }

  /** The engine tells how many tokens one of its steps computes; an operator who says so knows better. */
  toldSteps(stepTokens: number | null): void {
    if (stepTokens !== null && !this.stepsAreSet) this.learner.tell(stepTokens);
  }

  /** Measured alone on an idle engine. */
  calibrated(ms: number, tokens: PromptTokens): void {
    this.learner.observe(lone(ms, tokens));
    this.measured = true;
  }

  /** False where nothing was measured. */
  calibrationEnded(): boolean {
    if (this.observations === 0) return false;
    this.learner.settle(ANCHOR_SPREAD);
    this.anchored = true;
    if (this.measured) this.calibratedCurve = this.curve();
    this.measured = false;
    return true;
  }

  /** Measured ÷ calibrated ms of a probe; null where nothing was calibrated. One that was alone is an observation. */
  probePace(
    probe: PromptTokens & { readonly ms: number; readonly alone: boolean },
    nowMs: number,
  ): number | null {
    if (this.calibratedCurve === null) return null;
    const pace = paceOf(lone(probe.ms, probe), this.calibratedCurve);
    if (probe.alone) this.slow.observe(pace, nowMs);
    return pace;
  }

  /** Takes what prefills have shown since; how many times the curve has changed by it. */
  run(engine: ObservedEngine, nowMs: number): number {
    const glimpsed = this.observer.glimpse(engine, nowMs);
    for (const stretch of glimpsed) {
      this.errors.observe(this.learner.predictMs(stretch), stretch.ms);
      this.learner.glimpse(stretch);
    }
    const settled = this.observer.settle(engine, nowMs);
    for (const stretch of settled) {
      this.learner.observe(stretch);
      this.busy.observe(stretch.sums.uncached, stretch.ms);
      const { calibratedCurve } = this;
      const tells = calibratedCurve !== null && tellsPace(stretch, calibratedCurve);
      if (tells) this.slow.observe(paceOf(stretch, calibratedCurve), nowMs);
    }
    const learned = glimpsed.length + settled.length;
    if (learned > 0) this.pacedAtMs = nowMs;
    if (this.pacedAtMs === null || nowMs - this.pacedAtMs < PACE_KEPT_MS) return learned;
    this.pacedAtMs = null;
    this.learner.forgetPace();
    return 1;
  }
}

function lone(ms: number, { uncached, cached }: PromptTokens): PrefillStretch {
  const sums = emptySums();
  addToSums(sums, uncached, cached);
  return { ms, lone: true, instants: 1, sums };
}
