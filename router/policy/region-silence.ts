// Whether the reports of a link are late, or missing: a region that stands still keeps its connections open.
//
//   overdue after  max(MISSED · interval, SPREAD · second longest of the last GAPS_KEPT gaps between two reports)
//
// What is late by the same time comes as often as before, so lateness alone is no gap. Where it varies, gaps are as
// long as it varies by, and are learned: before so many are known, no report is overdue. The longest is left out: after a
// region has stood still once, the next time is found as soon.

import type { LeaseId } from '../../shared/model/ids.ts';

/** Reports that have not come, from which a link is overdue. */
const MISSED = 3;
const SPREAD = 2;
const GAPS_KEPT = 32;
const GAPS_KNOWN = 16;

export class ReportGaps {
  readonly #gapsMs: number[] = [];
  #next = 0;
  #lastMs: number | null = null;
  #secondMs = 0;

  /** A report has come. */
  note(nowMs: number): void {
    const lastMs = this.#lastMs;
    this.#lastMs = nowMs;
    if (lastMs === null) return;
    this.#gapsMs[this.#next] = Math.max(0, nowMs - lastMs);
    this.#next = (this.#next + 1) % GAPS_KEPT;
    this.#secondMs = secondOf(this.#gapsMs);
  }

  /** Nobody was there to note it: what has passed is no gap. */
  forgive(): void {
    this.#lastMs = null;
  }

  /** From so long after the last report on, ms. `intervalMs`: how often the region was asked to report. */
  overdueMs(intervalMs: number): number {
    if (this.#gapsMs.length < GAPS_KNOWN) return Number.POSITIVE_INFINITY;
    return Math.max(MISSED * intervalMs, SPREAD * this.#secondMs);
  }
}

/** What is known of a region's silence. */
export interface Silence {
  /** When anything of it last came. */
  heardMs: number;
  silent: boolean;
  /** The attempt that tries it meanwhile. */
  trial: LeaseId | null;
}

export function newSilence(): Silence {
  return { heardMs: Number.NEGATIVE_INFINITY, silent: false, trial: null };
}

/** The longest but one; 0 where there is none. */
function secondOf(gapsMs: readonly number[]): number {
  let longest = 0;
  let second = 0;
  for (const gap of gapsMs) {
    if (gap > longest) [longest, second] = [gap, longest];
    else if (gap > second) second = gap;
  }
  return second;
}
