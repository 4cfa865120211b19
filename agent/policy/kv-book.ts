// The prefix index of one target together with its open requests: what every request holds, how much of the
// KV cache all that takes, and how large the live conversations are together.
//
//   occupancy   = index + Σ open requests (tail of the prompt + answer so far)
//   working set = distinct tokens touched within τ or held by open requests, their tails and answers included

import { ChurnMap } from '../../shared/lib/churn.ts';
import { CHUNK_BYTES } from '../../shared/model/prompt.ts';
import type { LedgerEntry } from './ledger.ts';
import { PrefixIndex } from './prefix-index.ts';
import type { PrefixHold } from './prefix-index.ts';
import { TurnGaps } from '../../shared/lib/turn-gaps.ts';

/** Bytes per token until learned. */
const ASSUMED_BYTES_PER_TOKEN = 4;
/** KV capacity until the engine tells, tokens. */
const ASSUMED_CAPACITY = 131_072;
/** A working set is counted anew at most so often, ms. */
const COUNT_EVERY_MS = 250;
/** A prompt of so many times the context fits in no way: nothing of it will be in the cache. */
const HOPELESS = 2;
/** Open requests up to which each one that comes or goes is counted at once. */
const COUNTED_ALWAYS = 256;

/** What the engine and the usage have taught about tokens. */
export interface TokenFacts {
  readonly bytesPerToken: number | null;
  readonly capacityTokens: number | null;
  readonly itlMs: number | null;
  /** Of one request at most; Infinity where unknown. */
  readonly contextTokens: number;
  /** Tokens that the cache really holds; null where its events do not tell. */
  readonly cachedTokens: number | null;
  /** What was last used before this instant is gone from it; -Infinity where nothing is known to be. */
  readonly evictedBeforeMs: number;
}

export class KvBook {
  readonly index = new PrefixIndex();
  readonly gaps = new TurnGaps();
  private readonly holds = new ChurnMap<LedgerEntry, readonly PrefixHold[]>();
  private readonly facts: () => TokenFacts;
  private counted: { readonly atMs: number; readonly tokens: number } | null = null;
  /** What requests have brought since then, as their routers saw it. */
  private broughtTokens = 0;
  /** Grows with each request that came or went since the last `fit`. */
  private uncounted = 0;

  constructor(facts: () => TokenFacts) {
    this.facts = facts;
  }

  opened(entry: LedgerEntry, nowMs: number): void {
    const chains = this.fitsContext(entry) ? entry.facts.chains : [];
    // Its router knows of turns that ended elsewhere or were evicted here, and of its own waits.
    const { restedMs } = entry.facts;
    if (restedMs !== undefined) this.gaps.observe(restedMs);
    const holds = chains.map((chain) => {
      const { hold, gapsMs } = this.index.open(chain, nowMs);
      if (restedMs === undefined) for (const gapMs of gapsMs) this.gaps.observe(gapMs);
      return hold;
    });
    this.holds.set(entry, holds);
    const { promptTokens, matchedTokens } = entry.facts;
    this.broughtTokens += Math.max(0, promptTokens - matchedTokens);
    this.changed(nowMs);
  }

  /** The engine has computed the prompt. */
  confirmed(entry: LedgerEntry): void {
    for (const hold of this.holds.get(entry) ?? []) this.index.confirm(hold);
  }

  closed(entry: LedgerEntry, nowMs: number): void {
    const holds = this.holds.get(entry) ?? [];
    const { usage } = entry;
    const [only] = holds;
    if (entry.outcome === 'complete') this.confirmed(entry);
    if (
      entry.outcome === 'complete' &&
      usage !== null &&
      only !== undefined &&
      holds.length === 1
    ) {
      const turn = {
        promptTokens: usage.promptTokens,
        answerTokens: usage.completionTokens,
        tailTokens: this.tailTokens(entry, only.chunks),
      };
      this.index.complete(only, turn, nowMs);
      this.gaps.ended(nowMs);
    }
    for (const hold of holds) this.index.release(hold);
    this.holds.delete(entry);
    this.changed(nowMs);
  }

  /** Counting what is open takes a walk over it: thousands that come or go together are counted now and then. */
  private changed(nowMs: number): void {
    this.uncounted += COUNTED_ALWAYS;
    if (this.uncounted >= this.holds.size) this.fit(nowMs);
  }

  /** Evicts what the engine must have evicted by now. */
  fit(nowMs: number): void {
    const { capacityTokens, cachedTokens, evictedBeforeMs } = this.facts();
    this.uncounted = 0;
    const room = (capacityTokens ?? ASSUMED_CAPACITY) - this.openTokens(nowMs);
    const held = cachedTokens === null ? room : Math.min(room, cachedTokens + this.comingTokens());
    this.index.evictBefore(evictedBeforeMs);
    this.index.evict(held, this.bytesPerToken);
  }

  /** Null while nobody has come back: whether anybody will is unknown. A report that acknowledges a request includes it, also between two counts. */
  workingSetTokens(nowMs: number): number | null {
    if (this.counted !== null && nowMs - this.counted.atMs < COUNT_EVERY_MS) {
      return this.counted.tokens + this.broughtTokens;
    }
    const tauMs = this.gaps.tauMs(nowMs);
    if (tauMs === null) return null;
    const since = nowMs - tauMs;
    const held = [...this.holds.values()].flat();
    const tokens =
      this.index.workingSetTokens(since, held, this.bytesPerToken) + this.openTokens(nowMs);
    this.counted = { atMs: nowMs, tokens };
    this.broughtTokens = 0;
    return tokens;
  }

  /** The engine is another one, or its cache was emptied; open requests no longer hold anything. */
  clear(): void {
    this.index.clear();
    this.counted = null;
  }

  private get bytesPerToken(): number {
    return this.facts().bytesPerToken ?? ASSUMED_BYTES_PER_TOKEN;
  }

  /** Tails and answers of open requests: in the KV cache, not in the index. */
  private openTokens(nowMs: number): number {
    const { itlMs } = this.facts();
    let tokens = 0;
    for (const [entry, holds] of this.holds) {
      const chunks = holds.reduce((sum, hold) => sum + hold.chunks, 0);
      tokens += this.tailTokens(entry, chunks);
      if (entry.firstTokenMs === null || itlMs === null || itlMs <= 0) continue;
      const written = Math.max(0, nowMs - entry.firstTokenMs) / itlMs;
      tokens += Math.min(written, entry.facts.maxTokens ?? Infinity);
    }
    return tokens;
  }

  /** Of open requests, what the engine has still to compute: in the index, not yet in the cache. */
  private comingTokens(): number {
    let tokens = 0;
    for (const { firstTokenMs, facts } of this.holds.keys())
      if (firstTokenMs === null) tokens += Math.max(0, facts.uncachedTokens);
    return tokens;
  }

  private fitsContext({ facts }: LedgerEntry): boolean {
    const most = HOPELESS * this.facts().contextTokens * (facts.requests ?? 1);
    return facts.promptBytes / this.bytesPerToken <= most;
  }

  private tailTokens(entry: LedgerEntry, chunks: number): number {
    const bytes = entry.facts.promptBytes - chunks * CHUNK_BYTES;
    return Math.min(Math.max(0, bytes) / this.bytesPerToken, entry.facts.promptTokens);
  }
}
