// A core in virtual time: after each event its effects are carried out in order, then one timer waits for the
// time that it names. The shells of real processes do the same with real timers.

import type { WorldContext } from './context.ts';
import type { Planned } from './timeline.ts';

interface Core<Event, Effect> {
  handle(event: Event, nowMs: number): Effect[];
  nextWakeMs(): number | null;
}

export interface Driving<Event, Effect> {
  /** Null while the process is down: events then go nowhere. */
  core(): Core<Event, Effect> | null;
  /** What the core's timer brings it. */
  readonly tick: Event;
  carryOut(effect: Effect): void;
  /** One line of the event log. */
  describe(event: Event, effects: readonly Effect[]): string;
}

export class DrivenCore<Event, Effect> {
  readonly #context: WorldContext;
  readonly #driving: Driving<Event, Effect>;
  #wake: Planned | null = null;

  constructor(context: WorldContext, driving: Driving<Event, Effect>) {
    this.#context = context;
    this.#driving = driving;
  }

  handle(event: Event): void {
    const core = this.#driving.core();
    if (core === null) return;
    const effects = core.handle(event, this.#context.timeline.nowMs);
    for (const effect of effects) this.#driving.carryOut(effect);
    this.arm();
    this.#context.handled(this.#driving.describe(event, effects));
  }

  /** Waits for the time that the core names; for none while it is down. */
  arm(): void {
    const { timeline } = this.#context;
    timeline.cancel(this.#wake);
    const wakeMs = this.#driving.core()?.nextWakeMs() ?? null;
    const { tick } = this.#driving;
    this.#wake = wakeMs === null ? null : timeline.at(wakeMs, () => this.handle(tick));
  }
}
