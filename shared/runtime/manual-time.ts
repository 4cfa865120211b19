// Time that a test moves by hand, with timers that fire in its order.

import type { Clock } from './clock.ts';
import type { Timers } from './timers.ts';

interface Planned {
  atMs: number;
  readonly everyMs: number | null;
  readonly task: () => void;
}

export class ManualTime implements Clock, Timers {
  #nowMs = 1_000;
  readonly #planned = new Set<Planned>();

  nowMs(): number {
    return this.#nowMs;
  }

  wallMs(): number {
    return 1_800_000_000_000 + this.#nowMs;
  }

  after(delayMs: number, task: () => void): () => void {
    return this.#plan({ atMs: this.#nowMs + delayMs, everyMs: null, task });
  }

  every(intervalMs: number, task: () => void): () => void {
    return this.#plan({ atMs: this.#nowMs + intervalMs, everyMs: intervalMs, task });
  }

  /** Moves on, firing what falls due on the way. */
  advance(ms: number): void {
    const endMs = this.#nowMs + ms;
    for (let next = this.#next(endMs); next !== null; next = this.#next(endMs)) {
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      if (next.everyMs === null) this.#planned.delete(next);
      else next.atMs += next.everyMs;
      next.task();
    }
    this.#nowMs = endMs;
  }

  #plan(planned: Planned): () => void {
    this.#planned.add(planned);
    return () => this.#planned.delete(planned);
  }

  #next(endMs: number): Planned | null {
    let least: Planned | null = null;
    for (const planned of this.#planned) {
      if (planned.atMs <= endMs && (least === null || planned.atMs < least.atMs)) least = planned;
    }
    return least;
  }
}
