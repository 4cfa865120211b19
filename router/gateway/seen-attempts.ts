// Attempts whose contexts have been used: none is let in twice before it has expired.
//
// As many are remembered as can come in that time; beyond the bound every new one is refused: a forgotten id is a replay
// let in. A clock that is set back only makes ids be kept for longer.

/** As long as a context can be used after it was made, clocks apart included, ms. */
export const KEPT_MS = 40_000;
const SEEN_MAX = 1_000_000;

export type SeenRefusal = 'replayed' | 'too_many';

export class SeenAttempts {
  /** Ids of the last span and of the one before: together all that have not expired. */
  #seen = new Set<string>();
  #before = new Set<string>();
  #turnedMs = Number.NEGATIVE_INFINITY;

  /** Null: it is the first time, and the last. */
  use(attempt: string, wallMs: number): SeenRefusal | null {
    if (wallMs - this.#turnedMs > KEPT_MS) {
      this.#before = this.#seen;
      this.#seen = new Set();
      this.#turnedMs = wallMs;
    }
    if (this.#seen.has(attempt) || this.#before.has(attempt)) return 'replayed';
    if (this.#seen.size >= SEEN_MAX) return 'too_many';
    this.#seen.add(attempt);
    return null;
  }
}
