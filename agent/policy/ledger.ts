// Which requests are in one target, as its routers tell.
//
// Every router keeps a book here: what it said on its newest link since that link's `leases` snapshot.
// - A snapshot replaces what is held for that router; leases held before and named again stay the same entry.
// - Only the link of the last accepted snapshot may add to a book; messages of an older link are ignored.
// - A closed link's entries are kept for `linkGraceMs`, then released; no other router inherits them.
// - An entry of another incarnation of the engine is acknowledged but not held.
// - A router's book is bounded: what it opens beyond `MAX_OPEN` is acknowledged but not held, and counted.
// - The agent's own generations are entries too, without a router.
// - No request counts for more than its engine's context: a longer prompt is refused or cut.
//
// Invariant: an entry is opened once and closed once, whatever the order and number of links.

import { ChurnMap } from '../../shared/lib/churn.ts';
import type { Incarnation, LeaseId, LinkId, RouterId } from '../../shared/model/ids.ts';
import { MAX_SIBLINGS } from '../../shared/protocol/limits.ts';
import type {
  AttemptOutcome,
  Ended,
  FirstToken,
  LeaseFacts,
  Leases,
  OtherAcked,
  Sent,
  Usage,
} from '../../shared/protocol/messages.ts';

/** One open attempt. Times are the core's own. */
export interface LedgerEntry {
  readonly lease: LeaseId;
  /** Null: a generation of the agent's own. */
  readonly router: RouterId | null;
  readonly facts: LeaseFacts;
  readonly sentMs: number;
  firstTokenMs: number | null;
  /** When its prefill ended: its first token, or what the model says where it shows none. */
  prefillEndMs: number | null;
  endedMs: number | null;
  /** Null while open, and where nobody said (router gone, engine gone). */
  outcome: AttemptOutcome | null;
  usage: Usage | null;
}

/** A link as the ledger needs it: `order` grows with every link that came up. */
export interface LedgerLink {
  readonly link: LinkId;
  readonly order: number;
  readonly router: RouterId;
}

/** Open entries of one router at one target; an engine with so many is long past any use of an estimate. */
export const MAX_OPEN = 16_384;

export interface LedgerListener {
  opened(entry: LedgerEntry): void;
  firstToken(entry: LedgerEntry): void;
  /** `entry.endedMs`, `outcome` and `usage` are set. */
  closed(entry: LedgerEntry): void;
  /** A router's book is full: the entry is not held. */
  full(): void;
}

/** `unknown_link`: no snapshot on that link yet, or a newer link has taken over. */
export type LedgerVerdict = 'applied' | 'unknown_link' | 'repeated' | 'gap';

interface Book {
  link: LinkId | null;
  /** Of the link of the last accepted snapshot, also after it closed. */
  order: number;
  seq: number;
  closedSinceMs: number | null;
  readonly entries: ChurnMap<LeaseId, LedgerEntry>;
  /** Of the entries, as the engine counts them. */
  requests: number;
  /** Entries ever opened. */
  opened: number;
}

/** One attempt may be several requests to the engine: a list of prompts, a batch of embeddings, several answers. */
export function requestsOf({ facts }: LedgerEntry): number {
  return facts.requests ?? 1;
}

export class Ledger {
  private readonly listener: LedgerListener;
  private readonly linkGraceMs: number;
  private readonly books = new Map<RouterId, Book>();
  private readonly own = new ChurnMap<LeaseId, LedgerEntry>();
  private incarnation: Incarnation | null = null;
  /** Tokens of one request at most; Infinity while unknown. */
  contextTokens = Infinity;
  /** Entries of routers ever opened. */
  private opened = 0;

  constructor(options: { readonly linkGraceMs: number; readonly listener: LedgerListener }) {
    this.linkGraceMs = options.linkGraceMs;
    this.listener = options.listener;
  }

  /** All open entries of routers. */
  *open(): IterableIterator<LedgerEntry> {
    for (const book of this.books.values()) yield* book.entries.values();
  }

  /** Open entries of routers. */
  openCount(): number {
    let count = 0;
    for (const book of this.books.values()) count += book.entries.size;
    return count;
  }

  /** Requests of routers in the engine, as it counts them. */
  openRequests(): number {
    let requests = 0;
    for (const book of this.books.values()) requests += book.requests;
    return requests;
  }

  /** Entries ever opened by routers besides this one: grows with each. */
  sentByOthers(router: RouterId | null): number {
    const own = router === null ? undefined : this.books.get(router);
    return this.opened - (own?.opened ?? 0);
  }

  /** The same, the agent's own generations among them. */
  insideRequests(): number {
    return this.openRequests() + this.own.size;
  }

