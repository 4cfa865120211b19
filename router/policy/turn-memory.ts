// The ends of turns that replicas have lately completed, as their agents told of them (the leaves of their prefix indexes),
// so that a router knows a conversation that goes on, whichever router served it before, and how much of it an engine
// could have found again. A ring with a map over it: the oldest makes room.

import { WordPairMap } from '../../shared/lib/word-pair-map.ts';
import type { TurnEnd } from '../../shared/model/prompt.ts';

/** Turns that are remembered: at 200 a second those of 80 s, longer than τ may be. */
const TURNS = 16_384;
const NONE = -1;

type Hash = Pick<TurnEnd, 'hashLow' | 'hashHigh'>;

export interface EarlierTurn {
  /** Prompt and answer: what the KV cache held when it ended. */
  readonly tokens: number;
  readonly endedMs: number;
}

export class TurnMemory {
  readonly #slots = new WordPairMap();
  readonly #ends: (EarlierTurn & Hash)[] = [];
  #next = 0;

  ended({ hashLow, hashHigh }: Hash, { tokens, endedMs }: EarlierTurn): void {
    const old = this.#ends[this.#next];
    if (old !== undefined && this.#slots.get(old.hashLow, old.hashHigh) === this.#next) {
      this.#slots.delete(old.hashLow, old.hashHigh);
    }
    this.#ends[this.#next] = { hashLow, hashHigh, tokens, endedMs };
    this.#slots.set(hashLow, hashHigh, this.#next);
    this.#next = (this.#next + 1) % TURNS;
  }

  /** The turn that ended there, which stays. */
  look({ hashLow, hashHigh }: Hash): EarlierTurn | null {
    const slot = this.#slots.get(hashLow, hashHigh);
    return slot === NONE ? null : (this.#ends[slot] ?? null);
  }

  /** The turn that ended there; once, since a conversation goes on from it only one time. */
  take({ hashLow, hashHigh }: Hash): EarlierTurn | null {
    const slot = this.#slots.get(hashLow, hashHigh);
    if (slot === NONE) return null;
    this.#slots.delete(hashLow, hashHigh);
    return this.#ends[slot] ?? null;
  }
}
