// The agent's links: which router is behind each, how often it wants reports, what it holds queued, and what
// has been sent to it.

import type { TargetState } from './core-target.ts';
import type { AgentLinkView } from './events.ts';
import { Echo } from './policy/echo.ts';
import { ReportPace, TURN_INTERVAL_MAX_MS, type Turn } from './policy/report-pace.ts';
import { placeOf, type QueueClaim } from './policy/queue-place.ts';
import type { Heard } from './policy/foreign.ts';
import type { LedgerLink } from './policy/ledger.ts';
import type { LinkId, ReplicaId, RouterId } from '../shared/model/ids.ts';
import type { QueuedWork, QueuePlace } from '../shared/model/report.ts';
import type { Pace, Queued, Welcome } from '../shared/protocol/messages.ts';

/** A router that leaves an echo unanswered for so long is not there, whatever its link says, ms. */
const SILENT_MS = 3_000;

/** No router makes an agent report without a pause, ms. */
const INTERVAL_MIN_MS = 10;

/** What has been sent over one link about one target. */
export interface SentState {
  reportedVersion: number;
  readonly pace: ReportPace;
  /** Of the last prefix message; null before the snapshot. */
  prefixSeq: number | null;
  /** When the last snapshot went. */
  snapshotMs: number;
  /** Life of the index that the last prefix message was about. */
  prefixLife: string;
  /** How far its router has been heard about the target. */
  readonly echo: Echo;
  /** Up to which event of each other router the last report said to include. */
  readonly othersAcked: Map<RouterId, number>;
}

export class AgentLink {
  readonly link: LinkId;
  /** Grows with every link that comes up. */
  readonly order: number;
  /** Null before its welcome. */
  router: RouterId | null = null;
  siblings: readonly string[] = [];
  minReportIntervalMs = 0;
  /** Its instant of every interval, while routers hold requests back. */
  turn: Turn = { index: 0, count: 1 };
  /** Its router answers reports that ask for an echo. */
  echoes = false;
  /** Its router expects long deltas in parts. */
  takesParts = false;
  /** Its router asks which events of other routers a report includes. */
  hearsOthers = false;
  /** What its router holds back, as last told. */
  private told: { readonly queued: Queued; readonly atMs: number } | null = null;
  /** Its router has sent something since. */
  private released = false;
  readonly fenced = new Set<ReplicaId>();
  private readonly sent = new Map<TargetState, SentState>();

  constructor(link: LinkId, order: number) {
    this.link = link;
    this.order = order;
  }

  welcome(message: Welcome): void {
    this.router = message.routerId;
    this.siblings = message.siblings;
    this.minReportIntervalMs = Math.max(INTERVAL_MIN_MS, message.minReportIntervalMs);
    this.echoes = message.features.includes('heard');
    this.takesParts = message.features.includes('delta_parts');
    this.hearsOthers = message.features.includes('others_acked');
  }

  queues(queued: Queued, nowMs: number): void {
    this.told = { queued, atMs: nowMs };
    this.released = false;
  }

  /** A request came from its router: what was the next in its queue may be this one. */
  noteRelease(): void {
    this.released = true;
  }

  /** What its router holds back; null where that is nothing. */
  get queued(): Queued | null {
    return this.told === null || this.told.queued.requests === 0 ? null : this.told.queued;
  }

  get claim(): QueueClaim | null {
    const { told } = this;
    if (told === null || told.queued.requests === 0 || told.queued.topPriority === null)
      return null;
    const { headAgeMs, topPriority } = told.queued;
    const sinceMs = headAgeMs === undefined ? null : told.atMs - headAgeMs;
    return { order: this.order, topPriority, headMs: this.released ? null : sinceMs, sinceMs };
  }

  pace(message: Pace): void {
    this.minReportIntervalMs = Math.max(INTERVAL_MIN_MS, message.minReportIntervalMs);
  }

  /** A router that does not answer is taken to be heard at once. */
  heard(target: TargetState): Heard {
    if (this.router === null) return { untilMs: -Infinity, lateMs: 0, sure: true };
    if (this.fenced.has(target.replica)) return { untilMs: Infinity, lateMs: 0, sure: true };
    if (!this.echoes) return { untilMs: Infinity, lateMs: 0, sure: false };
    return this.sentState(target).echo.heard;
  }

  /** Its router answers nothing: its host may have gone without a word. */
  isSilent(target: TargetState, nowMs: number): boolean {
    return this.echoes && this.sentState(target).echo.outstandingMs(nowMs) > SILENT_MS;
  }

  /** The link as the ledger knows it; null before its welcome. */
  ledgerLink(): LedgerLink | null {
    if (this.router === null) return null;
    return { link: this.link, order: this.order, router: this.router };
  }

