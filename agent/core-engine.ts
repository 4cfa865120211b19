// One engine of the agent: scraping, identity and incarnation, warm-up, probes, phase. It owns the targets.
//
// Until the first scrape has told what is there, and whether a router remembers this engine life, nothing is
// reported: an agent that restarts beside a living engine must not make it look cold.

import type { CoreContext } from './core-context.ts';
import type { EngineFacts } from './core-report.ts';
import { TargetState } from './core-target.ts';
import type {
  AgentEngine,
  AgentEvent,
  EngineIdentity,
  EngineScrape,
  GenerateOrder,
  GenerationOutcome,
  RankScrape,
} from './events.ts';
import { IncarnationTracker } from './policy/incarnation.ts';
import { Lifecycle } from './policy/lifecycle.ts';
import { probeDeadlineMs, Prober } from './policy/prober.ts';
import { uniqueText } from './policy/probe-prompt.ts';
import { WARM_UP_DEFAULTS, WarmUp } from './policy/warm-up.ts';
import type { WarmUpStep } from './policy/warm-up.ts';
import { prefillMs } from '../shared/model/cost-curve.ts';
import type { Incarnation } from '../shared/model/ids.ts';
import type { ResumeState } from '../shared/protocol/messages.ts';

/** How long after the first good scrape a router's memory is waited for, ms. */
const RESUME_WAIT_MS = 1_000;
/** Nothing is held back longer than this after the start, ms. */
const QUIET_MAX_MS = 3_000;
/** A port that has just refused is asked again so soon, ms. */
const RECHECK_MS = 100;
const IDENTIFY_RETRY_MS = 1_000;
const PROBE_WORDS = 12;
const PROBE_TOKENS = 16;
/** First generations compile; calibration prompts take as long as they take. */
const FIRST_DEADLINE_MS = 120_000;
const CALIBRATION_MS_PER_TOKEN = 20;
/** A shell that says nothing about a generation or scrape for so long past its time has lost it, ms. */
const LOST_MS = 10_000;

interface OpenOrder {
  readonly order: GenerateOrder;
  readonly target: TargetState;
  readonly sentMs: number;
  /** Null for a probe of a replica in service. */
  readonly step: WarmUpStep | null;
}

type Scraped = Extract<AgentEvent, { readonly kind: 'scraped' }>;
type Identified = Extract<AgentEvent, { readonly kind: 'identified' }>;
type Generated = Extract<AgentEvent, { readonly kind: 'generated' }>;

export class EngineState {
  readonly engine: AgentEngine;
  readonly targets: readonly TargetState[];
  readonly lifecycle: Lifecycle;
  identity: EngineIdentity | null = null;
  private readonly context: CoreContext;
  private readonly tracker: IncarnationTracker;
  private readonly probers: readonly Prober[];
  private readonly orders = new Map<string, OpenOrder>();
  private readonly startedMs: number;
  private warmUp: WarmUp;
  private offers: readonly ResumeState[] = [];
  private heard = false;
  private settleByMs: number | null = null;
  private scrapeDueMs: number;
  private scrapeSentMs: number | null = null;
  private identifyDueMs: number | null = null;
  private identifying = false;
  private stopped = false;
  private nowMs: number;

  constructor(context: CoreContext, engine: AgentEngine, nowMs: number) {
    const { settings } = context;
    this.context = context;
    this.engine = engine;
    this.startedMs = nowMs;
    this.nowMs = nowMs;
    this.scrapeDueMs = nowMs;
    this.lifecycle = new Lifecycle(settings, nowMs);
    this.tracker = new IncarnationTracker(context.random);
    this.targets = Array.from(
      { length: Math.max(1, engine.ranks) },
      (_, rank) => new TargetState(context, engine.replica, rank),
    );
    this.probers = this.targets.map(() => new Prober(settings));
    this.warmUp = this.newWarmUp(settings.calibration);
  }

  get incarnation(): Incarnation | null {
    return this.tracker.current;
  }

