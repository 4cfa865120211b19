// Turns first tokens into observations of the prefill cost.
//
// Between two first-token instants with work waiting throughout, the engine prefilled what finished at the
// second; a request that found the engine idle was prefilled from its sending on. Instants within one step of
// each other are one. But a step that ends one prompt computes the head of the next with what is left of its
// budget: an instant is *clean* only when nothing sent before it still waits. So an observation reaches from
// one clean instant to the next, or, where none comes, over `wideSteps` steps' tokens, of which the two blurred
// ends are a small part; over half of that where only one end is blurred. Links deliver out of order among each
// other, so instants settle for `settleMs` first; an observation then waits, bounded, until the usage of its
// requests has told their true tokens.
// Requests that show no first token are prefilled in the same order: each belongs to the next instant of a stream
// sent after it. Sent within `orderMs` of that stream it may have come after it: such an instant is not clean
// either, and the observation widens until that part of it is small.
// What blurs an interval (an abort in mid-prefill, foreign work) drops it.

import { addToSums, emptySums } from '../../shared/model/cost-curve.ts';
import type { LedgerEntry } from './ledger.ts';
import type { ObservedStretch } from './step-fit.ts';
import { beginningOf, UnseenPrefills } from './unseen-prefills.ts';

export interface ObserverSettings {
  /** ms that an instant waits for earlier ones still on the way. */
  readonly settleMs: number;
  /** Instants at most this far apart are one, ms. */
  readonly sameMs: number;
  /** ms that an observation waits for usage. */
  readonly usageWaitMs: number;
  /** Observations that wait at once. */
  readonly maxPending: number;
  /** Uncached tokens, in steps, of an observation at whose ends no instant is clean. */
  readonly wideSteps: number;
  /** Requests sent within this time may be served in either order, ms. */
  readonly orderMs: number;
  /** Share of an observation's tokens whose place may be uncertain. */
  readonly vagueRatio: number;
}

export const OBSERVER_DEFAULTS: ObserverSettings = {
  settleMs: 500,
  sameMs: 2,
  usageWaitMs: 120_000,
  maxPending: 512,
  wideSteps: 3,
  orderMs: 50,
  vagueRatio: 0.125,
};

/** The engine as its agent knows it. */
export interface ObservedEngine {
  readonly stepTokens: number;
  /** When the oldest stream that still waits was sent; null when none does. */
  readonly waitingSinceMs: number | null;
  /** ms that the present curve gives the entry's prefill. */
  readonly prefillMs: (entry: LedgerEntry) => number;
}

interface Pass {
  readonly entry: LedgerEntry;
  readonly atMs: number;
}

/** From an instant, or an idle engine, to the instant at hand. */
interface Stretch {
  readonly startMs: number;
  readonly cleanStart: boolean;
  readonly idleBefore: boolean;
  readonly members: readonly LedgerEntry[];
  readonly instants: number;
  readonly tokens: number;
}

/** First tokens that came as one, and what was prefilled before them unseen. */
interface Instant {
  readonly endMs: number;
  /** Nothing sent before it still waits. */
  readonly clean: boolean;
  /** In order of sending. */
  readonly entries: readonly LedgerEntry[];
  /** Tokens of those that may have come after it. */
  readonly vagueTokens: number;
}

interface Pending {
  readonly id: number;
  readonly ms: number;
  readonly lone: boolean;
  /** First-token instants, each the end of a step of its own. */
  readonly instants: number;
  readonly members: readonly LedgerEntry[];
  readonly sinceMs: number;
}

export class PrefillObserver {
  private readonly settings: ObserverSettings;
  private readonly unseen = new UnseenPrefills();
  private passes: Pass[] = [];
  private blurs: number[] = [];
  private pending: Pending[] = [];
  private fresh: Pending[] = [];
  private ids = 0;
  private lastEndMs = -Infinity;
  /** Null between observations. */
  private stretch: Stretch | null = null;
  /** The last instant was clean. */
  private lastClean = false;
  /** Before then no instant settles. */
  private wakeMs = Infinity;