  /** Last event of the link's router that is in the figures; -1 before its snapshot on this link. */
  ackedSeq(link: LedgerLink): number {
    const book = this.books.get(link.router);
    return book !== undefined && book.link === link.link ? book.seq : -1;
  }

  /**
   * Up to which of their events other routers are in the figures, of those for whom `told` has another number: it has this
   * one from now on.
   */
  othersAcked(router: RouterId | null, told: Map<RouterId, number>): OtherAcked[] {
    const acked: OtherAcked[] = [];
    for (const [other, { seq }] of this.books) {
      if (other === router || told.get(other) === seq || acked.length >= MAX_SIBLINGS) continue;
      told.set(other, seq);
      acked.push({ router: other, seq });
    }
    if (told.size >= this.books.size) {
      for (const other of told.keys()) if (!this.books.has(other)) told.delete(other);
    }
    return acked;
  }

  leases(from: LedgerLink, message: Leases, nowMs: number): LedgerVerdict {
    const book = this.bookOf(from);
    if (book.link !== from.link && from.order < book.order) return 'unknown_link';
    book.link = from.link;
    book.order = from.order;
    book.seq = message.seq;
    book.closedSinceMs = null;
    const named = new Set<LeaseId>();
    for (const open of message.open) {
      named.add(open.lease);
      this.adopt(book, from.router, {
        facts: open,
        sentMs: nowMs - open.sentAgoMs,
        firstTokenMs: open.firstTokenAgoMs === null ? null : nowMs - open.firstTokenAgoMs,
      });
    }
    for (const [lease, entry] of book.entries) {
      if (!named.has(lease))
        this.close(book, entry, { endedMs: nowMs, outcome: null, usage: null });
    }
    return 'applied';
  }

  sent(from: LedgerLink, message: Sent, nowMs: number): LedgerVerdict {
    const verdict = this.next(from, message.seq);
    if (verdict === 'unknown_link' || verdict === 'repeated') return verdict;
    const sentMs = nowMs - message.agoMs;
    this.adopt(this.bookOf(from), from.router, { facts: message, sentMs, firstTokenMs: null });
    return verdict;
  }

  firstToken(from: LedgerLink, message: FirstToken, nowMs: number): LedgerVerdict {
    const verdict = this.next(from, message.seq);
    if (verdict === 'unknown_link' || verdict === 'repeated') return verdict;
    const entry = this.bookOf(from).entries.get(message.lease);
    if (entry !== undefined) this.showFirstToken(entry, nowMs - message.agoMs);
    return verdict;
  }

  ended(from: LedgerLink, message: Ended, nowMs: number): LedgerVerdict {
    const verdict = this.next(from, message.seq);
    if (verdict === 'unknown_link' || verdict === 'repeated') return verdict;
    const book = this.bookOf(from);
    const entry = book.entries.get(message.lease);
    const { outcome, usage } = message;
    if (entry !== undefined) {
      this.close(book, entry, { endedMs: nowMs - message.agoMs, outcome, usage });
    }
    return verdict;
  }

  /** The agent sends a generation of its own. */
  ownSent(lease: LeaseId, facts: LeaseFacts, nowMs: number): void {
    const entry = entryOf(null, facts, nowMs);
    this.own.set(lease, entry);
    this.listener.opened(entry);
  }

  /** It ended; `firstTokenMs` is null when it showed none. */
  ownEnded(
    lease: LeaseId,
    end: { firstTokenMs: number | null; usage: Usage | null },
    nowMs: number,
  ) {
    const entry = this.own.get(lease);
    if (entry === undefined) return;
    if (end.firstTokenMs !== null) this.showFirstToken(entry, end.firstTokenMs);
    this.own.delete(lease);
    entry.endedMs = nowMs;
    entry.outcome = end.firstTokenMs === null ? 'failed' : 'complete';
    entry.usage = end.usage;
    this.listener.closed(entry);
  }

  linkDown(link: LinkId, nowMs: number): void {
    for (const book of this.books.values()) {
      if (book.link !== link) continue;
      book.link = null;
      book.closedSinceMs = nowMs;
    }
  }

  /** Releases what routers left behind longer than the grace ago. */
  expire(nowMs: number): void {
    for (const [router, book] of this.books) {
      if (book.closedSinceMs === null || nowMs < book.closedSinceMs + this.linkGraceMs) continue;
      for (const entry of book.entries.values()) {
        this.close(book, entry, { endedMs: nowMs, outcome: null, usage: null });
      }
      this.books.delete(router);
    }
  }

  /** Requests of routers whose link has closed before `atMs`. */
  orphans(atMs: number): number {
    let count = 0;
    for (const book of this.books.values()) {
      if ((book.closedSinceMs ?? atMs) < atMs) count += book.requests;
    }
    return count;
  }

