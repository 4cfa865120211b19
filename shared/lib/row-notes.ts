// Two words about some of many rows: for what most rows do without, or can be told from their place.
//
// Open addressing in typed arrays, in shards that are doubled one by one at three quarters, so that no growth takes
// long. All shards together have a byte budget: where one may not grow any more, a row's note is refused.

const SHARDS = 16;
const START_SLOTS = 8;
const SLOT_BYTES = 12;
/** In place of a row: keys are rows plus one. */
const EMPTY = 0;

interface Shard {
  keys: Uint32Array;
  /** Two of each slot. */
  words: Uint32Array;
  count: number;
}

export class RowNotes {
  #bytesMax: number;
  readonly #shards: Shard[] = Array.from({ length: SHARDS }, () => shardOf(START_SLOTS));
  #slots = SHARDS * START_SLOTS;
  #refused = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** Bytes of storage, used or not. */
  get bytes(): number {
    return SLOT_BYTES * this.#slots;
  }

  get size(): number {
    return this.#shards.reduce((sum, { count }) => sum + count, 0);
  }

  /** Notes that found no room, ever. */
  get refused(): number {
    return this.#refused;
  }

  /** The first word of the row's note; 0 without one. */
  first(row: number): number {
    return this.#word(row, 0);
  }

  second(row: number): number {
    return this.#word(row, 1);
  }

  /** False where there is no room for another one. */
  set(row: number, first: number, second: number): boolean {
    const shard = this.#shardOf(row);
    let slot = slotOf(shard.keys, row);
    if (shard.keys[slot] === EMPTY) {
      if (4 * (shard.count + 1) > 3 * shard.keys.length) {
        if (!this.#grow(shard)) {
          this.#refused += 1;
          return false;
        }
        slot = slotOf(shard.keys, row);
      }
      shard.count += 1;
      shard.keys[slot] = row + 1;
    }
    shard.words[2 * slot] = first;
    shard.words[2 * slot + 1] = second;
    return true;
  }

  delete(row: number): void {
    const shard = this.#shardOf(row);
    const { keys, words } = shard;
    const mask = keys.length - 1;
    let hole = slotOf(keys, row);
    if (keys[hole] === EMPTY) return;
    shard.count -= 1;
    for (let at = (hole + 1) & mask; keys[at] !== EMPTY; at = (at + 1) & mask) {
      const home = mixed((keys[at] as number) - 1) & mask;
      if (((at - home) & mask) < ((at - hole) & mask)) continue;
      keys[hole] = keys[at] as number;
      words[2 * hole] = words[2 * at] as number;
      words[2 * hole + 1] = words[2 * at + 1] as number;
      hole = at;
    }
    keys[hole] = EMPTY;
  }

  /** Another budget, and each row has that place from now on; -1 for one that has gone. */
  rebuild(
    bytesMax: number,
    placeOf: (row: number) => number,
    onLost: (row: number, first: number) => void,
  ): void {
    const before = this.#shards.map((shard) => ({ ...shard }));
    this.#bytesMax = bytesMax;
    this.#slots = SHARDS * START_SLOTS;
    for (const shard of this.#shards) Object.assign(shard, shardOf(START_SLOTS));
    for (const { keys, words } of before) {
      for (let slot = 0; slot < keys.length; slot += 1) {
        if (keys[slot] === EMPTY) continue;
        const row = placeOf((keys[slot] as number) - 1);
        if (row < 0) continue;
        const first = words[2 * slot] as number;
        if (!this.set(row, first, words[2 * slot + 1] as number)) onLost(row, first);
      }
    }
  }

  #word(row: number, which: 0 | 1): number {
    const { keys, words } = this.#shardOf(row);
    const slot = slotOf(keys, row);
    return keys[slot] === EMPTY ? 0 : (words[2 * slot + which] as number);
  }

  #shardOf(row: number): Shard {
    return this.#shards[mixed(row) >>> 28] as Shard;
  }

  #grow(shard: Shard): boolean {
    const more = shard.keys.length;
    if (SLOT_BYTES * (this.#slots + more) > this.#bytesMax) return false;
    this.#slots += more;
    const { keys, words } = shard;
    const wider = shardOf(2 * more);
    for (let from = 0; from < keys.length; from += 1) {
      const key = keys[from] as number;
      if (key === EMPTY) continue;
      const slot = slotOf(wider.keys, key - 1);
      wider.keys[slot] = key;
      wider.words[2 * slot] = words[2 * from] as number;
      wider.words[2 * slot + 1] = words[2 * from + 1] as number;
    }
    shard.keys = wider.keys;
    shard.words = wider.words;
    return true;
  }
}

function shardOf(slots: number): Shard {
  return { keys: new Uint32Array(slots), words: new Uint32Array(2 * slots), count: 0 };
}

/** The row's slot, or the free one where it would go. */
function slotOf(keys: Uint32Array, row: number): number {
  const mask = keys.length - 1;
  let at = mixed(row) & mask;
  while (keys[at] !== EMPTY && keys[at] !== row + 1) at = (at + 1) & mask;
  return at;
}

function mixed(row: number): number {
  const hash = Math.imul(row ^ (row >>> 15), 0x85ebca6b);
  return (hash ^ (hash >>> 13)) >>> 0;
}
