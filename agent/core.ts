// The agent's core: one deterministic state machine for all its engines and links.
//
// Events in, effects out; it never awaits and never throws for outside causes. The driver carries the effects
// out in order, then arms one timer for `nextWakeMs()` and delivers a tick.

import type { CoreContext } from './core-context.ts';
import { EngineState } from './core-engine.ts';
import { LinkTable } from './core-links.ts';
import type { AgentLink } from './core-links.ts';
import { ALONG, TURN_INTERVAL_MAX_MS, turnLengthMs, type PaceInput } from './policy/report-pace.ts';
import { PrefixFeed } from './core-prefixes.ts';
import { buildReport } from './core-report.ts';
import type { AgentStatus } from './core-status.ts';
import type { LedgerMessage, TargetState } from './core-target.ts';
import type { AgentEffect, AgentEngine, AgentEvent } from './events.ts';
import type { Random } from '../shared/lib/random.ts';
import type { AgentId, LinkId, PoolId, ReplicaId } from '../shared/model/ids.ts';
import type { QueuedWork, ReplicaReport } from '../shared/model/report.ts';
import type { AgentSettings } from '../shared/model/settings.ts';
import { AGENT_FEATURES, PROTOCOL_VERSION } from '../shared/protocol/messages.ts';
import type {
  HeardReport,
  ReportMessage,
  Resync,
  RouterMessage,
  Welcome,
} from '../shared/protocol/messages.ts';

export type { AgentStatus } from './core-status.ts';

export interface AgentCoreDeps {
  readonly agentId: AgentId;
  readonly pool: PoolId;
  readonly engines: readonly AgentEngine[];
  readonly settings: AgentSettings;
  readonly random: Random;
  readonly software: string;
  /** Where the address proof is answered; null without an HTTP listener. */
  readonly proofPort: number | null;
  /** ms since 1970, only for the hello. */
  readonly wallMs: () => number;
}

export class AgentCore {
  private readonly deps: AgentCoreDeps;
  private readonly context: CoreContext;
  private readonly links = new LinkTable();
  private engines: ReadonlyMap<ReplicaId, EngineState> = new Map();
  private effects: AgentEffect[] = [];
  private uniques = 0;
  private stopped = false;
  private readonly prefixes: PrefixFeed;

  constructor(deps: AgentCoreDeps) {
    this.deps = deps;
    this.context = {
      settings: deps.settings,
      random: deps.random,
      emit: (effect) => this.effects.push(effect),
      log: (level, code, fields) => this.effects.push({ kind: 'log', level, code, fields }),
      unique: () => this.unique(),
    };
    this.prefixes = new PrefixFeed(this.context, this.links);
  }

  /** Takes one event and says what is to be done, in order. */
  handle(event: AgentEvent, nowMs: number): AgentEffect[] {
    this.effects = [];
    this.take(event, nowMs);
    if (!this.stopped) {
      for (const target of this.targets()) {
        target.heard(this.links.heard(target), nowMs);
        target.silent(this.links.silentRouters(target, nowMs));
      }
      for (const engine of this.engines.values()) engine.run(this.links.settled, nowMs);
      this.report(nowMs);
    }
    return this.effects;
  }

  /** When a tick is wanted next; null when only outside events matter. */
  nextWakeMs(): number | null {
    if (this.stopped || this.engines.size === 0) return null;
    let next = Infinity;
    for (const engine of this.engines.values()) {
      next = Math.min(next, engine.nextWakeMs());
    }
    return Math.min(next, this.nextReportMs());
  }

  status(nowMs: number): AgentStatus {
    return {
      agentId: this.deps.agentId,
      pool: this.deps.pool,
      engines: [...this.engines.values()].map((engine) => ({
        replica: engine.engine.replica,
        advertiseUrl: engine.engine.advertiseUrl,
        phase: engine.phase,
        loadDeaths: engine.loadDeaths,
        phaseForMs: nowMs - engine.lifecycle.sinceMs,
        drain: engine.drainView(this.links, nowMs),
        incarnation: engine.incarnation,
        identity: engine.identity,
        targets: engine.targets.map((target) => ({
          rank: target.rank,
          report: this.reportOf(engine, target, nowMs),
          openLeases: target.ledger.openCount(),
          waitingRequests: target.backlog.size,
          costObservations: target.cost.observations,
          kvEvents: target.hearing.heard,
        })),
      })),
      links: this.links.view(),
    };
  }