  /** Whether reports about it may go out. */
  get speaks(): boolean {
    const known = this.heard && this.settleByMs === null;
    return known || this.nowMs >= this.startedMs + QUIET_MAX_MS;
  }

  facts(rank: number, nowMs: number): EngineFacts {
    return {
      incarnation: this.tracker.current,
      phase: this.lifecycle.phase,
      phaseSinceMs: this.lifecycle.sinceMs,
      etaMs: this.etaMs(nowMs),
      identity: this.identity,
      probe: this.probers[rank]?.result ?? null,
    };
  }

  /** ms until `ready`, where there is ground to say so. */
  private etaMs(nowMs: number): number | null {
    if (this.lifecycle.phase === 'loading') return this.lifecycle.loadEtaMs(nowMs);
    if (this.lifecycle.phase !== 'warming') return null;
    const { steps, of } = this.warmUp.remaining;
    const done = of - steps;
    return done > 0 ? ((nowMs - this.lifecycle.sinceMs) / done) * steps : null;
  }

  scraped(event: Scraped, nowMs: number): void {
    this.scrapeSentMs = null;
    this.heard = true;
    if (this.stopped) return;
    const { result, evidence } = event;
    const before = this.lifecycle.phase;
    if (result.kind === 'ok') this.answered(result.scrape, event.sentMs, nowMs);
    else if (result.kind === 'refused') this.refused(evidence, nowMs);
    else this.lifecycle.failed(evidence, nowMs);
    this.notePhase(before);
  }

  identified(event: Identified, nowMs: number): void {
    this.identifying = false;
    const { result } = event;
    if (result.kind === 'ok' && result.identity.models.length > 0) {
      this.identity = result.identity;
      this.touch();
      return;
    }
    this.identifyDueMs = nowMs + IDENTIFY_RETRY_MS;
    const detail = result.kind === 'ok' ? 'no models' : result.detail;
    this.context.log('warn', 'identify_failed', { replica: this.engine.replica, detail });
  }

  generated(event: Generated, nowMs: number): void {
    const open = this.orders.get(event.id);
    if (open === undefined) return;
    this.orders.delete(event.id);
    const before = this.lifecycle.phase;
    open.target.ownEnded(event.id, event.outcome, open.sentMs, nowMs);
    if (open.step === null) this.probed(open, event.outcome, nowMs);
    else this.warmed(open, open.step, event.outcome, nowMs);
    this.notePhase(before);
  }

  /** What a router remembers of this engine's earlier agent. */
  offer(states: readonly ResumeState[], nowMs: number): void {
    this.offers = [...this.offers, ...states].slice(-64);
    this.tryResume(nowMs);
  }

  run(linksSettled: boolean, nowMs: number): void {
    this.nowMs = nowMs;
    if (this.stopped) return;
    const before = this.lifecycle.phase;
    this.loseOverdue(nowMs);
    this.scrape(nowMs);
    this.settle(linksSettled, nowMs);
    this.identify(nowMs);
    this.warm(nowMs);
    this.probe(nowMs);
    for (const target of this.targets) target.run(nowMs);
    this.notePhase(before);
  }

  nextWakeMs(): number | null {
    if (this.stopped) return null;
    const { nowMs } = this;
    const times: (number | null)[] = [this.settleByMs, this.identifyDueMs];
    times.push(this.scrapeSentMs === null ? this.scrapeDueMs : this.scrapeSentMs + LOST_MS);
    if (!this.speaks) times.push(this.startedMs + QUIET_MAX_MS);
    if (this.canGenerate && this.lifecycle.phase === 'warming') {
      times.push(this.warmUp.nextWakeMs(nowMs));
    }
    for (const target of this.targets) {
      times.push(target.nextWakeMs());
      if (this.canGenerate) times.push(this.probeDueMs(target, nowMs));
    }
    for (const open of this.orders.values()) times.push(lostAtMs(open));
    let next = Infinity;
    for (const time of times) if (time !== null) next = Math.min(next, time);
    return next;
  }

