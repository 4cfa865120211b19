// Rows for machines and lines for people.

import type { Figures } from './compare.ts';

/** Flat: numbers under names that say their unit. */
export interface Row {
  readonly cell: string;
  readonly arm: string;
  readonly [figure: string]: string | number;
}

export interface Run {
  readonly version: string;
  readonly machine: string;
  readonly rows: readonly Row[];
  readonly missed: readonly string[];
  readonly skipped: readonly string[];
}

/** From the first block to the others: more of a fall says that the warm-up was too short. */
const SETTLED = 1.15;

export function rowOf(cell: string, arm: string, figures: Figures): Row {
  const { fault: _fault, ...numbers } = figures;
  return { cell, arm, ...finite(numbers) };
}

export function tableHeader(): string {
  return `  ${'arm'.padEnd(26)} ${'CPU µs'.padStart(8)}  ${'× nginx (min–max)'.padEnd(19)} added TTFT p50, p99 ms`;
}

export function tableLine(arm: string, figures: Figures): string {
  const { cpuUsPerRequest, timesNginx, timesNginxMin, timesNginxMax, settling } = figures;
  const times = `${timesNginx.toFixed(2)} (${timesNginxMin.toFixed(2)}–${timesNginxMax.toFixed(2)})`;
  const added = `${figures.addedTtftMsP50.toFixed(2)}, ${figures.addedTtftMsP99.toFixed(1)}`;
  const note =
    settling > SETTLED ? `  (its first block cost ${settling.toFixed(2)} × the others)` : '';
  return `  ${arm.padEnd(26)} ${cpuUsPerRequest.toFixed(1).padStart(8)}  ${times.padEnd(19)} ${added}${note}`;
}

export function skippedLine(what: string, why: string): string {
  return `SKIPPED ${what}: ${why}`;
}

/** 1 where an answer was wrong, and in strict runs where something was skipped or missed. */
export function exitCode({ rows, missed, skipped }: Run, strict: boolean): number {
  const wrong = rows.some((row) => Number(row['wrong'] ?? 0) > 0);
  return wrong || (strict && missed.length + skipped.length > 0) ? 1 : 0;
}

/** What could not be measured is absent, not null. */
function finite(numbers: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(numbers).filter(([, value]) => Number.isFinite(value)));
}
