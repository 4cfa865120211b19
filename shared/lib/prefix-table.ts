// A hash table from 64-bit hashes (two u32 words) to rows of u32 columns and a byte of flags, with a
// recency list and a byte budget: how much storage there is, and which row makes room where there is none left.
//
// Typed arrays only: no object per row, no bigint, and memory that can be counted. Where a hash is, `row-keys.ts` says;
// how recent a row is, `row-order.ts`. At the budget the least recent row makes room. Rows name each other in three
// bytes, so there are at most 16.7 million.
//
//   bytes of a row = 8 hash + 6 recency + 1 flags + 4 · columns + about 5.5 of its bucket
//
// Storage is in arrays that are widened one by one before they are full: a million rows are never moved at one stroke,
// which would hold an event loop for long.

import { RowKeys } from './row-keys.ts';
import { RowOrder } from './row-order.ts';
import { ROW_REFS_MAX } from './row-refs.ts';
import { widen } from './typed-arrays.ts';

const START_ROWS = 1_024;
const NONE = -1;
const REF_BYTES = 3;
const BUCKET_BYTES = 4;
const ROW_BYTES = 9 + 2 * REF_BYTES;
/** Of the budget, for what rounding up takes. */
const SLACK_BYTES = 64;
/** Storage grows twofold up to so many rows, then fourfold: seldom where it is much to copy. */
const TWOFOLD_MAX = 262_144;

