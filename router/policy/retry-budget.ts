// Retries as a share of live traffic, so that a failing pool is not asked several times as much as
// a sound one.
//
//   allowed while retries in window < ratio · requests in window + minPerS · window

import type { RegionalSettings } from '../../shared/model/settings.ts';

export type RetryBudgetSettings = Pick<RegionalSettings, 'retryBudgetRatio' | 'retryBudgetMinPerS'>;

const BUCKET_MS = 1_000;
const BUCKETS = 10;

export class RetryBudget {
  readonly #requests = new Float64Array(BUCKETS);
  readonly #retries = new Float64Array(BUCKETS);
  #bucket = 0;

  request(nowMs: number): void {
    this.#requests[this.#at(nowMs)] = (this.#requests[this.#at(nowMs)] ?? 0) + 1;
  }

  /** Charges one retry; false, and nothing charged, when the budget is spent. */
  charge(nowMs: number, settings: RetryBudgetSettings): boolean {
    const at = this.#at(nowMs);
    const least = (settings.retryBudgetMinPerS * BUCKETS * BUCKET_MS) / 1_000;
    const allowed = settings.retryBudgetRatio * total(this.#requests) + least;
    if (total(this.#retries) + 1 > allowed) return false;
    this.#retries[at] = (this.#retries[at] ?? 0) + 1;
    return true;
  }

  /** Index of the current bucket; those that time has passed are emptied. */
  #at(nowMs: number): number {
    const bucket = Math.floor(nowMs / BUCKET_MS);
    const passed = Math.min(BUCKETS, bucket - this.#bucket);
    for (let k = 1; k <= passed; k += 1) {
      this.#requests[mod(this.#bucket + k)] = 0;
      this.#retries[mod(this.#bucket + k)] = 0;
    }
    this.#bucket = Math.max(this.#bucket, bucket);
    return mod(this.#bucket);
  }
}

function mod(bucket: number): number {
  return ((bucket % BUCKETS) + BUCKETS) % BUCKETS;
}

function total(counts: Float64Array): number {
  return counts.reduce((sum, count) => sum + count, 0);
}
