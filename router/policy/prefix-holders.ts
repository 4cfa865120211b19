// Who holds a row of the prefix index: two sets of targets, `held`, what an agent reported, and `hoped`, what this router
// has sent there since and no agent has confirmed yet.
//
// Most rows have one or two holders, so a row's size does not grow with the number of targets (`holder-sets.ts`). A row
// has one word: its holders, or, where nobody is said to hold it, its hopes. Hopes beside holders are written down
// (`row-notes.ts`), and given up where there is no room for them.

import { HolderSets } from '../../shared/lib/holder-sets.ts';
import type { PrefixTable } from '../../shared/lib/prefix-table.ts';
import { RowNotes } from '../../shared/lib/row-notes.ts';
import { HOPED, HOPES, WISHED } from './prefix-flags.ts';

/** The column of holders; of a row that nobody is said to hold, of those that are expected to. */
export const TARGETS = 0;
export const COLUMNS = 1;

interface HolderBudgets {
  /** Of the sets of rows that more than two targets hold. */
  readonly setBytes: number;
  /** Of hopes beside holders. */
  readonly hopeBytes: number;
}

export class PrefixHolders {
  readonly sets: HolderSets;
  readonly #table: PrefixTable;
  /** Words of `sets`: targets that are expected to hold a row that others hold. */
  readonly #hopes: RowNotes;
  /** Rows that a target is said to hold, and expected to without that; by slot. */
  readonly #heldRows: number[] = [];
  readonly #hopedRows: number[] = [];
  #setBytes: number;

  constructor(table: PrefixTable, budgets: HolderBudgets) {
    this.#table = table;
    this.#setBytes = budgets.setBytes;
    this.sets = new HolderSets(budgets.setBytes);
    this.#hopes = new RowNotes(budgets.hopeBytes);
  }

  get bytes(): number {
    return this.sets.bytes + this.#hopes.bytes;
  }

  /** Holders that found no room, ever. */
  get refused(): number {
    return this.sets.refused + this.#hopes.refused;
  }

  /** Rows that the target is said to hold. */
  rowsHeld(slot: number): number {
    return this.#heldRows[slot] ?? 0;
  }

