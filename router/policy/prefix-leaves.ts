// Ends of prompts whose answers are in a target's KV cache too: exact tokens where chunks only
// estimate.
//
// One row per leaf and target: two targets that served the same prompt gave different answers.

import { PrefixTable } from '../../shared/lib/prefix-table.ts';
import type { PrefixLeaf } from '../../shared/protocol/messages.ts';

export interface Leaf {
  /** Exact tokens of the prompt up to here; null until its usage is known. */
  readonly promptTokens: number | null;
  readonly answerTokens: number;
}

const SLOT = 0;
/** Tokens plus one; 0 is unknown. */
const PROMPT = 1;
const ANSWER = 2;
const COLUMNS = 3;

export class LeafTable {
  readonly #table: PrefixTable;

  constructor(bytesMax: number) {
    this.#table = new PrefixTable({ bytesMax, columns: COLUMNS });
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
    const row = this.#table.insert(leaf.hashLow, mixed(leaf.hashHigh, slot));
    this.#column(SLOT)[row] = slot;
    this.#column(PROMPT)[row] = leaf.promptTokens === null ? 0 : leaf.promptTokens + 1;
    this.#column(ANSWER)[row] = leaf.answerTokens;
  }

  get(slot: number, low: number, high: number): Leaf | null {
    const row = this.#table.find(low, mixed(high, slot));
    return row < 0 ? null : this.#leaf(row);
  }

  remove(slot: number, low: number, high: number): void {
    const row = this.#table.find(low, mixed(high, slot));
    if (row >= 0) this.#table.remove(row);
  }

  clear(slot: number): void {
    for (const row of this.#rowsOf(slot)) this.#table.remove(row);
  }

  of(slot: number): PrefixLeaf[] {
    return this.#rowsOf(slot).map((row) => ({
      hashLow: this.#table.low(row),
      hashHigh: mixed(this.#table.high(row), slot),
      ...this.#leaf(row),
    }));
  }

  #leaf(row: number): Leaf {
    const prompt = this.#column(PROMPT)[row] as number;
    return {
      promptTokens: prompt === 0 ? null : prompt - 1,
      answerTokens: this.#column(ANSWER)[row] as number,
    };
  }

  #rowsOf(slot: number): number[] {
    const slots = this.#column(SLOT);
    const rows: number[] = [];
    for (let row = 0; row < this.#table.rows; row += 1) {
      if (this.#table.isUsed(row) && slots[row] === slot) rows.push(row);
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
