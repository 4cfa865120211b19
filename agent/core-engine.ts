// One engine of the agent: scraping, identity, incarnation and phase. It owns the targets.
//
// Until the first scrape has told what is there, and whether a router remembers this engine life, nothing is
// reported: an agent that restarts beside a living engine must not make it look cold.

import type { CoreContext } from './core-context.ts';
import { EngineDrain, type DrainView } from './core-drain.ts';
import { Generations } from './core-generations.ts';
import type { EngineFacts } from './core-report.ts';
import { EngineHealth } from './core-health.ts';
import type { LinkTable } from './core-links.ts';
import { EngineQuestions } from './core-questions.ts';
import { enginePhase, phaseOf, phaseSinceMs } from './core-phase.ts';
import { TargetState } from './core-target.ts';
import { absentRank } from './events.ts';
import type {
  AgentEngine,
  AgentEvent,
  EngineIdentity,
  EngineScrape,
  ProcessEvidence,
  ScrapeResult,
} from './events.ts';
import { IncarnationTracker } from './policy/incarnation.ts';
import { Lifecycle } from './policy/lifecycle.ts';
import type { Incarnation } from '../shared/model/ids.ts';
import type { Phase } from '../shared/model/phase.ts';
import type { LoadProgress } from '../shared/model/report.ts';
import type { ResumeState } from '../shared/protocol/messages.ts';

/** How long after the first good scrape a router's memory is waited for, ms. */
const RESUME_WAIT_MS = 1_000;
/** Nothing is held back longer than this after the start, ms. */
const QUIET_MAX_MS = 3_000;
/** A port that has just refused is asked again so soon, ms. */
const RECHECK_MS = 100;
/** Scrapes that fail in a row before it is said. */
const FAILED_SCRAPES = 3;
/** Of what routers remember: a bound, several routers times ranks. */
const MAX_OFFERS = 256;

const ALIVE: ReadonlySet<Phase> = new Set(['warming', 'ready']);
/** Those that an operator's mark stands above: the others take no requests anyway, and say more. */
const HIDDEN_BY_DRAIN: ReadonlySet<Phase> = new Set(['ready', 'degraded']);

type Of<Kind extends AgentEvent['kind']> = Extract<AgentEvent, { readonly kind: Kind }>;

export class EngineState {
  readonly engine: AgentEngine;
  readonly targets: readonly TargetState[];
  readonly lifecycle: Lifecycle;
  identity: EngineIdentity | null = null;
  private readonly context: CoreContext;
  private readonly tracker: IncarnationTracker;
  private readonly generations: Generations;
  private readonly startedMs: number;
  private readonly health: EngineHealth;
  private readonly marked = new EngineDrain();
  private readonly questions: EngineQuestions;
  private progress: LoadProgress | null = null;
  private offers: readonly ResumeState[] = [];
  private heard = false;
  /** In a row, answers that no engine gives, or none in time. */
  private failedScrapes = 0;
  /** Ranks in the last good scrape. */
  private shown = 0;
  private settleByMs: number | null = null;
  private stopped = false;
  private nowMs: number;

  constructor(context: CoreContext, engine: AgentEngine, nowMs: number) {
    const { settings } = context;
    this.context = context;
    this.engine = engine;
    this.startedMs = nowMs;
    this.nowMs = nowMs;
    this.questions = new EngineQuestions(context, engine.replica, nowMs);
    this.lifecycle = new Lifecycle(settings, nowMs);
    this.tracker = new IncarnationTracker(context.random);
    this.targets = Array.from(
      { length: Math.max(1, engine.ranks) },
      (_, rank) => new TargetState(context, engine.replica, rank),
    );
    const { lifecycle, targets } = this;
    this.generations = new Generations(context, { engine, lifecycle, targets });
    this.health = new EngineHealth(context, { engine, lifecycle, targets });
  }

  get incarnation(): Incarnation | null {
    return this.tracker.current;
  }

  /** Whether reports about it may go out. */
  get speaks(): boolean {
    const known = this.heard && this.settleByMs === null;
    return known || this.nowMs >= this.startedMs + QUIET_MAX_MS;
  }

  /** Of the engine as a whole. */
  get phase(): Phase {
    return this.asMarked(enginePhase(this.lifecycle, this.targets));
  }

