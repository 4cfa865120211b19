// How long a conversation rests between two turns: τ = p90 of the gaps of turns that went on from a finished one, 1 to
// 60 s. What was touched within τ is what the live conversations will want to find again.
//
// Unknown until a few have come back. Who has watched for a moment has seen short gaps only: it is unknown too until the
// time watched is twice what the p90 of those seen is, or 30 s. Taken for the time watched instead, all that was ever
// touched would count as live, and nobody new would come in before engines that do nothing. Where hardly any turn is
// gone on from, nothing is kept for one: τ is the least.

import { kthSmallest } from './select.ts';

const SAMPLES = 256;
const LEAST_MS = 1_000;
const MOST_MS = 60_000;
/** How long one must have watched to believe that longer gaps, or returns at all, are rare, ms. */
const WATCHED_MS = 30_000;
/** Or so many times the p90 of the gaps seen: had they been cut off by the end of the watch, it would be near to that. */
const WATCHED_TIMES = 2;
const ENOUGH = 8;
/** Turns that shares are counted over, and the share of them gone on from that is hardly any. */
const TURNS = 256;
const RARE = 0.05;
/** Hardly any are so until so many times as many are gone on from. */
const NO_LONGER = 1.5;
/** Time constant of how many turns end lately, ms. */
const LATELY_MS = 20_000;

export class TurnGaps {
  private readonly samples: number[] = [];
  private next = 0;
  /** Of the samples. */
  private sumMs = 0;
  /** When the first turn ended that could be gone on from. */
  private sinceMs = Number.POSITIVE_INFINITY;
  /** Turns that ended, and those gone on from; both fade. */
  private ends = 0;
  private returns = 0;
  private rare = false;
  /** Turns that ended, fading with time. */
  private lately = 0;
  private latelyMs = Number.NEGATIVE_INFINITY;

  /** `share` of those that go on from it are observed here. */
  ended(nowMs: number, share = 1): void {
    this.sinceMs = Math.min(this.sinceMs, nowMs);
    this.lately = this.latelyAt(nowMs) + share;
    this.latelyMs = nowMs;
    this.ends += share * (1 - this.ends / TURNS);
    this.returns -= (share * this.returns) / TURNS;
    this.count();
  }

  observe(gapMs: number): void {
    if (!(gapMs >= 0)) return;
    this.returns += 1;
    this.sumMs += gapMs - (this.samples[this.next] ?? 0);
    this.samples[this.next] = gapMs;
    this.next = (this.next + 1) % SAMPLES;
    this.count();
  }

  /** Whether hardly any turn is gone on from, after so long at least. */
  isRare(nowMs: number, watchedMs = WATCHED_MS): boolean {
    return this.rare && nowMs - this.sinceMs >= watchedMs && this.ends >= ENOUGH;
  }

  /**
   * Conversations that end, per ms: turns that end lately and will not be gone on from. Of several observers each tells
   * its share. Null while too few are known.
   */
  endingPerMs(nowMs: number): number | null {
    if (this.samples.length < ENOUGH || this.ends < ENOUGH) return null;
    const watched = -Math.expm1(-(nowMs - this.sinceMs) / LATELY_MS);
    const turnsPerMs = this.latelyAt(nowMs) / (LATELY_MS * watched);
    return turnsPerMs * Math.max(0, 1 - this.returns / this.ends);
  }

  private latelyAt(nowMs: number): number {
    return this.lately * Math.exp(-Math.max(0, nowMs - this.latelyMs) / LATELY_MS);
  }

  private count(): void {
    const least = this.rare ? NO_LONGER * RARE : RARE;
    this.rare = this.returns < least * this.ends;
  }

  /** Mean of the last gaps, ms; null while too few are known. */
  get meanMs(): number | null {
    return this.samples.length < ENOUGH ? null : this.sumMs / this.samples.length;
  }

  /** τ in ms; null while it is unknown. */
  tauMs(nowMs: number): number | null {
    if (this.isRare(nowMs)) return LEAST_MS;
    const watchedMs = nowMs - this.sinceMs;
    if (this.samples.length < ENOUGH) return null;
    const { length } = this.samples;
    const p90 = kthSmallest(
      Float64Array.from(this.samples),
      length,
      Math.floor(0.9 * (length - 1)),
    );
    if (watchedMs < Math.min(WATCHED_MS, WATCHED_TIMES * p90)) return null;
    return Math.min(MOST_MS, Math.max(LEAST_MS, p90));
  }
}
