// Drives a core: one event at a time, its effects in order, one timer for its next wake. Events that come
// while effects are carried out (a connection that ends when it is aborted) wait for their turn, so the core
// never sees an event inside another.

import type { Clock } from './clock.ts';
import type { Timers } from './timers.ts';

export interface CoreMachine<Event, Effect> {
  handle(event: Event, nowMs: number): readonly Effect[];
  nextWakeMs(): number | null;
}

export interface DriverDeps<Event, Effect> {
  readonly core: CoreMachine<Event, Effect>;
  /** What its timer brings the core. */
  readonly tick: Event;
  readonly clock: Clock;
  readonly timers: Timers;
  /** Carries one effect out. `nowMs` is the time at which the core was asked. */
  readonly carry: (effect: Effect, nowMs: number) => void;
  /** The core, or an effect of this event, threw. Where this throws too, the process ends. */
  readonly onBug: (error: unknown, event: Event) => void;
}

/** Least delay of a wake: one named in the past cannot spin. */
const MIN_WAKE_MS = 1;

export class CoreDriver<Event, Effect> {
  private readonly deps: DriverDeps<Event, Effect>;
  private readonly waiting: Event[] = [];
  private busy = false;
  private stopped = false;
  /** Of the timer, while one stands. */
  private wakeMs = 0;
  private cancelWake: (() => void) | null = null;

  constructor(deps: DriverDeps<Event, Effect>) {
    this.deps = deps;
  }

  post(event: Event): void {
    if (this.stopped) return;
    this.waiting.push(event);
    if (this.busy) return;
    this.busy = true;
    for (let next = this.waiting.shift(); next !== undefined; next = this.waiting.shift()) {
      this.step(next);
    }
    this.busy = false;
    this.arm();
  }

  /** No event reaches the core any more. */
  stop(): void {
    this.stopped = true;
    this.cancelWake?.();
    this.cancelWake = null;
  }

  private step(event: Event): void {
    const { core, clock, carry, onBug } = this.deps;
    const nowMs = clock.nowMs();
    let effects: readonly Effect[] = [];
    try {
      effects = core.handle(event, nowMs);
    } catch (error) {
      onBug(error, event);
    }
    for (const effect of effects) {
      try {
        carry(effect, nowMs);
      } catch (error) {
        onBug(error, event);
      }
    }
  }

  /** A timer that is due before it is needed stands: one tick too many costs less than a timer at every event. */
  private arm(): void {
    if (this.stopped) return;
    const { core, clock, timers, tick } = this.deps;
    const wakeMs = core.nextWakeMs();
    if (wakeMs === null || (this.cancelWake !== null && this.wakeMs <= wakeMs)) return;
    this.cancelWake?.();
    this.wakeMs = wakeMs;
    this.cancelWake = timers.after(Math.max(MIN_WAKE_MS, wakeMs - clock.nowMs()), () => {
      this.cancelWake = null;
      this.post(tick);
    });
  }
}
