// The targets of a pool in a row, with what their reports say in one block of numbers: a decision
// looks at every target of its pool, and reads the figures of a thousand without an object each.
//
// Figures follow the report: they are read anew when a target has another one. The list is made anew
// after `changed()`, which whoever adds or drops a target, or says that a replica left or returned,
// calls.

import { kthSmallest } from '../../shared/lib/select.ts';
import { prefillMs, type CostCurve } from '../../shared/model/cost-curve.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import { contextLimit } from '../policy/filter.ts';
import { blockTokens, bytesPerToken, kappaOf } from '../policy/tokens.ts';
import { TYPICAL_TOKENS } from '../policy/unknown.ts';
import type { ReplicaState, TargetState } from './core-state.ts';

/** Places of a target's figures in its part of the block; NaN is unknown. */
export const FIGURE = {
  /** 1: ready, or slow; 0: neither. */
  serves: 0,
  degraded: 1,
  /** Tokens; Infinity where unknown, -1 where the model is not served. */
  contextLimit: 2,
  /** Of the bytes per token. */
  p95: 3,
  bytesPerToken: 4,
  blockTokens: 5,
  kappa: 6,
  waitingPrefillMs: 7,
  slotWaitMs: 8,
  running: 9,
  runningMax: 10,
  itlMs: 11,
  kvUsageRatio: 12,
  preemptionsPerMin: 13,
  /** The cost curve; its first is NaN where the target has none. */
  baseMs: 14,
  frontMsPerToken: 15,
  linearMsPerToken: 16,
  contextMsPerToken2: 17,
  stepTokens: 18,
  /** ms of a typical prompt by that curve. */
  typicalMs: 19,
} as const;

export const FIGURES = 20;

export class Roster {
  readonly #replicas: ReadonlySet<ReplicaState>;
  readonly #targets: TargetState[] = [];
  #reports: (ReplicaReport | null | undefined)[] = [];
  #models: (string | null)[] = [];
  #figures = new Float64Array(0);
  #stale = true;

  constructor(replicas: ReadonlySet<ReplicaState>) {
    this.#replicas = replicas;
  }

  /** Targets came, went, or belong to a replica that left or returned. */
  changed(): void {
    this.#stale = true;
  }

  /** Of replicas that have not left, in the order in which they came. */
  get targets(): readonly TargetState[] {
    if (this.#stale) this.#rebuild();
    return this.#targets;
  }

  /** Of target k from `k · FIGURES` on; as of the last `read` of each. */
  get figures(): Float64Array {
    if (this.#stale) this.#rebuild();
    return this.#figures;
  }

  /** Brings the figures of target k up to date; `model` is the engine's own name. */
  read(k: number, model: string): void {
    const report = this.#refresh(k);
    if (this.#models[k] === model) return;
    this.#models[k] = model;
    const limit = report === null ? null : contextLimit(report.models, model);
    this.#figures[k * FIGURES + FIGURE.contextLimit] =
      limit === undefined ? -1 : (limit ?? Number.POSITIVE_INFINITY);
  }

  /**
   * The curve whose prefill of a typical prompt is the lower median, the first of equal ones: a real
   * one, not a mixture. Null where no target has one.
   */
  medianCurve(): CostCurve | null {
    const { targets } = this;
    const known = new Float64Array(targets.length);
    let count = 0;
    for (let k = 0; k < targets.length; k += 1) {
      this.#refresh(k);
      const ms = this.#figures[k * FIGURES + FIGURE.typicalMs] as number;
      if (!Number.isNaN(ms)) known[count++] = ms;
    }
    if (count === 0) return null;
    const place = (count - 1) >> 1;
    const median = kthSmallest(known, count, place);
    let before = 0;
    for (let k = 0; k < count; k += 1) if ((known[k] as number) < median) before += 1;
    let equals = place - before;
    for (let k = 0; k < targets.length; k += 1) {
      if (this.#figures[k * FIGURES + FIGURE.typicalMs] !== median) continue;
      if (equals === 0) return targets[k]?.report?.prefillCost ?? null;
      equals -= 1;
    }
    return null;
  }

  #refresh(k: number): ReplicaReport | null {
    const report = (this.#targets[k] as TargetState).report;
    if (this.#reports[k] === report) return report;
    this.#reports[k] = report;
    this.#models[k] = null;
    if (report === null) this.#figures.fill(Number.NaN, k * FIGURES, (k + 1) * FIGURES);
    else writeFigures(this.#figures, k * FIGURES, report);
    return report;
  }

  #rebuild(): void {
    this.#stale = false;
    this.#targets.length = 0;
    for (const replica of this.#replicas) {
      if (!replica.gone) this.#targets.push(...replica.targets);
    }
    const count = this.#targets.length;
    this.#reports = Array.from({ length: count }, () => undefined);
    this.#models = Array.from({ length: count }, () => null);
    this.#figures = new Float64Array(count * FIGURES);
  }
}

function writeFigures(into: Float64Array, at: number, report: ReplicaReport): void {
  const { prefillCost: curve } = report;
  const slow = report.phase === 'degraded' && report.degradedFor === 'slow';
  into[at + FIGURE.serves] = report.phase === 'ready' || slow ? 1 : 0;
  into[at + FIGURE.degraded] = report.phase === 'degraded' ? 1 : 0;
  into[at + FIGURE.p95] = report.bytesPerToken?.p95 ?? Number.NaN;
  into[at + FIGURE.bytesPerToken] = bytesPerToken(report);
  into[at + FIGURE.blockTokens] = blockTokens(report);
  into[at + FIGURE.kappa] = kappaOf(report);
  into[at + FIGURE.waitingPrefillMs] = report.waitingPrefillMs ?? Number.NaN;
  into[at + FIGURE.slotWaitMs] = report.slotWaitMs ?? 0;
  into[at + FIGURE.running] = report.running ?? Number.NaN;
  into[at + FIGURE.runningMax] = report.runningMax ?? Number.NaN;
  into[at + FIGURE.itlMs] = report.itlMs ?? Number.NaN;
  into[at + FIGURE.kvUsageRatio] = report.kvUsageRatio ?? Number.NaN;
  into[at + FIGURE.preemptionsPerMin] = report.preemptionsPerMin ?? 0;
  into[at + FIGURE.baseMs] = curve?.baseMs ?? Number.NaN;
  into[at + FIGURE.frontMsPerToken] = curve?.frontMsPerToken ?? 0;
  into[at + FIGURE.linearMsPerToken] = curve?.linearMsPerToken ?? 0;
  into[at + FIGURE.contextMsPerToken2] = curve?.contextMsPerToken2 ?? 0;
  into[at + FIGURE.stepTokens] = curve?.stepTokens ?? 1;
  into[at + FIGURE.typicalMs] = curve === null ? Number.NaN : prefillMs(curve, TYPICAL_TOKENS, 0);
}
