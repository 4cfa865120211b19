// Slots of the prefix index whose targets have begun anew or gone: what they held is taken out some rows at a time, since all
// of a full index at one stroke would hold the event loop for a tenth of a second. A slot that waits for it is nobody's.
//
// A step goes on where the one before it stopped, around all rows and leaves until the slot has none: rows may move
// meanwhile, and nothing new names a slot that is nobody's.

import type { PrefixTable } from '../../shared/lib/prefix-table.ts';
import type { PrefixHolders } from './prefix-holders.ts';
import type { LeafTable } from './prefix-leaves.ts';

/** Rows that one step looks at, and takes a slot from: half a millisecond of either. */
const LOOKS = 16_384;
const TAKES = 512;
/** Slots that may wait; past them the first one is emptied at once. */
const WAITING_MAX = 16;

interface SweptIndex {
  readonly table: PrefixTable;
  readonly holders: PrefixHolders;
  readonly leaves: LeafTable;
  /** The row no longer names the slot. */
  readonly take: (slot: number, row: number) => void;
}

export class PrefixSweep {
  readonly #index: SweptIndex;
  readonly #waiting: number[] = [];
  #row = 0;
  #leaf = 0;

  constructor(index: SweptIndex) {
    this.#index = index;
  }

  /** Returns the slots that are empty by now: one that holds little is at once. */
  add(slot: number): number[] {
    this.#waiting.push(slot);
    while (this.#waiting.length > WAITING_MAX && !this.#isEmpty()) this.#some();
    return this.step();
  }

  /** Takes out some; returns the slots that are empty by now. */
  step(): number[] {
    const empty: number[] = [];
    if (this.#waiting.length > 0 && !this.#isEmpty()) this.#some();
    while (this.#waiting.length > 0 && this.#isEmpty()) empty.push(this.#waiting.shift() as number);
    return empty;
  }

  #isEmpty(): boolean {
    const slot = this.#waiting[0] as number;
    const { holders, leaves } = this.#index;
    return !holders.hasRows(slot) && leaves.count(slot) === 0;
  }

  #some(): void {
    const slot = this.#waiting[0] as number;
    const { holders, leaves, table } = this.#index;
    let takes = 0;
    for (let looks = 0; looks < LOOKS && takes < TAKES && holders.hasRows(slot); looks += 1) {
      if (this.#row >= table.rows) this.#row = 0;
      if (holders.names(this.#row, slot)) {
        this.#index.take(slot, this.#row);
        takes += 1;
      }
      this.#row += 1;
    }
    if (holders.hasRows(slot)) return;
    this.#leaf = leaves.clearSome(slot, this.#leaf, { looks: LOOKS, takes: TAKES });
  }
}
