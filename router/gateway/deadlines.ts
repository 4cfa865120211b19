// One coarse interval looks at every open request's deadlines, in place of a timer per chunk: a stream only
// writes down when it last moved. It runs while something is open.

import { ChurnSet } from '../../shared/lib/churn.ts';
import type { Clock } from '../../shared/runtime/clock.ts';
import type { Timers } from '../../shared/runtime/timers.ts';

/** ms; deadlines are met up to this much late. */
export const CHECK_INTERVAL_MS = 50;

export interface Watched {
  check(nowMs: number): void;
}

export class Deadlines {
  private readonly clock: Clock;
  private readonly timers: Timers;
  private readonly watched = new ChurnSet<Watched>();
  private stop: (() => void) | null = null;

  constructor(clock: Clock, timers: Timers) {
    this.clock = clock;
    this.timers = timers;
  }

  get size(): number {
    return this.watched.size;
  }

  add(item: Watched): void {
    this.watched.add(item);
    this.stop ??= this.timers.every(CHECK_INTERVAL_MS, () => {
      const now = this.clock.nowMs();
      for (const each of this.watched) each.check(now);
    });
  }

  remove(item: Watched): void {
    this.watched.delete(item);
    if (this.watched.size > 0) return;
    this.stop?.();
    this.stop = null;
  }
}
