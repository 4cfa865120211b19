// What the ledger knew at a moment of the last seconds: a scrape is compared with the ledger as it was when
// the scrape was asked for, with what has been told since.

import type { LedgerMoment } from './foreign.ts';
import type { LedgerEntry } from './ledger.ts';

const KEEP_MS = 5_000;
const KEEP_ENTRIES = 8_192;

export class LedgerHistory {
  private readonly open = new Set<LedgerEntry>();
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

  momentAt(atMs: number): LedgerMoment {
    let open = 0;
    let withoutFirstToken = 0;
    const visit = (entry: LedgerEntry): void => {
      if (entry.sentMs > atMs || (entry.endedMs !== null && entry.endedMs <= atMs)) return;
      open += 1;
      if (entry.prefillEndMs === null || entry.prefillEndMs > atMs) withoutFirstToken += 1;
    };
    for (const entry of this.open) visit(entry);
    for (const entry of this.closed) visit(entry);
    return { open, withoutFirstToken };
  }
}
