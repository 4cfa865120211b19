// A hash table from 64-bit hashes (two u32 words) to rows of u32 columns and a byte of flags, with a
// recency list and a byte budget.
//
// Typed arrays only: no object per row, no bigint, and memory that can be counted. Collisions are
// probed linearly; removal shifts back, so there are no tombstones. At the budget the least recent
// row makes room. Rows name each other in three bytes, so there are at most 16.7 million.
//
//   bytes of a row = 8 hash + 6 recency + 1 flags + 4 · columns + about 4.3 of its bucket
//
// A large table has its buckets in shards, which are widened one after the other as they fill, and
// its rows in arrays that are widened one by one before they are full: a million rows are never moved at
// one stroke, which would hold an event loop for long.

import { RowRefs, ROW_REFS_MAX } from './row-refs.ts';

const START_ROWS = 1_024;
const NONE = -1;
/** In `older` of a row that is not in use. */
const FREE = -2;
const REF_BYTES = 3;
const ROW_BYTES = 9 + 2 * REF_BYTES;
/** Arrays of rows beside the columns. */
const OWN_ARRAYS = 5;
/** Of the budget, for what rounding up takes. */
const SLACK_BYTES = 64;
/** Storage grows twofold up to so many rows, then fourfold: seldom where it is much to copy. */
const TWOFOLD_MAX = 262_144;
/** Buckets up to which there is one shard. */
const ONE_SHARD_MAX = 65_536;
const SHARDS = 64;
/** A shard is chosen by the uppermost bits of a hash, a bucket by the fraction that the others are of this. */
const SHARD_SHIFT = 26;
const FRACTION = 2 ** -SHARD_SHIFT;
/** A shard's widening: little at a time, so that few buckets are empty. */
const SHARD_GROWTH = 1.25;

export class PrefixTable {
  /**
   * Columns of the rows; index by row. Replaced when the table grows: read it anew after an insert.
   */
  columns: Uint32Array[];
  /** A byte of each row, the owner's, 0 in new rows; replaced as the columns are. */
  flags: Uint8Array;
  #low: Uint32Array;
  #high: Uint32Array;
  #newer: RowRefs;
  #older: RowRefs;
  #shards: RowRefs[] = [];
  /** Rows in each shard. */
  #counts: number[] = [];
  #free = NONE;
  /** Rows that there is storage for. */
  #capacity: number;
  /** Rows that there will be storage for once all arrays are as wide; 0 while none is widened. */
  #wider = 0;
  #widened = 0;
  /** Rows that have ever been used; those from here on have not been touched. */
  #mark = 0;
  #newest = NONE;
  #oldest = NONE;
  #size = 0;
  #rowsMax: number;
  #bytesMax: number;
  #evictions = 0;
  readonly #onEvict: (row: number) => void;
  readonly #onMove: (before: readonly number[]) => void;

