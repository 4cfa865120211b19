// What the whole router is to reach, and whether a run's rows do. An aim whose cell was not measured is not spoken of.

import { TWO_TIERS_CELLS } from './cells.ts';
import type { Row } from './report.ts';

export interface Aim {
  readonly cell: string;
  readonly figure: string;
  /** Whose figure. Absent: the whole router's. */
  readonly arm?: string;
  /** At most this, or less than this arm's figure of the same run. */
  readonly most: number | { readonly below: string };
}

export interface Verdict {
  readonly cell: string;
  readonly figure: string;
  readonly measured: number;
  readonly aim: string;
  readonly met: boolean;
}

/** The arm that aims are for: everything on. */
const WHOLE = 'spillway';
export const TWO_TIERS_ARM = 'spillway-two-tiers';
const PEER = 'vllm-router-cache-aware';

export const AIMS: readonly Aim[] = [
  ...['streams-64', 'streams-256'].flatMap((cell) => [
    { cell, figure: 'timesNginx', most: 2.0 },
    { cell, figure: 'timesNginx', most: { below: PEER } },
  ]),
  ...['streams-64-100k', 'streams-256-100k'].map((cell) => ({
    ...{ cell, figure: 'timesNginx', most: 2.2 },
  })),
  { cell: 'json-16', figure: 'timesNginx', most: 3.0 },
  { cell: 'streams-64', figure: 'addedTtftMsP50', most: 0.3 },
  { cell: 'streams-64', figure: 'addedTtftMsP99', most: 1.5 },
  ...TWO_TIERS_CELLS.filter(({ apart }) => apart).map(({ name: cell }) => ({
    ...{ cell, figure: 'timesOneTier', arm: TWO_TIERS_ARM, most: 2 },
  })),
  { cell: 'bodies-1m', figure: 'loopDelayMsP999', most: 10 },
  { cell: 'writes-64', figure: 'writesPerUpstreamChunk', most: 1 },
  { cell: 'memory-100k', figure: 'growthBytesPerRequest', most: 64 },
];

export function verdicts(rows: readonly Row[], aims: readonly Aim[] = AIMS): Verdict[] {
  const figure = (aim: Aim, arm: string): number | null => {
    const row = rows.find((each) => each.cell === aim.cell && each.arm === arm);
    const value = row?.[aim.figure];
    return typeof value === 'number' ? value : null;
  };
  return aims.flatMap((aim) => {
    const measured = figure(aim, aim.arm ?? WHOLE);
    const bound = typeof aim.most === 'number' ? aim.most : figure(aim, aim.most.below);
    if (measured === null || bound === null) return [];
    const met = typeof aim.most === 'number' ? measured <= bound : measured < bound;
    const words =
      typeof aim.most === 'number'
        ? `at most ${bound}`
        : `below ${aim.most.below}'s ${show(bound)}`;
    return [{ cell: aim.cell, figure: aim.figure, measured, aim: words, met }];
  });
}

export function verdictLine({ cell, figure, measured, aim, met }: Verdict): string {
  return `${met ? 'met   ' : 'MISSED'} ${cell} ${figure}: ${show(measured)}, aim ${aim}`;
}

function show(value: number): string {
  return value.toFixed(2);
}