  /** An operator has marked it. */
  get draining(): boolean {
    return this.marked.on;
  }

  /** Deaths in load since it last served. */
  get loadDeaths(): number {
    return this.lifecycle.loadDeaths;
  }

  facts(rank: number, nowMs: number): EngineFacts {
    const target = this.targets[rank];
    const own = target === undefined ? this.lifecycle.phase : phaseOf(this.lifecycle, target);
    const phase = this.asMarked(own);
    const ownSinceMs =
      target === undefined ? this.lifecycle.sinceMs : phaseSinceMs(this.lifecycle, target);
    const warmingMs = phase === 'warming' ? this.generations.etaMs(nowMs) : null;
    return {
      incarnation: this.tracker.current,
      phase,
      phaseSinceMs: phase === own ? ownSinceMs : this.marked.sinceOr(ownSinceMs),
      degradedFor: phase === 'degraded' ? (target?.health.degradedFor ?? null) : null,
      slowRatio: target?.cost.slow.ratio(nowMs) ?? null,
      progress: phase === 'loading' ? this.progress : null,
      gpus: this.health.gpus,
      etaMs: phase === 'loading' ? this.lifecycle.loadEtaMs(nowMs) : warmingMs,
      identity: this.identity,
      probe: this.generations.probeOf(rank),
    };
  }

  scraped(event: Of<'scraped'>, nowMs: number): void {
    this.questions.scraped();
    this.heard = true;
    if (this.stopped) return;
    const { result, evidence } = event;
    this.progress = evidence.progress;
    this.tracker.sawProcess(evidence.process);
    const before = this.lifecycle.phase;
    if (result.kind === 'ok') this.answered(result.scrape, event.sentMs, nowMs);
    else if (result.kind === 'refused') this.refused(evidence, nowMs);
    else if (result.kind === 'unready') this.unready(evidence, result, nowMs);
    else this.lifecycle.failed(evidence, nowMs);
    this.noteAnswer(result);
    this.notePhase(before);
    this.health.noteLoop();
  }

  gpusRead(event: Of<'gpus'>, nowMs: number): void {
    this.health.gpusRead(event, nowMs);
  }

  identified(event: Of<'identified'>, nowMs: number): void {
    const { result } = event;
    const known = result.kind === 'ok' && result.identity.models.length > 0;
    this.questions.identified(known, nowMs);
    if (known) {
      this.identity = result.identity;
      const contextTokens = contextOf(result.identity);
      for (const target of this.targets) {
        target.cost.toldSteps(result.identity.stepTokens ?? null);
        target.ledger.contextTokens = contextTokens;
      }
      this.touch();
      return;
    }
    const detail = result.kind === 'ok' ? 'no models' : result.detail;
    this.context.log('warn', 'identify_failed', { replica: this.engine.replica, detail });
  }

  generated(event: Of<'generated'>, nowMs: number): void {
    const before = this.lifecycle.phase;
    const end = this.generations.ended(event.id, event.outcome, nowMs);
    if (end === 'probe_failed') this.questions.scrapeBy(nowMs);
    this.notePhase(before);
    this.noteRanks();
  }

  /** KV events, as published or replayed. */
  kvHeard(event: Of<'kvEvents' | 'kvReplay'>, nowMs: number): void {
    const target = this.targets[event.rank];
    if (this.stopped || target === undefined) return;
    const verdict = target.kvHeard(event, nowMs);
    if (target.hearing.turnsImpossible(target.scrape?.rank.kvCapacityTokens ?? null)) {
      const { replica, rank } = target;
      this.context.log('warn', 'kv_events_impossible', { replica, rank });
    }
    if (verdict !== 'restarted') return;
    this.tracker.eventsBeganAnew();
    this.questions.scrapeBy(nowMs);
  }

  /** Marks it, or takes the mark off. */
  drain(on: boolean, nowMs: number): void {
    if (!this.marked.set(on, nowMs)) return;
    this.touch();
    // Whether it is empty, or which life of it is to be used, is to be known soon.
    this.questions.scrapeBy(nowMs);
    const { replica } = this.engine;
    this.context.log('info', on ? 'drain_begun' : 'drain_undone', { replica });
  }

