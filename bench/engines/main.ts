// `npm run bench:engines`: what users gain from Spillway before two real engines, against what they would put there otherwise.
//
// Cells are measured seed by seed, within a seed load by load, within a load arm by arm, beginning with another arm each
// time: what a machine does over hours falls on all arms alike. Each is kept as it is measured.

import { mkdtempSync, rmSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { seededRandom } from '../../shared/lib/random.ts';
import { VERSION } from '../../shared/runtime/version.ts';
import { prepareEngine } from '../../test/engines/prepare.ts';
import { killGroupsOnExit } from '../../test/engines/process-group.ts';
import {
  compareLoad,
  judge,
  ONE,
  type AimResult,
  type Comparison,
  type LoadCells,
} from './aims.ts';
import { ARMS, type Arm } from './arms.ts';
import { measureCell, type Bench, type Cell, type CellResult } from './cell.ts';
import { startEngines } from './engines.ts';
import type { Load } from './loads.ts';
import { parseOptions, USAGE, type Options } from './options.ts';
import { planCells } from './plan.ts';
import { copyProduct, productRevision } from './revision.ts';
import { aimLines, comparisonLines, loadLines, rowsOf, type Row } from './report.ts';
import {
  cellFolder,
  clearCell,
  readCell,
  resultsFolder,
  writeCell,
  type Conditions,
} from './store.ts';

/** What a cell takes until one was measured, ms. */
const CELL_MS = 75_000;
/** So many in a row: the engines are gone. */
const BROKEN_OFF = 3;
/** Other arms that a quick run takes, the first that can run. */
const QUICK_OTHERS = ['smg', 'nginx-hash'] as const;

interface Found {
  readonly cell: Cell;
  readonly folder: string;
  readonly stored: CellResult | null;
}

let say = (line: string): void => console.log(line);

process.exitCode = await main(process.argv.slice(2));

async function main(args: readonly string[]): Promise<number> {
  const options = parseOptions(
    args,
    ARMS.map(({ name }) => name),
  );
  if (options === null) {
    console.log(USAGE);
    return 0;
  }
  if (typeof options === 'string') {
    console.error(`${options}\n${USAGE}`);
    return 2;
  }
  if (options.json) say = (line) => console.error(line);
  killGroupsOnExit();
  const { arms, skipped } = armsOf(options);
  const found = findCells(options, arms);
  const open = found.filter(
    ({ stored }) => options.stored !== 'take' || stored === null || stored.marks.length > 0,
  );
  if (options.stored === null && open.some(({ stored }) => stored !== null)) {
    const there = found.filter(({ stored }) => stored !== null).length;
    console.error(
      `${there} of ${found.length} cells are measured: --resume takes them, --fresh measures again`,
    );
    return 2;
  }
  if (!options.reportOnly && open.length > 0 && !(await measureAll(open, options))) return 2;
  return report(options, arms, skipped);
}

/** Arms that can run here; of a report, all that were asked for. */
function armsOf(options: Options): {
  readonly arms: readonly Arm[];
  readonly skipped: readonly string[];
} {
  const skipped: string[] = [];
  const canRun = (arm: Arm): boolean => {
    const missing = options.reportOnly ? null : arm.prepare(say);
    if (missing !== null) skipped.push(`SKIPPED ${arm.name}: ${missing}`);
    return missing === null;
  };
  if (options.quick && options.arms === null) {
    const byName = (name: string): Arm => ARMS.find((arm) => arm.name === name)!;
    const other = QUICK_OTHERS.map(byName).find(canRun);
    return { arms: [...(other === undefined ? [] : [other]), byName(ONE)], skipped };
  }
  const asked = ARMS.filter(({ name }) => options.arms === null || options.arms.includes(name));
  return { arms: asked.filter(canRun), skipped };
}

function findCells(options: Options, arms: readonly Arm[]): Found[] {
  const root = resultsFolder();
  return planCells(options.loads, arms, options.seeds).map((cell) => {
    const folder = cellFolder(root, cell, conditionsOf(options));
    return { cell, folder, stored: readCell(folder) };
  });
}

async function measureAll(open: readonly Found[], options: Options): Promise<boolean> {
  const startMs = performance.now();
  const sim = options.engines === 'sim';
  const install = sim ? '' : prepareEngine(say, (line) => console.error(line));
  if (install === null) return false;
  if (sim) say('SIMULATED ENGINES: no result of this run says anything about real ones');
  const folder = mkdtempSync(join(tmpdir(), 'spillway-bench-engines-'));
  const spillway = copyProduct(join(folder, 'code'));
  say(`${open.length} cells to measure, logs of the engines in ${folder}`);
  const conditions = conditionsOf(options);
  const engines = await startEngines({ ...conditions, install, folder, spillway });
  say(`engines are up after ${seconds(performance.now() - startMs)} s`);
  try {
    await measureCells(open, { ...conditions, engines, spillway }, options.limitMs + startMs);
  } finally {
    await engines.stop();
  }
  rmSync(folder, { recursive: true, force: true });
  return true;
}

async function measureCells(open: readonly Found[], bench: Bench, untilMs: number): Promise<void> {
  let longestMs = CELL_MS;
  let brokenOff = 0;
  for (const [index, { cell, folder }] of open.entries()) {
    const startMs = performance.now();
    if (startMs + longestMs > untilMs) {
      say(`${open.length - index} cells are left: no time for another`);
      return;
    }
    const result = await measured(cell, bench, folder);
    brokenOff = result === null ? brokenOff + 1 : 0;
    if (brokenOff === BROKEN_OFF) throw new Error(`${BROKEN_OFF} cells in a row broke off`);
    const tookMs = performance.now() - startMs;
    longestMs = Math.max(longestMs, tookMs);
    if (result === null) continue;
    say(`${index + 1}/${open.length} ${cellLine(result)} (${seconds(tookMs)} s) ${folder}`);
  }
}

/** Null where it broke off, which is said: the others are measured all the same. */
async function measured(cell: Cell, bench: Bench, folder: string): Promise<CellResult | null> {
  clearCell(folder);
  try {
    const result = await measureCell(cell, bench, folder);
    writeCell(folder, result);
    return result;
  } catch (error) {
    say(
      `${cell.load.name} ${cell.arm.name} seed ${cell.seed} BROKE OFF: ${String(error)}; ${folder}`,
    );
    return null;
  }
}

function cellLine({ load, arm, seed, turns, runMs, marks }: CellResult): string {
  const sorted = turns.flatMap(({ ttftMs }) => ttftMs ?? []).sort((a, b) => a - b);
  const failed = turns.length - sorted.length;
  const at = (q: number): string => (sorted[Math.floor(q * (sorted.length - 1))] ?? NaN).toFixed(0);
  const marked = marks.length === 0 ? '' : `, MARKED ${marks.join('; ')}`;
  return `${load} ${arm} seed ${seed}: p50 ${at(0.5)}, p95 ${at(0.95)} ms, ${failed} failed, ran ${seconds(runMs)} s${marked}`;
}

function report(options: Options, arms: readonly Arm[], skipped: readonly string[]): number {
  const rows: Row[] = [];
  const comparisons: Comparison[] = [];
  const aims: AimResult[] = [];
  for (const load of options.loads) {
    const cells = storedOf(load, options, arms);
    const compared = compareLoad(load.name, cells, seededRandom(1));
    rows.push(...rowsOf(load.name, cells));
    comparisons.push(...compared);
    aims.push(...judge(load.name, cells, compared));
    say('');
    for (const line of [...loadLines(load, cells), ...comparisonLines(compared)]) say(line);
  }
  say('');
  const sim = options.engines === 'sim' ? ' SIMULATED ENGINES' : '';
  const kv = `, KV caches of ${options.kvTokens} tokens`;
  const warm = options.longWarmUp ? ', long warm-up' : '';
  const tried = `${kv}${warm}${options.settings.map((setting) => ` --set ${setting}`).join('')}`;
  say(`Spillway ${VERSION}, code ${productRevision()}, ${machine()}${sim}${tried}`);
  for (const line of [...aimLines(aims), ...skipped]) say(line);
  if (options.json) {
    const flat = comparisons.map(({ load, ratio, ...rest }) => ({ cell: load, ...rest, ...ratio }));
    const { engines, settings, kvTokens, longWarmUp } = options;
    const what = { version: VERSION, revision: productRevision(), machine: machine() };
    const about = { ...what, engines, kvTokens, longWarmUp, settings };
    console.log(JSON.stringify({ ...about, rows, comparisons: flat, aims, skipped }));
  }
  const failed = skipped.length > 0 || aims.some(({ outcome }) => outcome !== 'met');
  return options.strict && failed ? 1 : 0;
}

/** What is measured of a load, by arm; arms without any cell are left out. */
function storedOf(load: Load, options: Options, arms: readonly Arm[]): LoadCells {
  const cells = new Map<string, CellResult[]>();
  for (const arm of arms) {
    const results = options.seeds.flatMap((seed) => {
      const folder = cellFolder(resultsFolder(), { load, arm, seed }, conditionsOf(options));
      return readCell(folder) ?? [];
    });
    if (results.length > 0) cells.set(arm.name, results);
  }
  return cells;
}

function conditionsOf({ engines: kind, settings, kvTokens, longWarmUp }: Options): Conditions {
  return { kind, settings, kvTokens, longWarmUp };
}

function machine(): string {
  return `${cpus().length} × ${cpus()[0]?.model.trim() ?? 'unknown'}, Node ${process.version}`;
}

function seconds(ms: number): string {
  return (ms / 1_000).toFixed(0);
}
