// Requests that show no first token (not streamed): which observed stretch of prefill they belong to.
//
// Engines prefill in the order of sending. So one that was sent before a stream was prefilled before that stream's
// first token, and after the first tokens of all streams sent before it. Nobody sees when it ended. Where another
// request was sent while it was surely still in prefill (half of its modelled time) the engine stayed busy; where
// the other came surely after (twice that time, or its answer's end) the engine was idle between; otherwise nobody
// knows, and what was measured around says nothing. The factor of two keeps a wrong curve from confirming itself.

import type { LedgerEntry } from './ledger.ts';

const MAX_UNSEEN = 1_024;
const SURELY = 2;

/** Where a stretch that ends with the last of some requests begins. */
export type Beginning =
  /** Busy since the instant before. */
  | { readonly kind: 'goesOn' }
  /** The engine was idle when the request at `from` was sent; those before it are no part of the stretch. */
  | { readonly kind: 'idle'; readonly from: number }
  | { readonly kind: 'unknown' };

export class UnseenPrefills {
  private entries: LedgerEntry[] = [];
  private lost = false;

  add(entry: LedgerEntry): void {
    let at = this.entries.length;
    while (at > 0 && (this.entries[at - 1]?.sentMs ?? 0) > entry.sentMs) at -= 1;
    this.entries.splice(at, 0, entry);
    if (this.entries.length <= MAX_UNSEEN) return;
    this.entries.shift();
    this.lost = true;
  }

  remove(entry: LedgerEntry): void {
    const at = this.entries.indexOf(entry);
    if (at >= 0) this.entries.splice(at, 1);
  }

  clear(): void {
    this.entries = [];
    this.lost = false;
  }

  /** When the oldest was sent; null when there is none. */
  get oldestMs(): number | null {
    return this.entries[0]?.sentMs ?? null;
  }

  /** Takes out those sent until `sentMs`, oldest first; null where some of them are no longer known. */
  take(sentMs: number): LedgerEntry[] | null {
    let count = 0;
    while ((this.entries[count]?.sentMs ?? Infinity) <= sentMs) count += 1;
    const taken = this.entries.splice(0, count);
    if (!this.lost) return taken;
    this.lost = false;
    return null;
  }
}

/** `entries` in order of sending, the last of them prefilled at the stretch's end; `lastEndMs`: the instant before. */
export function beginningOf(
  entries: readonly LedgerEntry[],
  lastEndMs: number,
  prefillMs: (entry: LedgerEntry) => number,
): Beginning {
  let from = -1;
  let known = true;
  let busyAtLeastMs = lastEndMs;
  let busyAtMostMs = lastEndMs;
  entries.forEach((entry, index) => {
    const { sentMs } = entry;
    if (sentMs > busyAtMostMs) {
      from = index;
      known = true;
      busyAtLeastMs = busyAtMostMs = sentMs;
    } else if (sentMs > busyAtLeastMs) {
      known = false;
    }
    const ms = prefillMs(entry);
    const endedMs = entry.endedMs ?? Infinity;
    busyAtLeastMs = Math.min(endedMs, Math.max(busyAtLeastMs, sentMs) + ms / SURELY);
    busyAtMostMs = Math.min(endedMs, Math.max(busyAtMostMs, sentMs) + ms * SURELY);
  });
  if (!known) return { kind: 'unknown' };
  return from < 0 ? { kind: 'goesOn' } : { kind: 'idle', from };
}
