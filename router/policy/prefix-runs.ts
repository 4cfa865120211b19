// Rows of one target as runs of chunks, for a snapshot: each from a chunk on as deep as it goes without a fork.

import type { PrefixTable } from '../../shared/lib/prefix-table.ts';
import type { PrefixRun } from '../../shared/protocol/messages.ts';
import type { PrefixParents } from './prefix-parents.ts';

interface Rows {
  readonly table: PrefixTable;
  readonly parents: PrefixParents;
}

/** Of those that lead up to a root: nothing else could be found, or placed by its holder. */
export function runsOf(rows: readonly number[], from: Rows): PrefixRun[] {
  const runs: { depth: number; rows: number[] }[] = [];
  const endingAt = new Map<number, (typeof runs)[number]>();
  for (const [row, depth] of depthsOf(rows, from.parents)) {
    const parent = from.parents.of(row);
    let run = endingAt.get(parent);
    if (run === undefined) runs.push((run = { depth, rows: [] }));
    else endingAt.delete(parent);
    run.rows.push(row);
    endingAt.set(row, run);
  }
  return runs.map((run) => ({ ...headOf(run.rows[0] as number, from), ...bodyOf(run, from) }));
}

/** By depth, those that lead up to a root. */
function depthsOf(rows: readonly number[], parents: PrefixParents): [row: number, depth: number][] {
  const depths = new Map<number, number>();
  const path: number[] = [];
  for (const from of rows) {
    path.length = 0;
    let row = from;
    for (; row >= 0 && !depths.has(row); row = parents.of(row)) {
      // Of a root's parent, and of what leads back to itself or nowhere.
      depths.set(row, Number.NaN);
      path.push(row);
    }
    const top = path.at(-1) ?? from;
    let depth = row >= 0 ? (depths.get(row) as number) : parents.isRoot(top) ? -1 : Number.NaN;
    for (const below of path.toReversed()) depths.set(below, (depth += 1));
  }
  return rows
    .map((row): [number, number] => [row, depths.get(row) as number])
    .filter(([, depth]) => !Number.isNaN(depth))
    .toSorted(([, a], [, b]) => a - b);
}

function headOf(row: number, { table, parents }: Rows): { parentLow: number; parentHigh: number } {
  const parent = parents.of(row);
  return {
    parentLow: parent < 0 ? 0 : table.low(parent),
    parentHigh: parent < 0 ? 0 : table.high(parent),
  };
}

function bodyOf(
  { depth, rows }: { readonly depth: number; readonly rows: readonly number[] },
  { table }: Rows,
): { depth: number; hashes: Uint32Array } {
  const hashes = new Uint32Array(2 * rows.length);
  for (let k = 0; k < rows.length; k += 1) {
    hashes[2 * k] = table.low(rows[k] as number);
    hashes[2 * k + 1] = table.high(rows[k] as number);
  }
  return { depth, hashes };
}
