// When a replica must prove that it still generates, and what the answer means.
//
// - `ready`: users' first tokens vouch for it; without any for `probeIntervalMs`, a probe.
// - A user's attempt that the engine failed asks for a probe at once: a dead core answers nobody.
// - *Silent*: the ledger has work and nothing moved for max(silentMinMs, 2 × largest prefill): a canary at
//   once. *Frozen* = the canary failed and still nothing moved.
// - `degraded`: probes, so often that the recoveries fit in one probe interval.
// - A probe behind queued work has a deadline that includes the wait: 4 s + 2 × (wait + its own prefill).

import type { ProbeResult } from '../../shared/model/report.ts';
import type { Phase } from '../../shared/model/phase.ts';

const DEADLINE_BASE_MS = 4_000;
/** Between two probes of a replica that stays silent, or goes on failing, ms. */
const CANARY_SPACING_MS = 2_000;

export interface ProberSettings {
  readonly probeIntervalMs: number;
  readonly probeRecoveries: number;
  readonly silentMinMs: number;
}

export interface ProbeOutcome {
  readonly ok: boolean;
  readonly ttftMs: number | null;
  /** Why it failed. */
  readonly cause: string | null;
}

/** What else is known of the engine at a probe's end. */
export interface EngineMeanwhile {
  /** When anything last moved in it. */
  readonly movedMs: number;
  /** It holds work that no router has told of. */
  readonly foreign: boolean;
}

export class Prober {
  private readonly settings: ProberSettings;
  private sentMs = -Infinity;
  private flying = false;
  private canary = false;
  private vouchedMs = -Infinity;
  private suspectMs = -Infinity;
  private consecutiveOk = 0;
  private last: ProbeResult | null = null;

  constructor(settings: ProberSettings) {
    this.settings = settings;
  }

  get result(): ProbeResult | null {
    return this.last;
  }

  get inFlight(): boolean {
    return this.flying;
  }

  /** A user's first token, or the end of warm-up: as good as a probe. */
  vouched(atMs: number): void {
    this.vouchedMs = Math.max(this.vouchedMs, atMs);
  }

  /** The engine has failed a user's attempt. */
  suspected(atMs: number): void {
    this.suspectMs = Math.max(this.suspectMs, atMs);
  }

  /** When the next probe is due, given since when nothing moved (null: no work waits for it). */
  dueMs(
    phase: Phase,
    silence: { readonly sinceMs: number; readonly largestMs: number } | null,
  ): number | null {
    if (this.flying) return null;
    const { probeIntervalMs, probeRecoveries } = this.settings;
    if (phase === 'degraded') return this.sentMs + probeIntervalMs / probeRecoveries;
    if (phase !== 'ready') return null;
    const spacedMs = this.sentMs + CANARY_SPACING_MS;
    let due = Math.max(this.vouchedMs, this.sentMs) + probeIntervalMs;
    if (this.suspectMs > Math.max(this.vouchedMs, this.sentMs)) due = Math.min(due, spacedMs);
    if (silence === null) return due;
    return Math.min(due, Math.max(this.silentAt(silence), spacedMs));
  }

  /** Of a rank that has shown nothing yet in this life of the engine. */
  firstDueMs(): number | null {
    return this.flying ? null : this.sentMs + CANARY_SPACING_MS;
  }

  sent(isCanary: boolean, nowMs: number): void {
    this.flying = true;
    this.canary = isCanary;
    this.sentMs = nowMs;
  }

  /**
   * What the end of a probe means. A failure is forgiven where the engine moved since it was sent, or was refused
   * (the scrape decides about that). So is the first one in a row that is no canary, where the engine answered with
   * a status (it may be full) or somebody else's work was in it, whose size nobody knows.
   */
  ended(
    outcome: ProbeOutcome,
    engine: EngineMeanwhile,
    nowMs: number,
  ): 'good' | 'bad' | 'forgiven' {
    const before = this.last;
    this.flying = false;
    this.consecutiveOk = outcome.ok ? this.consecutiveOk + 1 : 0;
    this.last = { ok: outcome.ok, ttftMs: outcome.ttftMs, consecutiveOk: this.consecutiveOk };
    if (outcome.ok) {
      this.vouched(nowMs);
      return 'good';
    }
    if (engine.movedMs >= this.sentMs || outcome.cause === 'refused') return 'forgiven';
    const excused =
      outcome.cause === 'status' ||
      outcome.cause === 'rank' ||
      (outcome.cause === 'timeout' && engine.foreign);
    return excused && before?.ok !== false && !this.canary ? 'forgiven' : 'bad';
  }

  /** The engine is another one: nothing is known of it. */
  reset(): void {
    this.consecutiveOk = 0;
    this.last = null;
    this.flying = false;
    this.vouchedMs = -Infinity;
    this.suspectMs = -Infinity;
    this.sentMs = -Infinity;
  }

  silentAt(silence: { readonly sinceMs: number; readonly largestMs: number }): number {
    return silence.sinceMs + Math.max(this.settings.silentMinMs, 2 * silence.largestMs);
  }
}

/** ms within which a probe's first token must come. */
export function probeDeadlineMs(waitMs: number, ownPrefillMs: number): number {
  return DEADLINE_BASE_MS + 2 * (waitMs + ownPrefillMs);
}
