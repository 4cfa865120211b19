// One target (replica and rank) as its agent knows it: the ledger, what waits, what was learned, what the
// last scrapes said. Straight-line: the policies decide.

import type { CoreContext } from './core-context.ts';
import { TargetCost } from './core-cost.ts';
import type { PromptTokens } from './core-cost.ts';
import type { AgentEvent, GenerateOrder, GenerationOutcome, RankScrape } from './events.ts';
import { Admission } from './policy/admission.ts';
import { Backlog, entryMs } from './policy/backlog.ts';
import type { UntoldWork } from './policy/backlog.ts';
import { EngineTold } from './policy/engine-told.ts';
import { ForeignTraffic } from './policy/foreign.ts';
import type { Foreign, Heard } from './policy/foreign.ts';
import { Health } from './policy/health.ts';
import { HitTrust } from './policy/hit-trust.ts';
import { KvBook } from './policy/kv-book.ts';
import { KvHearing } from './policy/kv-hearing.ts';
import { LedgerHistory } from './policy/ledger-history.ts';
import { Ledger, requestsOf } from './policy/ledger.ts';
import type { LedgerEntry, LedgerLink, LedgerVerdict } from './policy/ledger.ts';
import { LifeSigns } from './policy/life-signs.ts';
import { phaseOf } from './policy/report-pace.ts';
import { ScrapeRates } from './policy/scrape-rates.ts';
import { SlotEstimate } from './policy/slots.ts';
import { TokenRatio } from './policy/token-ratio.ts';
import { UnstreamedCount } from './policy/unstreamed.ts';
import type { Incarnation, LeaseId, LinkId, ReplicaId, RouterId } from '../shared/model/ids.ts';
import type { LeaseFacts, ResumeState, RouterMessage } from '../shared/protocol/messages.ts';

const FOREIGN_EVERY_MS = 100;
/** Waiting tokens by which ledger and engine may differ unsaid. */
const DISAGREE_TOKENS = 16_384;
/** Mean prompt assumed before anything was seen, tokens. */
const ASSUMED_PROMPT = 512;

export type LedgerMessage = Extract<
  RouterMessage,
  { readonly kind: 'leases' | 'sent' | 'firstToken' | 'ended' }
>;

type KvMessage = Extract<AgentEvent, { readonly kind: 'kvEvents' | 'kvReplay' }>;

export class TargetState {
  readonly replica: ReplicaId;
  readonly rank: number;
  /** Of its reports, where they go at set instants. */
  readonly phase: number;
  readonly ledger: Ledger;
  readonly backlog = new Backlog();
  readonly history = new LedgerHistory();
  readonly rates = new ScrapeRates();
  readonly slots: SlotEstimate;
  readonly trust = new HitTrust();
  readonly ratio = new TokenRatio();
  readonly cost: TargetCost;
  readonly hearing = new KvHearing();
  readonly told = new EngineTold();
  readonly kv: KvBook;
  readonly health: Health;
  readonly signs = new LifeSigns();
  /** The last good scrape and when it was asked for. */
  scrape: { readonly rank: RankScrape; readonly sentMs: number } | null = null;
  /** Grows with every change that a report would show. */
  version = 0;
  reportSeq = 0;
  private readonly context: CoreContext;
  private readonly admission = new Admission();
  private readonly foreign = new ForeignTraffic();
  private readonly unstreamed = new UnstreamedCount();
  private disagreed = false;
  private nowMs = -Infinity;
  private foreignCounted: { readonly atMs: number; readonly foreign: Foreign | null } | null = null;
  /** Users' requests were in the engine at some time since the last scrape. */
  private usersSeen = false;

