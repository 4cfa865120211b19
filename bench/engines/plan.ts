// In which order cells are measured.

import type { Arm } from './arms.ts';
import type { Cell } from './cell.ts';
import type { Load } from './loads.ts';

/** Seed by seed, so that a run that is cut short has as many of each; the arms of a load in turn begin. */
export function planCells(
  loads: readonly Load[],
  arms: readonly Arm[],
  seeds: readonly number[],
): Cell[] {
  return seeds.flatMap((seed, round) =>
    loads.flatMap((load, place) =>
      arms.map((_, index) => {
        const arm = arms[(index + round + place) % arms.length]!;
        return { load, arm, seed };
      }),
    ),
  );
}
