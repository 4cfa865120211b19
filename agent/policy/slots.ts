// Batch slots: how many an engine has, and how long the next one takes, where slots or KV room are the limit.
//
// An engine is at its limit when requests wait in it although none is in prefill: every running one has shown
// its first token. With KV room left that is the number of slots. Seen on two scrapes in a row it counts, and
// for `HOLD_MS`: a limit learned too low would otherwise confirm itself, since routers respect it.
//
//   slotWaitMs = (open − slots + 1) ÷ completions per ms, when all slots are taken; else 0

const HOLD_MS = 120_000;
const KV_FULL = 0.9;
const SMOOTHING = 0.1;

export interface SlotScrape {
  readonly running: number | null;
  readonly waiting: number | null;
  readonly kvUsageRatio: number | null;
  /** Open requests past their prefill, by the ledger at the time of the scrape. */
  readonly decoding: number;
}

type Limit = 'slots' | 'kv' | null;

export class SlotEstimate {
  private readonly configured: number | null;
  private learned: number | null = null;
  private provenMs = -Infinity;
  private candidate: number | null = null;
  private limit: Limit = null;
  private waiting = 0;
  private betweenEndsMs: number | null = null;
  private lastEndMs: number | null = null;

  constructor(configured: number | null) {
    this.configured = configured;
  }

  runningMax(nowMs: number): number | null {
    if (this.configured !== null) return this.configured;
    return nowMs - this.provenMs <= HOLD_MS ? this.learned : null;
  }

  /** Takes over what an earlier agent process had learned. */
  adopt(runningMax: number, nowMs: number): void {
    this.learned = runningMax;
    this.provenMs = nowMs;
  }

  clear(): void {
    this.candidate = null;
    this.limit = null;
    this.waiting = 0;
    this.lastEndMs = null;
  }

  scraped(scrape: SlotScrape, nowMs: number): void {
    const { running, waiting, kvUsageRatio, decoding } = scrape;
    this.waiting = waiting ?? 0;
    const stuck = running !== null && running > 0 && this.waiting > 0 && running <= decoding;
    if (!stuck) {
      this.limit = null;
      this.candidate = null;
      if (running !== null && this.learned !== null && running > this.learned)
        this.learned = running;
      return;
    }
    this.limit = (kvUsageRatio ?? 0) >= KV_FULL ? 'kv' : 'slots';
    if (this.limit === 'slots' && this.candidate === running) {
      this.learned = running;
      this.provenMs = nowMs;
    }
    this.candidate = this.limit === 'slots' ? running : null;
  }

  /** A request has left the engine while `open` were in it, itself included. */
  ended(open: number, nowMs: number): void {
    const max = this.runningMax(nowMs);
    const full = this.limit !== null || (max !== null && open >= max);
    if (full && this.lastEndMs !== null) {
      const sample = Math.max(0, nowMs - this.lastEndMs);
      const old = this.betweenEndsMs;
      this.betweenEndsMs = old === null ? sample : old + SMOOTHING * (sample - old);
    }
    this.lastEndMs = full ? nowMs : null;
  }

  /** ms until a request sent now would get a slot; null when nothing is known about the limit. */
  slotWaitMs(open: number, nowMs: number): number | null {
    const max = this.runningMax(nowMs);
    const above = max === null ? 0 : open - max + 1;
    const queue = this.limit === null ? above : Math.max(above, this.waiting + 1);
    if (queue <= 0) return 0;
    return this.betweenEndsMs === null ? null : queue * this.betweenEndsMs;
  }
}
