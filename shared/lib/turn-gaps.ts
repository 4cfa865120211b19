// How long a conversation rests between two turns: τ = p90 of the gaps of turns that went on from a finished one, 1 to
// 60 s. What was touched within τ is what the live conversations will want to find again.
//
// Who has watched for a moment has seen short gaps only: for the first 30 s τ is no less than the time watched.

const SAMPLES = 256;
const LEAST_MS = 1_000;
const MOST_MS = 60_000;
/** τ until a few gaps have been seen, and how long one must have watched to believe that longer ones are rare, ms. */
const ASSUMED_MS = 30_000;
const ENOUGH = 8;

export class TurnGaps {
  private readonly samples: number[] = [];
  private next = 0;
  /** When the first turn ended that could be gone on from. */
  private sinceMs = Number.POSITIVE_INFINITY;

  ended(nowMs: number): void {
    this.sinceMs = Math.min(this.sinceMs, nowMs);
  }

  observe(gapMs: number): void {
    if (!(gapMs >= 0)) return;
    this.samples[this.next] = gapMs;
    this.next = (this.next + 1) % SAMPLES;
  }

  /** τ in ms. */
  tauMs(nowMs: number): number {
    if (this.samples.length < ENOUGH) return ASSUMED_MS;
    const watchedMs = nowMs - this.sinceMs;
    const sorted = [...this.samples].sort((a, b) => a - b);
    const p90 = sorted[Math.floor(0.9 * (sorted.length - 1))] ?? ASSUMED_MS;
    const least = watchedMs < ASSUMED_MS ? watchedMs : LEAST_MS;
    return Math.min(MOST_MS, Math.max(LEAST_MS, least, p90));
  }
}
