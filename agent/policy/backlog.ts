// The prefill work that waits in an engine: a first-in-first-out model over the ledger's entries.
//
//   waitingMs = prefill of all that wait, together − progress of the head + rest of an abandoned step
//   progress  = time since the latest of the head's sending, the last prefill's end and its place in the batch, at
//               most the prefill of what can be under way (the head, and what shares its step) less one step's base:
//               the floor until a first token comes. Where the batch has no room (`admission.ts`) nothing is under way
//   abandoned = a request given up in mid-prefill leaves the engine at the end of its step, not before
//
// An entry that shows no first token (not streamed) leaves when the model reaches its end; scrapes correct
// that by the engine's own count (see `correct`). So does one whose router answers nothing any more: nobody would say.

import { ChurnMap } from '../../shared/lib/churn.ts';
import { addToSums, emptySums, prefillMs, sumsMs } from '../../shared/model/cost-curve.ts';
import type { CostCurve, PrefillSums } from '../../shared/model/cost-curve.ts';
import { UNLIMITED } from './admission.ts';
import type { Room } from './admission.ts';
import { requestsOf, type LedgerEntry } from './ledger.ts';
import type { RouterId } from '../../shared/model/ids.ts';

/** An entry that is past its prefill by the model and not by the engine ends no sooner than this, ms. */
const SOON_MS = 10;
/** Requests sent within this time may be served in either order, ms. */
const OVERTAKEN_MS = 50;

export interface BacklogFigures {
  readonly waitingMs: number;
  readonly waitingTokens: number;
  /** Prefill of the largest that waits, ms; 0 when nothing does. */
  readonly largestMs: number;
}

/** Work that no entry stands for: requests of strangers. */
export interface UntoldWork {
  readonly requests: number;
  /** Uncached tokens of each. */
  readonly tokens: number;
}

/** Uncached and cached tokens of an entry, as its router estimated them. */
export function tokensOf(entry: LedgerEntry): { uncached: number; cached: number } {
  const uncached = Math.max(0, entry.facts.uncachedTokens);
  return { uncached, cached: Math.max(0, entry.facts.promptTokens - uncached) };
}

/** ms of its prefill alone. */
export function entryMs(curve: CostCurve, entry: LedgerEntry): number {
  const { uncached, cached } = tokensOf(entry);
  return prefillMs(curve, uncached, cached);
}

export class Backlog {
  /** In order of sending: the order of arrival at the engine. */
  private readonly waiting: LedgerEntry[] = [];
  /** Not streamed, past their prefill as the model has it, still open; in order of sending. */
  private readonly modelled: LedgerEntry[] = [];
  /** In prefill still when the model had them past it, by the engine's own count: when they end instead. */
  private readonly held = new ChurnMap<LedgerEntry, number>();
  private lastEndMs = -Infinity;
  /** End of the step of one that was given up. */
  private abandonedMs = -Infinity;
  private room: Room = UNLIMITED;
  /** Routers that answer nothing; null where all do. */
  silent: ReadonlySet<RouterId> | null = null;

  /** Who of those that wait may be in prefill from now on. */
  admit(room: Room): void {
    this.room = room;
  }

  add(entry: LedgerEntry): void {
    let at = this.waiting.length;
    while (at > 0 && (this.waiting[at - 1]?.sentMs ?? 0) > entry.sentMs) at -= 1;
    this.waiting.splice(at, 0, entry);
  }

  /** The entry's prefill has ended; those before it that show no first token have ended theirs too. */
  pass(entry: LedgerEntry, atMs: number): void {
    for (const other of this.waiting.slice()) {
      if (other.sentMs > entry.sentMs || other === entry) break;
      if (!other.facts.streamed && !this.held.has(other)) this.leave(other, atMs);
    }
    this.leave(entry, atMs);
  }