export class PrefixTable {
  /**
   * Columns of the rows; index by row. Replaced when the table grows: read it anew after an insert.
   */
  columns: Uint32Array[];
  /** A byte of each row, the owner's, 0 in new rows; replaced as the columns are. */
  flags: Uint8Array;
  readonly #keys: RowKeys;
  readonly #order: RowOrder;
  /** Rows that there is storage for. */
  #capacity: number;
  /** Rows that there will be storage for once all arrays are as wide; 0 while none is widened. */
  #wider = 0;
  /** What is still to be widened, the next one last. */
  #narrow: (() => void)[] = [];
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
    const rowsMax = rowsWithin(options.bytesMax, options.columns);
    const rows = Math.min(START_ROWS, rowsMax);
    this.#capacity = rows;
    this.columns = Array.from({ length: options.columns }, () => new Uint32Array(rows));
    this.flags = new Uint8Array(rows);
    this.#keys = new RowKeys(rows, rowsMax);
    this.#order = new RowOrder(rows);
  }

  get size(): number {
    return this.#order.size;
  }

  /** Rows that would fit the budget. */
  get rowsMax(): number {
    return this.#keys.rowsMax;
  }

  /** Rows that are used or have been: the bound of a scan. */
  get rows(): number {
    return this.#order.mark;
  }

  /** Rows that had to make room, ever. */
  get evictions(): number {
    return this.#evictions;
  }

  get bytesMax(): number {
    return this.#bytesMax;
  }

  /** Bytes of storage that has been touched, in use or not. */
  get bytes(): number {
    return this.rows * (ROW_BYTES + 4 * this.columns.length) + this.#keys.bucketBytes;
  }

  isUsed(row: number): boolean {
    return this.#order.isUsed(row);
  }

  low(row: number): number {
    return this.#keys.low[row] as number;
  }

  high(row: number): number {
    return this.#keys.high[row] as number;
  }

  /** The row of a hash, or -1. */
  find(low: number, high: number): number {
    return this.#keys.find(low, high);
  }

  /** The same for a hash that is probably in row `near`: rows that are made together lie together. */
  findNear(low: number, high: number, near: number): number {
    const keys = this.#keys;
    const there =
      near >= 0 && this.isUsed(near) && keys.low[near] === low && keys.high[near] === high;
    return there ? near : this.find(low, high);
  }

  /**
   * The same for the k-th of many hashes. Words that are read here, and within the arrays, are never made objects: a
   * walk reads hundreds.
   */
  findNth(hashes: Uint32Array, k: number, near: number): number {
    const keys = this.#keys;
    const there =
      near >= 0 &&
      this.isUsed(near) &&
      keys.low[near] === hashes[2 * k] &&
      keys.high[near] === hashes[2 * k + 1];
    return there ? near : this.#findElsewhere(hashes, k);
  }

  /** These hashes are looked for next. */
  fetch(hashes: Uint32Array): void {
    this.#keys.fetch(hashes);
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
    this.flags[row] = 0;
    for (const column of this.columns) column[row] = 0;
    this.#keys.add(row, low, high);
    this.#order.link(row);
    return row;
  }

  touch(row: number): void {
    this.#order.touch(row);
  }

  remove(row: number): void {
    this.#keys.remove(row);
    this.#order.remove(row);
  }

  /**
   * Changes budget and column count; new columns are zero. Least recent rows go where they no
   * longer fit.
   */
  resize(options: { bytesMax: number; columns: number }): void {
    this.#bytesMax = options.bytesMax;
    const rowsMax = rowsWithin(options.bytesMax, options.columns);
    this.#keys.rowsMax = rowsMax;
    while (this.size > rowsMax) this.#evictOldest();
    this.#wider = 0;
    const from = this.columns.length;
    if (this.#capacity > rowsMax) this.#compact(rowsMax);
    for (let k = from; k < options.columns; k += 1) {
      this.columns.push(new Uint32Array(this.#capacity));
    }
    this.columns.length = options.columns;
  }

  /** A row for a new hash. */
  #claim(): number {
    const order = this.#order;
    if (!order.hasFree) {
      if (this.#isTimeToWiden()) this.#widenOne();
      if (order.mark === this.#capacity) this.#makeRoom();
    }
    return order.claim();
  }

  /** Sixteen times in the last eighth of the storage: more often than there are arrays. */
  #isTimeToWiden(): boolean {
    const step = this.#capacity >> 7;
    return this.rows >= 7 * (this.#capacity >> 3) && step > 0 && this.rows % step === 0;
  }

  #makeRoom(): void {
    const { rowsMax } = this;
    if (this.#capacity >= rowsMax) this.#evictOldest();
    else for (const full = this.#capacity; this.#capacity === full;) this.#widenOne();
  }

  /** Widens one of the arrays ahead of need: the storage has grown when all of them are as wide. */
  #widenOne(): void {
    const rows = this.#capacity;
    if (rows >= this.rowsMax) return;
    if (this.#wider === 0) {
      this.#wider = Math.min(this.rowsMax, rows * (rows < TWOFOLD_MAX ? 2 : 4));
      this.#narrow = this.#arrays(this.#wider).reverse();
    }
    this.#narrow.pop()?.();
    if (this.#narrow.length > 0) return;
    this.#capacity = this.#wider;
    this.#wider = 0;
    if (!this.#keys.isSharded) this.#rehash();
  }

  /** Of each array what makes it so wide. */
  #arrays(rows: number): (() => void)[] {
    const keys = this.#keys;
    const order = this.#order;
    return [
      () => keys.widenLow(rows),
      () => keys.widenHigh(rows),
      () => order.widenNewer(rows),
      () => order.widenOlder(rows),
      () => (this.flags = widen(this.flags, rows)),
      ...this.columns.map((_, k) => () => {
        this.columns[k] = widen(this.columns[k] as Uint32Array, rows);
      }),
    ];
  }

  #evictOldest(): void {
    const { oldest } = this.#order;
    this.#onEvict(oldest);
    this.remove(oldest);
    this.#evictions += 1;
  }

  /** Moves all rows, from the least recent on, into fresh and smaller storage. */
  #compact(rows: number): void {
    const keys = this.#keys;
    const order: number[] = [];
    this.#order.forEach((row) => order.push(row));
    const pick = <T extends Uint32Array | Uint8Array>(from: T, to: T): T => {
      for (let k = 0; k < order.length; k += 1) to[k] = from[order[k] as number] as number;
      return to;
    };
    this.columns = this.columns.map((column) => pick(column, new Uint32Array(rows)));
    keys.low = pick(keys.low, new Uint32Array(rows));
    keys.high = pick(keys.high, new Uint32Array(rows));
    this.flags = pick(this.flags, new Uint8Array(rows));
    this.#order.refill(order.length, rows);
    this.#capacity = rows;
    this.#wider = 0;
    this.#rehash();
    this.#onMove(order);
  }

  /** Places all rows anew, into as many shards as so much storage takes. */
  #rehash(): void {
    this.#keys.clear(this.#capacity);
    this.#order.forEach((row) => this.#keys.place(row));
  }

  #findElsewhere(hashes: Uint32Array, k: number): number {
    return this.find(hashes[2 * k] as number, hashes[2 * k + 1] as number);
  }
}

function rowsWithin(bytes: number, columns: number): number {
  const each = ROW_BYTES + 4 * columns + (BUCKET_BYTES * 4) / 3;
  return Math.min(ROW_REFS_MAX, Math.max(8, Math.floor((bytes - SLACK_BYTES) / each)));
}
