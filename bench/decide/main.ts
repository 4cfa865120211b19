// `npm run bench:decide`: what one decision costs, without parsing, canonicalisation and hashing, which have rows of
// their own.
//
//   --json              one object on stdout
//   --strict            an aim that is missed is an error
//   --quick             counts and allocation alone, held against the baseline: what `npm run check` runs
//   --update-baseline   the same, written as the new baseline

import { cpus } from 'node:os';
import { VERSION } from '../../shared/runtime/version.ts';
import { aimVerdicts } from './aims.ts';
import { differences, readBaseline, watchedRows, writeBaseline } from './baseline.ts';
import { CELLS, nameOf } from './cells.ts';
import { indexRow } from './index-cell.ts';
import { promptRows } from './prompt-cell.ts';
import { regionsRow } from './regions-cell.ts';
import { ARM, figureOf, round, type Row } from './rows.ts';
import { growthExponent, timedRow } from './timed.ts';

const KNOWN = ['--json', '--strict', '--quick', '--update-baseline'];
const PROMPTS_K = [1, 32, 128];
const GROWTH_K = 32;
const MOST_REGIONS = 30;
const REGIONS = [3, 10, MOST_REGIONS];
/** Requests that regions have been sent and not answered. */
const OPEN = 10_000;
const INDEX_TARGETS = 1_000;
const INDEX_BLOCKS = 1_000_000;

const args = new Set(process.argv.slice(2));
const unknown = [...args].filter((arg) => !KNOWN.includes(arg));
if (unknown.length > 0) {
  console.error(`bench:decide: unknown ${unknown.join(' ')}; there are ${KNOWN.join(' ')}`);
  process.exitCode = 2;
} else if (args.has('--update-baseline')) {
  const rows = watchedRows();
  writeBaseline(rows);
  show(rows);
} else if (args.has('--quick')) {
  const rows = watchedRows();
  show(rows);
  process.exitCode = compare(rows) ? 0 : 1;
} else {
  const rows = await allRows();
  show(rows);
  const verdicts = aimVerdicts(rows);
  for (const { aim, measured, met } of verdicts)
    say(`${met ? 'met   ' : 'MISSED'} ${aim}: ${measured}`);
  if (args.has('--strict') && verdicts.some(({ met }) => !met)) process.exitCode = 1;
}

async function allRows(): Promise<Row[]> {
  // Each cell in its turn: what one leaves on the heap would be another's collections.
  const rows = CELLS.map((cell) => timedRow(cell));
  const points = CELLS.filter(({ kTokens }) => kTokens === GROWTH_K).map(
    (cell) => [cell.replicas, figureOf(rows, nameOf(cell), 'decisionUsP50') ?? Number.NaN] as const,
  );
  const exponent = round(growthExponent(points) ?? Number.NaN, 2);
  const prompts: Row[] = [];
  for (const kTokens of PROMPTS_K) prompts.push(...(await promptRows(kTokens)));
  return [
    ...rows,
    { cell: `growth-${GROWTH_K}k`, arm: ARM, exponent },
    indexRow(INDEX_TARGETS, INDEX_BLOCKS),
    ...prompts,
    ...REGIONS.map((regions) => regionsRow(regions)),
    regionsRow(MOST_REGIONS, OPEN),
    ...watchedRows(),
  ];
}

/** Whether nothing is worse. */
function compare(rows: readonly Row[]): boolean {
  const found = differences(rows, readBaseline());
  for (const { cell, figure, baseline, now, worse } of found) {
    say(`${worse ? 'WORSE ' : 'better'} ${cell} ${figure}: ${now}, baseline ${baseline}`);
  }
  if (found.length === 0) say('as the baseline');
  else say('what is meant becomes the baseline with: npm run bench:decide -- --update-baseline');
  return found.every(({ worse }) => !worse);
}

function show(rows: readonly Row[]): void {
  if (args.has('--json')) {
    const machine = `${cpus().length} × ${cpus()[0]?.model.trim() ?? 'unknown'}, Node ${process.version}`;
    console.log(JSON.stringify({ version: VERSION, machine, rows }));
    return;
  }
  const shapes = new Map<string, Row[]>();
  for (const row of rows) {
    const shape = Object.keys(row).join();
    shapes.set(shape, [...(shapes.get(shape) ?? []), row]);
  }
  for (const alike of shapes.values()) console.table(alike);
}

function say(line: string): void {
  if (args.has('--json')) console.error(line);
  else console.log(line);
}
