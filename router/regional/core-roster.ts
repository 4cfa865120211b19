// The targets of a pool in a row, with what their reports say in one block of numbers: a decision
// looks at every target of its pool, and reads the figures of a thousand without an object each. Each figure of all
// targets lies together: a pass over them reads what it needs and nothing beside it.
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
import { tokenFigures } from '../policy/tokens.ts';
import { TYPICAL_TOKENS } from '../policy/unknown.ts';
import { othersUnacked } from './core-load.ts';
import type { ReplicaState, TargetState } from './core-state.ts';

/** Figures of a target, each a column of the block; NaN is unknown. */
export const FIGURE = {
  /** 1: ready, or slow; 0: neither. */
  serves: 0,
  degraded: 1,
  /** What `PromptMeter` reads, one after the other. */
  bytesPerToken: 2,
  blockTokens: 3,
  kappa: 4,
  /** Of the bytes per token. */
  p95: 5,
  waitingPrefillMs: 6,
  itlMs: 7,
  kvUsageRatio: 8,
  preemptionsPerMin: 9,
  /** The cost curve; its first is NaN where the target has none. */
  baseMs: 10,
  frontMsPerToken: 11,
  linearMsPerToken: 12,
  contextMsPerToken2: 13,
  stepTokens: 14,
  /** ms of a typical prompt by that curve. */
  typicalMs: 15,
  /** When the report came. */
  receivedMs: 16,
} as const;

export const FIGURES = 17;

