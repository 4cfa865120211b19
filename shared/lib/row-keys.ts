// Where the row of a 64-bit hash (two u32 words) is: the hashes of rows, and buckets that name rows in three bytes.
//
// Collisions are probed linearly; removal shifts back, so there are no tombstones. Many rows have their buckets in
// shards, which are widened one after the other as they fill.

import { RowRefs } from './row-refs.ts';
import { widen } from './typed-arrays.ts';

const NONE = -1;
const REF_BYTES = 3;
/** Buckets up to which there is one shard. */
const ONE_SHARD_MAX = 65_536;
const SHARDS = 64;
/** A shard is chosen by the uppermost bits of a hash, a bucket by the fraction that the others are of this. */
const SHARD_SHIFT = 26;
const FRACTION = 2 ** -SHARD_SHIFT;
/** A shard's widening: little at a time, so that few buckets are empty. */
const SHARD_GROWTH = 1.25;

export class RowKeys {
  /** Words of hashes, by row; replaced when they are widened. */
  low: Uint32Array;
  high: Uint32Array;
  /** Rows that there may ever be: no shard is widened further than a full table needs. */
  rowsMax: number;
  #shards: RowRefs[] = [];
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
    return REF_BYTES * buckets;
  }

  get isSharded(): boolean {
    return this.#shards.length > 1;
  }

  /** The row of a hash, or -1. */
  find(low: number, high: number): number {
    const hash = mixed(low, high);
    const buckets = this.#shards[this.#shardOf(hash)] as RowRefs;
    for (let at = homeOf(hash, buckets.length); ; at = at + 1 === buckets.length ? 0 : at + 1) {
      const row = buckets.get(at);
      if (row === NONE) return NONE;
      if (this.low[row] === low && this.high[row] === high) return row;
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
    const hash = this.#hashOf(row);
    const shard = this.#shardOf(hash);
    const count = (this.#counts[shard] as number) + 1;
    let buckets = this.#shards[shard] as RowRefs;
    if (256 * count > buckets.length * mostOf(shard)) buckets = this.#widenShard(shard);
    this.#counts[shard] = count;
    put(buckets, hash, row);
  }

  remove(row: number): void {
    const hash = this.#hashOf(row);
    const shard = this.#shardOf(hash);
    this.#counts[shard] = (this.#counts[shard] as number) - 1;
    const buckets = this.#shards[shard] as RowRefs;
    const { length } = buckets;
    let hole = homeOf(hash, length);
    while (buckets.get(hole) !== row) hole = hole + 1 === length ? 0 : hole + 1;
    for (let at = hole + 1; ; at += 1) {
      if (at === length) at = 0;
      const other = buckets.get(at);
      if (other === NONE) break;
      const home = homeOf(this.#hashOf(other), length);
      if (cyclic(at - home, length) < cyclic(at - hole, length)) continue;
      buckets.set(hole, other);
      hole = at;
    }
    buckets.set(hole, NONE);
  }

  /** No row can be found, until it is placed again; as many buckets as so many rows need. */
  clear(rows: number): void {
    const buckets = bucketsFor(rows);
    const shards = buckets > ONE_SHARD_MAX ? SHARDS : 1;
    const each = Math.ceil(buckets / shards);
    this.#shards = Array.from({ length: shards }, () => new RowRefs(each));
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
  #widenShard(shard: number): RowRefs {
    const from = this.#shards[shard] as RowRefs;
    const wider = Math.ceil(SHARD_GROWTH * from.length);
    const most = Math.floor(bucketsFor(this.rowsMax) / this.#shards.length);
    const to = new RowRefs(from.length < most ? Math.min(wider, most) : wider);
    for (let at = 0; at < from.length; at += 1) {
      const row = from.get(at);
      if (row !== NONE) put(to, this.#hashOf(row), row);
    }
    this.#shards[shard] = to;
    return to;
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
  return 180 + ((25 * shard) >> 6);
}

/** The bucket that a hash belongs in, of so many. */
function homeOf(hash: number, length: number): number {
  return Math.floor((hash & 0x3ffffff) * FRACTION * length);
}

function cyclic(distance: number, length: number): number {
  return distance < 0 ? distance + length : distance;
}

function put(buckets: RowRefs, hash: number, row: number): void {
  const { length } = buckets;
  let at = homeOf(hash, length);
  while (buckets.get(at) !== NONE) at = at + 1 === length ? 0 : at + 1;
  buckets.set(at, row);
}

/** So many that two thirds of them are taken. */
function bucketsFor(rows: number): number {
  return Math.max(16, Math.ceil((3 * rows) / 2));
}