  constructor(context: CoreContext, replica: ReplicaId, rank: number) {
    this.replica = replica;
    this.rank = rank;
    this.phase = phaseOf(`${replica}#${rank}`);
    const { settings } = context;
    this.slots = new SlotEstimate(settings.runningMax);
    this.cost = new TargetCost(settings);
    this.context = context;
    this.health = new Health(settings.probeRecoveries);
    this.kv = new KvBook(() => ({
      bytesPerToken: this.ratio.mean,
      capacityTokens: this.scrape?.rank.kvCapacityTokens ?? null,
      itlMs: this.rates.itlMs,
      contextTokens: this.ledger.contextTokens,
      cachedTokens: this.hearing.blocks.cachedTokens(this.scrape?.rank.kvCapacityTokens ?? null),
      evictedBeforeMs: this.hearing.blocks.horizonMs,
    }));
    this.ledger = new Ledger({
      linkGraceMs: settings.linkGraceMs,
      listener: {
        opened: (entry) => this.opened(entry),
        firstToken: (entry) => this.showedFirstToken(entry),
        closed: (entry) => this.closed(entry),
        full: () => context.emit({ kind: 'limit', limit: 'ledger' }),
      },
    });
  }

  message(from: LedgerLink, message: LedgerMessage, nowMs: number): LedgerVerdict {
    if (this.nowMs === -Infinity) this.backlog.beginAt(nowMs);
    this.nowMs = nowMs;
    const verdict = this.deliver(from, message, nowMs);
    if (verdict === 'applied' || verdict === 'gap') this.version += 1;
    return verdict;
  }

  linkDown(link: LinkId, nowMs: number): void {
    this.ledger.linkDown(link, nowMs);
  }

  scraped(rank: RankScrape, sentMs: number, nowMs: number): void {
    this.nowMs = nowMs;
    const foreignBefore = this.hasForeign();
    const users = this.usersSeen || foreignBefore;
    this.usersSeen = this.ledger.openCount() > 0;
    const lastMs = this.scrape?.sentMs ?? sentMs;
    const own = foreignBefore ? this.history.prefilledBetween(lastMs, sentMs) : null;
    this.scrape = { rank, sentMs };
    this.rates.scraped(rank, { users, own }, sentMs);
    this.signs.moved(this.rates.movedMs);
    this.told.scraped(rank, this.backlog.figures(this.cost.curve(), nowMs).waitingTokens);
    this.slots.tell(rank.runningMax);
    this.foreignCounted = null;
    const { running, waiting, kvUsageRatio } = rank;
    this.foreign.scraped({ atMs: sentMs, running, waiting });
    this.correctUnstreamed(rank.firstTokensTotal, sentMs);
    const known = this.history.momentAt(sentMs, { lateMs: 0, movedMs: this.rates.movedMs });
    const foreign = this.foreignNow(nowMs);
    const { head } = this.backlog;
    const load = { atMs: sentMs, running, waiting };
    const oldestMs = head?.sentMs ?? null;
    const blocked = this.admission.scraped({ ...load, known, foreign, oldestMs });
    const firstTokensTotal = rank.firstTokensTotal ?? rank.promptTokensTotal;
    const gauges = { running, waiting, kvUsageRatio, firstTokensTotal };
    const kvRoom = hasKvRoom(rank, head);
    this.slots.scraped({ ...gauges, blocked, kvRoom }, nowMs);
    this.admit(nowMs);
    this.noteDisagreement(nowMs);
    this.kv.fit(nowMs);
    this.version += 1;
  }

  /** Routers have been heard so far. */
  heard(heard: Heard, nowMs: number): void {
    if (!this.foreign.heard(heard)) return;
    this.nowMs = nowMs;
    this.dropOrphans(nowMs);
    this.foreignCounted = null;
    this.version += 1;
  }

  /** These routers answer nothing: first tokens of their requests will not be told. */
  silent(routers: ReadonlySet<RouterId> | null): void {
    this.backlog.silent = routers;
  }

  /** The engine is another process, or seen for the first time by this agent (`incarnation` settles). */
  incarnate(incarnation: Incarnation, reborn: boolean, nowMs: number): void {
    this.nowMs = nowMs;
    this.ledger.incarnate(incarnation, nowMs);
    this.version += 1;
    if (!reborn) return;
    this.backlog.clear();
    this.history.clear();
    this.foreign.clear();
    this.rates.clear();
    this.told.clear();
    this.disagreed = false;
    this.slots.clear();
    this.admission.clear();
    this.unstreamed.clear();
    this.kv.clear();
    this.trust.reset();
    this.hearing.reborn();
    this.cost.reborn();
    this.scrape = null;
    this.signs.moved(nowMs);
  }

