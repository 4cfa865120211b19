// Bytes that a decision allocates, and bytes that stay.
//
// Allocated: the heap's growth over blocks of decisions, the median over blocks, so that a collection in some of them
// changes nothing; blocks of nothing tell what reading the heap itself takes. Kept: the heap after a forced collection
// at the end less that at the beginning. Neither depends on how busy the machine is.

import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { decideOnce, fleetOf, nameOf, reportBefore, type Cell } from './cells.ts';
import { ARM, quantile, round, type Row } from './rows.ts';

const BLOCK = 200;

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

export interface Allocation {
  /** Median over blocks, bytes a decision. */
  readonly bytesPerDecision: number;
  /** Bytes a decision that no collection takes back. */
  readonly keptPerDecision: number;
}

export function allocation(cell: Cell, decisions: number): Allocation {
  const fleet = fleetOf(cell);
  const blocks = Math.ceil(decisions / BLOCK);
  let k = 0;
  const run = (): number => {
    reportBefore(fleet, k);
    const before = heapBytes();
    for (let n = 0; n < BLOCK; n += 1) decideOnce(fleet, k + n);
    k += BLOCK;
    return heapBytes() - before;
  };
  for (let warm = 0; warm < blocks / 4; warm += 1) run();
  const grown = new Float64Array(blocks);
  const nothing = new Float64Array(blocks);
  const keptBefore = keptBytes();
  for (let block = 0; block < blocks; block += 1) {
    grown[block] = run();
    const before = heapBytes();
    nothing[block] = heapBytes() - before;
  }
  const kept = keptBytes() - keptBefore;
  const read = quantile(nothing.sort(), 0.5);
  return {
    bytesPerDecision: round((quantile(grown.sort(), 0.5) - read) / BLOCK),
    keptPerDecision: round(kept / (blocks * BLOCK), 2),
  };
}

export function allocatedRow(cell: Cell, decisions: number): Row {
  return { cell: nameOf(cell), arm: ARM, ...allocation(cell, decisions) };
}

/** Typed arrays live outside the heap. */
function heapBytes(): number {
  const { used_heap_size: used, external_memory: outside } = getHeapStatistics();
  return used + outside;
}

function keptBytes(): number {
  collect();
  collect();
  return heapBytes();
}
