// Turns first tokens into observations of the prefill cost.
//
// Between two first-token instants with work waiting throughout, the engine prefilled what finished at the
// second; a request that found the engine idle was prefilled from its sending on. Instants within one step of
// each other are one. But a step that ends one prompt computes the head of the next with what is left of its
// budget: an instant is *clean* only when nothing sent before it still waits. So an observation reaches from
// one clean instant to the next, or, where none comes, over `wideSteps` steps' tokens, of which the two blurred
// ends are a small part. Links deliver out of order among each other, so instants settle for `settleMs` first;
// an observation then waits, bounded, until the usage of its requests has told their true tokens.
// What blurs an interval (an abort in mid-prefill, foreign work, a modelled prefill) drops it.

import { addToSums, emptySums } from '../../shared/model/cost-curve.ts';
import { sharedSteps } from './cost-learner.ts';
import type { PrefillObservation } from './cost-learner.ts';
import type { LedgerEntry } from './ledger.ts';

export interface ObserverSettings {
  /** ms that an instant waits for earlier ones still on the way. */
  readonly settleMs: number;
  /** Instants at most this far apart are one, ms. */
  readonly sameMs: number;
  /** ms that an observation waits for usage. */
  readonly usageWaitMs: number;
  /** Observations that wait at once. */
  readonly maxPending: number;
  /** Uncached tokens, in steps, after which an observation ends at an instant that is not clean. */
  readonly wideSteps: number;
}

export const OBSERVER_DEFAULTS: ObserverSettings = {
  settleMs: 500,
  sameMs: 2,
  usageWaitMs: 120_000,
  maxPending: 512,
  wideSteps: 4,
};

interface Pass {
  readonly entry: LedgerEntry;
  readonly atMs: number;
}

/** From a clean or accepted start to the instant at hand. */
interface Stretch {
  readonly startMs: number;
  readonly idleBefore: boolean;
  readonly members: LedgerEntry[];
  instants: number;
  tokens: number;
}

interface Pending {
  readonly ms: number;
  readonly lone: boolean;
  /** First-token instants, each the end of a step of its own. */
  readonly instants: number;
  readonly members: readonly LedgerEntry[];
  readonly sinceMs: number;
}

export class PrefillObserver {
  private readonly settings: ObserverSettings;
  private passes: Pass[] = [];
  private blurs: number[] = [];
  private pending: Pending[] = [];
  private lastEndMs = -Infinity;
  /** Null where the start of an observation is not known. */
  private stretch: Stretch | null = null;
  /** The last instant may start one. */
  private startable = false;
  private wakeMs = Infinity;

  constructor(settings: ObserverSettings = OBSERVER_DEFAULTS) {
    this.settings = settings;
  }

  /** A first token. */
  passed(entry: LedgerEntry, atMs: number): void {
    if (this.passes.length === 0) this.wakeMs = atMs + this.settings.settleMs;
    if (this.passes.length < this.settings.maxPending * 4) this.passes.push({ entry, atMs });
    else this.blurred(atMs);
  }

  /** What was prefilled around this instant cannot be told. */
  blurred(atMs: number): void {
    this.blurs.push(atMs);
    if (this.blurs.length > 256) this.blurs.shift();
  }

  clear(): void {
    this.passes = [];
    this.blurs = [];
    this.pending = [];
    this.lastEndMs = -Infinity;
    this.stretch = null;
    this.startable = false;
  }

  /** When something may settle; null when nothing is on the way. */
  nextWakeMs(): number | null {
    return this.passes.length === 0 ? null : this.wakeMs;
  }

  /**
   * Observations that have become final. The agent's own generations alone make none. `waitingSinceMs`: when the
   * oldest request that still waits was sent; null when none does.
   */
  settle(
    engine: { readonly stepTokens: number; readonly waitingSinceMs: number | null },
    nowMs: number,
  ): PrefillObservation[] {
    const { stepTokens } = engine;
    this.group(engine, nowMs);
    const settled: PrefillObservation[] = [];
    this.pending = this.pending.filter((waiting) => {
      const open = waiting.members.some((entry) => entry.endedMs === null);
      if (open && nowMs - waiting.sinceMs < this.settings.usageWaitMs) return true;
      const observation = open ? null : observationOf(waiting, stepTokens);
      if (observation !== null) settled.push(observation);
      return false;
    });
    return settled;
  }