  /** Takes over what routers remember of this engine life. */
  resume(state: ResumeState, nowMs: number): void {
    this.cost.resume(state);
    this.ratio.adopt(state.bytesPerToken, state.partTokens);
    this.kv.index.restore(state.runs, state.leaves);
    this.trust.adopt(state.kappa);
    if (state.runningMax !== null) this.slots.adopt(state.runningMax, nowMs);
    this.version += 1;
  }

  /** Measured alone on an idle engine. */
  calibrated(ms: number, tokens: PromptTokens): void {
    this.cost.calibrated(ms, tokens);
    this.version += 1;
  }

  calibrationEnded(): void {
    if (this.cost.calibrationEnded()) this.version += 1;
  }

  /** The engine sleeps or its cache was reset: nothing is cached. */
  cacheEmptied(): void {
    this.kv.clear();
    this.version += 1;
  }

  /** KV events, as published or replayed; `restarted`: they say that the engine is another process. */
  kvHeard(event: KvMessage, nowMs: number): 'restarted' | 'same' {
    this.nowMs = nowMs;
    const { hearing, replica, rank } = this;
    const live = event.kind === 'kvEvents';
    const outcome = live ? hearing.live(event.batches, nowMs) : hearing.replayed(event, nowMs);
    if (live) this.signs.moved(nowMs);
    if (outcome.emptied) this.cacheEmptied();
    else if (outcome.evicted) this.kv.fit(nowMs);
    if (outcome.lost) this.context.log('warn', 'kv_events_lost', { replica, rank });
    const { replayFrom: fromSeq } = outcome;
    if (fromSeq !== null) this.context.emit({ kind: 'replayKv', replica, rank, fromSeq });
    return outcome.restarted ? 'restarted' : 'same';
  }

  /** No user's work has been in the engine since then, as far as routers have told. */
  aloneSince(sentMs: number): boolean {
    return this.ledger.openCount() === 0 && this.signs.workSinceMs < sentMs;
  }

  ownSent(order: GenerateOrder, tokens: PromptTokens, nowMs: number): void {
    this.nowMs = nowMs;
    const facts: LeaseFacts = {
      lease: order.id as LeaseId,
      incarnation: null,
      promptTokens: tokens.uncached + tokens.cached,
      uncachedTokens: tokens.uncached,
      matchedTokens: 0,
      promptBytes: 0,
      parts: {},
      streamed: true,
      maxTokens: order.maxTokens,
      chains: [],
    };
    this.ledger.ownSent(facts.lease, facts, nowMs);
    this.version += 1;
  }

  ownEnded(id: string, outcome: GenerationOutcome, sentMs: number, nowMs: number): void {
    this.nowMs = nowMs;
    const ok = outcome.kind === 'ok' ? outcome : null;
    const firstTokenMs = ok === null ? null : Math.min(nowMs, sentMs + ok.ttftMs);
    const usage =
      ok === null || ok.promptTokens === null
        ? null
        : {
            promptTokens: ok.promptTokens,
            cachedTokens: ok.cachedTokens ?? 0,
            completionTokens: 0,
          };
    this.ledger.ownEnded(id as LeaseId, { firstTokenMs, usage }, nowMs);
    this.version += 1;
  }

  /** Does what time alone brings about. */
  run(nowMs: number): void {
    this.nowMs = nowMs;
    this.ledger.expire(nowMs);
    this.admit(nowMs);
    const curve = this.cost.curve();
    this.version += this.backlog.advance(curve, nowMs).length;
    const engine = {
      stepTokens: curve.stepTokens,
      waitingSinceMs: this.backlog.firstStream()?.sentMs ?? null,
      prefillMs: (entry: LedgerEntry): number => entryMs(curve, entry),
    };
    this.version += this.cost.run(engine, nowMs);
  }

