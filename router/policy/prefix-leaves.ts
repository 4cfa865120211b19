// Ends of prompts whose answers are in a target's KV cache too: exact tokens where chunks only
// estimate.
//
// Two targets that served the same prompt gave different answers, so a leaf is kept per target. The
// first holder of an end has the row of its hash; each further one has a row of its own, under a
// hash that is mixed with its slot, and the first row counts those. So one look-up says whether
// anybody holds an end at all, which for most ends is nobody or one. The first row is always more
// recent than the others: the byte budget takes it last.

import { PrefixTable } from '../../shared/lib/prefix-table.ts';
import type { PrefixLeaf } from '../../shared/protocol/messages.ts';

export interface Leaf {
  /** Exact tokens of the prompt up to here; null until its usage is known. */
  readonly promptTokens: number | null;
  readonly answerTokens: number;
}

/** Slot plus one; 0 in a first row whose holder has gone while others stay. */
const SLOT = 0;
/** Tokens plus one; 0 is unknown. */
const PROMPT = 1;
const ANSWER = 2;
/** Of a first row: how many others there are. */
const OTHERS = 3;
const COLUMNS = 4;
/** In OTHERS of a row that is not the first of its hash. */
const FURTHER = 0xffff_ffff;

export class LeafTable {
  readonly #table: PrefixTable;
  /** Leaves of each slot. */
  readonly #counts: number[] = [];

  constructor(bytesMax: number) {
    this.#table = new PrefixTable({
      bytesMax,
      columns: COLUMNS,
      onEvict: (row) => this.#forget(row),
    });
  }

  get bytes(): number {
    return this.#table.bytes;
  }

  get evictions(): number {
    return this.#table.evictions;
  }

  setBudget(bytesMax: number): void {
    this.#table.resize({ bytesMax, columns: COLUMNS });
  }

  put(slot: number, leaf: PrefixLeaf): void {
    const { hashLow: low, hashHigh: high } = leaf;
    let row = this.#table.find(low, mixed(high, slot));
    if (row < 0) row = this.#claim(slot, low, high);
    else this.#table.touch(row);
    this.#table.touch(this.first(low, high));
    this.#column(PROMPT)[row] = leaf.promptTokens === null ? 0 : leaf.promptTokens + 1;
    this.#column(ANSWER)[row] = leaf.answerTokens;
  }

  /** The first row of an end; -1 where no target holds it. */
  first(low: number, high: number): number {
    return this.#table.find(low, high);
  }

  /** The target's leaf of an end, given the end's first row; null where it holds none. */
  at(first: number, slot: number): Leaf | null {
    if (this.#column(SLOT)[first] === slot + 1) return this.#leaf(first);
    if (this.#column(OTHERS)[first] === 0) return null;
    const row = this.#table.find(this.#table.low(first), mixed(this.#table.high(first), slot));
    return row < 0 ? null : this.#leaf(row);
  }

  remove(slot: number, low: number, high: number): void {
    const first = this.first(low, high);
    if (first < 0) return;
    if (this.#column(SLOT)[first] === slot + 1) this.#drop(first);
    else if (this.#column(OTHERS)[first] !== 0) {
      const row = this.#table.find(low, mixed(high, slot));
      if (row >= 0) this.#drop(row);
    }
  }

  /** Leaves that the target has. */
  count(slot: number): number {
    return this.#counts[slot] ?? 0;
  }

  /** Of `looks` rows from `from` on, around the end, `takes` leaves of the target at most go; returns where to go on. */
  clearSome(
    slot: number,
    from: number,
    { looks, takes }: { readonly looks: number; readonly takes: number },
  ): number {
    let row = from;
    let left = takes;
    for (let k = 0; k < looks && left > 0 && this.#table.rows > 0; k += 1) {
      if (row >= this.#table.rows) row = 0;
      if (this.#table.isUsed(row) && this.#column(SLOT)[row] === slot + 1) {
        this.#drop(row);
        left -= 1;
      }
      row += 1;
    }
    return row;
  }

  of(slot: number): PrefixLeaf[] {
    return this.#rowsOf(slot).map((row) => {
      const high = this.#table.high(row);
      const first = this.#column(OTHERS)[row] !== FURTHER;
      const hashHigh = first ? high : mixed(high, slot);
      return { hashLow: this.#table.low(row), hashHigh, ...this.#leaf(row) };
    });
  }

  /** A row for a target that has none of this end: the first row where that has no holder. */
  #claim(slot: number, low: number, high: number): number {
    const first = this.#table.insert(low, high);
    const holder = this.#column(SLOT)[first];
    if (holder === slot + 1) return first;
    this.#counts[slot] = (this.#counts[slot] ?? 0) + 1;
    if (holder === 0) {
      this.#column(SLOT)[first] = slot + 1;
      return first;
    }
    this.#column(OTHERS)[first] = (this.#column(OTHERS)[first] as number) + 1;
    const row = this.#table.insert(low, mixed(high, slot));
    this.#column(SLOT)[row] = slot + 1;
    this.#column(OTHERS)[row] = FURTHER;
    return row;
  }

  #drop(row: number): void {
    const others = this.#column(OTHERS)[row] as number;
    this.#forget(row);
    if (others === FURTHER || others === 0) this.#table.remove(row);
    else this.#column(SLOT)[row] = 0;
  }

  /** The row's holder has it no longer; a first row that served for this one alone goes too. */
  #forget(row: number): void {
    const slot = (this.#column(SLOT)[row] as number) - 1;
    if (slot >= 0) this.#counts[slot] = (this.#counts[slot] ?? 1) - 1;
    if (this.#column(OTHERS)[row] !== FURTHER) return;
    const first = this.first(this.#table.low(row), mixed(this.#table.high(row), slot));
    if (first < 0) return;
    const others = (this.#column(OTHERS)[first] as number) - 1;
    this.#column(OTHERS)[first] = others;
    if (others === 0 && this.#column(SLOT)[first] === 0) this.#table.remove(first);
  }

  #leaf(row: number): Leaf {
    const prompt = this.#column(PROMPT)[row] as number;
    return {
      promptTokens: prompt === 0 ? null : prompt - 1,
      answerTokens: this.#column(ANSWER)[row] as number,
    };
  }

  #rowsOf(slot: number): number[] {
    const rows: number[] = [];
    if ((this.#counts[slot] ?? 0) === 0) return rows;
    const slots = this.#column(SLOT);
    for (let row = 0; row < this.#table.rows; row += 1) {
      if (slots[row] === slot + 1 && this.#table.isUsed(row)) rows.push(row);
    }
    return rows;
  }

  #column(k: number): Uint32Array {
    return this.#table.columns[k] as Uint32Array;
  }
}

/** Another key for each target; mixing twice gives the word back. */
function mixed(high: number, slot: number): number {
  return (high ^ Math.imul(slot + 1, 0x9e3779b1)) >>> 0;
}
