// How much of one turn of the event loop links may take. When a thousand agents link again at once, their snapshots are
// all readable in one turn, and whatever else the process serves would wait for all of them.
//
// Work is done at once as long as its turn has time left; what is over waits, in order, for the turns after. Whoever
// adds work stops reading what brought it, so that what waits is bounded.

/** ms of one turn: a stream's chunk waits no longer for it and the message that is over it, of 1 ms or 2, seldom 30. */
const SLICE_MS = 4;

export class LinkSlices {
  readonly #nowMs: () => number;
  readonly #waiting: (() => void)[] = [];
  #usedMs = 0;
  #scheduled = false;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Whether what comes now has to wait for a later turn. */
  get isOver(): boolean {
    return this.#usedMs >= SLICE_MS || this.#waiting.length > 0;
  }

  /** Does the work now. */
  run(work: () => void): void {
    const begunMs = this.#nowMs();
    work();
    this.#usedMs += this.#nowMs() - begunMs;
    this.#schedule();
  }

  later(work: () => void): void {
    this.#waiting.push(work);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => this.#turn());
  }

  #turn(): void {
    this.#scheduled = false;
    this.#usedMs = 0;
    const { length } = this.#waiting;
    let done = 0;
    while (done < length && this.#usedMs < SLICE_MS) {
      const begunMs = this.#nowMs();
      this.#waiting[done]?.();
      this.#usedMs += this.#nowMs() - begunMs;
      done += 1;
    }
    this.#waiting.splice(0, done);
    if (this.#usedMs > 0 || this.#waiting.length > 0) this.#schedule();
  }
}
