// The targets of a pool in a row, with what their reports say in one block of numbers: a decision
// looks at every target of its pool, and reads the figures of a thousand without an object each.
//
// Figures follow the reports: `sync` reads those anew that are other ones. The list is made anew
// after `changed()`, which whoever adds or drops a target, or says that a replica left or returned,
// calls.

import { kthSmallest } from '../../shared/lib/select.ts';
import { prefillMs, type CostCurve } from '../../shared/model/cost-curve.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import type { BreakerTally } from '../policy/breaker.ts';
import { contextLimit } from '../policy/filter.ts';
import { writeTokenFigures } from '../policy/tokens.ts';
import { TYPICAL_TOKENS } from '../policy/unknown.ts';
import type { ReplicaState, TargetState } from './core-state.ts';

/** Places of a target's figures in its part of the block; NaN is unknown. */
export const FIGURE = {
  /** 1: ready, or slow; 0: neither. */
  serves: 0,
  degraded: 1,
  /** What `PromptMeter` reads, in its order. */
  tokens: 2,
  /** Of the bytes per token. */
  p95: 5,
  waitingPrefillMs: 6,
  slotWaitMs: 7,
  running: 8,
  runningMax: 9,
  itlMs: 10,
  kvUsageRatio: 11,
  preemptionsPerMin: 12,
  /** The cost curve; its first is NaN where the target has none. */
  baseMs: 13,
  frontMsPerToken: 14,
  linearMsPerToken: 15,
  contextMsPerToken2: 16,
  stepTokens: 17,
  /** ms of a typical prompt by that curve. */
  typicalMs: 18,
} as const;

export const FIGURES = 19;
/** Models whose limits are kept. */
const MODELS_MAX = 8;

export class Roster {
  /** Of all targets of the pool. */
  readonly breakers: BreakerTally = { tripped: 0 };
  readonly #replicas: ReadonlySet<ReplicaState>;
  readonly #targets: TargetState[] = [];
  #reports: (ReplicaReport | null | undefined)[] = [];
  readonly #limits = new Map<string, Float64Array>();
  #degraded = 0;
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

  /** Of target k from `k · FIGURES` on; as of the last `sync`. */
  get figures(): Float64Array {
    return this.#figures;
  }

  /** Targets whose phase is `degraded`, as of the last `sync`. */
  get degraded(): number {
    return this.#degraded;
  }

  /** Brings the figures of all targets up to date. */
  sync(): void {
    if (this.#stale) this.#rebuild();
    const targets = this.#targets;
    const reports = this.#reports;
    for (let k = 0; k < targets.length; k += 1) {
      if ((targets[k] as TargetState).report !== reports[k]) this.#refresh(k);
    }
  }

  /**
   * Of each target, as of the last `sync`: the context limit of a model by the engine's own name;
   * Infinity where unknown, -1 where the model is not served.
   */
  limits(model: string): Float64Array {
    let limits = this.#limits.get(model);
    if (limits === undefined) {
      if (this.#limits.size >= MODELS_MAX) this.#limits.clear();
      limits = new Float64Array(this.#targets.length);
      for (let k = 0; k < limits.length; k += 1) limits[k] = limitOf(this.#reports[k], model);
      this.#limits.set(model, limits);
    }
    return limits;
  }

  /**
   * The curve whose prefill of a typical prompt is the lower median, the first of equal ones: a real
   * one, not a mixture. Null where no target has one.
   */
  medianCurve(): CostCurve | null {
    this.sync();
    const { targets } = this;
    const known = new Float64Array(targets.length);
    let count = 0;
    for (let k = 0; k < targets.length; k += 1) {
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

  #refresh(k: number): void {
    const { report } = this.#targets[k] as TargetState;
    const at = k * FIGURES;
    this.#reports[k] = report;
    if (this.#figures[at + FIGURE.degraded] === 1) this.#degraded -= 1;
    if (report === null) this.#figures.fill(Number.NaN, at, at + FIGURES);
    else writeFigures(this.#figures, at, report);
    if (this.#figures[at + FIGURE.degraded] === 1) this.#degraded += 1;
    for (const [model, limits] of this.#limits) limits[k] = limitOf(report, model);
  }

  #rebuild(): void {
    this.#stale = false;
    this.#targets.length = 0;
    for (const replica of this.#replicas) {
      if (!replica.gone) this.#targets.push(...replica.targets);
    }
    const count = this.#targets.length;
    this.#reports = Array.from({ length: count }, () => undefined);
    this.#figures = new Float64Array(count * FIGURES);
    this.#limits.clear();
    this.#degraded = 0;
  }
}

function limitOf(report: ReplicaReport | null | undefined, model: string): number {
  if (report === null || report === undefined) return Number.POSITIVE_INFINITY;
  const limit = contextLimit(report.models, model);
  return limit === undefined ? -1 : (limit ?? Number.POSITIVE_INFINITY);
}

export function writeCurve(into: Float64Array, at: number, curve: CostCurve | null): void {
  into[at + FIGURE.baseMs] = curve?.baseMs ?? Number.NaN;
  into[at + FIGURE.frontMsPerToken] = curve?.frontMsPerToken ?? 0;
  into[at + FIGURE.linearMsPerToken] = curve?.linearMsPerToken ?? 0;
  into[at + FIGURE.contextMsPerToken2] = curve?.contextMsPerToken2 ?? 0;
  into[at + FIGURE.stepTokens] = curve?.stepTokens ?? 1;
}

function writeFigures(into: Float64Array, at: number, report: ReplicaReport): void {
  const { prefillCost: curve } = report;
  const slow = report.phase === 'degraded' && report.degradedFor === 'slow';
  into[at + FIGURE.serves] = report.phase === 'ready' || slow ? 1 : 0;
  into[at + FIGURE.degraded] = report.phase === 'degraded' ? 1 : 0;
  into[at + FIGURE.p95] = report.bytesPerToken?.p95 ?? Number.NaN;
  writeTokenFigures(into, at + FIGURE.tokens, report);
  into[at + FIGURE.waitingPrefillMs] = report.waitingPrefillMs ?? Number.NaN;
  into[at + FIGURE.slotWaitMs] = report.slotWaitMs ?? 0;
  into[at + FIGURE.running] = report.running ?? Number.NaN;
  into[at + FIGURE.runningMax] = report.runningMax ?? Number.NaN;
  into[at + FIGURE.itlMs] = report.itlMs ?? Number.NaN;
  into[at + FIGURE.kvUsageRatio] = report.kvUsageRatio ?? Number.NaN;
  into[at + FIGURE.preemptionsPerMin] = report.preemptionsPerMin ?? 0;
  writeCurve(into, at, curve);
  into[at + FIGURE.typicalMs] = curve === null ? Number.NaN : prefillMs(curve, TYPICAL_TOKENS, 0);
}
