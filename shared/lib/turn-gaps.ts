// How long a conversation rests between two turns: τ = p90 of the gaps of turns that went on from a finished one, 1 to
// 60 s. What was touched within τ is what the live conversations will want to find again.
//
// Unknown until a few have come back. Who has watched for a moment has seen short gaps only: for the first 30 s τ is no
// less than the time watched. Where hardly any turn is gone on from, nothing is kept for one: τ is the least.

const SAMPLES = 256;
const LEAST_MS = 1_000;
const MOST_MS = 60_000;
/** How long one must have watched to believe that longer gaps, or returns at all, are rare, ms. */
const WATCHED_MS = 30_000;
const ENOUGH = 8;
/** Turns that shares are counted over, and the share of them gone on from that is hardly any. */
const TURNS = 256;
const RARE = 0.05;

export class TurnGaps {
  private readonly samples: number[] = [];
  private next = 0;
  /** When the first turn ended that could be gone on from. */
  private sinceMs = Number.POSITIVE_INFINITY;
  /** Turns that ended, and those gone on from; both fade. */
  private ends = 0;
  private returns = 0;

  ended(nowMs: number): void {
    this.sinceMs = Math.min(this.sinceMs, nowMs);
    this.ends += 1 - this.ends / TURNS;
    this.returns -= this.returns / TURNS;
  }

  observe(gapMs: number): void {
    if (!(gapMs >= 0)) return;
    this.returns += 1;
    this.samples[this.next] = gapMs;
    this.next = (this.next + 1) % SAMPLES;
  }

  /** τ in ms; null while it is unknown. */
  tauMs(nowMs: number): number | null {
    const watchedMs = nowMs - this.sinceMs;
    if (watchedMs >= WATCHED_MS && this.ends >= ENOUGH && this.returns < RARE * this.ends) {
      return LEAST_MS;
    }
    if (this.samples.length < ENOUGH) return null;
    const sorted = [...this.samples].sort((a, b) => a - b);
    const p90 = sorted[Math.floor(0.9 * (sorted.length - 1))] ?? LEAST_MS;
    const least = watchedMs < WATCHED_MS ? watchedMs : LEAST_MS;
    return Math.min(MOST_MS, Math.max(LEAST_MS, least, p90));
  }
}
