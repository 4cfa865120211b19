// Which blocks the KV cache of one rank really holds, as its events tell.
//
//   cachedTokens = Σ blocks' tokens × times stored and not removed
//   horizonMs    = the latest instant of storing of any block that was evicted: the engine evicts the least recently
//                  used first, so whatever was last used before that instant is gone too
//
// Counted are full-attention blocks on the GPU. A block can be stored twice and is then removed twice. What was
// stored before a gap that nothing fills is not known: then nothing is said until the cache was emptied or as
// much as it can hold was stored anew.
//
// Invariants: at most `MAX_BLOCKS` distinct blocks; cachedTokens ≥ 0; equal to a plain count of the events.

import { WordPairMap } from '../../shared/lib/word-pair-map.ts';
import type { BlockKey, BlocksStored, KvEvent } from './kv-event.ts';

/** A million tokens in blocks of one token each; more is counted as lost. */
const MAX_BLOCKS = 1_048_576;
const LEAST_SLOTS = 1_024;
const ABSENT = -1;

export class KvBlocks {
  private readonly slots = new WordPairMap();
  private counts = new Uint32Array(LEAST_SLOTS);
  private tokens = new Uint32Array(LEAST_SLOTS);
  private storedMs = new Float64Array(LEAST_SLOTS);
  private free: number[] = [];
  private used = 0;
  private held = 0;
  private heard = false;
  /** Tokens stored since something unknown may be in the cache; null while all of it is known. */
  private sinceLost: number | null = null;
  private evictedMs = -Infinity;
  private stored = 0;

  /** Tokens in the cache; null where that is not known. `capacityTokens`: null where the engine does not tell. */
  cachedTokens(capacityTokens: number | null): number | null {
    if (!this.heard || this.exceeds(capacityTokens)) return null;
    if (this.sinceLost === null) return this.held;
    return capacityTokens !== null && this.sinceLost >= capacityTokens ? this.held : null;
  }

  /** The events tell of more than there is room for: they cannot be right. */
  exceeds(capacityTokens: number | null): boolean {
    return capacityTokens !== null && this.held > capacityTokens;
  }

  /** What was last used before this instant has been evicted; -Infinity where nothing was. */
  get horizonMs(): number {
    return this.evictedMs;
  }

  /** Tokens stored since the beginning. */
  get storedTokens(): number {
    return this.stored;
  }

  /** Distinct blocks. */
  get size(): number {
    return this.slots.size;
  }

  apply(event: KvEvent, nowMs: number): void {
    this.heard = true;
    if (event.kind === 'cleared') return this.clear();
    if (event.medium !== null && event.medium !== 'GPU') return;
    if (event.kind === 'stored') this.store(event, nowMs);
    else for (const key of event.keys) this.remove(key);
  }

  /** Something was missed: what is in the cache is no longer known. */
  lost(): void {
    this.forget();
    this.sinceLost = 0;
  }

  /** Another engine process, of which nothing has been heard. */
  reset(): void {
    this.forget();
    this.heard = false;
    this.sinceLost = null;
    this.evictedMs = -Infinity;
    this.stored = 0;
  }

  private clear(): void {
    this.forget();
    this.sinceLost = null;
  }

  private forget(): void {
    this.slots.clear();
    this.free = [];
    this.used = 0;
    this.held = 0;
  }

  private store(event: BlocksStored, nowMs: number): void {
    const { groupKind, blockTokens } = event;
    if (groupKind !== null && groupKind !== 'full_attention') return;
    for (const key of event.keys) {
      const slot = this.slotFor(key);
      if (slot === ABSENT) return this.lost();
      this.counts[slot] = (this.counts[slot] ?? 0) + 1;
      this.tokens[slot] = blockTokens;
      this.storedMs[slot] = nowMs;
      this.held += blockTokens;
      this.stored += blockTokens;
      if (this.sinceLost !== null) this.sinceLost += blockTokens;
    }
  }

  private remove(key: BlockKey): void {
    const { low, high } = wordsOf(key);
    const slot = this.slots.get(low, high);
    if (slot === ABSENT) return;
    this.held -= this.tokens[slot] ?? 0;
    this.evictedMs = Math.max(this.evictedMs, this.storedMs[slot] ?? -Infinity);
    this.counts[slot] = (this.counts[slot] ?? 1) - 1;
    if ((this.counts[slot] ?? 0) > 0) return;
    this.slots.delete(low, high);
    this.free.push(slot);
  }

  /** The key's slot, a new one where it has none; ABSENT where there is no room. */
  private slotFor(key: BlockKey): number {
    const { low, high } = wordsOf(key);
    const known = this.slots.get(low, high);
    if (known !== ABSENT) return known;
    if (this.slots.size >= MAX_BLOCKS) return ABSENT;
    const slot = this.free.pop() ?? this.takeSlot();
    this.counts[slot] = 0;
    this.slots.set(low, high, slot);
    return slot;
  }

  private takeSlot(): number {
    if (this.used === this.counts.length) this.grow();
    this.used += 1;
    return this.used - 1;
  }

  private grow(): void {
    const size = this.counts.length * 2;
    const { counts, tokens, storedMs } = this;
    this.counts = new Uint32Array(size);
    this.counts.set(counts);
    this.tokens = new Uint32Array(size);
    this.tokens.set(tokens);
    this.storedMs = new Float64Array(size);
    this.storedMs.set(storedMs);
  }
}

/** The last 16 digits: of a longer hash they are as good as any. */
function wordsOf(key: BlockKey): { readonly low: number; readonly high: number } {
  const end = key.length;
  return {
    low: Number.parseInt(key.slice(Math.max(0, end - 8)), 16),
    high: Number.parseInt(key.slice(Math.max(0, end - 16), Math.max(0, end - 8)) || '0', 16),
  };
}
