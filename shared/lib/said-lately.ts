// What has been said lately: whoever is refused comes again and again, and the same words about it come once a minute.
// Bounded: where there are too many words all are forgotten, and some come sooner.

const AGAIN_MS = 60_000;
const WORDS_MAX = 1_024;

export class SaidLately {
  readonly #saidMs = new Map<string, number>();

  /** Whether the words are due; they count as said then. */
  due(words: string, nowMs: number): boolean {
    const saidMs = this.#saidMs.get(words);
    if (saidMs !== undefined && nowMs - saidMs < AGAIN_MS) return false;
    if (saidMs === undefined && this.#saidMs.size >= WORDS_MAX) this.#saidMs.clear();
    this.#saidMs.set(words, nowMs);
    return true;
  }
}
