// Timers that end together.

import type { Timers } from '../../../shared/runtime/timers.ts';

export class TimerSet {
  readonly #timers: Timers;
  readonly #cancels = new Set<() => void>();

  constructor(timers: Timers) {
    this.#timers = timers;
  }

  after(delayMs: number, task: () => void): void {
    const cancel = this.#timers.after(delayMs, () => {
      this.#cancels.delete(cancel);
      task();
    });
    this.#cancels.add(cancel);
  }

  cancel(): void {
    for (const cancel of this.#cancels) cancel();
    this.#cancels.clear();
  }
}
