// What Spillway is to reach, against the best other arm of each load, figure by figure; and its second router against one.
// Best is by the pooled figure over all that was measured; an interval that begins below a bound does not meet it, the
// ratio itself must.

import type { Random } from '../../shared/lib/random.ts';
import type { CellResult } from './cell.ts';
import { figuresOf, type Figure } from './figures.ts';
import { pairSeeds, ratioOf, type Ratio } from './pairing.ts';

/** Cells of one load, by arm. */
export type LoadCells = ReadonlyMap<string, readonly CellResult[]>;

export interface Comparison {
  readonly load: string;
  readonly arm: string;
  readonly against: string;
  readonly figure: Figure;
  readonly ratio: Ratio;
}

export type Outcome = 'met' | 'MISSED' | 'not measured';

export interface AimResult {
  readonly load: string;
  readonly aim: string;
  readonly outcome: Outcome;
  readonly seen: string;
}

interface RatioAim {
  readonly load: string;
  readonly figure: Figure;
  readonly atMost: number;
  /** The whole interval must lie below 1. */
  readonly certain?: boolean;
}

export const ONE = 'spillway';
export const TWO = 'spillway-2';
export const COMPARED: readonly Figure[] = [
  'ttftMsMean',
  'ttftMsP50',
  'ttftMsP95',
  'laterTtftMsP50',
  'cachedShare',
  'runS',
];

const RATIO_AIMS: readonly RatioAim[] = [
  { load: 'moderate', figure: 'ttftMsP95', atMost: 0.95, certain: true },
  { load: 'small-kv', figure: 'ttftMsP95', atMost: 0.4 },
  { load: 'small-kv', figure: 'ttftMsP50', atMost: 0.7 },
  { load: 'over-capacity', figure: 'ttftMsMean', atMost: 0.6 },
  { load: 'over-capacity', figure: 'ttftMsP50', atMost: 0.25 },
  { load: 'over-capacity', figure: 'runS', atMost: 0.8 },
  { load: 'over-capacity', figure: 'ttftMsP95', atMost: 1.2 },
];
const CACHED_AT_LEAST: ReadonlyMap<string, number> = new Map([
  ['small-kv', 0.65],
  ['over-capacity', 0.65],
]);
/** "Never lower", to half a point of what engines report. */
const CACHED_SLACK = 0.005;
const TWO_TIMES_ONE = 1.05;
const TWO_FIGURES: readonly Figure[] = ['ttftMsMean', 'ttftMsP95'];

export const FIGURE_WORDS: Readonly<Record<Figure, string>> = {
  ttftMsMean: 'TTFT mean',
  ttftMsP50: 'TTFT p50',
  ttftMsP95: 'TTFT p95',
  laterTtftMsP50: "later turns' p50",
  cachedShare: 'cached share',
  runS: 'run time',
};

/** Spillway against the best other arm of each figure, and its second router against one. */
export function compareLoad(load: string, cells: LoadCells, random: Random): Comparison[] {
  const one = cells.get(ONE) ?? [];
  return COMPARED.flatMap((figure): Comparison[] => {
    const best = bestOther(cells, figure);
    const pairs: Comparison[] = [];
    if (best !== null) {
      const ratio = ratioOf(figure, pairSeeds(one, cells.get(best) ?? []), random);
      if (ratio !== null) pairs.push({ load, arm: ONE, against: best, figure, ratio });
    }
    const two = ratioOf(figure, pairSeeds(cells.get(TWO) ?? [], one), random);
    if (two !== null) pairs.push({ load, arm: TWO, against: ONE, figure, ratio: two });
    return pairs;
  });
}

/** The other arm with the best pooled figure; null where none was measured. */
export function bestOther(cells: LoadCells, figure: Figure): string | null {
  let best: { readonly arm: string; readonly value: number } | null = null;
  for (const [arm, results] of cells) {
    if (arm === ONE || arm === TWO) continue;
    const value = figuresOf(results)[figure];
    if (value === null) continue;
    const better =
      figure === 'cachedShare' ? value > (best?.value ?? -1) : value < (best?.value ?? Infinity);
    if (better) best = { arm, value };
  }
  return best?.arm ?? null;
}

export function judge(
  load: string,
  cells: LoadCells,
  comparisons: readonly Comparison[],
): AimResult[] {
  const of = (arm: string, figure: Figure): Comparison | null =>
    comparisons.find((c) => c.load === load && c.arm === arm && c.figure === figure) ?? null;
  const ratios = RATIO_AIMS.filter((aim) => aim.load === load).map((aim) =>
    judgeRatio(aim, of(ONE, aim.figure)),
  );
  const two = TWO_FIGURES.map((figure) =>
    judgeRatio({ load, figure, atMost: TWO_TIMES_ONE }, of(TWO, figure), 'two routers ÷ one, '),
  );
  return [...ratios, ...judgeCached(load, cells), ...two, judgeServed(load, cells)];
}

function judgeRatio(aim: RatioAim, seen: Comparison | null, prefix = ''): AimResult {
  const words = `${prefix}${FIGURE_WORDS[aim.figure]} ≤ ${aim.atMost}`;
  const text = aim.certain === true ? `${words}, interval below 1` : words;
  if (seen === null) return { load: aim.load, aim: text, outcome: 'not measured', seen: '' };
  const { ratio, low, high } = seen.ratio;
  const met = ratio <= aim.atMost && (aim.certain !== true || high < 1);
  const range = `${ratio.toFixed(2)} (${low.toFixed(2)}–${high.toFixed(2)}) of ${seen.against}`;
  return { load: aim.load, aim: text, outcome: met ? 'met' : 'MISSED', seen: range };
}

function judgeCached(load: string, cells: LoadCells): AimResult[] {
  const ours = figuresOf(cells.get(ONE) ?? []).cachedShare;
  const best = bestOther(cells, 'cachedShare');
  const theirs = best === null ? null : figuresOf(cells.get(best) ?? []).cachedShare;
  const least = CACHED_AT_LEAST.get(load);
  const outcome = (met: boolean | null): Outcome =>
    met === null ? 'not measured' : met ? 'met' : 'MISSED';
  const never = ours === null || theirs === null ? null : ours >= theirs - CACHED_SLACK;
  const results: AimResult[] = [
    {
      load,
      aim: 'cached share not below the best',
      outcome: outcome(never),
      seen: never === null ? '' : `${share(ours)}, ${best} ${share(theirs)}`,
    },
  ];
  if (least === undefined) return results;
  const enough = ours === null ? null : ours >= least;
  const aim = `cached share ≥ ${least}`;
  return [...results, { load, aim, outcome: outcome(enough), seen: share(ours) }];
}

function judgeServed(load: string, cells: LoadCells): AimResult {
  const ours = [...(cells.get(ONE) ?? []), ...(cells.get(TWO) ?? [])];
  const { failed, turns } = figuresOf(ours);
  const outcome = turns === 0 ? 'not measured' : failed === 0 ? 'met' : 'MISSED';
  return { load, aim: 'no failed request', outcome, seen: `${failed} of ${turns}` };
}

function share(value: number | null): string {
  return value === null ? '' : value.toFixed(3);
}
