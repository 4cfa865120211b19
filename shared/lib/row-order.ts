// Which rows are in use, from the least recent on, and which one is to be had next: one that was given up, else the
// next that has never been used.
//
// Two references a row: to the next newer and the next older one. Of rows that were given up `newer` names the next
// such row, and `older` says that they are free.

import { RowRefs } from './row-refs.ts';

const NONE = -1;
/** In `older` of a row that is not in use. */
const FREE = -2;

export class RowOrder {
  #newer: RowRefs;
  #older: RowRefs;
  /** Rows that were given up, the first of them first to be had again: those that went one after the other come so. */
  #free = NONE;
  #lastFree = NONE;
  /** Rows that have ever been used; those from here on have not been touched. */
  #mark = 0;
  #newest = NONE;
  #oldest = NONE;
  #size = 0;

  constructor(rows: number) {
    this.#newer = new RowRefs(rows);
    this.#older = new RowRefs(rows);
  }

  /** Rows in use. */
  get size(): number {
    return this.#size;
  }

  /** Rows that are used or have been. */
  get mark(): number {
    return this.#mark;
  }

  /** The least recent row; -1 where there is none. */
  get oldest(): number {
    return this.#oldest;
  }

  get hasFree(): boolean {
    return this.#free !== NONE;
  }

  isUsed(row: number): boolean {
    return row < this.#mark && this.#older.get(row) !== FREE;
  }

  /** A row that is used from now on, the most recent once it is linked. */
  claim(): number {
    if (this.#free === NONE) return this.#mark++;
    const row = this.#free;
    this.#free = this.#newer.get(row);
    return row;
  }

  link(row: number): void {
    this.#append(row);
    this.#size += 1;
  }

  touch(row: number): void {
    if (row === this.#newest) return;
    this.#unlink(row);
    this.#append(row);
  }

  remove(row: number): void {
    this.#unlink(row);
    this.#older.set(row, FREE);
    this.#newer.set(row, NONE);
    if (this.#free === NONE) this.#free = row;
    else this.#newer.set(this.#lastFree, row);
    this.#lastFree = row;
    this.#size -= 1;
  }

  /** From the least recent on. */
  forEach(visit: (row: number) => void): void {
    for (let row = this.#oldest; row !== NONE; row = this.#newer.get(row)) visit(row);
  }

  /** Rows 0 to `count` are in use, each more recent than the one before, of so many that there is storage for. */
  refill(count: number, rows: number): void {
    this.#newer = new RowRefs(rows);
    this.#older = new RowRefs(rows);
    this.#free = NONE;
    this.#newest = NONE;
    this.#oldest = NONE;
    this.#mark = count;
    for (let row = 0; row < count; row += 1) this.#append(row);
  }

  widenNewer(rows: number): void {
    this.#newer = this.#newer.widened(rows);
  }

  widenOlder(rows: number): void {
    this.#older = this.#older.widened(rows);
  }

  #append(row: number): void {
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