  private take(event: AgentEvent, nowMs: number): void {
    switch (event.kind) {
      case 'start':
        this.start(nowMs);
        break;
      case 'tick':
        break;
      case 'scraped':
        this.engines.get(event.replica)?.scraped(event, nowMs);
        break;
      case 'identified':
        this.engines.get(event.replica)?.identified(event, nowMs);
        break;
      case 'generated':
        this.engines.get(event.replica)?.generated(event, nowMs);
        break;
      case 'kvEvents':
      case 'kvReplay':
        this.engines.get(event.replica)?.kvHeard(event, nowMs);
        break;
      case 'gpus':
        this.engines.get(event.replica)?.gpusRead(event, nowMs);
        break;
      case 'drain':
        this.engines.get(event.replica)?.drain(event.on, nowMs);
        break;
      case 'linkUp':
        this.linkUp(event.link);
        break;
      case 'linkDown':
        this.linkDown(event.link, nowMs);
        break;
      case 'message':
        this.message(event.link, event.message, nowMs);
        break;
      case 'stop':
        this.stop(nowMs);
        break;
    }
  }

  private start(nowMs: number): void {
    if (this.engines.size > 0) return;
    this.engines = new Map(
      this.deps.engines.map((engine) => [
        engine.replica,
        new EngineState(this.context, engine, nowMs),
      ]),
    );
  }

  private linkUp(id: LinkId): void {
    const { deps } = this;
    this.links.up(id);
    this.context.emit({
      kind: 'send',
      link: id,
      message: {
        kind: 'hello',
        protocol: [PROTOCOL_VERSION, PROTOCOL_VERSION],
        features: AGENT_FEATURES,
        agentId: deps.agentId,
        software: deps.software,
        pool: deps.pool,
        engines: deps.engines,
        proofPort: deps.proofPort,
        wallMs: deps.wallMs(),
      },
    });
  }

  private linkDown(id: LinkId, nowMs: number): void {
    this.links.down(id);
    for (const target of this.targets()) target.linkDown(id, nowMs);
    this.touchAll();
  }

  private message(id: LinkId, message: RouterMessage, nowMs: number): void {
    const link = this.links.get(id);
    if (link === undefined) return;
    switch (message.kind) {
      case 'welcome':
        this.welcome(link, message, nowMs);
        break;
      case 'leases':
      case 'sent':
      case 'firstToken':
      case 'ended':
        this.ledger(link, message, nowMs);
        break;
      case 'queued':
        if (message.pool === this.deps.pool) link.queues(message, nowMs);
        this.touchAll();
        break;
      case 'fence':
        link.fenced.add(message.replica);
        this.context.log('warn', 'fenced', { replica: message.replica, router: link.router });
        break;
      case 'pace':
        link.pace(message);
        break;
      case 'resync':
        this.resync(link, message);
        break;
      case 'heard':
        this.heard(link, message, nowMs);
        break;
    }
  }

  private resync(link: AgentLink, message: Resync): void {
    const target = this.engines.get(message.replica)?.targets[message.rank];
    if (target !== undefined) link.sentState(target).prefixSeq = null;
  }

  private heard(link: AgentLink, message: HeardReport, nowMs: number): void {
    const target = this.engines.get(message.replica)?.targets[message.rank];
    if (target !== undefined) link.sentState(target).echo.answered(message.reportSeq, nowMs);
  }

  private welcome(link: AgentLink, message: Welcome, nowMs: number): void {
    if (message.protocol !== PROTOCOL_VERSION) {
      this.context.emit({ kind: 'close', link: link.link, reason: 'protocol_too_old' });
      return;
    }
    link.welcome(message);
    this.links.giveTurns();
    for (const engine of this.engines.values()) {
      engine.offer(
        message.resume.filter((state) => state.replica === engine.engine.replica),
        nowMs,
      );
    }
    this.touchAll();
  }

  private ledger(link: AgentLink, message: LedgerMessage, nowMs: number): void {
    const from = link.ledgerLink();
    const target = this.engines.get(message.replica)?.targets[message.rank];
    if (from === null || target === undefined) return;
    if (message.kind === 'sent') link.noteRelease();
    const verdict = target.message(from, message, nowMs);
    if (verdict !== 'gap') return;
    this.context.log('error', 'ledger_gap', { replica: message.replica, router: from.router });
  }

  private report(nowMs: number): void {
    const hearing = this.linksDue(nowMs);
    const earlyMs = hearing.size === 0 ? 0 : ALONG * this.links.minReportIntervalMs;
    for (const engine of this.engines.values()) {
      if (!engine.speaks) continue;
      for (const target of engine.targets) {
        if (hearing.size > 0) this.reportTarget(engine, target, { hearing, nowMs });
        this.prefixes.flush(engine.incarnation, target, { nowMs, earlyMs });
      }
    }
  }

  /** Links on which a report of some target is due. */
  private linksDue(nowMs: number): ReadonlySet<AgentLink> {
    const due = new Set<AgentLink>();
    for (const engine of this.engines.values()) {
      if (!engine.speaks) continue;
      for (const target of engine.targets) {
        for (const link of this.links.welcomed()) {
          const fenced = link.fenced.has(target.replica);
          if (!fenced && this.dueMs(link, target) <= nowMs) due.add(link);
        }
      }
    }
    return due;
  }

