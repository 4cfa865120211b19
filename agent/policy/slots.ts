// Batch slots: how many an engine has, and how long the next one takes, where slots or KV room are the limit.
// No vLLM names the number, so it is learned.
//
// A limit shows as a plateau: requests wait in the engine with KV room left, and as many run as ever did. A step
// whose budget goes to one long prompt looks the same for a while, so a plateau counts only when it is seen on
// `PLATEAU_SCRAPES` scrapes with first tokens between each two of them, or on fewer where nobody was prefilled
// although requests waited (`admission.ts`).
//
// Routers respect the limit, so one learned too low would never be contradicted. What has not shown for
// `RETRY_MS` is therefore reported one higher: that request either waits, which is proof anew, or runs, and the
// limit grows with it.
//
//   slotWaitMs = (open − slots + 1) ÷ completions per ms, when all slots are taken; else 0
//
// Until completions have been seen with all slots taken, a mean answer's time over those that run stands for theirs.

const PLATEAU_SCRAPES = 3;
/** What a scrape of a blocked engine counts for. */
const BLOCKED_COUNTS = 2;
const RETRY_MS = 10_000;
/** As many as ever ran means within this time, ms: engines are reconfigured, loads change. */
const PEAK_MS = 120_000;
const KV_FULL = 0.9;
const SMOOTHING = 0.1;

export interface SlotScrape {
  readonly running: number | null;
  readonly waiting: number | null;
  readonly kvUsageRatio: number | null;
  /** Requests that have shown a first token, in all; or another counter that moves with them. */
  readonly firstTokensTotal: number | null;
  /** Nobody was prefilled although requests waited. */
  readonly blocked: boolean;
  /** The KV cache had room for the oldest of them. */
  readonly kvRoom: boolean;
}

type Limit = 'slots' | 'kv' | null;

export class SlotEstimate {
  private readonly configured: number | null;
  private told: number | null = null;
  private learned: number | null = null;
  private provenMs = -Infinity;
  private peak = 0;
  private peakMs = -Infinity;
  private plateaus = 0;
  private plateauTokens = -Infinity;
  private limit: Limit = null;
  private waiting = 0;
  private betweenEndsMs: number | null = null;
  private answerMs: number | null = null;
  private running = 0;
  private lastEndMs: number | null = null;

  constructor(configured: number | null) {
    this.configured = configured;
  }

  runningMax(nowMs: number): number | null {
    if (this.configured !== null || this.learned === null) return this.configured ?? this.told;
    const learned = nowMs - this.provenMs <= RETRY_MS ? this.learned : this.learned + 1;
    return Math.min(learned, this.told ?? Infinity);
  }

  /** The engine says how many it takes at once: fewer may be the limit, more never. */
  tell(runningMax: number | null): void {
    this.told = runningMax;
  }

  /** Takes over what an earlier agent process had learned. */
  adopt(runningMax: number, nowMs: number): void {
    this.learned = runningMax;
    this.provenMs = nowMs;
  }

  clear(): void {
    this.limit = null;
    this.waiting = 0;
    this.lastEndMs = null;
    this.peak = 0;
    this.plateaus = 0;
    this.plateauTokens = -Infinity;
  }

  scraped(scrape: SlotScrape, nowMs: number): void {
    const { running, waiting, kvUsageRatio } = scrape;
    this.waiting = waiting ?? 0;
    this.running = running ?? 0;
    this.limit = null;
    if (running === null || running <= 0) return;
    this.seen(running, nowMs);
    if (this.waiting <= 0) return;
    if ((kvUsageRatio ?? 0) >= KV_FULL || !scrape.kvRoom) {
      this.limit = 'kv';
      return;
    }
    if (scrape.blocked) this.limit = 'slots';
    if (running >= this.peak) this.plateau(scrape, running, nowMs);
  }

  /** So many requests have left the engine while `open` were in it, themselves included. */
  ended(open: number, nowMs: number, requests = 1): void {
    const max = this.runningMax(nowMs);
    const full = this.limit !== null || (max !== null && open >= max);
    if (full && this.lastEndMs !== null) {
      const sample = Math.max(0, nowMs - this.lastEndMs) / requests;
      this.betweenEndsMs = smoothed(this.betweenEndsMs, sample);
    }
    this.lastEndMs = full ? nowMs : null;
  }

  /** An answer took so long after its first token. */
  answered(ms: number): void {
    this.answerMs = smoothed(this.answerMs, ms);
  }

  /** ms until a request sent now would get a slot; null when nothing is known about the limit. */
  slotWaitMs(open: number, nowMs: number): number | null {
    const max = this.runningMax(nowMs);
    const above = max === null ? 0 : open - max + 1;
    const queue = this.limit === null ? above : Math.max(above, this.waiting + 1);
    if (queue <= 0) return 0;
    const betweenMs = this.betweenEndsMs ?? this.assumedBetweenMs;
    return betweenMs === null ? null : queue * betweenMs;
  }

  private get assumedBetweenMs(): number | null {
    return this.answerMs === null || this.running < 1 ? null : this.answerMs / this.running;
  }

  /** Some of the `open` requests wait for a slot or KV room: prefill alone does not decide their first tokens. */
  limits(open: number, nowMs: number): boolean {
    const max = this.runningMax(nowMs);
    return this.limit !== null || (max !== null && open > max);
  }

  private seen(running: number, nowMs: number): void {
    if (running > this.peak || nowMs - this.peakMs > PEAK_MS) {
      this.plateaus = 0;
      this.peak = running;
    }
    if (running >= this.peak) this.peakMs = nowMs;
    if (this.learned !== null && running > this.learned) this.learned = running;
  }

  private plateau(scrape: SlotScrape, running: number, nowMs: number): void {
    const { firstTokensTotal, blocked } = scrape;
    if (running === this.learned) this.provenMs = nowMs;
    if ([this.learned, this.configured, this.told].includes(running)) this.limit = 'slots';
    if (firstTokensTotal === null || firstTokensTotal <= this.plateauTokens) return;
    this.plateauTokens = firstTokensTotal;
    this.plateaus += blocked ? BLOCKED_COUNTS : 1;
    if (this.plateaus < PLATEAU_SCRAPES) return;
    this.learned = running;
    this.provenMs = nowMs;
    this.limit = 'slots';
  }
}

function smoothed(old: number | null, sample: number): number {
  return old === null ? sample : old + SMOOTHING * (sample - old);
}
