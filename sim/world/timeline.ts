// Virtual time: tasks run in order of their instant, and in order of their planning where instants are equal, so a run
// depends on nothing but its inputs.
//
// Invariants: time never goes back; a task planned in the past runs now; at most `maxPending` tasks are planned; at most
// `maxAtOnce` run without time passing, so that a core that always wants to be woken now fails the run.

export interface Planned {
  readonly atMs: number;
  readonly order: number;
  /** Null once run or cancelled. */
  task: (() => void) | null;
}

export class Timeline {
  nowMs = 0;
  /** Tasks run so far. */
  steps = 0;
  readonly #heap: Planned[] = [];
  readonly #maxPending: number;
  readonly #maxAtOnce: number;
  #order = 0;
  #atOnce = 0;

  constructor(maxPending = 1_000_000, maxAtOnce = 20_000) {
    this.#maxPending = maxPending;
    this.#maxAtOnce = maxAtOnce;
  }

  /** Runs `task` at `atMs`, or now where that has passed. */
  at(atMs: number, task: () => void): Planned {
    if (Number.isNaN(atMs)) throw new Error('a task has no instant');
    if (this.#heap.length >= this.#maxPending) throw new Error('too many tasks are planned');
    const planned: Planned = { atMs: Math.max(atMs, this.nowMs), order: this.#order++, task };
    this.#heap.push(planned);
    this.#up(this.#heap.length - 1);
    return planned;
  }

  after(delayMs: number, task: () => void): Planned {
    return this.at(this.nowMs + delayMs, task);
  }

  cancel(planned: Planned | null): void {
    if (planned !== null) planned.task = null;
  }

  /** Runs the next task; false when none is due by `untilMs`. */
  step(untilMs: number): boolean {
    for (;;) {
      const first = this.#heap[0];
      if (first === undefined || first.atMs > untilMs) return false;
      this.#pop();
      const task = first.task;
      if (task === null) continue;
      first.task = null;
      this.#atOnce = first.atMs > this.nowMs ? 0 : this.#atOnce + 1;
      if (this.#atOnce > this.#maxAtOnce) throw new Error(`time stands still at ${this.nowMs} ms`);
      this.nowMs = first.atMs;
      this.steps++;
      task();
      return true;
    }
  }

  /** Moves the clock to `untilMs` without running anything: only when `step` has returned false. */
  settle(untilMs: number): void {
    this.nowMs = Math.max(this.nowMs, untilMs);
  }

  #pop(): void {
    const last = this.#heap.pop();
    if (last === undefined || this.#heap.length === 0) return;
    this.#heap[0] = last;
    this.#down(0);
  }

  #up(start: number): void {
    const heap = this.#heap;
    let index = start;
    const moving = heap[index]!;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      const above = heap[parent]!;
      if (!before(moving, above)) break;
      heap[index] = above;
      index = parent;
    }
    heap[index] = moving;
  }

  #down(start: number): void {
    const heap = this.#heap;
    let index = start;
    const moving = heap[index]!;
    for (;;) {
      const left = 2 * index + 1;
      if (left >= heap.length) break;
      const right = left + 1;
      const child = right < heap.length && before(heap[right]!, heap[left]!) ? right : left;
      const below = heap[child]!;
      if (!before(below, moving)) break;
      heap[index] = below;
      index = child;
    }
    heap[index] = moving;
  }
}

function before(a: Planned, b: Planned): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}