  drainView(links: LinkTable, nowMs: number): DrainView | null {
    return this.marked.view({ targets: this.targets, links, serves: this.serves }, nowMs);
  }

  /** What a router remembers of this engine's earlier agent. */
  offer(states: readonly ResumeState[], nowMs: number): void {
    const before = this.lifecycle.phase;
    this.offers = [...this.offers, ...states].slice(-MAX_OFFERS);
    this.tryResume(nowMs);
    this.notePhase(before);
  }

  run(linksSettled: boolean, nowMs: number): void {
    this.nowMs = nowMs;
    if (this.stopped) return;
    const before = this.lifecycle.phase;
    this.generations.loseOverdue(nowMs);
    this.settle(linksSettled, nowMs);
    this.questions.run(this.serves, nowMs);
    if (this.canGenerate && this.identity !== null) this.generations.run(this.identity, nowMs);
    for (const target of this.targets) target.run(nowMs);
    this.notePhase(before);
    // The last look may have been at the middle of calibration.
    const proved = before !== 'ready' && this.lifecycle.phase === 'ready';
    if (proved) this.questions.scrapeBy(nowMs + RECHECK_MS);
    this.health.run(nowMs);
  }

  nextWakeMs(): number {
    if (this.stopped) return Infinity;
    let next = this.questions.nextWakeMs(this.serves);
    next = Math.min(next, this.settleByMs ?? Infinity, this.generations.nextLossMs());
    if (!this.speaks) next = Math.min(next, this.startedMs + QUIET_MAX_MS);
    if (this.canGenerate) next = Math.min(next, this.generations.nextWakeMs(this.nowMs));
    for (const target of this.targets) next = Math.min(next, target.nextWakeMs() ?? Infinity);
    return next;
  }

  stop(nowMs: number): void {
    this.stopped = true;
    this.lifecycle.drain(nowMs);
  }

  /** Said once, when it lasts: one late answer says nothing. */
  private noteAnswer(result: ScrapeResult): void {
    this.failedScrapes = result.kind === 'failed' ? this.failedScrapes + 1 : 0;
    if (result.kind !== 'failed' || this.failedScrapes !== FAILED_SCRAPES) return;
    const { replica } = this.engine;
    this.context.log('warn', 'scrape_failed', { replica, detail: result.detail });
  }

  /** Said as long as it holds: the shell takes this core away. */
  private noteRanks(): void {
    const { replica } = this.engine;
    const ranks = this.generations.ranksLeft;
    if (ranks !== null && ranks >= this.shown) {
      this.context.emit({ kind: 'fewerRanks', replica, ranks });
    }
  }

  private refused(evidence: ProcessEvidence, nowMs: number): void {
    this.tracker.refused();
    const { phase } = this.lifecycle;
    this.lifecycle.refused(evidence, nowMs);
    const undecided = phase === this.lifecycle.phase && ALIVE.has(phase);
    if (undecided) this.questions.scrapeBy(nowMs + RECHECK_MS);
  }

  /** What loads has not served before: it is another process. What stops is in nobody's way, but not to be used. */
  private unready(
    evidence: ProcessEvidence,
    { stage, detail }: Extract<ScrapeResult, { readonly kind: 'unready' }>,
    nowMs: number,
  ): void {
    const { replica } = this.engine;
    if (ALIVE.has(this.phase)) {
      this.context.log('warn', 'engine_unready', { replica, stage, detail });
    }
    if (stage === 'loading') {
      this.tracker.loads();
      this.lifecycle.loads(evidence, nowMs);
      return;
    }
    for (const { health } of this.targets) health.probed({ good: false, atPace: false }, nowMs);
  }