  /** Releases those before their grace ends. */
  dropOrphans(atMs: number, nowMs: number): void {
    for (const book of this.books.values()) {
      if ((book.closedSinceMs ?? atMs) >= atMs) continue;
      for (const entry of book.entries.values()) {
        this.close(book, entry, { endedMs: nowMs, outcome: null, usage: null });
      }
    }
  }

  nextExpiryMs(): number | null {
    let next: number | null = null;
    for (const book of this.books.values()) {
      if (book.closedSinceMs === null) continue;
      next = Math.min(next ?? Infinity, book.closedSinceMs + this.linkGraceMs);
    }
    return next;
  }

  /**
   * The engine is `incarnation`. Coming from another one, everything is gone with it and every router must
   * send its snapshot again; coming from none (this agent has just started), only what belongs elsewhere goes.
   */
  incarnate(incarnation: Incarnation, nowMs: number): void {
    if (incarnation === this.incarnation) return;
    const fromNone = this.incarnation === null;
    this.incarnation = incarnation;
    for (const book of this.books.values()) {
      for (const entry of book.entries.values()) {
        if (fromNone && this.belongs(entry.facts)) continue;
        this.close(book, entry, { endedMs: nowMs, outcome: null, usage: null });
      }
      if (!fromNone) book.link = null;
    }
    if (!fromNone) for (const lease of [...this.own.keys()]) this.ownEnded(lease, NO_ANSWER, nowMs);
  }

  private belongs(facts: LeaseFacts): boolean {
    if (this.incarnation === null || facts.incarnation === null) return true;
    return facts.incarnation === this.incarnation;
  }

  private bookOf(from: LedgerLink): Book {
    let book = this.books.get(from.router);
    if (book === undefined) {
      book = {
        link: null,
        order: -1,
        seq: -1,
        closedSinceMs: null,
        entries: new ChurnMap(),
        requests: 0,
        opened: 0,
      };
      this.books.set(from.router, book);
    }
    return book;
  }

  /** Moves the book on to `seq` if the message is one of its link's. */
  private next(from: LedgerLink, seq: number): LedgerVerdict {
    const book = this.books.get(from.router);
    if (book === undefined || book.link !== from.link) return 'unknown_link';
    if (seq <= book.seq) return 'repeated';
    const verdict = seq === book.seq + 1 ? 'applied' : 'gap';
    book.seq = seq;
    return verdict;
  }

  private adopt(
    book: Book,
    router: RouterId,
    lease: { facts: LeaseFacts; sentMs: number; firstTokenMs: number | null },
  ): void {
    if (!this.belongs(lease.facts)) return;
    let entry = book.entries.get(lease.facts.lease);
    if (entry === undefined) {
      if (book.entries.size >= MAX_OPEN) return this.listener.full();
      entry = entryOf(router, within(lease.facts, this.contextTokens), lease.sentMs);
      book.entries.set(entry.lease, entry);
      book.requests += requestsOf(entry);
      book.opened += 1;
      this.opened += 1;
      this.listener.opened(entry);
    }
    if (lease.firstTokenMs !== null) this.showFirstToken(entry, lease.firstTokenMs);
  }

  private showFirstToken(entry: LedgerEntry, atMs: number): void {
    if (entry.firstTokenMs !== null) return;
    entry.firstTokenMs = Math.max(atMs, entry.sentMs);
    this.listener.firstToken(entry);
  }

  private close(
    book: Book,
    entry: LedgerEntry,
    end: { endedMs: number; outcome: AttemptOutcome | null; usage: Usage | null },
  ): void {
    if (book.entries.delete(entry.lease)) book.requests -= requestsOf(entry);
    entry.endedMs = Math.max(end.endedMs, entry.sentMs);
    entry.outcome = end.outcome;
    entry.usage = end.usage;
    this.listener.closed(entry);
  }
}

const NO_ANSWER = { firstTokenMs: null, usage: null } as const;

function within(facts: LeaseFacts, contextTokens: number): LeaseFacts {
  const most = contextTokens * (facts.requests ?? 1);
  if (facts.promptTokens <= most && facts.uncachedTokens <= most) return facts;
  return {
    ...facts,
    promptTokens: Math.min(facts.promptTokens, most),
    uncachedTokens: Math.min(facts.uncachedTokens, most),
    matchedTokens: Math.min(facts.matchedTokens, most),
  };
}

function entryOf(router: RouterId | null, facts: LeaseFacts, sentMs: number): LedgerEntry {
  return {
    lease: facts.lease,
    router,
    facts,
    sentMs,
    firstTokenMs: null,
    prefillEndMs: null,
    endedMs: null,
    outcome: null,
    usage: null,
  };
}
