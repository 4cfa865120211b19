// Snapshots and deltas in parts: what one message holds is bounded, so that neither end is busy with it for long.
//
// The first part of a snapshot replaces all that a router knew, the others are deltas after it, as any
// delta is: a router needs to know nothing of parts. What was evicted comes first. Runs keep their order,
// so that a parent comes before what hangs on it; a run that is cut goes on behind its own last chunk.

import type { HashWords } from '../../shared/model/prompt.ts';
import { DELTA_PARTS_MAX } from '../../shared/protocol/limits.ts';
import type { PrefixLeaf, PrefixRun } from '../../shared/protocol/messages.ts';
import type { PrefixDelta } from './prefix-index.ts';

/** Chunks and leaves of one part of a snapshot at most: 128 KiB of hashes, which hold a router's event loop for 20 to 40 ms. */
const PART_MAX = 16_384;
/** The same to a router that expects parts, 3 to 5 ms: as many of them as a link may bring at once. */
const SNAPSHOT_PART_MAX = 2_048;
/** Of a delta, evictions too: a router takes a millisecond or two for it, and streams go on between two parts. */
const DELTA_PART_MAX = 1_024;

interface Part {
  runs: PrefixRun[];
  leaves: PrefixLeaf[];
  evicted: HashWords;
}

/** Parts of a delta: `DELTA_PARTS_MAX` at most, larger ones where that is not enough. */
export function deltaParts(delta: PrefixDelta): PrefixDelta[] {
  const entries = delta.runs.reduce(
    (sum, { hashes }) => sum + hashes.length / 2,
    delta.evicted.length / 2 + delta.leaves.length,
  );
  return partsOf(delta, Math.max(DELTA_PART_MAX, Math.ceil(entries / DELTA_PARTS_MAX)));
}

/** Of a snapshot; a router that does not expect parts would take so many messages for a flood. */
export function snapshotParts(snapshot: PrefixDelta, takesParts: boolean): PrefixDelta[] {
  return partsOf(snapshot, takesParts ? SNAPSHOT_PART_MAX : PART_MAX);
}

export function partsOf(delta: PrefixDelta, most = PART_MAX): PrefixDelta[] {
  const parts: Part[] = [];
  let left = 0;
  const open = (): Part => {
    let last = parts.at(-1);
    if (last === undefined || left === 0) {
      last = { runs: [], leaves: [], evicted: NOTHING };
      parts.push(last);
      left = most;
    }
    return last;
  };
  open();
  for (let from = 0; from < delta.evicted.length;) {
    const part = open();
    const take = Math.min(left, delta.evicted.length / 2 - from / 2);
    part.evicted = delta.evicted.subarray(from, from + 2 * take);
    from += 2 * take;
    left -= take;
  }
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
