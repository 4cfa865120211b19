// Probes of the ranks of one engine in service: when one is due, how long it may take, what its end says of its rank.

import { phaseOf } from './core-phase.ts';
import type { TargetState } from './core-target.ts';
import type { GenerationOutcome } from './events.ts';
import type { Lifecycle } from './policy/lifecycle.ts';
import { probeDeadlineMs, Prober } from './policy/prober.ts';
import type { ProbeOutcome, ProberSettings } from './policy/prober.ts';
import { prefillMs } from '../shared/model/cost-curve.ts';
import type { ProbeResult } from '../shared/model/report.ts';

const PROBE_TOKENS = 16;
/** Of a probe that has to show its pace too. */
const PACE_TOKENS = 512;

type GoodGeneration = Extract<GenerationOutcome, { readonly kind: 'ok' }>;

export interface EndedProbe {
  readonly target: TargetState;
  readonly sentMs: number;
  /** No user's work was in the engine when it was sent. */
  readonly alone: boolean;
}

export class Probes {
  private readonly lifecycle: Lifecycle;
  private readonly probers: readonly Prober[];

  constructor(
    settings: ProberSettings,
    of: { readonly lifecycle: Lifecycle; readonly targets: readonly TargetState[] },
  ) {
    this.lifecycle = of.lifecycle;
    this.probers = of.targets.map(() => new Prober(settings));
  }

  resultOf(rank: number): ProbeResult | null {
    return this.probers[rank]?.result ?? null;
  }

  /** Another engine process. */
  reset(): void {
    for (const prober of this.probers) prober.reset();
  }

  /** What is as good as a probe at that instant; of all ranks where none is named. */
  vouched(atMs: number, rank: number | null = null): void {
    for (const [each, prober] of this.probers.entries())
      if (rank === null || rank === each) prober.vouched(atMs);
  }

  dueMs(target: TargetState, nowMs: number): number | null {
    const prober = this.probers[target.rank];
    if (prober === undefined) return null;
    const phase = phaseOf(this.lifecycle, target);
    if (phase === 'warming' && this.lifecycle.phase === 'ready') return prober.firstDueMs();
    prober.vouched(target.signs.vouchedMs);
    prober.suspected(target.signs.failedMs);
    return prober.dueMs(phase, target.silence(nowMs));
  }

  sent(target: TargetState, nowMs: number): void {
    const prober = this.probers[target.rank];
    const silence = target.silence(nowMs);
    prober?.sent(silence !== null && prober.silentAt(silence) <= nowMs, nowMs);
  }

  /** The first generation of a process: nothing else tells of it yet. */
  firstEnded({ rank }: TargetState, outcome: GenerationOutcome, nowMs: number): void {
    const engine = { movedMs: -Infinity, foreign: false };
    this.probers[rank]?.ended(outcomeOf(outcome), engine, nowMs);
  }

  ended(
    probe: EndedProbe,
    outcome: GenerationOutcome,
    nowMs: number,
  ): 'good' | 'bad' | 'forgiven' | undefined {
    const { target } = probe;
    const engine = {
      movedMs: target.signs.movedMs,
      foreign: (target.foreignNow(nowMs)?.open ?? 0) > 0,
    };
    const verdict = this.probers[target.rank]?.ended(outcomeOf(outcome), engine, nowMs);
    if (verdict !== 'forgiven') judge(probe, outcome, nowMs);
    return verdict;
  }
}

/** Of a probe. A long one would evict users' cache for nothing where the pace is not in question. */
export function probeTokens(target: TargetState): {
  readonly uncached: number;
  readonly cached: number;
} {
  const slow = target.health.degradedFor === 'slow';
  return { uncached: slow ? PACE_TOKENS : PROBE_TOKENS, cached: 0 };
}

/** ms; what waits before a probe is in it. */
export function probeDeadline(target: TargetState, ownTokens: number, nowMs: number): number {
  const curve = target.cost.curve();
  const { waitingMs } = target.backlog.figures(curve, nowMs);
  const slotWaitMs = target.slots.slotWaitMs(target.ledger.openRequests(), nowMs) ?? 0;
  return probeDeadlineMs(Math.max(waitingMs, slotWaitMs), prefillMs(curve, ownTokens, 0));
}

/** A probe's end counts for or against its rank. */
function judge(probe: EndedProbe, outcome: GenerationOutcome, nowMs: number): void {
  const {
    health,
    cost: { slow },
  } = probe.target;
  const pace = outcome.kind === 'ok' ? paceShown(probe, outcome, nowMs) : null;
  health.probed({ good: outcome.kind === 'ok', atPace: slow.isAtPace(pace) }, nowMs);
}

/**
 * What a good probe says of the engine's pace. One that waited among users' work may only look slower than the
 * engine is, so that either it or they can show that it is not.
 */
function paceShown(probe: EndedProbe, ok: GoodGeneration, nowMs: number): number | null {
  const { target, sentMs } = probe;
  const prompt = ok.promptTokens ?? probeTokens(target).uncached;
  if (prompt < PACE_TOKENS / 2) return target.cost.slow.ratio(nowMs);
  const cached = Math.min(prompt, ok.cachedTokens ?? 0);
  const alone = probe.alone && target.aloneSince(sentMs);
  const shown = { ms: ok.ttftMs, uncached: prompt - cached, cached, alone };
  const own = target.cost.probePace(shown, nowMs);
  const users = target.cost.slow.ratio(nowMs);
  if (alone || users === null || own === null) return own ?? users;
  return Math.min(own, users);
}

function outcomeOf(outcome: GenerationOutcome): ProbeOutcome {
  if (outcome.kind === 'ok') return { ok: true, ttftMs: outcome.ttftMs, cause: null };
  return { ok: false, ttftMs: null, cause: outcome.cause };
}
