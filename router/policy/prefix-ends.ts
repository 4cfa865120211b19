// The ends of earlier turns within a prompt that any target at all holds, looked up once for all targets: most of them
// hold equally much of a prompt, and asking for one more of those costs next to nothing.

import type { PromptChain } from '../../shared/model/prompt.ts';
import type { LeafTable } from './prefix-leaves.ts';
import type { PrefixMatch } from './prefix-match.ts';

/** Turn ends before the deepest matched chunk that are looked up as leaves. */
const TURN_ENDS_TRIED = 4;

export class PrefixEnds {
  readonly #leaves: LeafTable;
  /** What was looked up last; nothing once leaves have changed. */
  #chain: PromptChain | null = null;
  #chunks = 0;
  #count = 0;
  /** First rows of the ends, deepest first. */
  readonly #rows: number[] = [];
  readonly #offsets: number[] = [];

  constructor(leaves: LeafTable) {
    this.#leaves = leaves;
  }

  /** Leaves have changed. */
  forget(): void {
    this.#chain = null;
  }

  /** The target's deepest leaf within so many chunks of the prompt; null without one. */
  at(slot: number, chain: PromptChain, chunks: number): PrefixMatch | null {
    if (this.#chain !== chain || this.#chunks !== chunks) this.#lookUp(chain, chunks);
    for (let k = 0; k < this.#count; k += 1) {
      const leaf = this.#leaves.at(this.#rows[k] as number, slot);
      if (leaf !== null) return { chunks, leaf, leafOffset: this.#offsets[k] as number };
    }
    return null;
  }

  /** Whether any target at all has a leaf within so many chunks of the prompt. */
  some(chain: PromptChain, chunks: number): boolean {
    if (this.#chain !== chain || this.#chunks !== chunks) this.#lookUp(chain, chunks);
    return this.#count > 0;
  }

  #lookUp(chain: PromptChain, chunks: number): void {
    const { turnEnds } = chain;
    this.#chain = chain;
    this.#chunks = chunks;
    this.#count = 0;
    let tried = 0;
    for (let k = turnEnds.length - 1; k >= 0 && tried < TURN_ENDS_TRIED; k -= 1) {
      const end = turnEnds[k];
      if (end === undefined || end.chunks > chunks) continue;
      tried += 1;
      const row = this.#leaves.first(end.hashLow, end.hashHigh);
      if (row < 0) continue;
      this.#rows[this.#count] = row;
      this.#offsets[this.#count] = end.offset;
      this.#count += 1;
    }
  }
}
