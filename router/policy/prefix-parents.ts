// What hangs on what in the prefix index: each row's parent, the chunk before it.
//
// Chunks that come together lie in rows one after the other, each before its parent: a parent is written down
// (`row-notes.ts`), by its hash, only where it lies elsewhere, and where there is no room for that nobody knows it.
// Agents say what they like: parents may form a ring, and every walk up has a bound.

import type { PrefixTable } from '../../shared/lib/prefix-table.ts';
import { RowNotes } from '../../shared/lib/row-notes.ts';
import type { PrefixRun } from '../../shared/protocol/messages.ts';
import { HOPES, KEPT, NEXT, PARENT, ROOT } from './prefix-flags.ts';

/** Ancestors that one message may make recent: many times what an honest index has. */
const STEPS_MAX = 1_000_000;

export class PrefixParents {
  readonly #table: PrefixTable;
  /** Hashes of parents that do not lie in the next row. */
  readonly #notes: RowNotes;
  /** Left of `STEPS_MAX` for the message at hand. */
  #steps = 0;

  constructor(table: PrefixTable, bytesMax: number) {
    this.#table = table;
    this.#notes = new RowNotes(bytesMax);
  }

  get bytes(): number {
    return this.#notes.bytes;
  }

  /** Parents that found no room, ever. */
  get refused(): number {
    return this.#notes.refused;
  }

  /** The row of a row's parent; -1 where there is none, or it has gone. */
  of(row: number): number {
    const flags = this.#table.flags[row] as number;
    if ((flags & NEXT) !== 0) return row + 1;
    if ((flags & KEPT) === 0) return -1;
    return this.#table.find(this.#notes.first(row), this.#notes.second(row));
  }

  isRoot(row: number): boolean {
    return ((this.#table.flags[row] as number) & ROOT) !== 0;
  }

  set(row: number, parent: number): void {
    if (parent === row + 1) this.#note(row, NEXT);
    else this.#keep(row, this.#table.low(parent), this.#table.high(parent));
  }

  setRoot(row: number): void {
    this.#note(row, ROOT);
  }

  /** Of the first chunk of a run. */
  setTop(row: number, { depth, parentLow, parentHigh }: PrefixRun): void {
    if (depth === 0) {
      this.setRoot(row);
      return;
    }
    const parent = this.#table.find(parentLow, parentHigh);
    if (parent === row + 1) this.set(row, parent);
    else this.#keep(row, parentLow, parentHigh);
  }

  /** Another message is at hand. */
  beginMessage(): void {
    this.#steps = STEPS_MAX;
  }

  /** Ancestors of a run stay more recent than what hangs on them, no further up than they are said to be. */
  touchUp({ parentLow, parentHigh, depth }: PrefixRun): void {
    let row = depth > 0 ? this.#table.find(parentLow, parentHigh) : -1;
    for (let left = depth; row >= 0 && left > 0 && this.#steps > 0; left -= 1) {
      this.#steps -= 1;
      this.#table.touch(row);
      row = this.of(row);
    }
  }

  /** A row goes: one whose parent it was, as the next row, has it written down. */
  forget(row: number): void {
    const { flags } = this.#table;
    const before = flags[row] as number;
    if ((before & KEPT) !== 0) this.#notes.delete(row);
    flags[row] = before & HOPES;
    const child = row - 1;
    if (child < 0 || ((flags[child] as number) & NEXT) === 0) return;
    this.#keep(child, this.#table.low(row), this.#table.high(row));
  }

  /** Rows have other places, and so may their parents. */
  moved(before: readonly number[], places: ReadonlyMap<number, number>): void {
    const { flags } = this.#table;
    for (let row = 0; row < before.length; row += 1) {
      if (((flags[row] as number) & NEXT) === 0) continue;
      this.set(row, places.get((before[row] as number) + 1) ?? row);
    }
  }

  /** Another budget, and other places; -1 for rows that have gone. */
  rebuild(bytesMax: number, placeOf: (row: number) => number): void {
    const { flags } = this.#table;
    this.#notes.rebuild(bytesMax, placeOf, (row) => {
      flags[row] = (flags[row] as number) & ~KEPT;
    });
  }

  #note(row: number, flag: typeof NEXT | typeof ROOT): void {
    const { flags } = this.#table;
    const before = flags[row] as number;
    if ((before & KEPT) !== 0) this.#notes.delete(row);
    flags[row] = (before & ~PARENT) | flag;
  }

  #keep(row: number, low: number, high: number): void {
    const { flags } = this.#table;
    const kept = this.#notes.set(row, low, high) ? KEPT : 0;
    flags[row] = ((flags[row] as number) & ~PARENT) | kept;
  }
}
