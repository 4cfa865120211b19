// What the ledger knew at a moment of the last seconds: a scrape is compared with the ledger as it was when
// the scrape was asked for, with what has been told since.
//
// An engine lets go of a request that was given up a moment after its router does, and shows it in its gauges until
// its next step: such a request counts as inside for `LINGER_MS`, and for as long as the engine has not moved since.

import { ChurnSet } from '../../shared/lib/churn.ts';
import type { LedgerMoment } from './foreign.ts';
import { requestsOf, type LedgerEntry } from './ledger.ts';
import type { Prompts } from './scrape-rates.ts';

const KEEP_MS = 20_000;
const KEEP_ENTRIES = 8_192;
const LINGER_MS = 1_000;

export interface MomentOptions {
  /** Entries may be dated so much too late: their messages were on the way. */
  readonly lateMs: number;
  /** When the engine was last seen to have moved. */
  readonly movedMs: number;
}

const EXACT: MomentOptions = { lateMs: 0, movedMs: Infinity };

export class LedgerHistory {
  private readonly open = new ChurnSet<LedgerEntry>();
  private closed: LedgerEntry[] = [];

  opened(entry: LedgerEntry): void {
    this.open.add(entry);
  }

  closedAt(entry: LedgerEntry, nowMs: number): void {
    this.open.delete(entry);
    this.closed.push(entry);
    const first = this.closed[0];
    const overflow = this.closed.length > KEEP_ENTRIES;
    const stale = first !== undefined && (first.endedMs ?? 0) < nowMs - 2 * KEEP_MS;
    if (!overflow && !stale) return;
    const kept = this.closed.filter((each) => (each.endedMs ?? 0) >= nowMs - KEEP_MS);
    this.closed = kept.slice(-KEEP_ENTRIES / 2);
  }

  clear(): void {
    this.open.clear();
    this.closed = [];
  }

  /** Prompts whose prefill ended after `fromMs` and until `toMs`. */
  prefilledBetween(fromMs: number, toMs: number): Prompts {
    let prompts = 0;
    let tokens = 0;
    for (const entries of [this.open, this.closed]) {
      for (const entry of entries) {
        const endMs = entry.prefillEndMs ?? Infinity;
        if (endMs <= fromMs || endMs > toMs) continue;
        prompts += requestsOf(entry);
        tokens += uncachedOf(entry);
      }
    }
    return { prompts, tokens };
  }

  momentAt(atMs: number, options: MomentOptions = EXACT): LedgerMoment {
    const { lateMs, movedMs } = options;
    let open = 0;
    let withoutFirstToken = 0;
    const visit = (entry: LedgerEntry): void => {
      if (entry.sentMs > atMs + lateMs || leftBy(entry, atMs, movedMs)) return;
      const requests = requestsOf(entry);
      open += requests;
      if (entry.prefillEndMs === null || entry.prefillEndMs > atMs) withoutFirstToken += requests;
    };
    for (const entry of this.open) visit(entry);
    for (const entry of this.closed) visit(entry);
    return { open, withoutFirstToken };
  }
}

/** Computed for it, as its usage tells, else as its router foretold. */
function uncachedOf({ facts, usage }: LedgerEntry): number {
  const cached = usage?.cachedTokens ?? null;
  const foretold = Math.max(0, facts.uncachedTokens);
  return usage === null || cached === null ? foretold : Math.max(0, usage.promptTokens - cached);
}

function leftBy(entry: LedgerEntry, atMs: number, movedMs: number): boolean {
  const { endedMs, outcome } = entry;
  if (endedMs === null || endedMs > atMs) return false;
  if (outcome === 'complete' || movedMs === Infinity) return true;
  return atMs >= endedMs + LINGER_MS && movedMs >= endedMs;
}
