// Where the row of a 64-bit hash (two u32 words) is: the hashes of rows, and buckets that name rows.
//
//   bucket = how many buckets behind its home (8 bits) · row + 1 (24 bits)          0: empty
//
// A row stands in its home or behind it, in the order of homes: what is sought is not there once a bucket's row is nearer to
// its home than the sought one would be there. So only rows of the same home are looked at. Rows behind a gap move up into
// it: there are no tombstones. Many rows have their buckets in shards, which are widened one after the other as they fill.

import { widen } from './typed-arrays.ts';

const NONE = -1;
const BUCKET_BYTES = 4;
/** Buckets up to which there is one shard. */
const ONE_SHARD_MAX = 65_536;
const SHARDS = 64;
/** A shard is chosen by the uppermost bits of a hash, a bucket by the fraction that the others are of this. */
const SHARD_SHIFT = 26;
const FRACTION = 2 ** -SHARD_SHIFT;
/** A shard's widening: little at a time, so that few buckets are empty. */
const SHARD_GROWTH = 1.25;

const EMPTY = 0;
const ROW = 0xff_ffff;
const BEHIND_SHIFT = 24;
/** One bucket further behind. */
const STEP = 1 << BEHIND_SHIFT;
/** So far behind its home, or further: how far, the row's hash says. */
const FAR = 0xff;

export class RowKeys {
  /** Words of hashes, by row; replaced when they are widened. */
  low: Uint32Array;
  high: Uint32Array;
  /** Rows that there may ever be: no shard is widened further than a full table needs. */
  rowsMax: number;
  #shards: Int32Array[] = [];
  /** Rows in each shard. */
  #counts: number[] = [];

  constructor(rows: number, rowsMax: number) {
    this.rowsMax = rowsMax;
    this.low = new Uint32Array(rows);
    this.high = new Uint32Array(rows);
    this.clear(rows);
  }

