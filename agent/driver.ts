// Drives an agent's core: one event after the other, effects carried out in order, one timer for the next wake-up.
// An effect that leads to another event at once waits its turn, so that the core is never entered twice.

import type { Clock } from '../shared/runtime/clock.ts';
import type { Timers } from '../shared/runtime/timers.ts';
import type { AgentEffect, AgentEvent } from './events.ts';

export interface DrivenCore {
  handle(event: AgentEvent, nowMs: number): AgentEffect[];
  nextWakeMs(): number | null;
}

export interface DriverOptions {
  readonly core: DrivenCore;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly carryOut: (effect: AgentEffect, nowMs: number) => void;
}

/** Least delay of a wake-up: a wake-up named in the past cannot spin. */
const MIN_WAKE_MS = 1;

export class Driver {
  readonly #options: DriverOptions;
  readonly #waiting: AgentEvent[] = [];
  #busy = false;
  #stopped = false;
  #cancelWake: () => void = () => undefined;

  constructor(options: DriverOptions) {
    this.#options = options;
  }

  deliver(event: AgentEvent): void {
    if (this.#stopped) return;
    this.#waiting.push(event);
    if (this.#busy) return;
    this.#busy = true;
    try {
      for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
        this.#step(next);
      }
    } finally {
      this.#busy = false;
    }
    this.#arm();
  }

  /** No event reaches the core any more. */
  stop(): void {
    this.#stopped = true;
    this.#cancelWake();
  }

  #step(event: AgentEvent): void {
    const { core, clock, carryOut } = this.#options;
    const nowMs = clock.nowMs();
    for (const effect of core.handle(event, nowMs)) carryOut(effect, nowMs);
  }

  #arm(): void {
    const { core, clock, timers } = this.#options;
    this.#cancelWake();
    const wakeMs = core.nextWakeMs();
    if (this.#stopped || wakeMs === null) return;
    const delayMs = Math.max(MIN_WAKE_MS, wakeMs - clock.nowMs());
    this.#cancelWake = timers.after(delayMs, () => this.deliver({ kind: 'tick' }));
  }
}
