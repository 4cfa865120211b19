// The prefix index by itself: a million chunks of many targets, one holder each, told in deltas and evicted again. And
// what a report of a replica takes the core, in a pool of a thousand.

import type { Incarnation, ReplicaId } from '../../shared/model/ids.ts';
import type { PrefixMessage } from '../../shared/protocol/messages.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import { PrefixIndex } from '../../router/policy/prefix-index.ts';
import { fleetOf } from './cells.ts';
import { ARM, round, type Row } from './rows.ts';

const INDEX_BYTES = 512 << 20;
const RUN_CHUNKS = 32;

const REPORTS = 200_000;

export function indexRow(targets: number, blocks: number): Row {
  return {
    ...{ cell: 'index', arm: ARM },
    ...indexFigures(targets, blocks),
    reportsPerS: Math.round(reportsPerS(targets)),
  };
}

/** With the making of a report, which is nothing of the router's. */
function reportsPerS(replicas: number): number {
  const fleet = fleetOf({ replicas, kTokens: 1 });
  let begun = 0;
  for (let k = -REPORTS / 4; k < REPORTS; k += 1) {
    if (k === 0) begun = performance.now();
    fleet.report((replicas + (k % replicas)) % replicas);
  }
  return (1_000 * REPORTS) / (performance.now() - begun);
}

function indexFigures(
  targets: number,
  blocks: number,
): { blocks: number; bytesPerBlock: number; deltaEntriesPerS: number } {
  const index = new PrefixIndex(INDEX_BYTES);
  const slots = Array.from({ length: targets }, () => index.addTarget());
  for (const slot of slots) index.apply(slot, messageOf(0, new Uint32Array(0), new Uint32Array(0)));
  const random = seededRandom(1);
  const word = (): number => Math.floor(random.next() * 2 ** 32);
  const runs = Array.from({ length: Math.ceil(blocks / RUN_CHUNKS) }, () =>
    Uint32Array.from({ length: 2 * RUN_CHUNKS }, word),
  );
  for (const [k, run] of runs.entries()) {
    const seq = 1 + Math.floor(k / targets);
    index.apply(slots[k % targets] as number, messageOf(seq, run, NOTHING));
  }
  const bytesPerBlock = round(index.bytes / index.rows);
  const { rows } = index;
  const more = Array.from({ length: 4_000 }, () =>
    Uint32Array.from({ length: 2 * RUN_CHUNKS }, word),
  );
  const seqs = slots.map((_, k) => 1 + Math.floor((runs.length - 1 - k) / targets));
  const begun = performance.now();
  for (const [k, run] of more.entries()) {
    const at = k % targets;
    seqs[at] = (seqs[at] as number) + 1;
    const gone = runs[k] as Uint32Array;
    const outcome = index.apply(slots[at] as number, messageOf(seqs[at] as number, run, gone));
    if (outcome !== 'applied') throw new Error(outcome);
  }
  const seconds = (performance.now() - begun) / 1_000;
  const deltaEntriesPerS = Math.round((2 * RUN_CHUNKS * more.length) / seconds);
  return { blocks: rows, bytesPerBlock, deltaEntriesPerS };
}

const NOTHING = new Uint32Array(0);

function messageOf(seq: number, hashes: Uint32Array, evicted: Uint32Array): PrefixMessage {
  return {
    kind: 'prefix',
    replica: 'r' as ReplicaId,
    rank: 0,
    incarnation: 'i' as Incarnation,
    seq,
    runs: hashes.length === 0 ? [] : [{ parentLow: 0, parentHigh: 0, depth: 0, hashes }],
    leaves: [],
    evicted,
  };
}