  /** Bytes of buckets. */
  get bucketBytes(): number {
    let buckets = 0;
    for (const shard of this.#shards) buckets += shard.length;
    return BUCKET_BYTES * buckets;
  }

  get isSharded(): boolean {
    return this.#shards.length > 1;
  }

  /** The row of a hash, or -1. */
  find(low: number, high: number): number {
    const hash = mixed(low, high);
    const buckets = this.#shards[this.#shardOf(hash)] as Int32Array;
    const { length } = buckets;
    let at = homeOf(hash, length);
    for (let behind = 0; ; behind += 1) {
      const bucket = buckets[at] as number;
      const mine = behind < FAR ? behind : FAR;
      const theirs = bucket >>> BEHIND_SHIFT;
      if (bucket === EMPTY || theirs < mine) return NONE;
      if (theirs === mine) {
        const row = (bucket & ROW) - 1;
        if (this.low[row] === low && this.high[row] === high) return row;
      }
      at = at + 1 === length ? 0 : at + 1;
    }
  }

  /**
   * Many hashes are looked for next, one after the other. Their homes are read here, where none waits for another: memory
   * brings ten of them in the time that it takes for one. (A plain read whose result nobody wants would be left out.)
   */
  fetch(hashes: Uint32Array): void {
    for (let k = 0; k + 1 < hashes.length; k += 2) {
      const hash = mixed(hashes[k] as number, hashes[k + 1] as number);
      const buckets = this.#shards[this.#shardOf(hash)] as Int32Array;
      Atomics.load(buckets, homeOf(hash, buckets.length));
    }
  }

  /** Of a hash that no row has. */
  add(row: number, low: number, high: number): void {
    this.low[row] = low;
    this.high[row] = high;
    this.place(row);
  }

  /** The row can be found by the hash that it has. */
  place(row: number): void {
    const shard = this.#shardOf(this.#hashOf(row));
    const count = (this.#counts[shard] as number) + 1;
    let buckets = this.#shards[shard] as Int32Array;
    if (256 * count > buckets.length * mostOf(shard)) buckets = this.#widenShard(shard);
    this.#counts[shard] = count;
    this.#put(buckets, row);
  }

  remove(row: number): void {
    const hash = this.#hashOf(row);
    const shard = this.#shardOf(hash);
    this.#counts[shard] = (this.#counts[shard] as number) - 1;
    const buckets = this.#shards[shard] as Int32Array;
    const { length } = buckets;
    let gap = homeOf(hash, length);
    while (((buckets[gap] as number) & ROW) !== row + 1) gap = gap + 1 === length ? 0 : gap + 1;
    for (;;) {
      const next = gap + 1 === length ? 0 : gap + 1;
      const nearer = this.#nearer(buckets, next);
      buckets[gap] = nearer;
      if (nearer === EMPTY) return;
      gap = next;
    }
  }

  /** No row can be found, until it is placed again; as many buckets as so many rows need. */
  clear(rows: number): void {
    const buckets = bucketsFor(rows);
    const shards = buckets > ONE_SHARD_MAX ? SHARDS : 1;
    const each = Math.ceil(buckets / shards);
    this.#shards = Array.from({ length: shards }, () => new Int32Array(each));
    this.#counts = Array.from({ length: shards }, () => 0);
  }

  widenLow(rows: number): void {
    this.low = widen(this.low, rows);
  }

  widenHigh(rows: number): void {
    this.high = widen(this.high, rows);
  }

  #shardOf(hash: number): number {
    return this.#shards.length === 1 ? 0 : hash >>> SHARD_SHIFT;
  }

  /** No further than a full table needs, unless hashes fall into one shard. */
  #widenShard(shard: number): Int32Array {
    const from = this.#shards[shard] as Int32Array;
    const wider = Math.ceil(SHARD_GROWTH * from.length);
    const most = Math.floor(bucketsFor(this.rowsMax) / this.#shards.length);
    const to = new Int32Array(from.length < most ? Math.min(wider, most) : wider);
    for (let at = 0; at < from.length; at += 1) {
      const row = ((from[at] as number) & ROW) - 1;
      if (row !== NONE) this.#put(to, row);
    }
    this.#shards[shard] = to;
    return to;
  }

  /** Whoever is nearer to its home makes way, to the next bucket, and so on up to an empty one. */
  #put(buckets: Int32Array, row: number): void {
    const { length } = buckets;
    let at = homeOf(this.#hashOf(row), length);
    let behind = 0;
    for (; buckets[at] !== EMPTY && this.#behind(buckets, at) >= behind; behind += 1) {
      at = at + 1 === length ? 0 : at + 1;
    }
    let coming = (Math.min(behind, FAR) << BEHIND_SHIFT) | (row + 1);
    while (coming !== EMPTY) {
      const bucket = buckets[at] as number;
      buckets[at] = coming;
      const steps = bucket !== EMPTY && bucket >>> BEHIND_SHIFT < FAR;
      coming = steps ? (bucket + STEP) | 0 : bucket;
      at = at + 1 === length ? 0 : at + 1;
    }
  }

  /** What is in a bucket as it is in the one before; empty where it may not be there. */
  #nearer(buckets: Int32Array, at: number): number {
    const bucket = buckets[at] as number;
    const behind = this.#behind(buckets, at);
    if (behind === 0) return EMPTY;
    return behind > FAR ? bucket : (bucket - STEP) | 0;
  }

  /** How far behind its home the row of a bucket is; of an empty one 0. */
  #behind(buckets: Int32Array, at: number): number {
    const bucket = buckets[at] as number;
    const behind = bucket >>> BEHIND_SHIFT;
    if (behind < FAR) return behind;
    const far = at - homeOf(this.#hashOf((bucket & ROW) - 1), buckets.length);
    return far < 0 ? far + buckets.length : far;
  }

  #hashOf(row: number): number {
    return mixed(this.low[row] as number, this.high[row] as number);
  }
}

function mixed(low: number, high: number): number {
  return Math.imul(low ^ Math.imul(high, 0x85ebca6b), 0x9e3779b1) >>> 0;
}

/**
 * Rows that a shard takes in 256 buckets before it is widened: more than a full table has, and different
 * for each, so that shards that grow alike are not all widened by the same few inserts.
 */
function mostOf(shard: number): number {
  return 196 + ((25 * shard) >> 6);
}

/** The bucket that a hash belongs in, of so many. */
function homeOf(hash: number, length: number): number {
  return Math.floor((hash & 0x3ffffff) * FRACTION * length);
}

/** So many that three quarters of them are taken. */
function bucketsFor(rows: number): number {
  return Math.max(16, Math.ceil((4 * rows) / 3));
}
