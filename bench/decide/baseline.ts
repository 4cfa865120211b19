// What a decision took when it was last looked at: counts and bytes, never time. A change that makes it look at more, or
// allocate more, fails `npm run check` until somebody has meant it (`npm run bench:decide -- --update-baseline`).

import { readFileSync, writeFileSync } from 'node:fs';
import { allocatedRow, compileInTurn } from './allocated.ts';
import { nameOf, type Cell } from './cells.ts';
import { countedRow } from './counted.ts';
import { ARM, figureOf, type Row } from './rows.ts';

const FILE = new URL('baseline.json', import.meta.url);

/** The cells, and how many decisions of each are watched for what they allocate. */
const WATCHED: readonly (Cell & { readonly decisions: number })[] = [
  { replicas: 8, kTokens: 1, decisions: 250_000 },
  { replicas: 64, kTokens: 32, decisions: 200_000 },
  { replicas: 1_000, kTokens: 32, decisions: 50_000 },
];
const COUNTED_DECISIONS = 100;

/**
 * How much more than the baseline is none: what a compiler keeps off the heap differs from run to run, by up to 2 % in
 * 1000x32k over eight runs on idle and busy machines.
 */
const SLACK: Readonly<Record<string, { readonly share: number; readonly more: number }>> = {
  bytesPerDecision: { share: 0.03, more: 24 },
  keptPerDecision: { share: 0, more: 8 },
};
/** A count may differ by rounding. */
const COUNT_SLACK = { share: 0.005, more: 0.5 };

/** Counts and allocation of this code: allocation first, since code that has been watched is compiled otherwise. */
export function watchedRows(): Row[] {
  compileInTurn();
  const allocated = WATCHED.map((cell) => allocatedRow(cell, cell.decisions));
  return WATCHED.map((cell, k) => ({
    ...{ cell: nameOf(cell), arm: ARM },
    ...allocated[k],
    ...countedRow(cell, COUNTED_DECISIONS),
  }));
}

export interface Difference {
  readonly cell: string;
  readonly figure: string;
  readonly baseline: number;
  readonly now: number | null;
  readonly worse: boolean;
}

/** Figures that are beyond their slack, better or worse. */
export function differences(rows: readonly Row[], baseline: readonly Row[]): Difference[] {
  const found: Difference[] = [];
  for (const { cell, arm: _, ...figures } of baseline) {
    for (const [figure, before] of Object.entries(figures)) {
      if (typeof before !== 'number') continue;
      const now = figureOf(rows, cell, figure);
      const { share, more } = SLACK[figure] ?? COUNT_SLACK;
      const slack = share * before + more;
      if (now !== null && Math.abs(now - before) <= slack) continue;
      found.push({ cell, figure, baseline: before, now, worse: now === null || now > before });
    }
  }
  return found;
}

export function readBaseline(): Row[] {
  return JSON.parse(readFileSync(FILE, 'utf8')) as Row[];
}

export function writeBaseline(rows: readonly Row[]): void {
  writeFileSync(FILE, `${JSON.stringify(rows, null, 2)}\n`);
}
