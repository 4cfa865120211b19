// The agent's own generations on one engine: warm-up and calibration before it is ready, probes after.

import type { CoreContext } from './core-context.ts';
import type { TargetState } from './core-target.ts';
import type { AgentEngine, EngineIdentity, GenerateOrder, GenerationOutcome } from './events.ts';
import type { Lifecycle } from './policy/lifecycle.ts';
import { phaseOf } from './core-phase.ts';
import { probeDeadlineMs, Prober } from './policy/prober.ts';
import type { ProbeOutcome } from './policy/prober.ts';
import { TOKENS_PER_WORD, uniqueText } from './policy/probe-prompt.ts';
import { WARM_UP_DEFAULTS, WarmUp } from './policy/warm-up.ts';
import type { WarmUpStep } from './policy/warm-up.ts';
import { prefillMs } from '../shared/model/cost-curve.ts';
import type { ProbeResult } from '../shared/model/report.ts';

const PROBE_WORDS = 12;
const PROBE_TOKENS = 16;
/** Of a probe that has to show its pace too. */
const PACE_TOKENS = 512;
const PROBE_MAX_TOKENS = 4;
/** First generations compile; calibration prompts take as long as they take. */
const FIRST_DEADLINE_MS = 120_000;
const CALIBRATION_MS_PER_TOKEN = 20;
/** After warm-up, which the first rank has done, the others are probed so soon, ms. */
const UNSEEN_RANK_MS = 500;
/** A shell that says nothing about a generation for so long past its deadline has lost it, ms. */
const LOST_MS = 10_000;

type GoodGeneration = Extract<GenerationOutcome, { readonly kind: 'ok' }>;

interface OpenOrder {
  readonly order: GenerateOrder;
  readonly target: TargetState;
  readonly sentMs: number;
  /** No user's work was in the engine. */
  readonly alone: boolean;
  /** Null for a probe of a replica in service. */
  readonly step: WarmUpStep | null;
}

export class Generations {
  private readonly context: CoreContext;
  private readonly engine: AgentEngine;
  private readonly lifecycle: Lifecycle;
  private readonly targets: readonly TargetState[];
  private readonly probers: readonly Prober[];
  private readonly orders = new Map<string, OpenOrder>();
  private warmUp: WarmUp;

  constructor(
    context: CoreContext,
    of: {
      readonly engine: AgentEngine;
      readonly lifecycle: Lifecycle;
      readonly targets: readonly TargetState[];
    },
  ) {
    this.context = context;
    this.engine = of.engine;
    this.lifecycle = of.lifecycle;
    this.targets = of.targets;
    this.probers = of.targets.map(() => new Prober(context.settings));
    this.warmUp = this.newWarmUp(context.settings.calibration);
  }

  probeOf(rank: number): ProbeResult | null {
    return this.probers[rank]?.result ?? null;
  }

  /** Another engine process: everything is to be proved again. */
  reset(): void {
    this.orders.clear();
    for (const prober of this.probers) prober.reset();
    this.warmUp = this.newWarmUp(this.context.settings.calibration);
  }

  /** The same process is back (it slept, or its port was closed for a while): one generation proves it. */
  proveAgain(): void {
    this.warmUp = this.newWarmUp(false);
  }

  /** The replica was good a moment ago, as another agent saw it: it is probed within `inMs`. */
  trust(inMs: number, nowMs: number): void {
    const { probeIntervalMs } = this.context.settings;
    for (const prober of this.probers) prober.vouched(nowMs - probeIntervalMs + inMs);
  }

  /** ms of warm-up still to come; null without ground to say. */
  etaMs(nowMs: number): number | null {
    const { steps, of } = this.warmUp.remaining;
    const done = of - steps;
    return done > 0 ? ((nowMs - this.lifecycle.sinceMs) / done) * steps : null;
  }

  run(identity: EngineIdentity, nowMs: number): void {
    if (this.lifecycle.phase === 'warming') this.warm(identity, nowMs);
    for (const target of this.targets) {
      const due = this.probeDueMs(target, nowMs);
      if (due !== null && due <= nowMs) this.send({ target, identity, step: null }, nowMs);
    }
  }

  nextWakeMs(nowMs: number): number {
    const times: (number | null)[] = [];
    if (this.lifecycle.phase === 'warming') times.push(this.warmUp.nextWakeMs(nowMs));
    for (const target of this.targets) times.push(this.probeDueMs(target, nowMs));
    let next = Infinity;
    for (const time of times) if (time !== null) next = Math.min(next, time);
    return next;
  }

