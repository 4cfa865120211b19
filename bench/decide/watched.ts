// Run by `baseline.ts` as a process of its own: counts and allocation of this code, as JSON on stdout. Allocation first,
// since code that has been watched is compiled otherwise.

import { allocatedRow } from './allocated.ts';
import { nameOf, type Cell } from './cells.ts';
import { countedRow } from './counted.ts';
import { ARM, type Row } from './rows.ts';

/** The cells, and how many decisions of each are watched for what they allocate. */
const WATCHED: readonly (Cell & { readonly decisions: number })[] = [
  { replicas: 8, kTokens: 1, decisions: 250_000 },
  { replicas: 64, kTokens: 32, decisions: 200_000 },
  { replicas: 1_000, kTokens: 32, decisions: 50_000 },
];
const COUNTED_DECISIONS = 100;

const allocated = WATCHED.map((cell) => allocatedRow(cell, cell.decisions));
const rows = WATCHED.map((cell, k): Row => ({
  ...{ cell: nameOf(cell), arm: ARM },
  ...allocated[k],
  ...countedRow(cell, COUNTED_DECISIONS),
}));
console.log(JSON.stringify(rows));