  hasRows(slot: number): boolean {
    return this.rowsHeld(slot) > 0 || (this.#hopedRows[slot] ?? 0) > 0;
  }

  isEmpty(row: number): boolean {
    return this.#words()[row] === 0;
  }

  /** The word of hopes that are written down for a row. */
  noted(row: number): number {
    return ((this.#table.flags[row] as number) & HOPED) === 0 ? 0 : this.#hopes.first(row);
  }

  /** Whether there was room. */
  hold(row: number, slot: number): boolean {
    if (this.#isAloneIn(row, slot, WISHED)) {
      this.#flag(row, 0);
      this.#countHope(slot, -1);
      this.#countHeld(slot, 1);
      return true;
    }
    const before = this.#heldOf(row);
    if (this.sets.has(before, slot)) return true;
    const after = this.sets.add(before, slot);
    if (!this.sets.has(after, slot)) return false;
    this.unhope(row, slot);
    this.#set(row, after, this.#hopedOf(row));
    this.#countHeld(slot, 1);
    return true;
  }

  unhold(row: number, slot: number): void {
    if (this.#isAloneIn(row, slot, 0)) {
      this.#words()[row] = 0;
      this.#countHeld(slot, -1);
      return;
    }
    const before = this.#heldOf(row);
    if (!this.sets.has(before, slot)) return;
    this.#set(row, this.sets.remove(before, slot), this.#hopedOf(row));
    this.#countHeld(slot, -1);
  }

  /** Whether there was room. What a target is said to hold needs no hope. */
  hope(row: number, slot: number): boolean {
    if (this.isEmpty(row)) {
      const word = this.sets.add(0, slot);
      if (word === 0) return false;
      this.#words()[row] = word;
      this.#flag(row, WISHED);
      this.#countHope(slot, 1);
      return true;
    }
    const held = this.#heldOf(row);
    const before = this.#hopedOf(row);
    if (this.sets.has(held, slot) || this.sets.has(before, slot)) return true;
    const after = this.sets.add(before, slot);
    if (!this.sets.has(after, slot)) return false;
    this.#countHope(slot, 1);
    this.#set(row, held, after);
    return true;
  }

  unhope(row: number, slot: number): void {
    const before = this.#hopedOf(row);
    if (!this.sets.has(before, slot)) return;
    this.#set(row, this.#heldOf(row), this.sets.remove(before, slot));
    this.#countHope(slot, -1);
  }

  /** A row goes: its holders have a chunk less here. */
  forget(row: number): void {
    if (this.isEmpty(row)) return;
    const { flags } = this.#table;
    const held = this.#heldOf(row);
    this.sets.forEach(held, (slot) => this.#countHeld(slot, -1));
    this.sets.release(held);
    this.#giveUp(this.#hopedOf(row));
    this.#words()[row] = 0;
    const before = flags[row] as number;
    if ((before & HOPED) !== 0) this.#hopes.delete(row);
    flags[row] = before & ~HOPES;
  }

  /** Rows that the target is said to hold. Rows that are not in use name nobody. */
  rowsOf(slot: number): number[] {
    const rows: number[] = [];
    for (let row = 0; row < this.#table.rows; row += 1) {
      if (this.sets.has(this.#heldOf(row), slot)) rows.push(row);
    }
    return rows;
  }

  /** Whether the target is said or expected to hold the row. */
  names(row: number, slot: number): boolean {
    const word = this.#words()[row] as number;
    return word !== 0 && (this.sets.has(word, slot) || this.sets.has(this.noted(row), slot));
  }

  /** Bit sets for so many targets, within the budget: rows whose set finds no room any more are to be removed. */
  reshape(targets: number, remove: (row: number) => void, setBytes = this.#setBytes): void {
    this.#setBytes = setBytes;
    const most = this.sets.placesWithin(targets, setBytes);
    const fits = (word: number): boolean => this.sets.placeOf(word) < most;
    const words = this.#words();
    for (let row = 0; row < this.#table.rows; row += 1) {
      if (!fits(words[row] as number) || !fits(this.noted(row))) remove(row);
    }
    this.sets.reshape(targets, setBytes);
  }

  /** Another budget of hopes, and other places; -1 for rows that have gone. */
  rebuild(hopeBytes: number, placeOf: (row: number) => number): void {
    const { flags } = this.#table;
    this.#hopes.rebuild(hopeBytes, placeOf, (row, hoped) => {
      flags[row] = (flags[row] as number) & ~HOPED;
      this.#giveUp(hoped);
    });
  }

  /** The target is all that a row names: as a holder, or with `WISHED` as a hope. */
  #isAloneIn(row: number, slot: number, as: 0 | typeof WISHED): boolean {
    const hopes = (this.#table.flags[row] as number) & HOPES;
    return hopes === as && this.sets.isOnly(this.#words()[row] as number, slot);
  }

  #flag(row: number, hopes: 0 | typeof WISHED): void {
    const { flags } = this.#table;
    flags[row] = ((flags[row] as number) & ~HOPES) | hopes;
  }

  #heldOf(row: number): number {
    const wished = ((this.#table.flags[row] as number) & WISHED) !== 0;
    return wished ? 0 : (this.#words()[row] as number);
  }

  #hopedOf(row: number): number {
    const wished = ((this.#table.flags[row] as number) & WISHED) !== 0;
    return wished ? (this.#words()[row] as number) : this.noted(row);
  }

  /** Hopes that would have to be written down and find no room are given up. */
  #set(row: number, held: number, hoped: number): void {
    const { flags } = this.#table;
    const before = flags[row] as number;
    const wished = held === 0 && hoped !== 0;
    this.#words()[row] = wished ? hoped : held;
    let noted = false;
    if (held !== 0 && hoped !== 0) {
      noted = this.#hopes.set(row, hoped, 0);
      if (!noted) this.#giveUp(hoped);
    } else if ((before & HOPED) !== 0) this.#hopes.delete(row);
    flags[row] = (before & ~HOPES) | (wished ? WISHED : 0) | (noted ? HOPED : 0);
  }

  #giveUp(hoped: number): void {
    this.sets.forEach(hoped, (slot) => this.#countHope(slot, -1));
    this.sets.release(hoped);
  }

  #countHeld(slot: number, more: 1 | -1): void {
    this.#heldRows[slot] = this.rowsHeld(slot) + more;
  }

  #countHope(slot: number, more: 1 | -1): void {
    this.#hopedRows[slot] = (this.#hopedRows[slot] ?? 0) + more;
  }

  #words(): Uint32Array {
    return this.#table.columns[TARGETS] as Uint32Array;
  }
}
