// The targets of a pool in a row, with what their reports say in one block of numbers: a decision
// looks at every target of its pool, and reads the figures of a thousand without an object each.
//
// `sync` brings up to date those that have been touched: whoever changes a target's report, its link,
// its pauses or what this router has under way there calls `touch`, so that nobody looks at all of them to
// find the few that changed. The list is made anew after `changed()`, which whoever adds or drops a target,
// or says that a replica left or returned, calls.

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
  /** When the report came. */
  receivedMs: 19,
  /** Of what this router has sent and no report includes: prompt tokens still to be prefilled, and requests. */
  unackedPrompt: 20,
  unackedRequests: 21,
  /** Prompt tokens of this router that show no first token yet. */
  openPrompt: 22,
  /** It has asked to be left alone until then. */
  pausedUntilMs: 23,
} as const;

export const FIGURES = 24;
/** Models whose limits are kept. */
const MODELS_MAX = 8;
/** In `common`, until the next `sync`. */
const TOUCHED = 2;

export class Roster {
  /** Of all targets of the pool. */
  readonly breakers: BreakerTally = { tripped: 0 };
  readonly #replicas: ReadonlySet<ReplicaState>;
  readonly #targets: TargetState[] = [];
  #reports: (ReplicaReport | null | undefined)[] = [];
  readonly #limits = new Map<string, Float64Array>();
  #degraded = 0;
  #figures = new Float64Array(0);
  #slots = new Int32Array(0);
  #common = new Uint8Array(0);
  /** Places that were touched since the last `sync`, each once. */
  readonly #touched: number[] = [];
  #stale = true;

  constructor(replicas: ReadonlySet<ReplicaState>) {
    this.#replicas = replicas;
  }

  /** Targets came, went, or belong to a replica that left or returned. */
  changed(): void {
    this.#stale = true;
  }

  /** Something of the target has changed that figures or `common` tell. */
  touch(target: TargetState): void {
    const { place } = target;
    if (this.#stale || this.#targets[place] !== target || this.#common[place] === TOUCHED) return;
    this.#common[place] = TOUCHED;
    this.#touched.push(place);
  }

  touchAll(targets: readonly TargetState[]): void {
    for (const target of targets) this.touch(target);
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

  /** Of each target, in the prefix index. */
  get slots(): Int32Array {
    return this.#slots;
  }

  /**
   * 1 where figures alone say how a target stands, as of the last `sync`: its reports come and say what waits and what it
   * costs, and it is fit for users.
   */
  get common(): Uint8Array {
    return this.#common;
  }

  /** Targets whose phase is `degraded`, as of the last `sync`. */
  get degraded(): number {
    return this.#degraded;
  }

  /** Brings the figures of all targets up to date. */
  sync(): void {
    if (this.#stale) this.#rebuild();
    const touched = this.#touched;
    for (let k = 0; k < touched.length; k += 1) this.#refresh(touched[k] as number);
    touched.length = 0;
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
    const target = this.#targets[k] as TargetState;
    const { report } = target;
    const at = k * FIGURES;
    this.#common[k] = isCommon(target) ? 1 : 0;
    writeOwnFigures(this.#figures, at, target);
    if (report === this.#reports[k]) return;
    this.#reports[k] = report;
    if (this.#figures[at + FIGURE.degraded] === 1) this.#degraded -= 1;
    if (report === null) this.#figures.fill(Number.NaN, at, at + FIGURE.receivedMs);
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
    this.#slots = Int32Array.from(this.#targets, ({ slot }) => slot);
    this.#common = new Uint8Array(count).fill(TOUCHED);
    this.#touched.length = 0;
    for (let k = 0; k < count; k += 1) {
      (this.#targets[k] as TargetState).place = k;
      this.#touched.push(k);
    }
    this.#limits.clear();
    this.#degraded = 0;
  }
}

function isCommon(target: TargetState): boolean {
  const { report, replica } = target;
  if (replica.state === 'out' || replica.down || replica.lostMs !== null) return false;
  if (report === null || report.prefillCost === null || report.waitingPrefillMs === null)
    return false;
  return report.phase === 'ready';
}

function writeOwnFigures(into: Float64Array, at: number, target: TargetState): void {
  let requests = 0;
  for (const { facts } of target.unacked) requests += facts.requests ?? 1;
  into[at + FIGURE.receivedMs] = target.receivedMs;
  into[at + FIGURE.unackedPrompt] = target.unackedSums.prompt;
  into[at + FIGURE.unackedRequests] = requests;
  into[at + FIGURE.openPrompt] = target.openSums.prompt;
  into[at + FIGURE.pausedUntilMs] = target.pausedUntilMs;
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
