// Working-set admission: the controller beside every bound that stands still, at loads from half of what the pool's KV
// holds to four times as much; a rush that is soon over; and what several routers admit together.
//
//   times     from arrival to first token; of a turn that was turned away as long as anybody may wait
//   best      of the bounds that stand still (and none): the greatest throughput; among those within TIE of it, the
//             least p95 of later turns. Where the pool is not over capacity, of those that keep first turns' p95
//             within 1.3 of that without the rule
//   holds     controlled throughput ≥ 0.9 · best; later turns' p50 and p95 ≤ best ÷ 0.9; where the pool is not over
//             capacity, first turns' p95 within that 1.3 too. A difference below one turn's prefill is none
//   pauses    conversations that rest for 5 to 30 s, twice what KV holds: prefill serves them anew where keeping them would
//             serve a third. Throughput ≥ 0.9 of that without the rule, later turns' p95 within 1.3 of it
//   rush      a load that is soon over (`working-set-rush.ts`)
//   controls  without the rule throughput collapses above capacity; a router that believes it is alone over-commits

import { sum } from '../world/recorder.ts';
import { measureOverrun } from '../world/working-set-overrun.ts';
import { runWorkingSet, type Bound, type WorkingSetFigures } from '../world/working-set.ts';
import type { Proof, ProofOptions, ProofOutcome, ProofRow } from './proof.ts';
import { RUSH_SEEDS, rushes, SHARED, sharedRush } from './working-set-rush.ts';

const TIE = 0.02;
const WITHIN = 0.9;
const FIRST_WITHIN = 1.3;
/** What a later turn takes at least, ms. */
const PREFILL_MS = 48;
/** Without the rule less than this share of the best is left at twice the capacity and more. */
const COLLAPSED = 0.75;

export interface WorkingSetPlan {
  readonly loads: readonly number[];
  readonly statics: readonly Bound[];
  readonly seeds: readonly number[];
  readonly warmMs: number;
  readonly measureMs: number;
}

const FULL: WorkingSetPlan = {
  loads: [0.5, 0.9, 1.1, 2, 4],
  statics: ['none', 1.1, 1, 0.9, 0.8, 0.6],
  seeds: [1, 2],
  warmMs: 120_000,
  measureMs: 90_000,
};
const QUICK: WorkingSetPlan = {
  ...FULL,
  loads: [0.9, 1.1, 4],
  statics: ['none', 0.9],
  seeds: [1],
};

export const WORKING_SET: Proof = {
  name: 'working-set',
  title:
    'conversations beyond the KV cache: the bound follows the load, and routers share the room',
  run: (options) => {
    const swept = sweep(options.quick ? QUICK : FULL, options.print);
    const rested = pauses(options, options.quick ? [1] : [1, 2, 3]);
    const rushed = rushes(options, RUSH_SEEDS.slice(0, options.quick ? 4 : 8));
    const shared = overruns(options, options.quick ? [1] : [1, 2, 3, 4, 5]);
    const beside = sharedRush(options, options.quick ? SHARED.quick : SHARED.full);
    const parts = [swept, rested, rushed, shared, beside];
    return {
      failures: parts.flatMap(({ failures }) => failures),
      rows: parts.flatMap(({ rows }) => rows),
    };
  },
};

interface Cell extends WorkingSetFigures {
  readonly load: number;
  readonly bound: Bound;
}

export function sweep(plan: WorkingSetPlan, print: ProofOptions['print']): ProofOutcome {
  const failures: string[] = [];
  const rows: ProofRow[] = [];
  print(HEADINGS.map((heading) => heading.padStart(10)).join(' '));
  for (const load of plan.loads) {
    const cells = [...plan.statics, 'controlled' as const].map((bound): Cell => {
      const cell = { load, bound, ...mean(plan, load, bound) };
      print(lineOf(cell));
      return cell;
    });
    const best = bestOf(cells);
    print(`${''.padStart(10)} best that stands still: ${best.bound}`);
    failures.push(...judge(cells, best));
    rows.push(...cells.map((cell) => ({ ...cell })));
  }
  return { failures, rows };
}

function mean(plan: WorkingSetPlan, load: number, bound: Bound): WorkingSetFigures {
  const { seeds, warmMs, measureMs } = plan;
  const runs = seeds.map((seed) =>
    runWorkingSet({ ...{ load, bound, seed, warmMs, measureMs }, routers: 1 }),
  );
  const of = (read: (run: WorkingSetFigures) => number): number =>
    sum(runs.map(read)) / runs.length;
  const bounds = runs.flatMap(({ boundRatio }) => boundRatio ?? []);
  return {
    answersPerS: of((run) => run.answersPerS),
    tokensPerS: of((run) => run.tokensPerS),
    laterP50: of((run) => run.laterP50),
    laterP95: of((run) => run.laterP95),
    firstP50: of((run) => run.firstP50),
    firstP95: of((run) => run.firstP95),
    reuse: of((run) => run.reuse),
    refused: of((run) => run.refused),
    aged: of((run) => run.aged),
    boundRatio: bounds.length === 0 ? null : sum(bounds) / bounds.length,
  };
}

function bestOf(cells: readonly Cell[]): Cell {
  const plain = cells.find(({ bound }) => bound === 'none');
  const still = cells.filter(
    ({ bound, load, firstP95 }) =>
      bound !== 'controlled' && (load >= 1 || firstP95 <= FIRST_WITHIN * (plain?.firstP95 ?? 0)),
  );
  const most = Math.max(...still.map(({ answersPerS }) => answersPerS));
  const near = still.filter(({ answersPerS }) => answersPerS >= (1 - TIE) * most);
  return near.reduce((best, cell) => (cell.laterP95 < best.laterP95 ? cell : best));
}

