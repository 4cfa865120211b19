// A row of the result: a cell, an arm, and flat figures. Absent is not zero: a figure that a row has none of is left out.

export interface Row {
  readonly cell: string;
  readonly arm: string;
  readonly [figure: string]: string | number;
}

export const ARM = 'spillway';

export function figureOf(rows: readonly Row[], cell: string, figure: string): number | null {
  const value = rows.find((row) => row.cell === cell && row.arm === ARM && figure in row)?.[figure];
  return typeof value === 'number' ? value : null;
}

export function round(value: number, digits = 1): number {
  const scale = 10 ** digits;
  return Math.round(value * scale) / scale;
}

/** Of values in order. */
export function quantile(sorted: Float64Array, share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}
