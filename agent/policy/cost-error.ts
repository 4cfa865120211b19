// How well the cost curve foretold the last prefills: |predicted ÷ measured − 1| as median and p90, and its median
// with sign, so that a curve that is always too low shows. Each prediction is of the curve as it was told before
// the measurement taught it anything. Null until there are enough.

import type { CostError } from '../../shared/model/report.ts';

const SAMPLES = 128;
const ENOUGH = 8;

export class CostErrors {
  private readonly samples: number[] = [];
  private next = 0;
  /** Of the present samples; reports ask more often than prefills end. */
  private told: CostError | null = null;

  /** Nonsensical figures (no time) count nothing. */
  observe(predictedMs: number, measuredMs: number): void {
    const error = predictedMs / measuredMs - 1;
    if (!Number.isFinite(error)) return;
    this.samples[this.next] = error;
    this.next = (this.next + 1) % SAMPLES;
    this.told = null;
  }

  figures(): CostError | null {
    if (this.samples.length < ENOUGH) return null;
    this.told ??= this.figuresNow();
    return this.told;
  }

  clear(): void {
    this.samples.length = 0;
    this.next = 0;
    this.told = null;
  }

  private figuresNow(): CostError {
    const signed = this.samples.toSorted((a, b) => a - b);
    const sizes = this.samples.map(Math.abs).sort((a, b) => a - b);
    return { p50: at(sizes, 0.5), p90: at(sizes, 0.9), bias: at(signed, 0.5) };
  }
}

function at(sorted: readonly number[], share: number): number {
  return sorted[Math.floor(share * (sorted.length - 1))] ?? 0;
}