  stop(nowMs: number): void {
    this.stopped = true;
    this.lifecycle.drain(nowMs);
  }

  private refused(evidence: Scraped['evidence'], nowMs: number): void {
    this.tracker.refused();
    const { phase } = this.lifecycle;
    this.lifecycle.refused(evidence, nowMs);
    const undecided = phase === this.lifecycle.phase && ALIVE.has(phase);
    if (undecided) this.scrapeDueMs = Math.min(this.scrapeDueMs, nowMs + RECHECK_MS);
  }

  private answered(scrape: EngineScrape, sentMs: number, nowMs: number): void {
    const firstLife = this.tracker.current === null;
    const before = this.lifecycle.phase;
    const verdict = this.tracker.scraped(scrape);
    this.lifecycle.answered(
      scrape.ranks.some((rank) => rank.asleep === true),
      nowMs,
    );
    if (this.lifecycle.phase === 'asleep' && before !== 'asleep') {
      for (const target of this.targets) target.cacheEmptied();
    }
    if (verdict === 'new' && !firstLife) this.reborn(nowMs);
    else if (verdict !== 'same') this.firstSeen(nowMs);
    else if (before !== this.lifecycle.phase && this.lifecycle.phase === 'warming') {
      // The same process is back (it slept, or its port was closed for a while): one generation proves it.
      this.warmUp = this.newWarmUp(false);
    }
    for (const target of this.targets) {
      const rank =
        scrape.ranks.find((each) => each.rank === target.rank) ?? absentRank(target.rank);
      target.scraped(rank, sentMs, nowMs);
    }
  }

  private firstSeen(nowMs: number): void {
    const { current } = this.tracker;
    if (current !== null)
      for (const target of this.targets) target.incarnate(current, false, nowMs);
    this.settleByMs ??= nowMs + RESUME_WAIT_MS;
    this.tryResume(nowMs);
  }

  private reborn(nowMs: number): void {
    const { current } = this.tracker;
    if (current === null) return;
    this.context.log('info', 'engine_restarted', {
      replica: this.engine.replica,
      incarnation: current,
    });
    this.lifecycle.reborn(nowMs);
    for (const target of this.targets) target.incarnate(current, true, nowMs);
    for (const prober of this.probers) prober.reset();
    this.orders.clear();
    this.offers = [];
    this.settleByMs = null;
    this.identity = null;
    this.warmUp = this.newWarmUp(this.context.settings.calibration);
  }

  /** Takes the engine over from an earlier agent, when a router remembers this very life of it. */
  private tryResume(nowMs: number): void {
    const waits = this.settleByMs !== null || this.lifecycle.phase === 'warming';
    if (!this.heard || !waits) return;
    const match = this.offers.find((state) => this.tracker.matches(state));
    if (match === undefined) return;
    this.tracker.resume(match.incarnation);
    for (const target of this.targets) {
      target.incarnate(match.incarnation, false, nowMs);
      const same = (state: ResumeState): boolean =>
        state.rank === target.rank && state.incarnation === match.incarnation;
      const state = this.offers.find(same);
      if (state !== undefined) target.resume(state, nowMs);
    }
    this.offers = [];
    this.settleByMs = null;
    this.context.log('info', 'engine_resumed', {
      replica: this.engine.replica,
      incarnation: match.incarnation,
      calibrated: match.prefillCost !== null,
    });
    if (match.prefillCost === null) return;
    this.lifecycle.warmedUp(nowMs);
    // Known good a moment ago: it proves itself soon, not first.
    const { probeIntervalMs } = this.context.settings;
    for (const prober of this.probers) prober.vouched(nowMs - probeIntervalMs + RESUME_WAIT_MS);
  }

  private settle(linksSettled: boolean, nowMs: number): void {
    if (this.settleByMs === null) return;
    if (nowMs < this.settleByMs && !linksSettled) return;
    this.settleByMs = null;
    if (this.tracker.current !== null) return;
    const incarnation = this.tracker.invent();
    for (const target of this.targets) target.incarnate(incarnation, false, nowMs);
  }

