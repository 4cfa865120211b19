// Traffic that no router told of: what the engine counts above what the ledger knew at that moment.
//
//   open    = running + waiting − requests of the ledger in the engine
//   waiting = the engine's waiting − the ledger's without a first token, and never more than `open`: a preempted
//             request of ours waits again, and is no stranger. Strangers in prefill run and are not seen
//
// each at least 0, at the last scrape that is *settled*: everything that a router had sent when the scrape was asked
// for has been heard. Until then messages may be under way, however slow a link is, and ours would look foreign.
// Where a router cannot say what has been heard, the least over two scrapes counts: what was under way at one of them
// is known at the next. Traffic that nobody has confirmed for `KEEP_MS` is unknown.

export interface ScrapedLoad {
  /** When the scrape was asked for. */
  readonly atMs: number;
  readonly running: number | null;
  readonly waiting: number | null;
}

/** What the ledger knows of a past moment. */
export interface LedgerMoment {
  /** Requests in the engine. */
  readonly open: number;
  /** Of these, without a first token. */
  readonly withoutFirstToken: number;
}

export interface Foreign {
  /** Requests that wait in the engine. */
  readonly waiting: number;
  /** Requests in the engine. */
  readonly open: number;
}

/** What routers have said is heard: all that they sent until `untilMs`, dated at most `lateMs` too late. */
export interface Heard {
  readonly untilMs: number;
  readonly lateMs: number;
  /** Every router says so; else it is assumed of some. */
  readonly sure: boolean;
}

interface Kept extends ScrapedLoad {
  /** Null until settled. */
  lateMs: number | null;
}

/** Scrapes that wait to be settled: a link that is later than that tells nothing of the present. */
const MAX_UNSETTLED = 16;
const KEEP_MS = 15_000;

export class ForeignTraffic {
  private scrapes: Kept[] = [];
  private sure = true;

  scraped(load: ScrapedLoad): void {
    this.scrapes.push({ ...load, lateMs: null });
    if (this.scrapes.length > MAX_UNSETTLED) this.scrapes.shift();
  }

  /** Whether a scrape has been settled by this. */
  heard({ untilMs, lateMs, sure }: Heard): boolean {
    this.sure = sure;
    let settled = false;
    for (const scrape of this.scrapes) {
      if (scrape.lateMs !== null || scrape.atMs > untilMs) continue;
      scrape.lateMs = lateMs;
      settled = true;
    }
    const last = this.scrapes.findLastIndex((scrape) => scrape.lateMs !== null);
    if (last > 1) this.scrapes = this.scrapes.slice(last - 1);
    return settled;
  }

  /** The newest scrape that everything is known of; null before the first. */
  get lastSettled(): (ScrapedLoad & { readonly lateMs: number }) | null {
    const scrape = this.scrapes.findLast((each) => each.lateMs !== null);
    return scrape === undefined ? null : { ...scrape, lateMs: scrape.lateMs ?? 0 };
  }

  clear(): void {
    this.scrapes = [];
  }

  /** Null while too few settled scrapes with the figures have been seen, and long after the last. */
  estimate(
    momentAt: (atMs: number, lateMs: number) => LedgerMoment,
    nowMs: number,
  ): Foreign | null {
    const least = this.sure ? 1 : 2;
    const settled = this.scrapes.filter((scrape) => scrape.lateMs !== null).slice(-least);
    if (settled.length < least) return null;
    let waiting = Infinity;
    let open = Infinity;
    for (const { atMs, lateMs, ...scrape } of settled) {
      if (scrape.running === null || scrape.waiting === null) return null;
      if (atMs < nowMs - KEEP_MS) return null;
      const known = momentAt(atMs, lateMs ?? 0);
      open = Math.min(open, Math.max(0, scrape.running + scrape.waiting - known.open));
      waiting = Math.min(waiting, Math.max(0, scrape.waiting - known.withoutFirstToken));
    }
    return { waiting: Math.min(waiting, open), open };
  }
}
