// A rush of conversations that together want more KV than there is, or more than the engines can compute, and is over
// within a minute: the loads `small-kv` and `over-capacity` of `bench:engines`, over all turns of all seeds.
//
//   aims      beside no rule at all as RUSH_AIMS say; hardly anybody is turned away, since all of them find room in time
//   bursts    with too little KV p95 is no worse than with the bound held still: what a burst evicts costs less than the
//             wait of those whom it lets in
//   slow      before engines so slow that turns wait for longer than they rest, conversations that wait count as live: else
//             hardly more is found than without the rule
//   shared    of two routers, each turn comes to one that is drawn: mean, p50 and p95 with too little KV are as one router's,
//             before engines a tenth slower
//   control   two whose links are cut let others in than one would, both into the same room: their p95 is not as one's
//   control   without the rule a twentieth of all tokens less is found in the caches: the load is what it is said to be

import {
  pooled,
  runRush,
  RUSHES,
  type PooledFigures,
  type Rush,
  type RushOptions,
} from '../world/small-kv.ts';
import type { Bound } from '../world/working-set.ts';
import type { ProofOptions, ProofOutcome, ProofRow } from './proof.ts';

export const RUSH_SEEDS = [1, 2, 3, 4, 5, 6, 7, 8] as const;
const STILL = 0.9;

interface RushAim {
  readonly rush: Rush;
  /** Most that may be left of a figure without the rule. */
  readonly within: Readonly<Record<'mean' | 'p50' | 'p95', number>>;
  /** Of all prompt tokens, found at least. */
  readonly cachedShare: number;
  /** Most of p95 with the bound held still; null where nothing is asked. */
  readonly ofStill: number | null;
}

const RUSH_AIMS: Readonly<Record<string, RushAim>> = {
  'small-kv': {
    rush: RUSHES.smallKv,
    within: { mean: 0.6, p50: 0.6, p95: 0.35 },
    cachedShare: 0.65,
    ofStill: 1,
  },
  'over-capacity': {
    rush: RUSHES.overCapacity,
    within: { mean: 0.6, p50: 0.25, p95: 1.4 },
    cachedShare: 0.65,
    ofStill: null,
  },
  'slow-engines': {
    rush: RUSHES.slowEngines,
    within: { mean: 0.6, p50: 0.4, p95: 2 },
    cachedShare: 0.65,
    ofStill: null,
  },
};
const FIGURES = ['mean', 'p50', 'p95'] as const;
const EVICTED = 0.05;
/** Turned away in a run at most: all of them would have found room. */
const REFUSED = 1;

/** A rush that is over within a minute. */
export function rushes(
  { print }: Pick<ProofOptions, 'print'>,
  seeds: readonly number[],
  names: readonly string[] = Object.keys(RUSH_AIMS),
): ProofOutcome {
  const failures: string[] = [];
  const rows: ProofRow[] = [];
  for (const name of names) {
    const aim = RUSH_AIMS[name] as RushAim;
    const run = (bound: Bound): PooledFigures => {
      const figures = pooled(seeds.map((seed) => runRush(aim.rush, { bound, seed })));
      print(rushLine(name, bound, figures));
      rows.push({ rush: name, bound, ...figures });
      return figures;
    };
    const [plain, still, mine] = [run('none'), run(STILL), run('controlled')];
    failures.push(...judgeRush(aim, { plain, still, mine }).map((what) => `${name}: ${what}`));
  }
  return { failures, rows };
}

function judgeRush(
  { within, cachedShare, ofStill }: RushAim,
  { plain, still, mine }: Readonly<Record<'plain' | 'still' | 'mine', PooledFigures>>,
): string[] {
  const failures: string[] = [];
  for (const figure of FIGURES) {
    const limit = within[figure] * plain[figure];
    if (!(mine[figure] <= limit)) {
      failures.push(`${figure} is ${rounded(mine[figure])}, the limit ${rounded(limit)}`);
    }
  }
  if (!(mine.cachedShare >= cachedShare)) failures.push(`only ${mine.cachedShare} cached`);
  if (!(plain.cachedShare <= mine.cachedShare - EVICTED)) {
    failures.push('control: caches hold about as much without the rule');
  }
  if (!(mine.refused <= REFUSED)) failures.push(`${mine.refused} turned away in a run`);
  if (mine.unanswered > 0) failures.push(`${mine.unanswered} turns without an answer in a run`);
  if (ofStill !== null && !(mine.p95 <= ofStill * still.p95)) {
    failures.push(`p95 is ${rounded(mine.p95)}, with the bound held still ${rounded(still.p95)}`);
  }
  return failures;
}

interface SharedPlan {
  readonly seeds: number;
  /** Of one router's figures, at most. */
  readonly within: number;
}

/** The p95 of half as many runs varies by a tenth with what is drawn at ties. */
export const SHARED: Readonly<Record<'full' | 'quick', SharedPlan>> = {
  full: { seeds: 96, within: 1.05 },
  quick: { seeds: 48, within: 1.15 },
};
/** The engines of `bench:engines` are slower than those of one recorded cell. */
const SHARED_RUSH: Rush = { ...RUSHES.smallKv, slower: 1.1 };

/** Two routers beside one. */
export function sharedRush(
  { print }: Pick<ProofOptions, 'print'>,
  { seeds, within }: SharedPlan,
): ProofOutcome {
  const rows: ProofRow[] = [];
  const run = (arm: string, options: Omit<RushOptions, 'bound' | 'seed'>): PooledFigures => {
    const runs = Array.from({ length: seeds }, (_, k) =>
      runRush(SHARED_RUSH, { ...options, bound: 'controlled', seed: k + 1 }),
    );
    const figures = pooled(runs);
    print(rushLine('small-kv', arm, figures));
    rows.push({ rush: 'small-kv', arm, seeds, ...figures });
    return figures;
  };
  const one = run('one router', {});
  const two = run('two', { routers: 2 });
  const apart = run('two, apart', { routers: 2, cut: true });
  const failures = FIGURES.filter((figure) => !(two[figure] <= within * one[figure])).map(
    (figure) => `two routers' ${figure} is ${rounded(two[figure])}, one's ${rounded(one[figure])}`,
  );
  if (apart.p95 <= within * one.p95) failures.push('control: two routers apart are as one');
  return { failures, rows };
}

function rushLine(name: string, arm: string | number, figures: PooledFigures): string {
  const { mean: all, p50, p95, firstP95, cachedShare, refused } = figures;
  const times = [all, p50, p95, firstP95].map((ms) => ms.toFixed(0).padStart(6)).join(' ');
  const told = `mean, p50, p95, first p95 ms: ${times}, cached ${cachedShare.toFixed(2)}`;
  return `rush ${name.padEnd(14)} ${String(arm).padStart(10)}: ${told}, refused ${refused.toFixed(1)}`;
}

function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}