  private reportTarget(
    engine: EngineState,
    target: TargetState,
    { hearing, nowMs }: { readonly hearing: ReadonlySet<AgentLink>; readonly nowMs: number },
  ): void {
    let report: ReplicaReport | null = null;
    for (const link of hearing) {
      if (link.fenced.has(target.replica) || this.dueMs(link, target, true) > nowMs) continue;
      if (report === null) {
        target.reportSeq += 1;
        report = this.reportOf(engine, target, nowMs);
      }
      const sent = link.sentState(target);
      sent.pace.reported(this.paceOf(link, target), nowMs);
      sent.reportedVersion = target.version;
      const from = link.ledgerLink();
      const ackedSeq = from === null ? -1 : target.ledger.ackedSeq(from);
      const scrapeMs = target.scrape?.sentMs ?? null;
      const echo = link.echoes && scrapeMs !== null && sent.echo.wants(scrapeMs);
      if (echo) sent.echo.ask({ seq: report.seq, scrapeMs }, nowMs);
      const queued = this.queuedFor({ link, target }, report.queued, nowMs);
      const told = { kind: 'report', report: { ...report, queued, ackedSeq } } as const;
      const others = link.hearsOthers
        ? target.ledger.othersAcked(link.router, sent.othersAcked)
        : [];
      const message: ReportMessage = {
        ...told,
        ...(echo ? { echo } : {}),
        ...(others.length === 0 ? {} : { othersAcked: others }),
      };
      this.context.emit({ kind: 'send', link: link.link, message });
    }
  }

  /** A router with others that queue beside it is told how it stands among them. */
  private queuedFor(
    { link, target }: { link: AgentLink; target: TargetState },
    queued: QueuedWork,
    nowMs: number,
  ): QueuedWork {
    if (queued.routersQueueing === 0) return queued;
    const place = this.links.placeFor(link, target, nowMs);
    // None of the sum's routers but this one: it is alone.
    if (place === null) return { ...queued, place: { othersTop: null, othersAtTop: 0, before: 0 } };
    if (!this.links.inTurn) return { ...queued, place };
    const turnMs = turnLengthMs(link.turn.count, link.minReportIntervalMs);
    const othersRequests = Math.max(0, queued.requests - (link.queued?.requests ?? 0));
    return { ...queued, place: { ...place, turnMs, othersRequests } };
  }

  /** When the next report of a target is due on a link; `along`: beside another one. */
  private dueMs(link: AgentLink, target: TargetState, along = false): number {
    return link.sentState(target).pace.dueMs(this.paceOf(link, target), along);
  }

  private paceOf(link: AgentLink, target: TargetState): PaceInput {
    return {
      intervalMs: link.minReportIntervalMs,
      longestMs: this.deps.settings.reportMaxIntervalMs,
      changed: link.sentState(target).reportedVersion !== target.version,
      falling: target.backlog.size > 0,
      othersSent: target.ledger.sentByOthers(link.router),
      turn: this.links.inTurn ? link.turn : null,
      lane:
        link.minReportIntervalMs > TURN_INTERVAL_MAX_MS && link.turn.count > 1
          ? { ...link.turn, phase: target.phase }
          : null,
    };
  }

  private nextReportMs(): number {
    let next = Infinity;
    for (const engine of this.engines.values()) {
      if (!engine.speaks) continue;
      for (const target of engine.targets) {
        next = Math.min(next, this.prefixes.dueMs(engine.incarnation, target));
        for (const link of this.links.welcomed()) {
          if (!link.fenced.has(target.replica)) next = Math.min(next, this.dueMs(link, target));
        }
      }
    }
    return next;
  }

  private reportOf(engine: EngineState, target: TargetState, nowMs: number): ReplicaReport {
    const { settings } = this.deps;
    const links = { routers: this.links.routers, queued: this.links.queued() };
    return buildReport(
      target,
      { engine: engine.facts(target.rank, nowMs), links, settings },
      nowMs,
    );
  }

  private stop(nowMs: number): void {
    this.stopped = true;
    for (const engine of this.engines.values()) {
      engine.stop(nowMs);
      const { replica } = engine.engine;
      const reason = engine.draining ? 'drained' : 'shutdown';
      for (const link of this.links.welcomed()) {
        if (link.fenced.has(replica)) continue;
        const message = { kind: 'bye', replica, reason } as const;
        this.context.emit({ kind: 'send', link: link.link, message });
      }
    }
  }

  private *targets(): IterableIterator<TargetState> {
    for (const engine of this.engines.values()) yield* engine.targets;
  }

  private touchAll(): void {
    for (const target of this.targets()) target.version += 1;
  }

  private unique(): string {
    this.uniques += 1;
    return `${this.deps.agentId}-${this.uniques.toString(36)}`;
  }
}