  private group(
    engine: { readonly stepTokens: number; readonly waitingSinceMs: number | null },
    nowMs: number,
  ): void {
    const { settleMs } = this.settings;
    this.passes.sort((a, b) => a.atMs - b.atMs);
    while (this.passes.length > 0) {
      const first = this.passes[0];
      if (first === undefined) return;
      let size = 1;
      let endMs = first.atMs;
      while (size < this.passes.length) {
        const next = this.passes[size];
        if (next === undefined || next.atMs - endMs > this.settings.sameMs) break;
        endMs = next.atMs;
        size += 1;
      }
      this.wakeMs = endMs + settleMs;
      if (this.wakeMs > nowMs) return;
      const members = this.passes.splice(0, size).map((pass) => pass.entry);
      const waits = Math.min(
        engine.waitingSinceMs ?? Infinity,
        ...this.passes.map((pass) => pass.entry.sentMs),
      );
      const wideTokens = this.settings.wideSteps * engine.stepTokens;
      this.close(members, { endMs, clean: waits >= endMs, wideTokens }, nowMs);
    }
  }

  private close(
    members: readonly LedgerEntry[],
    instant: { readonly endMs: number; readonly clean: boolean; readonly wideTokens: number },
    nowMs: number,
  ): void {
    const { endMs, clean } = instant;
    const stretch = this.stretchFor(members);
    const startMs = stretch?.startMs ?? this.lastEndMs;
    const blurred = this.blurs.some((at) => at > startMs && at <= endMs);
    this.blurs = this.blurs.filter((at) => at > endMs);
    // One that came late, after its interval was closed, says nothing.
    const late = endMs <= this.lastEndMs;
    this.lastEndMs = Math.max(this.lastEndMs, endMs);
    this.stretch = null;
    this.startable = clean;
    if (stretch === null || blurred || late) return;
    stretch.members.push(...members);
    stretch.instants += 1;
    for (const { facts } of members) stretch.tokens += Math.max(0, facts.uncachedTokens);
    if (!clean && stretch.tokens < instant.wideTokens) {
      this.stretch = stretch;
      return;
    }
    this.startable = true;
    const ms = endMs - startMs;
    if (ms <= this.settings.sameMs) return;
    const { idleBefore, instants } = stretch;
    const lone = idleBefore && stretch.members.length === 1;
    this.pending.push({ ms, lone, instants, members: stretch.members, sinceMs: nowMs });
    if (this.pending.length > this.settings.maxPending) this.pending.shift();
  }

  /** The stretch that these members go on with, or one that begins with them. */
  private stretchFor(members: readonly LedgerEntry[]): Stretch | null {
    const sentMs = Math.min(...members.map((entry) => entry.sentMs));
    const idleBefore = sentMs > this.lastEndMs;
    if (!idleBefore && this.stretch !== null) return this.stretch;
    if (!idleBefore && !this.startable) return null;
    const startMs = idleBefore ? sentMs : this.lastEndMs;
    return { startMs, idleBefore, members: [], instants: 0, tokens: 0 };
  }
}

/** Null where a member ended without telling its tokens. */
function observationOf(pending: Pending, stepTokens: number): PrefillObservation | null {
  const sums = emptySums();
  let users = false;
  for (const entry of pending.members) {
    const { usage, facts } = entry;
    if (usage === null) return null;
    const predicted = Math.max(0, facts.promptTokens - facts.uncachedTokens);
    const cached = Math.min(usage.cachedTokens ?? predicted, usage.promptTokens);
    addToSums(sums, usage.promptTokens - cached, cached);
    users ||= entry.router !== null;
  }
  const steps = pending.lone
    ? Math.max(1, Math.ceil(sums.uncached / stepTokens))
    : Math.max(pending.instants, sharedSteps(sums.uncached, stepTokens));
  return users ? { ms: pending.ms, steps, sums } : null;
}