  nextWakeMs(): number | null {
    const times = [this.ledger.nextExpiryMs(), this.cost.observer.nextWakeMs()];
    times.push(this.backlog.modelledEndMs(this.cost.curve()));
    let next = Infinity;
    for (const time of times) if (time !== null) next = Math.min(next, time);
    return next === Infinity ? null : next;
  }

  /** What no router told of; null until scrapes have said. Counted anew at most every 100 ms. */
  foreignNow(nowMs: number): Foreign | null {
    if (this.foreignCounted === null || nowMs - this.foreignCounted.atMs >= FOREIGN_EVERY_MS) {
      const { movedMs } = this.rates;
      const foreign = this.foreign.estimate(
        (atMs, lateMs) => this.history.momentAt(atMs, { lateMs, movedMs }),
        nowMs,
      );
      this.foreignCounted = { atMs: nowMs, foreign };
    }
    return this.foreignCounted.foreign;
  }

  /** What waits beside the ledger's requests. */
  untold(nowMs: number): UntoldWork {
    return { requests: this.foreignNow(nowMs)?.waiting ?? 0, tokens: this.meanPromptTokens };
  }

  /** Uncached tokens of a request that nobody has told of. */
  get meanPromptTokens(): number {
    return this.rates.meanForeignTokens ?? ASSUMED_PROMPT;
  }

  /** Since when nothing has moved although users' work waits for tokens; null without such work. */
  silence(nowMs: number): { readonly sinceMs: number; readonly largestMs: number } | null {
    if (this.ledger.openCount() === 0) return null;
    const { largestMs } = this.backlog.figures(this.cost.curve(), nowMs);
    return { sinceMs: this.signs.silentSinceMs, largestMs };
  }

  private deliver(from: LedgerLink, message: LedgerMessage, nowMs: number): LedgerVerdict {
    switch (message.kind) {
      case 'leases':
        return this.ledger.leases(from, message, nowMs);
      case 'sent':
        return this.ledger.sent(from, message, nowMs);
      case 'firstToken':
        return this.ledger.firstToken(from, message, nowMs);
      case 'ended':
        return this.ledger.ended(from, message, nowMs);
    }
  }

  private opened(entry: LedgerEntry): void {
    if (entry.router !== null) this.usersSeen = true;
    if (entry.router !== null && this.ledger.openCount() === 1) this.signs.workBegan(entry.sentMs);
    this.history.opened(entry);
    this.backlog.add(entry);
    if (!entry.facts.streamed) this.cost.observer.sentUnseen(entry);
    if (entry.router !== null) this.kv.opened(entry, this.nowMs);
  }

  private showedFirstToken(entry: LedgerEntry): void {
    const atMs = entry.firstTokenMs ?? entry.sentMs;
    this.signs.moved(atMs);
    if (entry.router !== null) this.signs.vouched(atMs);
    const tells = entry.facts.streamed && this.backlog.isNext(entry) && !this.isLimited();
    if (!tells) this.cost.observer.blurred(atMs);
    if (entry.facts.streamed) this.unstreamed.streamed(atMs, requestsOf(entry));
    this.backlog.pass(entry, atMs);
    this.cost.observer.passed(entry, atMs);
    this.kv.confirmed(entry);
  }

  private closed(entry: LedgerEntry): void {
    this.version += 1;
    const endedMs = entry.endedMs ?? entry.sentMs;
    const requests = requestsOf(entry);
    const failedUser = entry.outcome === 'failed' && entry.router !== null;
    if (failedUser) this.signs.failed(endedMs);
    if (entry.outcome !== 'complete') this.cutShort(entry, endedMs);
    const past = entry.prefillEndMs !== null || entry.outcome === 'complete';
    if (!entry.facts.streamed && past) this.unstreamed.ended(endedMs, requests);
    if (entry.outcome === 'complete') {
      this.backlog.pass(entry, endedMs);
      this.signs.moved(endedMs);
      this.learn(entry);
    }
    this.backlog.remove(entry, this.cost.curve(), endedMs);
    this.kv.closed(entry, this.nowMs);
    this.history.closedAt(entry, this.nowMs);
    if (entry.router === null) return;
    if (entry.outcome === 'complete')
      this.slots.answered(endedMs - (entry.prefillEndMs ?? endedMs));
    this.slots.ended(this.ledger.openRequests() + requests, endedMs, requests);
  }

