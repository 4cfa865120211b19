// What is said at the end: a table a load, where Spillway's time went, ratios with their intervals, and the aims.

import { tableLines } from '../../test/engines/verdict.ts';
import { quantile } from '../../test/engines/quantile.ts';
import { FIGURE_WORDS, type AimResult, type Comparison, type LoadCells } from './aims.ts';
import type { CellResult } from './cell.ts';
import { figuresOf } from './figures.ts';
import type { Load } from './loads.ts';

/** One arm under one load, flat. */
export interface Row {
  readonly cell: string;
  readonly arm: string;
  readonly [figure: string]: string | number | null;
}

const HEAD = [
  'arm',
  'seeds',
  'TTFT mean ms',
  'p50',
  'p95',
  "later turns' p50",
  'cached',
  'run s',
  'router CPU ms/request',
  'generator cores',
  'failed',
  'marked',
  'measured, UTC',
];

export function rowsOf(load: string, cells: LoadCells): Row[] {
  return [...cells].map(([arm, results]) => ({ cell: load, arm, ...figuresOf(results) }));
}

export function loadLines(load: Load, cells: LoadCells): string[] {
  const rows = [...cells].map(([arm, results]) => {
    const figures = figuresOf(results);
    return [
      arm,
      String(figures.seeds),
      whole(figures.ttftMsMean),
      whole(figures.ttftMsP50),
      whole(figures.ttftMsP95),
      whole(figures.laterTtftMsP50),
      fixed(figures.cachedShare, 3),
      fixed(figures.runS, 1),
      fixed(figures.routerCpuMsPerRequest, 2),
      fixed(figures.generatorCores, 3),
      `${figures.failed}/${figures.turns}`,
      `${figures.markedCells}`,
      spanOf(results),
    ];
  });
  const marks = [...cells.values()].flat().filter((cell) => cell.marks.length > 0);
  return [
    `${load.name}: ${load.about}`,
    ...tableLines([HEAD, ...rows]).map(indent),
    ...marks.map((cell) =>
      indent(`marked: ${cell.arm}, seed ${cell.seed}: ${cell.marks.join('; ')}`),
    ),
    ...[...cells].flatMap(([arm, results]) => faultLines(arm, results)),
    ...[...cells].flatMap(([arm, results]) => whyLines(arm, results)),
  ];
}

export function comparisonLines(comparisons: readonly Comparison[]): string[] {
  const rows = comparisons.map(({ arm, against, figure, ratio }) => [
    `${arm} ÷ ${against}`,
    FIGURE_WORDS[figure],
    ratio.ratio.toFixed(3),
    `${ratio.low.toFixed(3)}–${ratio.high.toFixed(3)}`,
    String(ratio.seeds),
    String(ratio.turns),
  ]);
  if (rows.length === 0) return [];
  return tableLines([['paired', 'figure', 'ratio', '95 %', 'seeds', 'turns'], ...rows]).map(indent);
}

export function aimLines(aims: readonly AimResult[]): string[] {
  return aims.map(({ load, aim, outcome, seen }) =>
    `${outcome.padEnd(12)} ${load}: ${aim}${seen === '' ? '' : `: ${seen}`}`.trimEnd(),
  );
}

function faultLines(arm: string, cells: readonly CellResult[]): string[] {
  const first = cells.flatMap(({ turns }) => turns).find(({ error }) => error !== null);
  return first === undefined ? [] : [indent(`${arm} failed, the first: ${first.error}`)];
}

/** Medians over the cells of what its request log says. */
function whyLines(arm: string, cells: readonly CellResult[]): string[] {
  const told = cells.flatMap(({ explained }) => explained ?? []);
  if (told.length === 0) return [];
  const of = (pick: (each: (typeof told)[number]) => number | null): string =>
    whole(
      quantile(
        told.flatMap((each) => pick(each) ?? []),
        0.5,
      ),
    );
  const reasons = new Map<string, number>();
  for (const { reasons: counted } of told) {
    for (const [name, count] of Object.entries(counted)) {
      reasons.set(name, (reasons.get(name) ?? 0) + count);
    }
  }
  const ranked = [...reasons]
    .sort((a, b) => b[1] - a[1])
    .map(([name, count]) => `${name} ${count}`);
  const stayed = quantile(
    told.flatMap(({ stayedShare }) => stayedShare ?? []),
    0.5,
  );
  const error = quantile(
    told.flatMap(({ ttftTimesPredicted }) => ttftTimesPredicted.p50 ?? []),
    0.5,
  );
  return [
    `${arm}: first turns in the queue p50 ${of((e) => e.firstQueueMs.p50)}, p95 ${of((e) => e.firstQueueMs.p95)} ms, ` +
      `in the engine ${of((e) => e.firstEngineMs.p50)}, ${of((e) => e.firstEngineMs.p95)}; ` +
      `later turns ${of((e) => e.laterQueueMs.p50)}, ${of((e) => e.laterQueueMs.p95)} and ` +
      `${of((e) => e.laterEngineMs.p50)}, ${of((e) => e.laterEngineMs.p95)}`,
    `${arm}: stayed ${fixed(stayed, 3)}; TTFT ${fixed(error, 2)} × predicted; reasons ${ranked.join(', ')}`,
  ].map(indent);
}

/** `11-30 14:02–14:40`: arms that were measured hours apart had another machine, in a way. */
function spanOf(cells: readonly CellResult[]): string {
  const times = cells.map(({ measuredAt }) => measuredAt.slice(5, 16).replace('T', ' ')).toSorted();
  const [first = '–'] = times;
  const last = times.at(-1) ?? '–';
  return last.slice(0, 5) === first.slice(0, 5) ? `${first}–${last.slice(6)}` : `${first}–${last}`;
}

function indent(line: string): string {
  return `  ${line}`;
}

function whole(value: number | null): string {
  return fixed(value, 0);
}

function fixed(value: number | null, digits: number): string {
  return value === null ? '–' : value.toFixed(digits);
}
