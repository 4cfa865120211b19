// The phase of an engine's process, from what is seen of it.
//
//   refused   evidence alive → loading; absent → dead; none → starting, after startTimeoutMs dead
//   loads     → loading, by its own words
//   answers   → warming, until a generation has succeeded and calibration is over → ready
//   asleep    while the engine says so; draining from `stop` to the end
//
// A port that answers, or refuses, proves nothing by itself: only a generation makes `ready`. Whether a ready engine
// is fit for users is another question, asked of each rank (health.ts).

import type { Phase } from '../../shared/model/phase.ts';
import { NO_EVIDENCE, type ProcessEvidence } from '../events.ts';
import { LoadWatch } from './load-watch.ts';

export interface LifecycleSettings {
  readonly startTimeoutMs: number;
}

/** Refused scrapes in a row after which an engine that had answered is taken as gone. */
const REFUSALS = 2;

export class Lifecycle {
  private readonly settings: LifecycleSettings;
  private readonly load = new LoadWatch();
  private current: Exclude<Phase, 'degraded'> = 'starting';
  private since: number;
  private refusals = 0;
  /** When the present wait for an open port began; null while it is open. */
  private refusedSinceMs: number | null;

  constructor(settings: LifecycleSettings, nowMs: number) {
    this.settings = settings;
    this.since = nowMs;
    this.refusedSinceMs = nowMs;
  }

  get phase(): Exclude<Phase, 'degraded'> {
    return this.current;
  }

  get sinceMs(): number {
    return this.since;
  }

  /** Deaths in load since the engine last served. */
  get loadDeaths(): number {
    return this.load.deaths;
  }

  /** It has died in load so often that the next load is no promise. */
  get loops(): boolean {
    return this.load.loops;
  }

  /** ms of loading still to come; null where nothing can be said. */
  loadEtaMs(nowMs: number): number | null {
    return this.current === 'loading' ? this.load.etaMs(nowMs) : null;
  }

  /** Nothing listens. */
  refused(evidence: ProcessEvidence, nowMs: number): void {
    if (this.current === 'draining') return;
    this.refusals += 1;
    const answeredBefore = this.refusedSinceMs === null;
    if (answeredBefore && this.refusals < REFUSALS && evidence.state !== 'absent') return;
    this.refusedSinceMs ??= nowMs;
    this.wait(evidence, nowMs);
  }

  /** It listens and says that it loads. */
  loads(evidence: ProcessEvidence, nowMs: number): void {
    if (this.current === 'draining') return;
    this.refusals = 0;
    this.refusedSinceMs ??= nowMs;
    this.wait({ ...evidence, state: 'alive' }, nowMs);
  }

  /** Something listens that does not answer as an engine does. */
  failed(evidence: ProcessEvidence, nowMs: number): void {
    this.refusals = 0;
    const waitsForPort = this.refusedSinceMs !== null && this.current !== 'draining';
    if (!waitsForPort) return;
    // Whoever listens there: that the engine's process is gone says nothing of it.
    this.wait(evidence.state === 'absent' ? NO_EVIDENCE : evidence, nowMs);
  }

  /** The engine answers. */
  answered(asleep: boolean, nowMs: number): void {
    this.refusals = 0;
    this.refusedSinceMs = null;
    this.load.served(nowMs);
    if (this.current === 'draining') return;
    if (asleep) this.enter('asleep', nowMs);
    else if (this.current !== 'ready') this.enter('warming', nowMs);
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

  drain(nowMs: number): void {
    this.enter('draining', nowMs);
  }

  private wait(evidence: ProcessEvidence, nowMs: number): void {
    if (evidence.state === 'absent') {
      this.load.gone();
      this.enter('dead', nowMs);
    } else if (evidence.state === 'alive') {
      this.load.loading(evidence, nowMs);
      this.enter('loading', nowMs);
    } else {
      this.load.end();
      const waited = nowMs - (this.refusedSinceMs ?? nowMs);
      this.enter(waited >= this.settings.startTimeoutMs ? 'dead' : 'starting', nowMs);
    }
  }

  private enter(phase: Exclude<Phase, 'degraded'>, nowMs: number): void {
    if (phase === this.current) return;
    this.current = phase;
    this.since = nowMs;
  }
}