function judge(cells: readonly Cell[], best: Cell): string[] {
  const failures: string[] = [];
  const plain = cells.find(({ bound }) => bound === 'none');
  const mine = cells.find(({ bound }) => bound === 'controlled');
  if (plain === undefined || mine === undefined) return ['the sweep lacks none or controlled'];
  const { load } = mine;
  const fail = (what: string, has: number, limit: number): void => {
    failures.push(`load ${load}: ${what} is ${rounded(has)}, the limit ${rounded(limit)}`);
  };
  const least = WITHIN * best.answersPerS;
  if (!(mine.answersPerS >= least)) fail('answers per second', mine.answersPerS, least);
  for (const [what, read] of LATER) {
    const limit = Math.max(read(best) / WITHIN, read(best) + PREFILL_MS);
    if (!(read(mine) <= limit)) fail(what, read(mine), limit);
  }
  const limit = FIRST_WITHIN * plain.firstP95;
  if (load < 1 && !(mine.firstP95 <= limit)) fail('first turns p95', mine.firstP95, limit);
  const left = COLLAPSED * best.answersPerS;
  if (load >= 2 && !(plain.answersPerS < left)) {
    failures.push(`load ${load}: control: without the rule nothing collapses`);
  }
  return failures;
}

const LATER: readonly (readonly [string, (cell: Cell) => number])[] = [
  ['later turns p50', (cell) => cell.laterP50],
  ['later turns p95', (cell) => cell.laterP95],
];

/** Long pauses: what the rule keeps for those who rest is not worth what it keeps out. */
export function pauses(
  { print }: Pick<ProofOptions, 'print'>,
  seeds: readonly number[],
): ProofOutcome {
  const failures: string[] = [];
  const rows: ProofRow[] = [];
  for (const seed of seeds) {
    const run = (bound: Bound): Cell => {
      const [load, thinkMs] = [2, [5_000, 30_000]] as const;
      const times = { warmMs: 80_000, measureMs: 40_000 };
      const cell = {
        load,
        bound,
        ...runWorkingSet({ load, bound, seed, thinkMs, routers: 1, ...times }),
      };
      print(`${lineOf(cell)}   pauses of 5 to 30 s, seed ${seed}`);
      rows.push({ ...cell, pauses: 1, seed });
      return cell;
    };
    const [plain, mine] = [run('none'), run('controlled')];
    if (!(mine.answersPerS >= WITHIN * plain.answersPerS)) {
      failures.push(`pauses, seed ${seed}: only ${rounded(mine.answersPerS)} answers per second`);
    }
    if (!(mine.laterP95 <= FIRST_WITHIN * plain.laterP95)) {
      failures.push(`pauses, seed ${seed}: later turns p95 is ${rounded(mine.laterP95)}`);
    }
  }
  return { failures, rows };
}

/** 1, 2 and 8 routers, and one that believes it is alone as the control. */
export function overruns(
  { print }: Pick<ProofOptions, 'print'>,
  seeds: readonly number[],
  routerCounts: readonly number[] = [1, 2, 8],
): ProofOutcome {
  const failures: string[] = [];
  const rows: ProofRow[] = [];
  const measure = (seed: number, routers: number, control: 'no' | 'alone' | 'off'): number => {
    const { admissions, conversations } = measureOverrun({
      ...{ seed, routers, forMs: 15_000 },
      bound: control === 'off' ? 'none' : 0.9,
      alone: control === 'alone',
    });
    const over = Math.round(conversations * 100) / 100;
    print(
      `${routers} routers, seed ${seed}${CONTROLS[control]}: ${admissions} admissions, ${over} conversations over at most`,
    );
    rows.push({ routers, seed, control, admissions, conversationsOver: over });
    return over;
  };
  for (const seed of seeds) {
    for (const routers of routerCounts) {
      const over = measure(seed, routers, 'no');
      if (over > routers) failures.push(`${routers} routers, seed ${seed}: ${over} over`);
    }
    const most = Math.max(...routerCounts);
    for (const control of ['alone', 'off'] as const) {
      const over = measure(seed, most, control);
      if (over <= most) failures.push(`control ${control}, seed ${seed}: only ${over} over`);
    }
  }
  return { failures, rows };
}

const CONTROLS = { no: '', alone: ', each believes it is alone', off: ', without the rule' };

const HEADINGS = [
  ...['load', 'bound', 'answers/s', 'tokens/s', 'later p50', 'later p95', 'first p50'],
  ...['first p95', 'reuse', 'refused', 'aged', 'at end'],
];

function lineOf(cell: Cell): string {
  const { load, bound, reuse, boundRatio } = cell;
  const figures = [
    ...[String(load), String(bound), cell.answersPerS.toFixed(1), cell.tokensPerS.toFixed(0)],
    ...[cell.laterP50, cell.laterP95, cell.firstP50, cell.firstP95].map((ms) => ms.toFixed(0)),
    ...[reuse.toFixed(2), cell.refused.toFixed(0), cell.aged.toFixed(0)],
    boundRatio === null ? '-' : boundRatio.toFixed(2),
  ];
  return figures.map((figure) => figure.padStart(10)).join(' ');
}

function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}