  /** The entry has left the engine at `atMs`. */
  remove(entry: LedgerEntry, curve: CostCurve, atMs: number): void {
    if (entry === this.head) this.abandon(entry, curve, atMs);
    take(this.waiting, entry);
    take(this.modelled, entry);
    this.held.delete(entry);
  }

  clear(): void {
    this.waiting.length = 0;
    this.modelled.length = 0;
    this.held.clear();
    this.lastEndMs = -Infinity;
    this.abandonedMs = -Infinity;
    this.room = UNLIMITED;
  }

  /** Nothing is known of the time before. */
  beginAt(atMs: number): void {
    this.lastEndMs = Math.max(this.lastEndMs, atMs);
  }

  get size(): number {
    return this.waiting.length;
  }

  /** Of those that wait, as the engine counts them. */
  get requests(): number {
    return this.waiting.reduce((sum, entry) => sum + requestsOf(entry), 0);
  }

  /** The oldest that waits, or null. */
  get head(): LedgerEntry | null {
    return this.waiting[0] ?? null;
  }

  /** Oldest stream that waits, or null. */
  firstStream(): LedgerEntry | null {
    return this.waiting.find((entry) => entry.facts.streamed) ?? null;
  }

  /** Lets the model finish those that show no first token; says when each of them ended. */
  advance(curve: CostCurve, nowMs: number): number[] {
    const ends: number[] = [];
    for (;;) {
      const end = this.modelledEndMs(curve);
      const head = this.waiting[0];
      if (end === null || head === undefined || end > nowMs) return ends;
      this.leave(head, end);
      ends.push(end);
    }
  }

  /** Whether no stream sent noticeably earlier still waits: what `entry` took says something about its cost. */
  isNext(entry: LedgerEntry): boolean {
    for (const other of this.waiting) {
      if (other === entry || other.sentMs > entry.sentMs) return true;
      if (other.facts.streamed && entry.sentMs - other.sentMs > OVERTAKEN_MS) return false;
    }
    return true;
  }

  /** Open requests sent until `atMs` that show no first token. */
  unstreamedAt(atMs: number): number {
    let count = 0;
    for (const entry of this.modelled) if (entry.sentMs <= atMs) count += requestsOf(entry);
    for (const entry of this.waiting)
      if (!entry.facts.streamed && entry.sentMs <= atMs) count += requestsOf(entry);
    return count;
  }

  /** When the model ends the head's prefill; null when its first token will tell. */
  modelledEndMs(curve: CostCurve): number | null {
    const head = this.waiting[0];
    if (head === undefined || (head.facts.streamed && !this.isUnheard(head))) return null;
    if (this.room.requests < 1) return null;
    return this.startOf(head, curve) + entryMs(curve, head);
  }

  /**
   * At a scrape asked for at `atMs` the engine had given first tokens to `passed` of the open requests that
   * show none. Those that the model passed too early wait again, one after the other: as late as the model was with
   * the first, that one may be once more.
   */
  correct(passed: number, curve: CostCurve, atMs: number): void {
    const all = [...this.modelled, ...this.waiting.filter((entry) => !entry.facts.streamed)]
      .filter((entry) => entry.sentMs <= atMs)
      .sort((a, b) => a.sentMs - b.sentMs);
    const whole = wholeWithin(all, passed);
    for (const entry of all.slice(0, whole)) this.leave(entry, atMs);
    let first = true;
    for (const entry of all.slice(whole)) {
      const endMs = entry.prefillEndMs;
      if (endMs === null || endMs > atMs) continue;
      take(this.modelled, entry);
      entry.prefillEndMs = null;
      this.add(entry);
      if (!first) continue;
      first = false;
      const ms = entryMs(curve, entry);
      this.held.set(entry, atMs + Math.min(ms, Math.max(SOON_MS, atMs - endMs)));
      this.lastEndMs = Math.min(this.lastEndMs, endMs - ms);
    }
  }

