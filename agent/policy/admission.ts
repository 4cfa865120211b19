// Whether what waits in an engine is being prefilled, or waits for a batch slot or KV room.
//
//   decoding = the ledger's requests past their first token − those preempted, which wait again
//   in prefill = the engine's running − decoding
//
// An engine that is *blocked* prefills nobody although requests wait: no more can be in its batch than ran just then.
// That bounds who can be in prefill until a scrape shows otherwise; every request that leaves makes room for one.

import type { Foreign, LedgerMoment } from './foreign.ts';

/** Requests that arrived so short a time before a scrape may have met no step yet, ms. */
const STEP_MS = 100;

export interface AdmissionScrape {
  /** When it was asked for. */
  readonly atMs: number;
  readonly running: number | null;
  readonly waiting: number | null;
  /** The ledger at that moment. */
  readonly known: LedgerMoment;
  readonly foreign: Foreign | null;
  /** When the oldest that waits was sent; null when none does. */
  readonly oldestMs: number | null;
}

/** Who of those that wait may be in prefill. */
export interface Room {
  /** Requests that the batch takes beside those past their prefill; Infinity where nothing limits it. */
  readonly requests: number;
  /** Since when there is any. */
  readonly sinceMs: number;
}

export const UNLIMITED: Room = { requests: Infinity, sinceMs: -Infinity };

export class Admission {
  private most = Infinity;
  /** Since when the batch has had room; null while it has none. */
  private openSinceMs: number | null = -Infinity;

  /** Takes a scrape; whether the engine was blocked at it. */
  scraped(scrape: AdmissionScrape): boolean {
    const { running, waiting, foreign, oldestMs, atMs } = scrape;
    if (running === null || waiting === null || waiting === 0) {
      this.most = Infinity;
      return false;
    }
    const strangers = foreign === null ? 0 : foreign.open - foreign.waiting;
    const prefilling = running - decodingOf(scrape) - strangers;
    const early = oldestMs === null || oldestMs > atMs - STEP_MS;
    if (prefilling > 0 || early || running === 0) {
      if (running > this.most) this.most = Infinity;
      return false;
    }
    this.most = running;
    return true;
  }

  clear(): void {
    this.most = Infinity;
    this.openSinceMs = -Infinity;
  }

  /** `decoding` requests are past their prefill; the engine has `slots`, where known. */
  room(decoding: number, slots: number | null, nowMs: number): Room {
    const requests = Math.max(0, Math.min(this.most, slots ?? Infinity) - decoding);
    if (requests < 1) this.openSinceMs = null;
    else this.openSinceMs ??= nowMs;
    return { requests, sinceMs: this.openSinceMs ?? nowMs };
  }
}

/** Requests of the ledger that wait again at the scrape. */
function preemptedOf({ waiting, known, foreign }: AdmissionScrape): number {
  const ours = (waiting ?? 0) - (foreign?.waiting ?? 0) - known.withoutFirstToken;
  return Math.max(0, Math.min(ours, known.open - known.withoutFirstToken));
}

function decodingOf(scrape: AdmissionScrape): number {
  return scrape.known.open - scrape.known.withoutFirstToken - preemptedOf(scrape);
}
