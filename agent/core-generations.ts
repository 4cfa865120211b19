// The agent's own generations on one engine: warm-up and calibration before it is ready, probes after.

import type { CoreContext } from './core-context.ts';
import type { TargetState } from './core-target.ts';
import type { AgentEngine, EngineIdentity, GenerateOrder, GenerationOutcome } from './events.ts';
import type { Lifecycle } from './policy/lifecycle.ts';
import { probeDeadline, Probes, probeTokens } from './core-probes.ts';
import { TOKENS_PER_WORD, uniqueText } from './policy/probe-prompt.ts';
import { WARM_UP_DEFAULTS, WarmUp } from './policy/warm-up.ts';
import type { WarmUpStep } from './policy/warm-up.ts';
import type { ProbeResult } from '../shared/model/report.ts';

const PROBE_WORDS = 12;
const PROBE_MAX_TOKENS = 4;
/** First generations compile; calibration prompts take as long as they take. */
const FIRST_DEADLINE_MS = 120_000;
const CALIBRATION_MS_PER_TOKEN = 20;
/** A shell that says nothing about a generation for so long past its deadline has lost it, ms. */
const LOST_MS = 10_000;

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
  private readonly probes: Probes;
  private readonly orders = new Map<string, OpenOrder>();
  /** Ranks whose first generation in this life the engine refused as of a rank that it does not have. */
  private readonly unknown = new Set<number>();
  /** Probes from before say nothing of what serves now. */
  private doubtedMs = -Infinity;
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
    this.probes = new Probes(context.settings, of);
    this.warmUp = this.newWarmUp(context.settings.calibration);
  }

  probeOf(rank: number): ProbeResult | null {
    return this.probes.resultOf(rank);
  }

  /** Another engine process: everything is to be proved again. */
  reset(): void {
    this.orders.clear();
    this.probes.reset();
    this.unknown.clear();
    for (const { health } of this.targets) health.unprove();
    this.warmUp = this.newWarmUp(this.context.settings.calibration);
  }

  /** The same process is back (it slept, or its port was closed for a while): one generation proves it. */
  proveAgain(): void {
    this.warmUp = this.newWarmUp(false);
  }

  /** What serves may be another process than the one that was proved: each rank is probed at once. */
  doubt(nowMs: number): void {
    this.doubtedMs = nowMs;
    this.probes.reset();
    for (const { health } of this.targets) health.unprove();
  }

  /** The replica was good a moment ago, as another agent saw it: it is probed within `inMs`. */
  trust(inMs: number, nowMs: number): void {
    const { probeIntervalMs } = this.context.settings;
    this.probes.vouched(nowMs - probeIntervalMs + inMs);
  }

  /** ms of warm-up still to come; null without ground to say. */
  etaMs(nowMs: number): number | null {
    const { steps, of } = this.warmUp.remaining;
    const done = of - steps;
    return done > 0 ? ((nowMs - this.lifecycle.sinceMs) / done) * steps : null;
  }

  /**
   * How many ranks the engine of this life has, where it answers for the first ones and refuses all the others, and
   * its exposition shows none of them; null otherwise.
   */
  get ranksLeft(): number | null {
    if (this.unknown.size === 0) return null;
    const first = Math.min(...this.unknown);
    const left = this.targets.every(({ rank, health }) =>
      rank < first ? health.proved : this.unknown.has(rank),
    );
    return left ? first : null;
  }

  run(identity: EngineIdentity, nowMs: number): void {
    if (this.lifecycle.phase === 'warming') this.warm(identity, nowMs);
    for (const target of this.targets) {
      const due = this.probes.dueMs(target, nowMs);
      if (due !== null && due <= nowMs) this.send({ target, identity, step: null }, nowMs);
    }
  }

  nextWakeMs(nowMs: number): number {
    const times: (number | null)[] = [];
    if (this.lifecycle.phase === 'warming') times.push(this.warmUp.nextWakeMs(nowMs));
    for (const target of this.targets) times.push(this.probes.dueMs(target, nowMs));
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
    if (open.sentMs < this.doubtedMs) return null;
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
      each.cost.slow.reset();
      each.health.reset(nowMs);
    }
    // The others generate by themselves, and have shown nothing yet.
    target.health.prove(nowMs);
    this.trust(0, nowMs);
    this.probes.vouched(nowMs, target.rank);
    this.lifecycle.warmedUp(nowMs);
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
    const expected = step ?? probeTokens(target);
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
    if (order.purpose === 'probe') this.probes.sent(target, nowMs);
    const alone = target.ledger.openCount() === 0;
    this.orders.set(order.id, { order, target, sentMs: nowMs, alone, step });
    target.ownSent(order, expected, nowMs);
    this.context.emit({ kind: 'generate', order });
  }

  private warmed(
    open: OpenOrder,
    step: WarmUpStep,
    end: { readonly outcome: GenerationOutcome; readonly nowMs: number },
  ): void {
    const { outcome, nowMs } = end;
    const ok = outcome.kind === 'ok' ? outcome : null;
    if (ok?.pooled === true) this.warmUp.withoutPrefixes();
    this.warmUp.ended(ok !== null, ok?.promptTokens ?? null, nowMs);
    if (step.purpose === 'probe') this.probes.firstEnded(open.target, outcome, nowMs);
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
    this.noteRank(target, outcome);
    const verdict = this.probes.ended(open, outcome, nowMs);
    target.version += 1;
    if (verdict === 'good') return true;
    this.context.log('warn', 'probe_failed', {
      replica: this.engine.replica,
      rank: target.rank,
      cause: outcome.kind === 'failed' ? outcome.cause : null,
      forgiven: verdict === 'forgiven',
    });
    return false;
  }

  /** Only a rank that has shown nothing yet can turn out not to be there. */
  private noteRank({ rank, health }: TargetState, outcome: GenerationOutcome): void {
    const unknown = outcome.kind === 'failed' && outcome.cause === 'rank' && !health.proved;
    if (unknown) this.unknown.add(rank);
    else this.unknown.delete(rank);
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

function wordsOf(tokens: number): number {
  return Math.max(PROBE_WORDS, Math.round(tokens / TOKENS_PER_WORD));
}
