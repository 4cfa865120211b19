// How much of what the prefix index promises the engine really had: κ = Σ reported ÷ Σ predicted cached
// tokens, both decaying, between 0.1 and 1. Only requests with a prediction count. An index whose promises
// keep failing is `broken`: it is dropped, not trusted. One request, however long its prompt, weighs an eighth of all
// earlier ones at most.
//
// Never above 1: chunks are cut, so shared prefixes are promised a little short, but a turn that goes on is
// promised exactly. A factor above 1 would take those for cached whole and their prefill for nothing.

const KEEP = 0.97;
const LEAST = 0.1;
const MOST = 1;
const BROKEN_BELOW = 0.3;
const BROKEN_AFTER = 20;
/** Predictions beside which one request says little, tokens. */
const PRIOR_TOKENS = 2_048;
const MOST_SHARE = 1 / 8;

export class HitTrust {
  private predicted = PRIOR_TOKENS;
  private reported = PRIOR_TOKENS;
  private count = 0;

  /** One finished request: tokens predicted (before κ, rounded to blocks) and reported as cached. */
  observe(predicted: number, reported: number): void {
    if (!(predicted > 0) || !(reported >= 0)) return;
    const most = Math.max(PRIOR_TOKENS, this.predicted * MOST_SHARE);
    const weight = Math.min(1, most / predicted);
    this.predicted = this.predicted * KEEP + weight * predicted;
    this.reported = this.reported * KEEP + weight * reported;
    this.count += 1;
  }

  get kappa(): number {
    return Math.min(MOST, Math.max(LEAST, this.reported / this.predicted));
  }

  /** Whether the index has kept being wrong. */
  get broken(): boolean {
    return this.count >= BROKEN_AFTER && this.reported / this.predicted < BROKEN_BELOW;
  }

  adopt(kappa: number): void {
    this.predicted = PRIOR_TOKENS * 4;
    this.reported = this.predicted * kappa;
    this.count = 0;
  }

  reset(): void {
    this.predicted = PRIOR_TOKENS;
    this.reported = PRIOR_TOKENS;
    this.count = 0;
  }
}
