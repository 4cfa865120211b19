// A snapshot in parts: what one message holds is bounded, so that neither end is busy with it for long.
//
// The first part replaces all that a router knew, the others are deltas after it, as any delta is: a
// router needs to know nothing of parts. Runs keep their order, so that a parent comes before what
// hangs on it; a run that is cut goes on behind its own last chunk.

import type { PrefixLeaf, PrefixRun } from '../../shared/protocol/messages.ts';
import type { PrefixDelta } from './prefix-index.ts';

/** Chunks and leaves of one part at most: 128 KiB of hashes. */
const PART_MAX = 16_384;

export function partsOf(delta: PrefixDelta, most = PART_MAX): PrefixDelta[] {
  const parts: { runs: PrefixRun[]; leaves: PrefixLeaf[]; evicted: PrefixDelta['evicted'] }[] = [];
  let left = 0;
  const open = (): (typeof parts)[number] => {
    let last = parts.at(-1);
    if (last === undefined || left === 0) {
      last = { runs: [], leaves: [], evicted: NOTHING };
      parts.push(last);
      left = most;
    }
    return last;
  };
  open().evicted = delta.evicted;
  for (const run of delta.runs) {
    const chunks = run.hashes.length / 2;
    for (let from = 0; from < chunks;) {
      const part = open();
      const take = Math.min(left, chunks - from);
      part.runs.push(cut(run, from, take));
      from += take;
      left -= take;
    }
  }
  for (const leaf of delta.leaves) {
    open().leaves.push(leaf);
    left -= 1;
  }
  return parts;
}

const NOTHING = new Uint32Array(0);

function cut(run: PrefixRun, from: number, chunks: number): PrefixRun {
  if (from === 0 && 2 * chunks === run.hashes.length) return run;
  return {
    parentLow: from === 0 ? run.parentLow : (run.hashes[2 * from - 2] ?? 0),
    parentHigh: from === 0 ? run.parentHigh : (run.hashes[2 * from - 1] ?? 0),
    depth: run.depth + from,
    hashes: run.hashes.subarray(2 * from, 2 * (from + chunks)),
  };
}
