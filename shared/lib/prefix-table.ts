// A hash table from 64-bit hashes (two u32 words) to rows of u32 columns, with a recency list and a
// byte budget.
//
// Typed arrays only: no object per row, no bigint, and memory that can be counted. Collisions are
// probed linearly; removal shifts back, so there are no tombstones. At the budget the least recent
// row makes room.
//
// A large table has its buckets in shards, which are widened one after the other as they fill, and
// its rows in arrays that are widened one by one before they are full: a million rows are never moved at
// one stroke, which would hold an event loop for long.

const START_ROWS = 1_024;
const NONE = -1;
/** In `older` of a row that is not in use. */
const FREE = -2;
const ROW_BYTES = 16;
/** Arrays of rows beside the columns. */
const OWN_ARRAYS = 4;
/** Storage grows twofold up to so many rows, then fourfold: seldom where it is much to copy. */
const TWOFOLD_MAX = 262_144;
/** Buckets up to which there is one shard. */
const ONE_SHARD_MAX = 65_536;
const SHARDS = 64;
/** A shard is chosen by the uppermost bits of a hash, a bucket by those from here on. */
const SHARD_SHIFT = 26;
const BUCKET_SHIFT = 5;

export class PrefixTable {
  /**
   * Columns of the rows; index by row. Replaced when the table grows: read it anew after an insert.
   */
  columns: Uint32Array[];
  #low: Uint32Array;
  #high: Uint32Array;
  #newer: Int32Array;
  #older: Int32Array;
  #shards: Int32Array[] = [];
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

  /** `onEvict` sees a row that has to make room, before it goes. */
  constructor(options: { bytesMax: number; columns: number; onEvict?: (row: number) => void }) {
    this.#onEvict = options.onEvict ?? (() => undefined);
    this.#bytesMax = options.bytesMax;
    this.#rowsMax = rowsWithin(options.bytesMax, options.columns);
    const rows = Math.min(START_ROWS, this.#rowsMax);
    this.#capacity = rows;
    this.columns = Array.from({ length: options.columns }, () => new Uint32Array(rows));
    this.#low = new Uint32Array(rows);
    this.#high = new Uint32Array(rows);
    this.#newer = new Int32Array(rows);
    this.#older = new Int32Array(rows);
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
    return this.rows * (ROW_BYTES + 4 * this.columns.length) + 4 * buckets;
  }

  isUsed(row: number): boolean {
    return row < this.#mark && this.#older[row] !== FREE;
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
    const buckets = this.#shards[this.#shardOf(hash)] as Int32Array;
    const mask = buckets.length - 1;
    for (let at = (hash >>> BUCKET_SHIFT) & mask; ; at = (at + 1) & mask) {
      const row = buckets[at] as number;
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
    this.#older[row] = FREE;
    this.#newer[row] = this.#free;
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
    this.#free = this.#newer[row] as number;
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
    else if (this.#widened === 2) this.#newer = widen(this.#newer, wider);
    else if (this.#widened === 3) this.#older = widen(this.#older, wider);
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
    for (let row = this.#oldest; row !== NONE; row = this.#newer[row] as number) order.push(row);
    const pick = (from: Uint32Array): Uint32Array => {
      const to = new Uint32Array(rows);
      for (let k = 0; k < order.length; k += 1) to[k] = from[order[k] as number] as number;
      return to;
    };
    this.columns = this.columns.map(pick);
    this.#low = pick(this.#low);
    this.#high = pick(this.#high);
    this.#newer = new Int32Array(rows);
    this.#older = new Int32Array(rows);
    this.#free = NONE;
    this.#newest = NONE;
    this.#oldest = NONE;
    this.#mark = order.length;
    this.#capacity = rows;
    this.#wider = 0;
    for (let row = 0; row < order.length; row += 1) this.#link(row);
    this.#rehash();
  }

  /** Places all rows anew, into as many shards as so much storage takes. */
  #rehash(): void {
    const buckets = bucketsFor(this.#capacity);
    const shards = buckets > ONE_SHARD_MAX ? SHARDS : 1;
    const each = buckets / shards;
    this.#shards = Array.from({ length: shards }, () => new Int32Array(each).fill(NONE));
    this.#counts = Array.from({ length: shards }, () => 0);
    for (let row = this.#oldest; row !== NONE; row = this.#newer[row] as number) this.#place(row);
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
    let buckets = this.#shards[shard] as Int32Array;
    if (256 * count > buckets.length * mostOf(shard)) buckets = this.#widenShard(shard);
    this.#counts[shard] = count;
    put(buckets, hash, row);
  }

  #widenShard(shard: number): Int32Array {
    const from = this.#shards[shard] as Int32Array;
    const to = new Int32Array(2 * from.length).fill(NONE);
    for (const row of from) if (row !== NONE) put(to, this.#hashOf(row), row);
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
    const buckets = this.#shards[shard] as Int32Array;
    const mask = buckets.length - 1;
    let hole = (hash >>> BUCKET_SHIFT) & mask;
    while (buckets[hole] !== row) hole = (hole + 1) & mask;
    for (let at = (hole + 1) & mask; ; at = (at + 1) & mask) {
      const other = buckets[at] as number;
      if (other === NONE) break;
      const home = (this.#hashOf(other) >>> BUCKET_SHIFT) & mask;
      if (((at - home) & mask) < ((at - hole) & mask)) continue;
      buckets[hole] = other;
      hole = at;
    }
    buckets[hole] = NONE;
  }

  #link(row: number): void {
    this.#older[row] = this.#newest;
    this.#newer[row] = NONE;
    if (this.#newest !== NONE) this.#newer[this.#newest] = row;
    this.#newest = row;
    if (this.#oldest === NONE) this.#oldest = row;
  }

  #unlink(row: number): void {
    const older = this.#older[row] as number;
    const newer = this.#newer[row] as number;
    if (older === NONE) this.#oldest = newer;
    else this.#newer[older] = newer;
    if (newer === NONE) this.#newest = older;
    else this.#older[newer] = older;
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

function put(buckets: Int32Array, hash: number, row: number): void {
  const mask = buckets.length - 1;
  let at = (hash >>> BUCKET_SHIFT) & mask;
  while (buckets[at] !== NONE) at = (at + 1) & mask;
  buckets[at] = row;
}

/** A power of two that keeps the load at or below two thirds. */
function bucketsFor(rows: number): number {
  let buckets = 16;
  while (buckets * 2 < rows * 3) buckets *= 2;
  return buckets;
}

function rowsWithin(bytes: number, columns: number): number {
  let best = 8;
  for (let buckets = 16; buckets * 4 < bytes; buckets *= 2) {
    const rows = Math.floor((bytes - buckets * 4) / (ROW_BYTES + 4 * columns));
    best = Math.max(best, Math.min(rows, Math.floor((buckets * 2) / 3)));
  }
  return best;
}

function widen<T extends Uint32Array | Int32Array>(from: T, length: number): T {
  if (from.length >= length) return from;
  const to = (from instanceof Uint32Array ? new Uint32Array(length) : new Int32Array(length)) as T;
  to.set(from);
  return to;
}