  sentState(target: TargetState): SentState {
    let state = this.sent.get(target);
    if (state === undefined) {
      state = {
        reportedVersion: -1,
        pace: new ReportPace(),
        prefixSeq: null,
        snapshotMs: -Infinity,
        prefixLife: '',
        echo: new Echo(),
        othersAcked: new Map(),
      };
      this.sent.set(target, state);
    }
    return state;
  }
}

export class LinkTable {
  private readonly links = new Map<LinkId, AgentLink>();
  private withWelcome: readonly AgentLink[] = [];
  private order = 0;

  up(id: LinkId): AgentLink {
    this.order += 1;
    const link = new AgentLink(id, this.order);
    this.links.set(id, link);
    return link;
  }

  down(id: LinkId): void {
    this.links.delete(id);
    this.giveTurns();
  }

  /** After a welcome: each link has its own instant for reports that are given in turn. */
  giveTurns(): void {
    const links = [...this.links.values()].filter(({ router }) => router !== null);
    this.withWelcome = links;
    links.forEach((link, index) => {
      link.turn = { index, count: links.length };
    });
  }

  get(id: LinkId): AgentLink | undefined {
    return this.links.get(id);
  }

  /** Links whose welcome has come, in the order of coming up: asked for each of them at every event. */
  welcomed(): readonly AgentLink[] {
    return this.withWelcome;
  }

  /** The longest least interval that a router has named, ms. */
  get minReportIntervalMs(): number {
    let longest = 0;
    for (const link of this.welcomed()) longest = Math.max(longest, link.minReportIntervalMs);
    return longest;
  }

  /** At least one link is up and every one has had its welcome. */
  get settled(): boolean {
    for (const link of this.links.values()) if (link.router === null) return false;
    return this.links.size > 0;
  }

  /** What all routers have been heard of: the latest of them decides. */
  heard(target: TargetState): Heard {
    let untilMs = Infinity;
    let lateMs = 0;
    let sure = true;
    for (const link of this.links.values()) {
      const heard = link.heard(target);
      untilMs = Math.min(untilMs, heard.untilMs);
      lateMs = Math.max(lateMs, heard.lateMs);
      sure &&= heard.sure;
    }
    return { untilMs, lateMs, sure };
  }

  /** Of whom no first token is waited for; null where all are there. */
  silentRouters(target: TargetState, nowMs: number): ReadonlySet<RouterId> | null {
    let silent: Set<RouterId> | null = null;
    for (const link of this.welcomed()) {
      if (link.router === null || link.fenced.has(target.replica)) continue;
      if (link.isSilent(target, nowMs)) (silent ??= new Set()).add(link.router);
    }
    return silent;
  }

  /** Distinct routers; a router that is linked twice counts once. */
  get routers(): number {
    return this.newestByRouter().size;
  }

  /** Some router of several holds requests back: reports go in turn, where a turn comes soon. */
  get inTurn(): boolean {
    let count = 0;
    let queueing = false;
    for (const link of this.welcomed()) {
      if (link.minReportIntervalMs > TURN_INTERVAL_MAX_MS) return false;
      count += 1;
      queueing ||= link.queued !== null;
    }
    return queueing && count > 1;
  }

  /** What the routers hold queued for this pool, together. */
  queued(): QueuedWork {
    let prefillMs = 0;
    let requests = 0;
    let topPriority: number | null = null;
    let routersQueueing = 0;
    for (const link of this.newestByRouter().values()) {
      const queued = link.queued;
      if (queued === null) continue;
      prefillMs += queued.prefillMs;
      requests += queued.requests;
      routersQueueing += 1;
      if (queued.topPriority !== null) {
        topPriority = Math.min(topPriority ?? Infinity, queued.topPriority);
      }
    }
    return { prefillMs, requests, topPriority, routersQueueing };
  }

  /**
   * How the queue of this link's router stands among the others'; null where no other queues. What a silent router
   * held back is nobody's any more.
   */
  placeFor(link: AgentLink, target: TargetState, nowMs: number): QueuePlace | null {
    const others: QueueClaim[] = [];
    for (const other of this.newestByRouter().values()) {
      if (other.router === link.router || other.isSilent(target, nowMs)) continue;
      const { claim } = other;
      if (claim !== null) others.push(claim);
    }
    return others.length === 0 ? null : placeOf(link.claim, others, nowMs);
  }

  view(): AgentLinkView[] {
    return [...this.links.values()].map((link) => ({
      link: link.link,
      routerId: link.router,
      siblings: link.siblings,
    }));
  }

  private newestByRouter(): Map<RouterId, AgentLink> {
    const newest = new Map<RouterId, AgentLink>();
    for (const link of this.welcomed()) {
      const { router } = link;
      if (router === null) continue;
      const other = newest.get(router);
      if (other === undefined || other.order < link.order) newest.set(router, link);
    }
    return newest;
  }
}