  constructor(settings: ObserverSettings = OBSERVER_DEFAULTS) {
    this.settings = settings;
  }

  /** A request that will show no first token was sent. */
  sentUnseen(entry: LedgerEntry): void {
    this.unseen.add(entry);
  }

  /** It ended without a whole answer: how much of it was prefilled cannot be told. */
  abandonedUnseen(entry: LedgerEntry, atMs: number): void {
    this.unseen.remove(entry);
    this.blurred(atMs);
  }

  /** A first token. */
  passed(entry: LedgerEntry, atMs: number): void {
    if (this.passes.length >= this.settings.maxPending * 4) return this.blurred(atMs);
    const { settleMs, sameMs } = this.settings;
    // Where it begins before the first instant ends, or that goes on with it. Never later than there is something to do.
    const firstEndMs = this.passes.length === 0 ? Infinity : this.wakeMs - settleMs;
    if (atMs - firstEndMs <= sameMs) this.wakeMs = atMs + settleMs;
    this.passes.push({ entry, atMs });
  }

  /** What was prefilled around this instant cannot be told. */
  blurred(atMs: number): void {
    this.blurs.push(atMs);
    if (this.blurs.length > 256) this.blurs.shift();
  }

  clear(): void {
    this.unseen.clear();
    this.passes = [];
    this.blurs = [];
    this.pending = [];
    this.fresh = [];
    this.lastEndMs = -Infinity;
    this.stretch = null;
    this.lastClean = false;
  }

  /** When something may settle; null when nothing is on the way. */
  nextWakeMs(): number | null {
    return this.passes.length === 0 ? null : this.wakeMs;
  }

  /**
   * Stretches that have ended since the last call, each once, with the tokens that routers estimated where nobody has
   * told better. `settle` gives them again, exact, under the same id.
   */
  glimpse(engine: ObservedEngine, nowMs: number): ObservedStretch[] {
    this.group(engine, nowMs);
    const { fresh } = this;
    this.fresh = [];
    return fresh.flatMap((pending) => observationOf(pending, true) ?? []);
  }

  /** Observations that have become final. The agent's own generations alone make none. */
  settle(engine: ObservedEngine, nowMs: number): ObservedStretch[] {
    this.group(engine, nowMs);
    const settled: ObservedStretch[] = [];
    this.pending = this.pending.filter((waiting) => {
      const open = waiting.members.some((entry) => entry.endedMs === null);
      if (open && nowMs - waiting.sinceMs < this.settings.usageWaitMs) return true;
      const observation = open ? null : observationOf(waiting, false);
      if (observation !== null) settled.push(observation);
      return false;
    });
    return settled;
  }

