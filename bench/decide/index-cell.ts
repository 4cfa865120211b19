// The prefix index by itself: a million chunks of many targets, told in deltas and evicted again.

import type { Incarnation, ReplicaId } from '../../shared/model/ids.ts';
import type { PrefixMessage } from '../../shared/protocol/messages.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import { PrefixIndex } from '../../router/policy/prefix-index.ts';

const INDEX_BYTES = 512 << 20;
const RUN_CHUNKS = 32;

export interface IndexFigures {
  readonly bytesPerBlock: number;
  readonly deltaEntriesPerS: number;
}

export function indexFigures(targets: number, blocks: number): IndexFigures {
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
  const bytesPerBlock = index.bytes / index.rows;
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
  return { bytesPerBlock, deltaEntriesPerS: (2 * RUN_CHUNKS * more.length) / seconds };
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
