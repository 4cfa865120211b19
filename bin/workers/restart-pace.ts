// When a worker that died is started again: at once after a long life, later and later where it dies young.
//
//   delay = 100 ms · 2^(young deaths in a row − 1), at most 10 s; a life of 60 s ends the row

export interface Restart {
  readonly delayMs: number;
  /** It dies again and again: somebody has to look. True once in a row. */
  readonly alarm: boolean;
}

const FIRST_MS = 100;
const LONGEST_MS = 10_000;
/** ms of life that end a row. */
const SETTLED_MS = 60_000;
/** Deaths in a row that are no accident. */
const LOOP = 5;

export class RestartPace {
  #row = 0;

  died(livedMs: number): Restart {
    this.#row = livedMs >= SETTLED_MS ? 1 : this.#row + 1;
    const delayMs = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(this.#row - 1, 20));
    return { delayMs, alarm: this.#row === LOOP };
  }
}