  private group(engine: ObservedEngine, nowMs: number): void {
    const { settleMs } = this.settings;
    // Every event asks, and passes of half a second wait: they are looked through only when some may have settled.
    if (this.passes.length === 0 || nowMs < this.wakeMs) return;
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
      const instant = this.instantOf(members, endMs, engine.waitingSinceMs);
      if (instant === null) this.forgetUntil(endMs);
      else this.close(instant, engine, nowMs);
    }
  }

  /** Null where what was prefilled before it is no longer known. */
  private instantOf(
    members: readonly LedgerEntry[],
    endMs: number,
    waitingSinceMs: number | null,
  ): Instant | null {
    const lastSentMs = Math.max(...members.map((entry) => entry.sentMs));
    const unseen = this.unseen.take(lastSentMs);
    if (unseen === null) return null;
    const vague = unseen.filter((entry) => entry.sentMs > lastSentMs - this.settings.orderMs);
    const waits = Math.min(
      waitingSinceMs ?? Infinity,
      this.unseen.oldestMs ?? Infinity,
      ...this.passes.map((pass) => pass.entry.sentMs),
    );
    return {
      endMs,
      clean: vague.length === 0 && waits >= endMs,
      entries: [...unseen, ...members].sort((a, b) => a.sentMs - b.sentMs),
      vagueTokens: tokensOf(vague),
    };
  }

  private close(instant: Instant, engine: ObservedEngine, nowMs: number): void {
    const { endMs, clean } = instant;
    const stretch = this.stretchFor(instant, engine);
    const startMs = stretch?.startMs ?? this.lastEndMs;
    const blurred = this.blurs.some((at) => at > startMs && at <= endMs);
    // One that came late, after its interval was closed, says nothing.
    const late = endMs <= this.lastEndMs;
    this.forgetUntil(endMs);
    this.lastClean = clean;
    if (stretch === null || blurred || late) return;
    const blurredEnds = (stretch.cleanStart ? 0 : 1) + (clean ? 0 : 1);
    const leastTokens = (blurredEnds / 2) * this.settings.wideSteps * engine.stepTokens;
    const vague = instant.vagueTokens > this.settings.vagueRatio * stretch.tokens;
    if (stretch.tokens < leastTokens || (!clean && vague)) {
      const full = stretch.members.length > this.settings.maxPending;
      if (!clean && !full) this.stretch = stretch;
      return;
    }
    const ms = endMs - startMs;
    if (ms <= this.settings.sameMs) return;
    const { idleBefore, instants } = stretch;
    const lone = idleBefore && stretch.members.length === 1;
    this.ids += 1;
    const pending = { id: this.ids, ms, lone, instants, members: stretch.members, sinceMs: nowMs };
    for (const list of [this.pending, this.fresh]) {
      list.push(pending);
      if (list.length > this.settings.maxPending) list.shift();
    }
  }

  /** Nothing is known of the time until the instant `endMs`. */
  private forgetUntil(endMs: number): void {
    this.blurs = this.blurs.filter((at) => at > endMs);
    this.lastEndMs = Math.max(this.lastEndMs, endMs);
    this.stretch = null;
    this.lastClean = false;
  }

  /** With the instant: the present stretch, or one that begins where the last ended or the engine was idle. */
  private stretchFor(instant: Instant, engine: ObservedEngine): Stretch | null {
    const beginning = beginningOf(instant.entries, this.lastEndMs, engine.prefillMs);
    if (beginning.kind === 'unknown') return null;
    const goesOn = beginning.kind === 'goesOn';
    if (goesOn && this.lastEndMs === -Infinity) return null;
    const members = goesOn ? instant.entries : instant.entries.slice(beginning.from);
    const before = goesOn ? this.stretch : null;
    const startMs = goesOn ? this.lastEndMs : (members[0]?.sentMs ?? instant.endMs);
    return {
      startMs: before?.startMs ?? startMs,
      idleBefore: before?.idleBefore ?? !goesOn,
      cleanStart: before?.cleanStart ?? (!goesOn || this.lastClean),
      members: [...(before?.members ?? []), ...members],
      instants: (before?.instants ?? 0) + 1,
      tokens: (before?.tokens ?? 0) + tokensOf(members),
    };
  }
}

/** Uncached tokens of all of them, as their routers estimated them. */
function tokensOf(entries: readonly LedgerEntry[]): number {
  return entries.reduce((sum, { facts }) => sum + Math.max(0, facts.uncachedTokens), 0);
}

/** Null where a member has not told its tokens, unless estimates will do. */
function observationOf(pending: Pending, estimates: boolean): ObservedStretch | null {
  const sums = emptySums();
  let users = false;
  for (const entry of pending.members) {
    const { usage, facts } = entry;
    if (usage === null && !estimates) return null;
    const prompt = usage?.promptTokens ?? facts.promptTokens;
    const predicted = Math.max(0, facts.promptTokens - facts.uncachedTokens);
    const cached = Math.min(usage?.cachedTokens ?? predicted, prompt);
    addToSums(sums, prompt - cached, cached);
    users ||= entry.router !== null;
  }
  const { id, ms, lone, instants } = pending;
  return users ? { id, ms, lone, instants, sums } : null;
}