  private scrape(nowMs: number): void {
    if (this.scrapeSentMs !== null || nowMs < this.scrapeDueMs) return;
    this.scrapeSentMs = nowMs;
    this.scrapeDueMs = nowMs + this.context.settings.scrapeIntervalMs;
    this.context.emit({ kind: 'scrape', replica: this.engine.replica });
  }

  private identify(nowMs: number): void {
    const wanted = this.identity === null && ALIVE.has(this.lifecycle.phase);
    if (!wanted || this.identifying || nowMs < (this.identifyDueMs ?? -Infinity)) return;
    this.identifying = true;
    this.identifyDueMs = null;
    this.context.emit({ kind: 'identify', replica: this.engine.replica });
  }

  private get canGenerate(): boolean {
    return this.settleByMs === null && this.identity !== null && this.tracker.current !== null;
  }

  private warm(nowMs: number): void {
    const [target] = this.targets;
    if (!this.canGenerate || this.lifecycle.phase !== 'warming' || target === undefined) return;
    const state = { idle: this.idle(), limitTokens: this.limitTokens() };
    const step = this.warmUp.next(state, nowMs);
    if (step !== null) this.send(target, step, nowMs);
    if (!this.warmUp.done) return;
    for (const each of this.targets) each.calibrationEnded();
    for (const prober of this.probers) prober.vouched(nowMs);
    this.lifecycle.warmedUp(nowMs);
  }

  private probe(nowMs: number): void {
    if (!this.canGenerate) return;
    for (const target of this.targets) {
      const due = this.probeDueMs(target, nowMs);
      if (due !== null && due <= nowMs) this.send(target, null, nowMs);
    }
  }

  private probeDueMs(target: TargetState, nowMs: number): number | null {
    const prober = this.probers[target.rank];
    if (prober === undefined) return null;
    prober.vouched(target.vouchedMs);
    return prober.dueMs(this.lifecycle.phase, target.silence(nowMs));
  }

  private send(target: TargetState, step: WarmUpStep | null, nowMs: number): void {
    const id = `agent-${this.context.unique()}`;
    const tokens = step ?? { uncached: PROBE_TOKENS, cached: 0 };
    const order: GenerateOrder = {
      replica: this.engine.replica,
      rank: target.rank,
      id,
      purpose: step?.purpose ?? 'probe',
      model: this.identity?.models[0]?.id ?? '',
      prompt: step?.prompt ?? uniqueText(this.context.unique(), PROBE_WORDS),
      maxTokens: step?.maxTokens ?? 4,
      deadlineMs: step === null ? this.deadlineMs(target, nowMs) : warmUpDeadlineMs(step),
    };
    if (order.purpose === 'probe') {
      const silence = target.silence(nowMs);
      const prober = this.probers[target.rank];
      const silent = silence !== null && (prober?.silentAt(silence) ?? Infinity) <= nowMs;
      prober?.sent(silent, nowMs);
    }
    this.orders.set(id, { order, target, sentMs: nowMs, step });
    target.ownSent(order, tokens, nowMs);
    this.context.emit({ kind: 'generate', order });
  }

  private deadlineMs(target: TargetState, nowMs: number): number {
    const curve = target.learner.curve();
    const { waitingMs } = target.backlog.figures(curve, nowMs);
    const open = target.ledger.openCount();
    const slotWaitMs = target.slots.slotWaitMs(open, nowMs) ?? 0;
    return probeDeadlineMs(Math.max(waitingMs, slotWaitMs), prefillMs(curve, PROBE_TOKENS, 0));
  }