  ended(id: string, outcome: GenerationOutcome, nowMs: number): 'probe_failed' | null {
    const open = this.orders.get(id);
    if (open === undefined) return null;
    this.orders.delete(id);
    open.target.ownEnded(id, outcome, open.sentMs, nowMs);
    if (open.step !== null) {
      this.warmed(open, open.step, { outcome, nowMs });
      return null;
    }
    return this.probed(open, outcome, nowMs) ? null : 'probe_failed';
  }

  /** Ends what the shell has lost. */
  loseOverdue(nowMs: number): void {
    for (const [id, open] of this.orders) {
      if (nowMs >= lostAtMs(open)) this.ended(id, { kind: 'failed', cause: 'timeout' }, nowMs);
    }
  }

  nextLossMs(): number {
    let next = Infinity;
    for (const open of this.orders.values()) next = Math.min(next, lostAtMs(open));
    return next;
  }

  private warm(identity: EngineIdentity, nowMs: number): void {
    const [target] = this.targets;
    if (target === undefined) return;
    const state = { idle: this.idle(), limitTokens: this.limitTokens(identity) };
    const step = this.warmUp.next(state, nowMs);
    if (step !== null) this.send({ target, identity, step }, nowMs);
    if (!this.warmUp.done) return;
    for (const each of this.targets) {
      each.calibrationEnded();
      each.slow.reset();
      each.health.reset(nowMs);
    }
    // The others generate by themselves, and have shown nothing yet.
    this.trust(UNSEEN_RANK_MS, nowMs);
    this.probers[target.rank]?.vouched(nowMs);
    this.lifecycle.warmedUp(nowMs);
  }

  private probeDueMs(target: TargetState, nowMs: number): number | null {
    const prober = this.probers[target.rank];
    if (prober === undefined) return null;
    prober.vouched(target.vouchedMs);
    prober.suspected(target.failedMs);
    return prober.dueMs(phaseOf(this.lifecycle, target), target.silence(nowMs));
  }

  private send(
    what: {
      readonly target: TargetState;
      readonly identity: EngineIdentity;
      readonly step: WarmUpStep | null;
    },
    nowMs: number,
  ): void {
    const { target, identity, step } = what;
    const expected = step ?? expectedOf(target);
    const order: GenerateOrder = {
      replica: this.engine.replica,
      rank: target.rank,
      id: `agent-${this.context.unique()}`,
      purpose: step?.purpose ?? 'probe',
      model: identity.models[0]?.id ?? '',
      prompt: step?.prompt ?? uniqueText(this.context.unique(), wordsOf(expected.uncached)),
      maxTokens: step?.maxTokens ?? PROBE_MAX_TOKENS,
      deadlineMs:
        step === null ? probeDeadline(target, expected.uncached, nowMs) : warmUpDeadline(step),
    };
    if (order.purpose === 'probe') this.noteProbe(target, nowMs);
    const alone = target.ledger.openCount() === 0;
    this.orders.set(order.id, { order, target, sentMs: nowMs, alone, step });
    target.ownSent(order, expected, nowMs);
    this.context.emit({ kind: 'generate', order });
  }

  private noteProbe(target: TargetState, nowMs: number): void {
    const prober = this.probers[target.rank];
    const silence = target.silence(nowMs);
    prober?.sent(silence !== null && prober.silentAt(silence) <= nowMs, nowMs);
  }

  private warmed(
    open: OpenOrder,
    step: WarmUpStep,
    end: { readonly outcome: GenerationOutcome; readonly nowMs: number },
  ): void {
    const { outcome, nowMs } = end;
    const ok = outcome.kind === 'ok' ? outcome : null;
    this.warmUp.ended(ok !== null, ok?.promptTokens ?? null, nowMs);
    if (step.purpose === 'probe') {
      const engine = { movedMs: -Infinity, foreign: false };
      this.probers[open.target.rank]?.ended(probeOutcome(outcome), engine, nowMs);
    }
    if (ok === null) {
      const cause = outcome.kind === 'failed' ? outcome.cause : null;
      this.context.log('warn', 'warm_up_failed', { replica: this.engine.replica, cause });
      return;
    }
    if (!step.measured) return;
    const prompt = ok.promptTokens ?? step.uncached + step.cached;
    const cached = Math.min(prompt, ok.cachedTokens ?? step.cached);
    for (const target of this.targets) {
      target.calibrated(ok.ttftMs, { uncached: prompt - cached, cached });
    }
  }

