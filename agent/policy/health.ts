// Whether one rank of a ready engine is fit for users, and if not, why: `degraded`.
//
//   host    a GPU of the engine is missing               outranks
//   probe   it failed a probe or a canary                outranks
//   slow    it prefills far slower than it did (slow-watch.ts)
//
// In a new life of the engine a rank is unproven until a generation of its own has succeeded: an engine that came back
// with fewer ranks answers for those that it has.
//
// Back after `recoveries` good probes in a row, counted from when the cause is gone: a missing GPU has to be there
// again, and of a slow one only a probe at its old pace is good.

import type { DegradedReason } from '../../shared/model/phase.ts';

const RANK: Readonly<Record<DegradedReason, number>> = { slow: 0, probe: 1, host: 2 };

export class Health {
  private readonly recoveries: number;
  private reason: DegradedReason | null = null;
  private since = -Infinity;
  private good = 0;
  private gpuMissing = false;
  private hasProved = false;

  constructor(recoveries: number) {
    this.recoveries = recoveries;
  }

  get degradedFor(): DegradedReason | null {
    return this.reason;
  }

  /** It has generated in this life of the engine. */
  get proved(): boolean {
    return this.hasProved;
  }

  /** Of the present state. */
  get sinceMs(): number {
    return this.since;
  }

  /** Good: a first token within the deadline; at pace: no slower than a healthy one. */
  probed(outcome: { readonly good: boolean; readonly atPace: boolean }, nowMs: number): void {
    if (!outcome.good) {
      this.degrade('probe', nowMs);
      return;
    }
    this.prove(nowMs);
    if (this.reason === null || this.gpuMissing) return;
    this.good = this.reason === 'slow' && !outcome.atPace ? 0 : this.good + 1;
    if (this.good >= this.recoveries) this.enter(null, nowMs);
  }

  prove(nowMs: number): void {
    if (this.hasProved) return;
    this.hasProved = true;
    this.since = nowMs;
  }

  /** The engine begins another life. */
  unprove(): void {
    this.hasProved = false;
  }

  slow(nowMs: number): void {
    this.degrade('slow', nowMs);
  }

  gpu(missing: boolean, nowMs: number): void {
    if (missing && !this.gpuMissing) this.degrade('host', nowMs);
    this.gpuMissing = missing;
  }

  /** Another engine process: what was held against the old one is not held against it, but for its machine. */
  reset(nowMs: number): void {
    this.enter(this.gpuMissing ? 'host' : null, nowMs);
  }

  private degrade(reason: DegradedReason, nowMs: number): void {
    this.good = 0;
    if (this.reason === null || RANK[reason] > RANK[this.reason]) this.enter(reason, nowMs);
  }

  private enter(reason: DegradedReason | null, nowMs: number): void {
    this.good = 0;
    if (reason === this.reason) return;
    this.reason = reason;
    this.since = nowMs;
  }
}
