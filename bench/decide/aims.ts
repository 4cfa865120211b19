// What a decision may cost. Each aim is a figure of a row and its bound.

import { figureOf, type Row } from './rows.ts';

interface Aim {
  readonly cell: string;
  readonly figure: string;
  readonly atMost?: number;
  readonly atLeast?: number;
}

const AIMS: readonly Aim[] = [
  { cell: '64x32k', figure: 'decisionUsP50', atMost: 20 },
  { cell: '1000x32k', figure: 'decisionUsP50', atMost: 80 },
  { cell: 'regions-30', figure: 'decisionUsP50', atMost: 50 },
  { cell: 'growth-32k', figure: 'exponent', atMost: 0.6 },
  { cell: 'index', figure: 'bytesPerBlock', atMost: 25 },
  { cell: 'index', figure: 'deltaEntriesPerS', atLeast: 300_000 },
];

export interface AimVerdict {
  readonly aim: string;
  readonly measured: number | null;
  readonly met: boolean;
}

export function aimVerdicts(rows: readonly Row[]): AimVerdict[] {
  return AIMS.map(({ cell, figure, atMost, atLeast }) => {
    const measured = figureOf(rows, cell, figure);
    const bound = atMost === undefined ? `≥ ${atLeast}` : `≤ ${atMost}`;
    const met = measured !== null && measured <= (atMost ?? Infinity) && measured >= (atLeast ?? 0);
    return { aim: `${cell} ${figure} ${bound}`, measured, met };
  });
}