/** What holds of a target, a bit each. */
export const STANDING = {
  /** Ready and in use: no question is left but for the request's own. Of others no other bit is set. */
  fit: 1,
  /** It has asked to be left alone, now or before. */
  paused: 2,
  /** Its reports come and say what waits: where its cost curve is known too, figures alone say how it stands. */
  told: 4,
  /** It has a cost curve of its own. */
  curve: 8,
  /** As many are inside as may be; and nobody knows when one will leave. Only of those that have told. */
  noSlot: 16,
  closed: 32,
  /** More waits there than its report's prefill: this router's own work, or for a slot. Only of those that have told. */
  more: 64,
} as const;
/** In `standing`, until the next `sync`. */
const TOUCHED = 128;
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
  #slots = new Int32Array(0);
  #standing = new Uint8Array(0);
  /** Of the pool; unknown once a target's curve has become another one. */
  #median: CostCurve | null | undefined;
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

  /** The target has another slot in the prefix index. */
  renewed({ place, slot }: TargetState): void {
    if (!this.#stale && place < this.#slots.length) this.#slots[place] = slot;
  }

  /** Something of the target has changed that figures or `standing` tell. */
  touch(target: TargetState): void {
    const { place } = target;
    if (this.#stale || this.#targets[place] !== target || this.#standing[place] === TOUCHED) return;
    this.#standing[place] = TOUCHED;
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

  /** Of targets, as of the last `sync`. */
  get count(): number {
    return this.#standing.length;
  }

  /** Figure f of the target at place k is at `f · count + k`; as of the last `sync`. */
  get figures(): Float64Array {
    return this.#figures;
  }

  /** Of each target, in the prefix index. */
  get slots(): Int32Array {
    return this.#slots;
  }

  /** Of each target the bits of `STANDING`, as of the last `sync`. */
  get standing(): Uint8Array {
    return this.#standing;
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
    if (this.#median === undefined) this.#median = this.#medianOf(this.targets);
    return this.#median;
  }

  #medianOf(targets: readonly TargetState[]): CostCurve | null {
    const typical = this.#figures.subarray(
      FIGURE.typicalMs * targets.length,
      (FIGURE.typicalMs + 1) * targets.length,
    );
    const known = new Float64Array(targets.length);
    let count = 0;
    for (let k = 0; k < targets.length; k += 1) {
      const ms = typical[k] as number;
      if (!Number.isNaN(ms)) known[count++] = ms;
    }
    if (count === 0) return null;
    const place = (count - 1) >> 1;
    const median = kthSmallest(known, count, place);
    let before = 0;
    for (let k = 0; k < count; k += 1) if ((known[k] as number) < median) before += 1;
    let equals = place - before;
    for (let k = 0; k < targets.length; k += 1) {
      if (typical[k] !== median) continue;
      if (equals === 0) return targets[k]?.report?.prefillCost ?? null;
      equals -= 1;
    }
    return null;
  }

  #refresh(k: number): void {
    const target = this.#targets[k] as TargetState;
    const { report } = target;
    const into = { figures: this.#figures, count: this.#targets.length, place: k };
    const degraded = FIGURE.degraded * this.#targets.length + k;
    this.#standing[k] = standingOf(target);
    write(into, FIGURE.receivedMs, target.receivedMs);
    const before = this.#reports[k];
    if (report === before) return;
    this.#reports[k] = report;
    if (!isSame(before?.prefillCost ?? null, report?.prefillCost ?? null)) this.#median = undefined;
    if (this.#figures[degraded] === 1) this.#degraded -= 1;
    if (report === null) forgetFigures(into);
    else writeFigures(into, report);
    if (this.#figures[degraded] === 1) this.#degraded += 1;
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
    this.#standing = new Uint8Array(count).fill(TOUCHED);
    this.#touched.length = 0;
    for (let k = 0; k < count; k += 1) {
      (this.#targets[k] as TargetState).place = k;
      this.#touched.push(k);
    }
    this.#limits.clear();
    this.#median = undefined;
    this.#degraded = 0;
  }
}

function standingOf(target: TargetState): number {
  const { report, replica, pausedUntilMs } = target;
  if (replica.state === 'out' || replica.down || report?.phase !== 'ready') return 0;
  const bits = STANDING.fit | (pausedUntilMs > 0 ? STANDING.paused : 0);
  return replica.lostMs === null ? bits | toldBy(target, report) : bits;
}

function toldBy(target: TargetState, report: ReplicaReport): number {
  if (report.waitingPrefillMs === null) return 0;
  const { unackedSums, openSums, others } = target;
  const slotWaitMs = report.slotWaitMs ?? 0;
  let bits: number = STANDING.told;
  if (report.prefillCost !== null) bits |= STANDING.curve;
  if (isFilled(target, report)) bits |= STANDING.noSlot | (slotWaitMs <= 0 ? STANDING.closed : 0);
  const waits = unackedSums.prompt > 0 || openSums.prompt > 0 || (others?.count ?? 0) > 0;
  if (slotWaitMs > 0 || waits) bits |= STANDING.more;
  return bits;
}

function isFilled(target: TargetState, { running, runningMax }: ReplicaReport): boolean {
  if (running === null || runningMax === null) return false;
  let inside = running + (othersUnacked(target)?.requests ?? 0);
  for (const { facts } of target.unacked) inside += facts.requests ?? 1;
  return inside >= runningMax;
}

function isSame(a: CostCurve | null, b: CostCurve | null): boolean {
  if (a === null || b === null) return a === b;
  return (
    a.baseMs === b.baseMs &&
    a.frontMsPerToken === b.frontMsPerToken &&
    a.linearMsPerToken === b.linearMsPerToken &&
    a.contextMsPerToken2 === b.contextMsPerToken2 &&
    a.stepTokens === b.stepTokens
  );
}

/** Where a target's figures are written. */
interface Into {
  readonly figures: Float64Array;
  /** Of targets. */
  readonly count: number;
  readonly place: number;
}

function write(into: Into, figure: number, value: number): void {
  into.figures[figure * into.count + into.place] = value;
}

/** What reports tell is unknown. */
function forgetFigures(into: Into): void {
  for (let figure = 0; figure < FIGURE.receivedMs; figure += 1) write(into, figure, Number.NaN);
}

function limitOf(report: ReplicaReport | null | undefined, model: string): number {
  if (report === null || report === undefined) return Number.POSITIVE_INFINITY;
  const limit = contextLimit(report.models, model);
  return limit === undefined ? -1 : (limit ?? Number.POSITIVE_INFINITY);
}

export function writeCurve(into: Into, curve: CostCurve | null): void {
  write(into, FIGURE.baseMs, curve?.baseMs ?? Number.NaN);
  write(into, FIGURE.frontMsPerToken, curve?.frontMsPerToken ?? 0);
  write(into, FIGURE.linearMsPerToken, curve?.linearMsPerToken ?? 0);
  write(into, FIGURE.contextMsPerToken2, curve?.contextMsPerToken2 ?? 0);
  write(into, FIGURE.stepTokens, curve?.stepTokens ?? 1);
}

function writeFigures(into: Into, report: ReplicaReport): void {
  const { prefillCost: curve } = report;
  const slow = report.phase === 'degraded' && report.degradedFor === 'slow';
  const tokens = tokenFigures(report);
  write(into, FIGURE.serves, report.phase === 'ready' || slow ? 1 : 0);
  write(into, FIGURE.degraded, report.phase === 'degraded' ? 1 : 0);
  write(into, FIGURE.bytesPerToken, tokens.bytesPerToken);
  write(into, FIGURE.blockTokens, tokens.blockTokens);
  write(into, FIGURE.kappa, tokens.kappa);
  write(into, FIGURE.p95, report.bytesPerToken?.p95 ?? Number.NaN);
  write(into, FIGURE.waitingPrefillMs, report.waitingPrefillMs ?? Number.NaN);
  write(into, FIGURE.itlMs, report.itlMs ?? Number.NaN);
  write(into, FIGURE.kvUsageRatio, report.kvUsageRatio ?? Number.NaN);
  write(into, FIGURE.preemptionsPerMin, report.preemptionsPerMin ?? 0);
  writeCurve(into, curve);
  write(into, FIGURE.typicalMs, curve === null ? Number.NaN : prefillMs(curve, TYPICAL_TOKENS, 0));
}
