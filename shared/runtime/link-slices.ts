// How much of one turn of the event loop bulk work may take: messages of links, and bodies that are large. When a thousand
// agents link again at once, their snapshots are all readable in one turn, and whatever else the process serves would
// wait for all of them.
//
// Work is done at once as long as its turn has time left; what is over waits for the turns after, in the order of its
// lane. Somebody waits for a body: bodies go first, and at least one message a turn goes whatever they take. Whoever
// adds work stops reading what brought it, so that what waits is bounded.

/** ms of one turn: a stream's chunk waits no longer for it and the work that is over it, of 1 to 4 ms, seldom 30. */
const SLICE_MS = 2;

/** ms of steps that are done at once, before others of the lane have their turn. */
const STEPS_MS = 1;

export type SliceLane = 'bodies' | 'links';

export class LinkSlices {
  readonly #nowMs: () => number;
  readonly #waiting: Record<SliceLane, (() => void)[]> = { bodies: [], links: [] };
  #usedMs = 0;
  #scheduled = false;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Whether what comes now has to wait for a later turn. */
  isOver(lane: SliceLane): boolean {
    const { bodies, links } = this.#waiting;
    if (this.#usedMs >= SLICE_MS || bodies.length > 0) return true;
    return lane === 'links' && links.length > 0;
  }

  /** Does the work now. */
  run(work: () => void): void {
    try {
      this.#do(work);
    } finally {
      this.#schedule();
    }
  }

  /** The work throws nothing: nobody would hear. */
  later(lane: SliceLane, work: () => void): void {
    this.#waiting[lane].push(work);
    this.#schedule();
  }

  /** Does work that can be left off, some of it in each of as many turns as it takes; resolves with what it returns. */
  inSteps<T>(lane: SliceLane, steps: Iterator<void, T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const some = (): void => {
        try {
          const untilMs = this.#nowMs() + STEPS_MS;
          do {
            const step = steps.next();
            if (step.done === true) return resolve(step.value);
          } while (this.#nowMs() < untilMs);
          this.later(lane, some);
        } catch (error) {
          reject(error as Error);
        }
      };
      if (this.isOver(lane)) this.later(lane, some);
      else this.run(some);
    });
  }

  #do(work: () => void): void {
    const begunMs = this.#nowMs();
    try {
      work();
    } finally {
      this.#usedMs += this.#nowMs() - begunMs;
    }
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => this.#turn());
  }

  #turn(): void {
    this.#scheduled = false;
    this.#usedMs = 0;
    const { bodies, links } = this.#waiting;
    this.#some(bodies);
    this.#some(links);
    if (this.#usedMs > 0 || bodies.length > 0 || links.length > 0) this.#schedule();
  }

  /** One, where there is any, and those that waited with it as long as time is left. */
  #some(waiting: (() => void)[]): void {
    const { length } = waiting;
    let done = 0;
    while (done < length && (done === 0 || this.#usedMs < SLICE_MS)) {
      this.#do(waiting[done] as () => void);
      done += 1;
    }
    waiting.splice(0, done);
  }
}