  /** Whether the probe was good. */
  private probed(open: OpenOrder, outcome: GenerationOutcome, nowMs: number): boolean {
    const { target } = open;
    const prober = this.probers[target.rank];
    const engine = {
      movedMs: target.lastMovedMs,
      foreign: (target.foreignNow(nowMs)?.open ?? 0) > 0,
    };
    const verdict = prober?.ended(probeOutcome(outcome), engine, nowMs);
    target.version += 1;
    if (verdict !== 'forgiven') this.judge(open, outcome, nowMs);
    if (verdict === 'good') return true;
    this.context.log('warn', 'probe_failed', {
      replica: this.engine.replica,
      rank: target.rank,
      cause: outcome.kind === 'failed' ? outcome.cause : null,
      forgiven: verdict === 'forgiven',
    });
    return false;
  }

  /** A probe's end counts for or against its rank. */
  private judge(open: OpenOrder, outcome: GenerationOutcome, nowMs: number): void {
    const { target } = open;
    const good = outcome.kind === 'ok';
    const pace = outcome.kind === 'ok' ? this.paceOf(open, outcome, nowMs) : null;
    target.health.probed({ good, atPace: target.slow.isAtPace(pace) }, nowMs);
  }

  /**
   * What a good probe says of the engine's pace. One that waited among users' work may only look slower than the
   * engine is, so that either it or they can show that it is not.
   */
  private paceOf(open: OpenOrder, ok: GoodGeneration, nowMs: number): number | null {
    const { target } = open;
    const prompt = ok.promptTokens ?? expectedOf(target).uncached;
    if (prompt < PACE_TOKENS / 2) return target.slow.ratio(nowMs);
    const cached = Math.min(prompt, ok.cachedTokens ?? 0);
    const alone = open.alone && target.aloneSince(open.sentMs);
    const probe = { ms: ok.ttftMs, uncached: prompt - cached, cached, alone };
    const own = target.probePace(probe, nowMs);
    const users = target.slow.ratio(nowMs);
    if (alone || users === null || own === null) return own ?? users;
    return Math.min(own, users);
  }

  /** No user's request, no foreign one. */
  private idle(): boolean {
    return this.targets.every((target) => {
      if (target.ledger.openCount() > 0 || target.backlog.size > 0) return false;
      if (target.scrape === null) return true;
      const { rank, sentMs } = target.scrape;
      const inside = (rank.running ?? 0) + (rank.waiting ?? 0);
      return inside <= target.history.momentAt(sentMs).open;
    });
  }

  /** The longest prompt that context and KV cache take, where known. */
  private limitTokens(identity: EngineIdentity): number | null {
    let limit = identity.models[0]?.maxModelLen ?? Infinity;
    for (const target of this.targets) {
      limit = Math.min(limit, target.scrape?.rank.kvCapacityTokens ?? Infinity);
    }
    return limit === Infinity ? null : limit;
  }

  private newWarmUp(calibration: boolean): WarmUp {
    const budgetTokens = this.context.settings.calibrationBudgetTokens;
    const settings = { calibration, budgetTokens, ...WARM_UP_DEFAULTS };
    return new WarmUp(settings, () => this.context.unique());
  }
}

function lostAtMs(open: OpenOrder): number {
  return open.sentMs + open.order.deadlineMs + LOST_MS;
}

function warmUpDeadline(step: WarmUpStep): number {
  return FIRST_DEADLINE_MS + step.uncached * CALIBRATION_MS_PER_TOKEN;
}

/** Of a probe, tokens. A long one would evict users' cache for nothing where the pace is not in question. */
function expectedOf(target: TargetState): { readonly uncached: number; readonly cached: number } {
  const slow = target.health.degradedFor === 'slow';
  return { uncached: slow ? PACE_TOKENS : PROBE_TOKENS, cached: 0 };
}

function wordsOf(tokens: number): number {
  return Math.max(PROBE_WORDS, Math.round(tokens / TOKENS_PER_WORD));
}

/** A probe's deadline includes what waits before it. */
function probeDeadline(target: TargetState, ownTokens: number, nowMs: number): number {
  const curve = target.learner.curve();
  const { waitingMs } = target.backlog.figures(curve, nowMs);
  const slotWaitMs = target.slots.slotWaitMs(target.ledger.openCount(), nowMs) ?? 0;
  return probeDeadlineMs(Math.max(waitingMs, slotWaitMs), prefillMs(curve, ownTokens, 0));
}

function probeOutcome(outcome: GenerationOutcome): ProbeOutcome {
  if (outcome.kind === 'ok') return { ok: true, ttftMs: outcome.ttftMs, cause: null };
  return { ok: false, ttftMs: null, cause: outcome.cause };
}
