// The phase of an engine, from what is seen of it.
//
//   refused   evidence alive → loading; absent → dead; none → starting, after startTimeoutMs dead
//   answers   → warming, until a generation has succeeded and calibration is over → ready
//   ready     → degraded when a probe fails; back after `probeRecoveries` good ones in a row
//   asleep    while the engine says so; draining from `stop` to the end
//
// A port that answers, or refuses, proves nothing by itself: only a generation makes `ready`.

import type { Phase } from '../../shared/model/phase.ts';
import type { ProcessEvidence } from '../events.ts';

export type ProcessState = ProcessEvidence['state'];

export interface LifecycleSettings {
  readonly startTimeoutMs: number;
  readonly probeRecoveries: number;
}

/** Refused scrapes in a row after which an engine that had answered is taken as gone. */
const REFUSALS = 2;

export class Lifecycle {
  private readonly settings: LifecycleSettings;
  private current: Phase = 'starting';
  private since: number;
  private refusals = 0;
  /** When the present wait for an open port began; null while it is open. */
  private refusedSinceMs: number | null;
  private loadingSinceMs: number | null = null;
  private lastLoadMs: number | null = null;
  private goodProbes = 0;

  constructor(settings: LifecycleSettings, nowMs: number) {
    this.settings = settings;
    this.since = nowMs;
    this.refusedSinceMs = nowMs;
  }

  get phase(): Phase {
    return this.current;
  }

  get sinceMs(): number {
    return this.since;
  }

  /** ms of loading still to come, where an earlier load was seen whole. */
  loadEtaMs(nowMs: number): number | null {
    if (this.current !== 'loading' || this.loadingSinceMs === null) return null;
    if (this.lastLoadMs === null) return null;
    return Math.max(0, this.loadingSinceMs + this.lastLoadMs - nowMs);
  }

  /** Nothing listens. */
  refused(evidence: ProcessState, nowMs: number): void {
    if (this.current === 'draining') return;
    this.refusals += 1;
    const answeredBefore = this.refusedSinceMs === null;
    if (answeredBefore && this.refusals < REFUSALS && evidence !== 'absent') return;
    this.refusedSinceMs ??= nowMs;
    if (evidence === 'absent') this.enter('dead', nowMs);
    else if (evidence === 'alive') this.load(nowMs);
    else this.guess(nowMs);
  }

  /** Something listens that does not answer as an engine does. */
  failed(evidence: ProcessState, nowMs: number): void {
    this.refusals = 0;
    const waitsForPort = this.refusedSinceMs !== null && this.current !== 'draining';
    if (!waitsForPort) return;
    if (evidence === 'alive') this.load(nowMs);
    else this.guess(nowMs);
  }

  /** The engine answers. */
  answered(asleep: boolean, nowMs: number): void {
    this.refusals = 0;
    if (this.refusedSinceMs !== null && this.current === 'loading') {
      this.lastLoadMs = nowMs - (this.loadingSinceMs ?? nowMs);
    }
    this.refusedSinceMs = null;
    this.loadingSinceMs = null;
    if (this.current === 'draining') return;
    if (asleep) this.enter('asleep', nowMs);
    else if (!ALIVE.has(this.current)) this.enter('warming', nowMs);
  }

  /** Another engine process answers: it has to prove itself anew. */
  reborn(nowMs: number): void {
    if (this.current === 'draining' || this.current === 'asleep') return;
    this.enter('warming', nowMs);
    this.since = nowMs;
  }

  /** First generation and calibration are over. */
  warmedUp(nowMs: number): void {
    if (this.current === 'warming') this.enter('ready', nowMs);
  }

  probeSucceeded(nowMs: number): void {
    if (this.current !== 'degraded') return;
    this.goodProbes += 1;
    if (this.goodProbes >= this.settings.probeRecoveries) this.enter('ready', nowMs);
  }

  probeFailed(nowMs: number): void {
    this.goodProbes = 0;
    if (this.current === 'ready') this.enter('degraded', nowMs);
  }

  drain(nowMs: number): void {
    this.enter('draining', nowMs);
  }

  private load(nowMs: number): void {
    this.loadingSinceMs ??= nowMs;
    this.enter('loading', nowMs);
  }

  private guess(nowMs: number): void {
    const waited = nowMs - (this.refusedSinceMs ?? nowMs);
    this.enter(waited >= this.settings.startTimeoutMs ? 'dead' : 'starting', nowMs);
  }

  private enter(phase: Phase, nowMs: number): void {
    if (phase === this.current) return;
    this.current = phase;
    this.since = nowMs;
    this.goodProbes = 0;
    if (phase !== 'loading') this.loadingSinceMs = null;
  }
}

const ALIVE: ReadonlySet<Phase> = new Set(['warming', 'ready', 'degraded']);