  /** An end without a whole answer: where the prefill may have been cut short, nobody knows how much was done. */
  private cutShort(entry: LedgerEntry, endedMs: number): void {
    if (!entry.facts.streamed) this.cost.observer.abandonedUnseen(entry, endedMs);
    else if (entry.prefillEndMs === null) this.cost.observer.blurred(endedMs);
  }

  /** What the usage of a user's finished request teaches. */
  private learn(entry: LedgerEntry): void {
    const { facts, usage } = entry;
    if (usage === null || entry.router === null) return;
    const { promptBytes, parts } = facts;
    this.ratio.observe({ bytes: promptBytes, parts, tokens: usage.promptTokens });
    const blockTokens = this.scrape?.rank.blockTokens ?? 1;
    const predicted = Math.floor(facts.matchedTokens / blockTokens) * blockTokens;
    if (usage.cachedTokens !== null) this.trust.observe(predicted, usage.cachedTokens);
    if (!this.trust.broken) return;
    this.context.log('warn', 'index_dropped', {
      replica: this.replica,
      rank: this.rank,
      kappa: this.trust.kappa,
      chunks: this.kv.index.chunks,
    });
    this.trust.reset();
    this.kv.clear();
  }

  /** What a router left behind when its link closed is gone as soon as the engine holds no more than the rest. */
  private dropOrphans(nowMs: number): void {
    const scrape = this.foreign.lastSettled;
    if (scrape === null || scrape.running === null || scrape.waiting === null) return;
    const orphans = this.ledger.orphans(scrape.atMs);
    if (orphans === 0) return;
    const moment = { lateMs: scrape.lateMs, movedMs: this.rates.movedMs };
    const { open } = this.history.momentAt(scrape.atMs, moment);
    if (scrape.running + scrape.waiting > open - orphans) return;
    this.ledger.dropOrphans(scrape.atMs, nowMs);
  }

  /** Ledger and engine count waiting tokens apart, though all requests inside are the ledger's: said once a life. */
  private noteDisagreement(nowMs: number): void {
    const correction = this.told.correctionTokens() ?? 0;
    if (this.disagreed || Math.abs(correction) < DISAGREE_TOKENS) return;
    if (this.foreignNow(nowMs)?.open !== 0) return;
    this.disagreed = true;
    const { replica, rank } = this;
    this.context.log('warn', 'ledger_disagrees', { replica, rank, correctionTokens: correction });
  }

  private admit(nowMs: number): void {
    const decoding = this.ledger.insideRequests() - this.backlog.requests;
    this.backlog.admit(this.admission.room(decoding, this.slots.runningMax(nowMs), nowMs));
  }

  private correctUnstreamed(firstTokensTotal: number | null, atMs: number): void {
    const open = this.backlog.unstreamedAt(atMs);
    const passed = this.unstreamed.passed({ firstTokensTotal, atMs }, open);
    if (passed !== null && !this.hasForeign())
      this.backlog.correct(passed, this.cost.curve(), atMs);
  }

  private hasForeign(): boolean {
    const foreign = this.foreignNow(this.nowMs);
    return foreign !== null && foreign.open > 0;
  }

  /** Slots, KV room or foreign work, not only our own prefill, decide when a first token comes. */
  private isLimited(): boolean {
    return this.hasForeign() || this.slots.limits(this.ledger.openRequests(), this.nowMs);
  }
}

/** Whether the KV cache has room for the prompt, with as much to spare. */
function hasKvRoom(rank: RankScrape, head: LedgerEntry | null): boolean {
  const { kvUsageRatio, kvCapacityTokens } = rank;
  if (kvUsageRatio === null || kvCapacityTokens === null || head === null) return true;
  return (1 - kvUsageRatio) * kvCapacityTokens >= 2 * head.facts.promptTokens;
}
