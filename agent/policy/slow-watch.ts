// Whether prefills take far longer than calibration had them take: heat, a neighbour on the same host, a clock that
// fell. The learned curve follows a slow engine, so that predictions stay right; this compares with the calibrated one,
// which does not.
//
//   ratio   median of measured ÷ calibrated ms over the last `WINDOW` prefills within `WINDOW_MS`: one long stall
//           among good ones is none
//   slow    ratio ≥ factor for `dwellMs`
//   at pace ratio ≤ halfway between 1 and factor
//
// Decodes in the same steps make prefills longer too, and a short prompt in a large batch many times longer: only
// prefills whose tokens take at least as long as their steps' base tell, of which load alone makes no more than two to
// three times as much.

import { sumsMs, type CostCurve } from '../../shared/model/cost-curve.ts';
import type { PrefillStretch } from './step-fit.ts';

export interface SlowSettings {
  /** Null switches the rule off. */
  readonly slowFactor: number | null;
  readonly slowDwellMs: number;
}

const WINDOW = 9;
/** Fewer say nothing. */
const ENOUGH = 4;
const WINDOW_MS = 60_000;

export class SlowWatch {
  private readonly settings: SlowSettings;
  private last: { readonly ratio: number; readonly atMs: number }[] = [];
  private sinceMs: number | null = null;

  constructor(settings: SlowSettings) {
    this.settings = settings;
  }

  /** Measured ÷ calibrated ms of a prefill, or of several that followed each other. */
  observe(ratio: number, atMs: number): void {
    if (!Number.isFinite(ratio) || ratio < 0) return;
    this.last.push({ ratio, atMs });
    if (this.last.length > WINDOW) this.last.shift();
    const { slowFactor } = this.settings;
    const median = this.ratio(atMs);
    if (slowFactor === null || median === null || median < slowFactor) this.sinceMs = null;
    else this.sinceMs ??= atMs;
  }

  /** Null where too few prefills tell. */
  ratio(nowMs: number): number | null {
    const ratios = this.last
      .filter(({ atMs }) => nowMs - atMs <= WINDOW_MS)
      .map((one) => one.ratio);
    if (ratios.length < ENOUGH) return null;
    ratios.sort((a, b) => a - b);
    return ratios[Math.floor(ratios.length / 2)] ?? null;
  }

  isSlow(nowMs: number): boolean {
    if (this.ratio(nowMs) === null) this.sinceMs = null;
    return this.sinceMs !== null && nowMs - this.sinceMs >= this.settings.slowDwellMs;
  }

  isAtPace(ratio: number | null): boolean {
    const { slowFactor } = this.settings;
    return slowFactor === null || (ratio !== null && ratio <= (1 + slowFactor) / 2);
  }

  reset(): void {
    this.last = [];
    this.sinceMs = null;
  }
}

/** Measured ÷ ms that the curve gives: prompts that end at different instants do not share a step. */
export function paceOf(stretch: PrefillStretch, calibrated: CostCurve): number {
  const { stepsMs, tokensMs } = partsOf(stretch, calibrated);
  return stretch.ms / (stepsMs + tokensMs);
}

/** Whether the stretch is long enough to tell the engine's pace from its load. */
export function tellsPace(stretch: PrefillStretch, calibrated: CostCurve): boolean {
  const { stepsMs, tokensMs } = partsOf(stretch, calibrated);
  return tokensMs >= stepsMs;
}

function partsOf(
  { lone, instants, sums }: PrefillStretch,
  calibrated: CostCurve,
): { readonly stepsMs: number; readonly tokensMs: number } {
  const steps = Math.max(1, sums.uncached / calibrated.stepTokens);
  const counted = lone ? Math.ceil(steps) : Math.max(instants, steps);
  const tokensMs = sumsMs({ ...calibrated, baseMs: 0 }, sums);
  return { stepsMs: counted * calibrated.baseMs, tokensMs };
}
