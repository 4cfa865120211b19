// Prefill tokens per second of busy time: uncached tokens over the intervals in which they were prefilled.
// An idle engine keeps its last measured rate.
//
// A short prompt says little of the rate: what it takes is mostly a step's constant cost, and the wait for the step
// under way when it came. So intervals count from `LEAST_TOKENS` on.

/** Busy time after which old intervals count half, ms. */
const HALF_LIFE_MS = 30_000;
const LEAST_TOKENS = 512;

export class BusyRate {
  private tokens = 0;
  private ms = 0;

  observe(tokens: number, ms: number): void {
    if (!(ms > 0) || !(tokens >= LEAST_TOKENS)) return;
    const keep = 0.5 ** (ms / HALF_LIFE_MS);
    this.tokens = this.tokens * keep + tokens;
    this.ms = this.ms * keep + ms;
  }

  /** Takes over a rate, as if it had been seen for a second. */
  adopt(tokensPerSecond: number): void {
    this.tokens = tokensPerSecond;
    this.ms = 1_000;
  }

  /** Tokens per second; null until measured. */
  tps(): number | null {
    return this.ms > 0 ? (this.tokens * 1_000) / this.ms : null;
  }
}