  figures(curve: CostCurve, nowMs: number, untold?: UntoldWork): BacklogFigures {
    const sums = emptySums();
    let largestMs = 0;
    if (untold !== undefined && untold.requests > 0) {
      const { requests, tokens } = untold;
      sums.uncached += requests * tokens;
      sums.prompt += requests * tokens;
      sums.context += (requests * tokens * tokens) / 2;
      largestMs = prefillMs(curve, tokens, 0);
    }
    for (const entry of this.waiting) {
      const { uncached, cached } = tokensOf(entry);
      addToSums(sums, uncached, cached);
      largestMs = Math.max(largestMs, prefillMs(curve, uncached, cached));
    }
    const restMs = Math.max(0, this.abandonedMs - nowMs);
    const waitingMs = sumsMs(curve, sums) - this.progressMs(curve, nowMs) + restMs;
    return { waitingMs: Math.max(0, waitingMs), waitingTokens: sums.uncached, largestMs };
  }

  private isUnheard({ router }: LedgerEntry): boolean {
    return router !== null && this.silent !== null && this.silent.has(router);
  }

  private progressMs(curve: CostCurve, nowMs: number): number {
    const head = this.waiting[0];
    if (head === undefined || this.room.requests < 1) return 0;
    const startMs = this.startOf(head, curve);
    const most = Math.max(0, sumsMs(curve, this.underWay(curve, startMs)) - curve.baseMs);
    return Math.min(Math.max(0, nowMs - startMs), most);
  }

  private startOf(head: LedgerEntry, curve: CostCurve): number {
    const endMs = this.held.get(head);
    if (endMs !== undefined) return Math.max(endMs - entryMs(curve, head), this.lastEndMs);
    return Math.max(head.sentMs, this.lastEndMs, this.abandonedMs, this.room.sinceMs);
  }

  /** The head is given up: its step goes on to its end. */
  private abandon(head: LedgerEntry, curve: CostCurve, atMs: number): void {
    const startMs = this.startOf(head, curve);
    if (this.room.requests < 1 || atMs <= startMs) return;
    const { uncached, cached } = tokensOf(head);
    const chunkMs = prefillMs(curve, Math.min(uncached, curve.stepTokens), cached);
    const chunks = chunkMs > 0 ? Math.ceil((atMs - startMs) / chunkMs) : 0;
    this.abandonedMs = startMs + Math.min(chunks * chunkMs, entryMs(curve, head));
  }

  /** The head, and what was there when its step began, up to the step's tokens. */
  private underWay(curve: CostCurve, startMs: number): PrefillSums {
    const sums = emptySums();
    let count = 0;
    for (const entry of this.waiting) {
      const { uncached, cached } = tokensOf(entry);
      const left = curve.stepTokens - sums.uncached;
      if (count > 0 && (left <= 0 || entry.sentMs > startMs)) break;
      if (count >= this.room.requests) break;
      count += requestsOf(entry);
      addToSums(sums, sums.prompt > 0 ? Math.min(uncached, left) : uncached, cached);
    }
    return sums;
  }

  private leave(entry: LedgerEntry, atMs: number): void {
    if (!take(this.waiting, entry)) return;
    this.held.delete(entry);
    entry.prefillEndMs = atMs;
    this.lastEndMs = Math.max(this.lastEndMs, atMs);
    if (!entry.facts.streamed && entry.endedMs === null) this.modelled.push(entry);
  }
}

/** How many entries of the beginning have all their requests among the first `passed`. */
function wholeWithin(entries: readonly LedgerEntry[], passed: number): number {
  let left = passed;
  let whole = 0;
  for (const entry of entries) {
    left -= requestsOf(entry);
    if (left < 0) break;
    whole += 1;
  }
  return whole;
}

function take(list: LedgerEntry[], entry: LedgerEntry): boolean {
  const at = list.indexOf(entry);
  if (at < 0) return false;
  list.splice(at, 1);
  return true;
}
