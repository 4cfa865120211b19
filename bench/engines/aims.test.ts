import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../shared/lib/random.ts';
import { bestOther, compareLoad, judge, ONE, TWO, type AimResult, type LoadCells } from './aims.ts';
import { cellOf, turnOf } from './bench-cells.harness.ts';
import type { CellResult } from './cell.ts';

const SEEDS = [1, 2, 3];

interface ArmShape {
  /** Times what the turn takes with the plainest arm. */
  readonly times: number;
  readonly cached?: number;
  readonly runMs?: number;
}

function cellsOf(arms: Readonly<Record<string, ArmShape>>): LoadCells {
  return new Map(
    Object.entries(arms).map(([arm, { times, cached = 900, runMs = 40_000 }]) => [
      arm,
      SEEDS.map((seed): CellResult => ({
        ...cellOf(
          arm,
          seed,
          Array.from({ length: 20 }, (_, index) =>
            turnOf(index, 1, (100 + index * 10 + seed) * times, { cachedTokens: cached }),
          ),
        ),
        runMs,
      })),
    ]),
  );
}

function judged(load: string, arms: Readonly<Record<string, ArmShape>>): AimResult[] {
  const cells = cellsOf(arms);
  return judge(load, cells, compareLoad(load, cells, seededRandom(1)));
}

function outcomes(results: readonly AimResult[]): Record<string, string> {
  return Object.fromEntries(results.map(({ aim, outcome }) => [aim, outcome]));
}

describe('the best other arm', () => {
  const cells = cellsOf({
    quick: { times: 1, cached: 300, runMs: 50_000 },
    thrifty: { times: 2, cached: 800 },
    [ONE]: { times: 0.1, cached: 1_000 },
    [TWO]: { times: 0.1, cached: 1_000 },
  });

  it('is another one for each figure: least time, greatest share', () => {
    expect(bestOther(cells, 'ttftMsP95')).toBe('quick');
    expect(bestOther(cells, 'cachedShare')).toBe('thrifty');
    expect(bestOther(cells, 'runS')).toBe('thrifty');
  });

  it('is nobody where only Spillway was measured', () => {
    expect(bestOther(cellsOf({ [ONE]: { times: 1 } }), 'ttftMsP95')).toBeNull();
  });
});

describe('the aims', () => {
  it('are met where every turn is fast enough', () => {
    const seen = outcomes(
      judged('over-capacity', {
        smg: { times: 1 },
        [ONE]: { times: 0.2, runMs: 30_000 },
        [TWO]: { times: 0.205, runMs: 30_000 },
      }),
    );
    expect(new Set(Object.values(seen))).toEqual(new Set(['met']));
    expect(Object.keys(seen)).toHaveLength(9);
  });

  it('are missed one by one', () => {
    const seen = outcomes(
      judged('over-capacity', {
        smg: { times: 1, cached: 700 },
        [ONE]: { times: 0.5, cached: 640, runMs: 35_000 },
        [TWO]: { times: 0.6, cached: 640 },
      }),
    );
    expect(seen).toMatchObject({
      'TTFT mean ≤ 0.6': 'met',
      'TTFT p50 ≤ 0.25': 'MISSED',
      'run time ≤ 0.8': 'MISSED',
      'TTFT p95 ≤ 1.2': 'met',
      'cached share not below the best': 'MISSED',
      'cached share ≥ 0.65': 'MISSED',
      'two routers ÷ one, TTFT p95 ≤ 1.05': 'MISSED',
      'no failed request': 'met',
    });
  });

  it('are not measured where an arm is missing, which is not met', () => {
    const seen = outcomes(judged('moderate', { [ONE]: { times: 1 } }));
    expect(seen['TTFT p95 ≤ 0.95, interval below 1']).toBe('not measured');
    expect(seen['two routers ÷ one, TTFT p95 ≤ 1.05']).toBe('not measured');
  });

  it('ask for an interval below one where a gain is small', () => {
    const cells = new Map(cellsOf({ smg: { times: 1 }, [ONE]: { times: 0.9 } }));
    const lost = cells
      .get(ONE)!
      .map((cell) =>
        cell.seed === 1
          ? { ...cell, turns: cell.turns.map((t) => ({ ...t, ttftMs: t.ttftMs! * 1.2 })) }
          : cell,
      );
    const sure = outcomes(
      judge('moderate', cells, compareLoad('moderate', cells, seededRandom(1))),
    );
    expect(sure['TTFT p95 ≤ 0.95, interval below 1']).toBe('met');
    cells.set(ONE, lost);
    const unsure = outcomes(
      judge('moderate', cells, compareLoad('moderate', cells, seededRandom(1))),
    );
    expect(unsure['TTFT p95 ≤ 0.95, interval below 1']).toBe('MISSED');
  });

  it('count a failed request against Spillway, though it takes no part in ratios', () => {
    const cells = new Map(cellsOf({ smg: { times: 1 }, [ONE]: { times: 0.5 } }));
    const [first, ...others] = cells.get(ONE)!;
    cells.set(ONE, [{ ...first!, turns: [...first!.turns, turnOf(99, 0, null)] }, ...others]);
    const seen = outcomes(
      judge('moderate', cells, compareLoad('moderate', cells, seededRandom(1))),
    );
    expect(seen['no failed request']).toBe('MISSED');
  });
});