  /**
   * `onEvict` sees a row that has to make room, before it goes; `onMove` hears that rows have other places, and of
   * each which one it had.
   */
  constructor(options: {
    bytesMax: number;
    columns: number;
    onEvict?: (row: number) => void;
    onMove?: (before: readonly number[]) => void;
  }) {
    this.#onEvict = options.onEvict ?? (() => undefined);
    this.#onMove = options.onMove ?? (() => undefined);
    this.#bytesMax = options.bytesMax;
    this.#rowsMax = rowsWithin(options.bytesMax, options.columns);
    const rows = Math.min(START_ROWS, this.#rowsMax);
    this.#capacity = rows;
    this.columns = Array.from({ length: options.columns }, () => new Uint32Array(rows));
    this.#low = new Uint32Array(rows);
    this.#high = new Uint32Array(rows);
    this.flags = new Uint8Array(rows);
    this.#newer = new RowRefs(rows);
    this.#older = new RowRefs(rows);
    this.#rehash();
  }

  get size(): number {
    return this.#size;
  }

  /** Rows that would fit the budget. */
  get rowsMax(): number {
    return this.#rowsMax;
  }

  /** Rows that are used or have been: the bound of a scan. */
  get rows(): number {
    return this.#mark;
  }

  /** Rows that had to make room, ever. */
  get evictions(): number {
    return this.#evictions;
  }

  /** Bytes of storage that has been touched, in use or not. */
  get bytes(): number {
    let buckets = 0;
    for (const shard of this.#shards) buckets += shard.length;
    return this.rows * (ROW_BYTES + 4 * this.columns.length) + REF_BYTES * buckets;
  }

  isUsed(row: number): boolean {
    return row < this.#mark && this.#older.get(row) !== FREE;
  }

  low(row: number): number {
    return this.#low[row] as number;
  }

  high(row: number): number {
    return this.#high[row] as number;
  }

  /** The row of a hash, or -1. */
  find(low: number, high: number): number {
    const hash = mixed(low, high);
    const buckets = this.#shards[this.#shardOf(hash)] as RowRefs;
    for (let at = homeOf(hash, buckets.length); ; at = at + 1 === buckets.length ? 0 : at + 1) {
      const row = buckets.get(at);
      if (row === NONE) return NONE;
      if (this.#low[row] === low && this.#high[row] === high) return row;
    }
  }

  /** The same for a hash that is probably in row `near`: rows that are made together lie together. */
  findNear(low: number, high: number, near: number): number {
    const there =
      near >= 0 && this.isUsed(near) && this.#low[near] === low && this.#high[near] === high;
    return there ? near : this.find(low, high);
  }

  /**
   * The same for the k-th of many hashes. Words that are read here, and within the arrays, are never made objects: a
   * walk reads hundreds.
   */
  findNth(hashes: Uint32Array, k: number, near: number): number {
    const there =
      near >= 0 &&
      this.isUsed(near) &&
      this.#low[near] === hashes[2 * k] &&
      this.#high[near] === hashes[2 * k + 1];
    return there ? near : this.#findElsewhere(hashes, k);
  }

  /**
   * The row of a hash, made with zeroed columns where there was none; it becomes the most recent.
   * `near` as above.
   */
  insert(low: number, high: number, near = NONE): number {
    const found = this.findNear(low, high, near);
    if (found !== NONE) {
      this.touch(found);
      return found;
    }
    const row = this.#claim();
    this.#low[row] = low;
    this.#high[row] = high;
    this.flags[row] = 0;
    for (const column of this.columns) column[row] = 0;
    this.#place(row);
    this.#link(row);
    this.#size += 1;
    return row;
  }

  touch(row: number): void {
    if (row === this.#newest) return;
    this.#unlink(row);
    this.#link(row);
  }

  remove(row: number): void {
    this.#displace(row);
    this.#unlink(row);
    this.#older.set(row, FREE);
    this.#newer.set(row, this.#free);
    this.#free = row;
    this.#size -= 1;
  }

  /**
   * Changes budget and column count; new columns are zero. Least recent rows go where they no
   * longer fit.
   */
  resize(options: { bytesMax: number; columns: number }): void {
    this.#bytesMax = options.bytesMax;
    this.#rowsMax = rowsWithin(options.bytesMax, options.columns);
    while (this.#size > this.#rowsMax) this.#evictOldest();
    this.#wider = 0;
    const from = this.columns.length;
    if (this.#capacity > this.#rowsMax) this.#compact(this.#rowsMax);
    for (let k = from; k < options.columns; k += 1) {
      this.columns.push(new Uint32Array(this.#capacity));
    }
    this.columns.length = options.columns;
  }

  get bytesMax(): number {
    return this.#bytesMax;
  }

  /** A row for a new hash: one that was given up, else the next that has never been used. */
  #claim(): number {
    if (this.#free === NONE) {
      if (this.#isTimeToWiden()) this.#widenOne();
      if (this.#mark === this.#capacity) this.#makeRoom();
    }
    if (this.#free === NONE) return this.#mark++;
    const row = this.#free;
    this.#free = this.#newer.get(row);
    return row;
  }

  /** Sixteen times in the last eighth of the storage: more often than there are arrays. */
  #isTimeToWiden(): boolean {
    const step = this.#capacity >> 7;
    return this.#mark >= 7 * (this.#capacity >> 3) && step > 0 && this.#mark % step === 0;
  }

  #makeRoom(): void {
    const { rowsMax } = this;
    if (this.#capacity >= rowsMax) this.#evictOldest();
    else for (const full = this.#capacity; this.#capacity === full;) this.#widenOne();
  }

  /** Widens one of the arrays ahead of need: the storage has grown when all of them are as wide. */
  #widenOne(): void {
    const rows = this.#capacity;
    if (rows >= this.#rowsMax) return;
    if (this.#wider === 0) {
      this.#wider = Math.min(this.#rowsMax, rows * (rows < TWOFOLD_MAX ? 2 : 4));
      this.#widened = 0;
    }
    const wider = this.#wider;
    const column = this.#widened - OWN_ARRAYS;
    if (this.#widened === 0) this.#low = widen(this.#low, wider);
    else if (this.#widened === 1) this.#high = widen(this.#high, wider);
    else if (this.#widened === 2) this.#newer = this.#newer.widened(wider);
    else if (this.#widened === 3) this.#older = this.#older.widened(wider);
    else if (this.#widened === 4) this.flags = widen(this.flags, wider);
    else this.columns[column] = widen(this.columns[column] as Uint32Array, wider);
    this.#widened += 1;
    if (this.#widened < OWN_ARRAYS + this.columns.length) return;
    this.#wider = 0;
    this.#capacity = wider;
    if (this.#shards.length === 1) this.#rehash();
  }

  #evictOldest(): void {
    this.#onEvict(this.#oldest);
    this.remove(this.#oldest);
    this.#evictions += 1;
  }

  /** Moves all rows, from the least recent on, into fresh and smaller storage. */
  #compact(rows: number): void {
    const order: number[] = [];
    for (let row = this.#oldest; row !== NONE; row = this.#newer.get(row)) order.push(row);
    const pick = <T extends Uint32Array | Uint8Array>(from: T, to: T): T => {
      for (let k = 0; k < order.length; k += 1) to[k] = from[order[k] as number] as number;
      return to;
    };
    this.columns = this.columns.map((column) => pick(column, new Uint32Array(rows)));
    this.#low = pick(this.#low, new Uint32Array(rows));
    this.#high = pick(this.#high, new Uint32Array(rows));
    this.flags = pick(this.flags, new Uint8Array(rows));
    this.#newer = new RowRefs(rows);
    this.#older = new RowRefs(rows);
    this.#free = NONE;
    this.#newest = NONE;
    this.#oldest = NONE;
    this.#mark = order.length;
    this.#capacity = rows;
    this.#wider = 0;
    for (let row = 0; row < order.length; row += 1) this.#link(row);
    this.#rehash();
    this.#onMove(order);
  }

  /** Places all rows anew, into as many shards as so much storage takes. */
  #rehash(): void {
    const buckets = bucketsFor(this.#capacity);
    const shards = buckets > ONE_SHARD_MAX ? SHARDS : 1;
    const each = Math.ceil(buckets / shards);
    this.#shards = Array.from({ length: shards }, () => new RowRefs(each));
    this.#counts = Array.from({ length: shards }, () => 0);
    for (let row = this.#oldest; row !== NONE; row = this.#newer.get(row)) this.#place(row);
  }

  #findElsewhere(hashes: Uint32Array, k: number): number {
    return this.find(hashes[2 * k] as number, hashes[2 * k + 1] as number);
  }

  #shardOf(hash: number): number {
    return this.#shards.length === 1 ? 0 : hash >>> SHARD_SHIFT;
  }

  #place(row: number): void {
    const hash = this.#hashOf(row);
    const shard = this.#shardOf(hash);
    const count = (this.#counts[shard] as number) + 1;
    let buckets = this.#shards[shard] as RowRefs;
    if (256 * count > buckets.length * mostOf(shard)) buckets = this.#widenShard(shard);
    this.#counts[shard] = count;
    put(buckets, hash, row);
  }

  /** No further than a full table needs, unless hashes fall into one shard. */
  #widenShard(shard: number): RowRefs {
    const from = this.#shards[shard] as RowRefs;
    const wider = Math.ceil(SHARD_GROWTH * from.length);
    const most = Math.floor(bucketsFor(this.#rowsMax) / this.#shards.length);
    const to = new RowRefs(from.length < most ? Math.min(wider, most) : wider);
    for (let at = 0; at < from.length; at += 1) {
      const row = from.get(at);
      if (row !== NONE) put(to, this.#hashOf(row), row);
    }
    this.#shards[shard] = to;
    return to;
  }

  #hashOf(row: number): number {
    return mixed(this.#low[row] as number, this.#high[row] as number);
  }

  #displace(row: number): void {
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

  #link(row: number): void {
    this.#older.set(row, this.#newest);
    this.#newer.set(row, NONE);
    if (this.#newest !== NONE) this.#newer.set(this.#newest, row);
    this.#newest = row;
    if (this.#oldest === NONE) this.#oldest = row;
  }

  #unlink(row: number): void {
    const older = this.#older.get(row);
    const newer = this.#newer.get(row);
    if (older === NONE) this.#oldest = newer;
    else this.#newer.set(older, newer);
    if (newer === NONE) this.#newest = older;
    else this.#older.set(newer, older);
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

function rowsWithin(bytes: number, columns: number): number {
  const each = ROW_BYTES + 4 * columns + (REF_BYTES * 3) / 2;
  return Math.min(ROW_REFS_MAX, Math.max(8, Math.floor((bytes - SLACK_BYTES) / each)));
}

function widen<T extends Uint32Array | Uint8Array>(from: T, length: number): T {
  if (from.length >= length) return from;
  const to = (from instanceof Uint32Array ? new Uint32Array(length) : new Uint8Array(length)) as T;
  to.set(from);
  return to;
}