  private warmed(
    open: OpenOrder,
    step: WarmUpStep,
    outcome: GenerationOutcome,
    nowMs: number,
  ): void {
    const ok = outcome.kind === 'ok' ? outcome : null;
    this.warmUp.ended(ok !== null, ok?.promptTokens ?? null, nowMs);
    if (step.purpose === 'probe')
      this.probers[open.target.rank]?.ended(probeOf(outcome), -1, nowMs);
    if (ok === null) {
      this.context.log('warn', 'warm_up_failed', {
        replica: this.engine.replica,
        cause: outcome.kind === 'failed' ? outcome.cause : null,
      });
      return;
    }
    if (!step.measured) return;
    const prompt = ok.promptTokens ?? step.uncached + step.cached;
    const cached = Math.min(prompt, ok.cachedTokens ?? step.cached);
    for (const target of this.targets) {
      target.calibrated(ok.ttftMs, { uncached: prompt - cached, cached });
    }
  }

  private probed(open: OpenOrder, outcome: GenerationOutcome, nowMs: number): void {
    const prober = this.probers[open.target.rank];
    const verdict = prober?.ended(probeOf(outcome), open.target.lastMovedMs, nowMs);
    this.touch();
    if (verdict === 'good') this.lifecycle.probeSucceeded(nowMs);
    if (verdict === 'bad') this.lifecycle.probeFailed(nowMs);
    if (verdict === 'good') return;
    this.scrapeDueMs = Math.min(this.scrapeDueMs, nowMs);
    this.context.log('warn', 'probe_failed', {
      replica: this.engine.replica,
      rank: open.target.rank,
      cause: outcome.kind === 'failed' ? outcome.cause : null,
      forgiven: verdict === 'forgiven',
    });
  }

  private loseOverdue(nowMs: number): void {
    if (this.scrapeSentMs !== null && nowMs >= this.scrapeSentMs + LOST_MS)
      this.scrapeSentMs = null;
    for (const [id, open] of this.orders) {
      if (nowMs < lostAtMs(open)) continue;
      const outcome = { kind: 'failed', cause: 'timeout' } as const;
      this.generated({ kind: 'generated', replica: this.engine.replica, id, outcome }, nowMs);
    }
  }

  /** No user's request, no foreign one. */
  private idle(): boolean {
    return this.targets.every((target) => {
      if (target.ledger.openCount() > 0 || target.backlog.size > 0) return false;
      if (target.scrape === null) return true;
      const { rank, sentMs } = target.scrape;
      const engine = (rank.running ?? 0) + (rank.waiting ?? 0);
      return engine <= target.history.momentAt(sentMs).open;
    });
  }

  /** The longest prompt that context and KV cache take, where known. */
  private limitTokens(): number | null {
    let limit = Infinity;
    limit = Math.min(limit, this.identity?.models[0]?.maxModelLen ?? Infinity);
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

  private notePhase(before: string): void {
    const { phase } = this.lifecycle;
    if (phase === before) return;
    this.touch();
    const level = phase === 'degraded' || phase === 'dead' ? 'warn' : 'info';
    this.context.log(level, 'phase', { replica: this.engine.replica, from: before, to: phase });
  }

  private touch(): void {
    for (const target of this.targets) target.version += 1;
  }
}

const ALIVE: ReadonlySet<string> = new Set(['warming', 'ready', 'degraded']);

function lostAtMs(open: OpenOrder): number {
  return open.sentMs + open.order.deadlineMs + LOST_MS;
}

function warmUpDeadlineMs(step: WarmUpStep): number {
  return FIRST_DEADLINE_MS + step.uncached * CALIBRATION_MS_PER_TOKEN;
}

function probeOf(outcome: GenerationOutcome) {
  if (outcome.kind === 'ok') return { ok: true, ttftMs: outcome.ttftMs, cause: null };
  return { ok: false, ttftMs: null, cause: outcome.cause };
}

/** A rank of which the exposition says nothing yet: everything unknown. */
function absentRank(rank: number): RankScrape {
  return {
    rank,
    running: null,
    waiting: null,
    kvUsageRatio: null,
    kvCapacityTokens: null,
    blockTokens: null,
    asleep: null,
    promptTokensTotal: null,
    computedTokensTotal: null,
    cachedTokensTotal: null,
    generationTokensTotal: null,
    preemptionsTotal: null,
    firstTokensTotal: null,
    itlSumSeconds: null,
    itlCount: null,
  };
}
