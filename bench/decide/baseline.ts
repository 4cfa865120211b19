// What a decision took when it was last looked at: counts and bytes, never time. A change that makes it look at more, or
// allocate more, fails `npm run check` until somebody has meant it (`npm run bench:decide -- --update-baseline`).

import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { figureOf, type Row } from './rows.ts';

const FILE = new URL('baseline.json', import.meta.url);
const WATCHED = fileURLToPath(new URL('watched.ts', import.meta.url));
/**
 * The same at every run: one thread, which compiles and collects at the same calls however busy the machine is, and no
 * numbers of chance. What is compiled with what decides what is kept off the heap: without these the same code took 4.3 or
 * 5.0 KB a decision.
 */
const SAME_EACH_TIME = ['--predictable', '--random-seed=1', '--hash-seed=1'];

/** How much more than the baseline is none: for another processor. On one machine all runs are alike to the byte. */
const SLACK: Readonly<Record<string, { readonly share: number; readonly more: number }>> = {
  bytesPerDecision: { share: 0.01, more: 24 },
  keptPerDecision: { share: 0, more: 8 },
};
/** A count may differ by rounding. */
const COUNT_SLACK = { share: 0.005, more: 0.5 };

/** Counts and allocation of this code, in a process of its own. */
export function watchedRows(): Row[] {
  const args = [...SAME_EACH_TIME, WATCHED];
  const { status, stdout } = spawnSync(process.execPath, args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  if (status !== 0) throw new Error(`watched.ts ended with ${status}`);
  return JSON.parse(stdout) as Row[];
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
