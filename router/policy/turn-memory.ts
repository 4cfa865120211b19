// The ends of turns that this router has lately seen completed, so that it knows a conversation that goes on and how much
// of it an engine could have found again. A ring with a map over it: the oldest makes room.

import { WordPairMap } from '../../shared/lib/word-pair-map.ts';
import type { TurnEnd } from '../../shared/model/prompt.ts';

/** Turns that are remembered: at 100 a second, those of nearly three minutes. */
const TURNS = 16_384;
const NONE = -1;

export interface EarlierTurn {
  /** Prompt and answer: what the KV cache held when it ended. */
  readonly tokens: number;
  readonly endedMs: number;
}

type Hash = Pick<TurnEnd, 'hashLow' | 'hashHigh'>;

export class TurnMemory {
  readonly #slots = new WordPairMap();
  readonly #turns: (EarlierTurn & Hash)[] = [];
  #next = 0;

  remember(end: Hash, turn: EarlierTurn): void {
    const { hashLow, hashHigh } = end;
    const old = this.#turns[this.#next];
    if (old !== undefined && this.#slots.get(old.hashLow, old.hashHigh) === this.#next) {
      this.#slots.delete(old.hashLow, old.hashHigh);
    }
    const { tokens, endedMs } = turn;
    this.#turns[this.#next] = { hashLow, hashHigh, tokens, endedMs };
    this.#slots.set(hashLow, hashHigh, this.#next);
    this.#next = (this.#next + 1) % TURNS;
  }

  /** The turn that ended there, once: a conversation goes on from it only one time. */
  take(end: Hash): EarlierTurn | null {
    const slot = this.#slots.get(end.hashLow, end.hashHigh);
    if (slot === NONE) return null;
    this.#slots.delete(end.hashLow, end.hashHigh);
    return this.#turns[slot] ?? null;
  }
}