  private answered(scrape: EngineScrape, sentMs: number, nowMs: number): void {
    this.shown = scrape.ranks.length;
    const firstLife = this.tracker.current === null;
    const before = this.lifecycle.phase;
    const verdict = this.tracker.scraped(scrape);
    this.lifecycle.answered(
      scrape.ranks.some((rank) => rank.asleep === true),
      nowMs,
    );
    const { phase } = this.lifecycle;
    if (phase === 'asleep' && before !== 'asleep') {
      for (const target of this.targets) {
        target.hearing.emptied(nowMs);
        target.cacheEmptied();
      }
    }
    if (verdict === 'same') for (const { hearing } of this.targets) hearing.sameProcess();
    if (verdict === 'new' && !firstLife) this.reborn(nowMs);
    else if (verdict !== 'same') this.firstSeen(nowMs);
    else if (phase === 'warming' && before !== 'warming') this.generations.proveAgain();
    if (this.marked.seen(sentMs)) this.unmarked(nowMs);
    for (const target of this.targets) {
      const rank = scrape.ranks.find((each) => each.rank === target.rank);
      target.scraped(rank ?? absentRank(target.rank), sentMs, nowMs);
    }
  }

  /** Seen for the first time since an operator's mark is off: what serves proves itself. */
  private unmarked(nowMs: number): void {
    if (this.lifecycle.phase === 'ready') this.generations.doubt(nowMs);
    this.touch();
  }

  private firstSeen(nowMs: number): void {
    const { current } = this.tracker;
    if (current !== null) this.incarnate(current, false, nowMs);
    this.settleByMs ??= nowMs + RESUME_WAIT_MS;
    this.tryResume(nowMs);
  }

  private reborn(nowMs: number): void {
    const { current } = this.tracker;
    if (current === null) return;
    const { replica } = this.engine;
    this.context.log('info', 'engine_restarted', { replica, incarnation: current });
    this.lifecycle.reborn(nowMs);
    this.incarnate(current, true, nowMs);
    this.generations.reset();
    this.offers = [];
    this.settleByMs = null;
    this.identity = null;
    this.questions.identifyAt(nowMs);
  }

  /** Takes the engine over from an earlier agent, when a router remembers this very life of it. */
  private tryResume(nowMs: number): void {
    const waits = this.settleByMs !== null || this.lifecycle.phase === 'warming';
    if (!this.heard || !waits) return;
    const match = this.offers.find((state) => this.tracker.matches(state));
    if (match === undefined) return;
    const { incarnation } = match;
    this.tracker.resume(incarnation);
    this.incarnate(incarnation, false, nowMs);
    for (const target of this.targets) {
      const state = this.offers.find(
        (each) => each.rank === target.rank && each.incarnation === incarnation,
      );
      if (state === undefined) continue;
      target.resume(state, nowMs);
      if (match.prefillCost !== null) target.health.prove(nowMs);
    }
    this.offers = [];
    this.settleByMs = null;
    const calibrated = match.prefillCost !== null;
    const { replica } = this.engine;
    this.context.log('info', 'engine_resumed', { replica, incarnation, calibrated });
    if (!calibrated) return;
    // Known good a moment ago: it proves itself soon, not first.
    this.lifecycle.warmedUp(nowMs);
    this.generations.trust(RESUME_WAIT_MS, nowMs);
  }

  private settle(linksSettled: boolean, nowMs: number): void {
    if (this.settleByMs === null) return;
    if (nowMs < this.settleByMs && !linksSettled) return;
    this.settleByMs = null;
    if (this.tracker.current === null) this.incarnate(this.tracker.invent(), false, nowMs);
  }

  private incarnate(incarnation: Incarnation, reborn: boolean, nowMs: number): void {
    for (const target of this.targets) target.incarnate(incarnation, reborn, nowMs);
  }

  private asMarked(phase: Phase): Phase {
    return this.marked.holds && HIDDEN_BY_DRAIN.has(phase) ? 'draining' : phase;
  }

  private get serves(): boolean {
    return ALIVE.has(this.lifecycle.phase);
  }

  private get canGenerate(): boolean {
    return this.settleByMs === null && this.identity !== null && this.tracker.current !== null;
  }

  private notePhase(before: Phase): void {
    const { phase } = this.lifecycle;
    if (phase === before) return;
    this.touch();
    const level = phase === 'dead' ? 'warn' : 'info';
    this.context.log(level, 'phase', { replica: this.engine.replica, from: before, to: phase });
  }

  private touch(): void {
    for (const target of this.targets) target.version += 1;
  }
}

/** Tokens of the longest context among its models; Infinity where one is unknown. */
function contextOf({ models }: EngineIdentity): number {
  return Math.max(...models.map(({ maxModelLen }) => maxModelLen ?? Infinity));
}
