// Traffic that no router told of: what the engine counts above what the ledger knew at that moment.
//
// The least over the last two scrapes: a request whose `sent` was still on the way at one of them is in the
// ledger's history at the next, so ours never look foreign for longer than a message takes.

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

export class ForeignTraffic {
  private scrapes: ScrapedLoad[] = [];

  scraped(load: ScrapedLoad): void {
    this.scrapes.push(load);
    if (this.scrapes.length > 2) this.scrapes.shift();
  }

  clear(): void {
    this.scrapes = [];
  }

  /** Null while two scrapes with the figures have not been seen. */
  estimate(momentAt: (atMs: number) => LedgerMoment): Foreign | null {
    if (this.scrapes.length < 2) return null;
    let waiting = Infinity;
    let open = Infinity;
    for (const scrape of this.scrapes) {
      if (scrape.running === null || scrape.waiting === null) return null;
      const known = momentAt(scrape.atMs);
      waiting = Math.min(waiting, Math.max(0, scrape.waiting - known.withoutFirstToken));
      open = Math.min(open, Math.max(0, scrape.running + scrape.waiting - known.open));
    }
    return { waiting, open };
  }
}
