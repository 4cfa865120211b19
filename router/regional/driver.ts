// Drives a core: one event at a time, its effects in order, one timer for its next wake. Events that come
// while effects are carried out (a connection that ends when it is aborted) wait for their turn, so the core
// never sees an event inside another.

import type { Clock } from '../../shared/runtime/clock.ts';
import type { Timers } from '../../shared/runtime/timers.ts';
import type { RouterEffect, RouterEvent } from './events.ts';

export interface CoreMachine {
  handle(event: RouterEvent, nowMs: number): readonly RouterEffect[];
  nextWakeMs(): number | null;
}

export interface DriverDeps {
  readonly core: CoreMachine;
  readonly clock: Clock;
  readonly timers: Timers;
  /** Carries one effect out. A throw is a bug of one request, not of the router. */
  readonly carry: (effect: RouterEffect) => void;
  /** The core, or an effect of this event, threw. */
  readonly onBug: (error: unknown, event: RouterEvent) => void;
}

export class CoreDriver {
  private readonly deps: DriverDeps;
  private readonly waiting: RouterEvent[] = [];
  private busy = false;
  private stopped = false;
  private wakeMs: number | null = null;
  private cancelWake: (() => void) | null = null;

  constructor(deps: DriverDeps) {
    this.deps = deps;
  }

  post(event: RouterEvent): void {
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

  stop(): void {
    this.stopped = true;
    this.cancelWake?.();
    this.cancelWake = null;
  }

  private step(event: RouterEvent): void {
    const { core, clock, carry, onBug } = this.deps;
    let effects: readonly RouterEffect[] = [];
    try {
      effects = core.handle(event, clock.nowMs());
    } catch (error) {
      onBug(error, event);
    }
    for (const effect of effects) {
      try {
        carry(effect);
      } catch (error) {
        onBug(error, event);
      }
    }
  }

  private arm(): void {
    if (this.stopped) return;
    const { core, clock, timers } = this.deps;
    const wakeMs = core.nextWakeMs();
    if (wakeMs === this.wakeMs && this.cancelWake !== null) return;
    this.cancelWake?.();
    this.cancelWake = null;
    this.wakeMs = wakeMs;
    if (wakeMs === null) return;
    this.cancelWake = timers.after(Math.max(1, wakeMs - clock.nowMs()), () => {
      this.cancelWake = null;
      this.post({ kind: 'tick' });
    });
  }
}
