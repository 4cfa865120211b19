// How many of the open requests that show no first token are past their prefill, by the engine's own count.
//
//   passed = Δ engine's first tokens − Δ first tokens that streams showed − Δ such requests that have ended
//
// The deltas run from the last scrape at which no such request was open: drift (foreign requests, aborted
// ones) does not outlive a quiet moment.

const KEEP_MS = 10_000;
const KEEP = 8_192;

export class UnstreamedCount {
  /** Events that count against the engine's figure: all, and the instants of the recent ones. */
  private total = 0;
  private recent: { readonly atMs: number; readonly requests: number }[] = [];
  private base: { readonly engine: number; readonly counted: number } | null = null;

  /** A stream of so many requests showed its first token. */
  streamed(atMs: number, requests = 1): void {
    this.count(atMs, requests);
  }

  /** So many requests that show none have ended after their prefill. */
  ended(atMs: number, requests = 1): void {
    this.count(atMs, requests);
  }

  clear(): void {
    this.total = 0;
    this.recent = [];
    this.base = null;
  }

  /** Of `open` such requests at the scrape, those past their prefill; null when it cannot be told. */
  passed(
    scrape: { readonly firstTokensTotal: number | null; readonly atMs: number },
    open: number,
  ): number | null {
    const { firstTokensTotal, atMs } = scrape;
    this.forget(atMs);
    if (firstTokensTotal === null) return null;
    let counted = this.total;
    for (const each of this.recent) if (each.atMs > atMs) counted -= each.requests;
    if (open === 0 || this.base === null) {
      this.base = open === 0 ? { engine: firstTokensTotal, counted } : this.base;
      return null;
    }
    const passed = firstTokensTotal - this.base.engine - (counted - this.base.counted);
    return Math.min(open, Math.max(0, passed));
  }

  private count(atMs: number, requests: number): void {
    this.total += requests;
    this.recent.push({ atMs, requests });
    if (this.recent.length > KEEP) this.recent.splice(0, KEEP / 2);
  }

  private forget(nowMs: number): void {
    if ((this.recent[0]?.atMs ?? nowMs) >= nowMs - KEEP_MS) return;
    this.recent = this.recent.filter(({ atMs }) => atMs >= nowMs - KEEP_MS);
  }
}
