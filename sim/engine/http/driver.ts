// Runs an engine model in real time: one timer at its next event, events handed to whoever submitted the request.

import type { Clock } from '../../../shared/runtime/clock.ts';
import type { Timers } from '../../../shared/runtime/timers.ts';
import type { KvEvent } from '../kv-events.ts';
import type { EngineEvent } from '../events.ts';
import type { EngineModel, SubmitResult } from '../model.ts';
import type { EngineRequest } from '../request.ts';

export type RequestEvent = Extract<EngineEvent, { kind: 'token' | 'finished' | 'failed' }>;

export interface DriverListener {
  /** The model can generate. */
  readonly serving: () => void;
  /** A step has ended whose KV events are published. */
  readonly blocks: (events: readonly KvEvent[]) => void;
  /** A pause or a sleep has come to rest. */
  readonly rested: () => void;
  /** A shutdown is through. */
  readonly stopped: () => void;
}

export interface Submission {
  readonly request: EngineRequest;
  readonly listener: (event: RequestEvent) => void;
}

interface DriverRuntime {
  readonly clock: Clock;
  readonly timers: Timers;
}

export class EngineDriver {
  readonly model: EngineModel;
  readonly #runtime: DriverRuntime;
  readonly #listener: DriverListener;
  readonly #listeners = new Map<string, (event: RequestEvent) => void>();
  #cancelTimer: (() => void) | null = null;

  constructor(model: EngineModel, runtime: DriverRuntime, listener: DriverListener) {
    this.model = model;
    this.#runtime = runtime;
    this.#listener = listener;
  }

  nowMs(): number {
    return this.#runtime.clock.nowMs();
  }

  /** All at the present moment: nothing is heard of one before the last is in. Ends at the first that is refused. */
  submit(submissions: readonly Submission[]): SubmitResult {
    this.catchUp();
    const nowMs = this.nowMs();
    let result: SubmitResult = { ok: true };
    for (const { request, listener } of submissions) {
      result = this.model.submit(request, nowMs);
      if (!result.ok) break;
      this.#listeners.set(request.id, listener);
    }
    this.#arm();
    return result;
  }

  abort(id: string): void {
    this.#listeners.delete(id);
    this.catchUp();
    this.model.abort(id);
    this.#arm();
  }

  /** Makes a change at the present time, then goes on. */
  change(act: (nowMs: number) => readonly EngineEvent[] | void): void {
    this.catchUp();
    this.#dispatch(act(this.nowMs()) ?? []);
    this.catchUp();
    this.#arm();
  }

  /** Brings the model to the present. */
  catchUp(): void {
    this.#dispatch(this.model.advance(this.nowMs()));
  }

  stop(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    this.#listeners.clear();
  }

  #arm(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    const nextMs = this.model.nextEventMs();
    if (nextMs === null) return;
    this.#cancelTimer = this.#runtime.timers.after(Math.max(0, nextMs - this.nowMs()), () => {
      this.#cancelTimer = null;
      this.catchUp();
      this.#arm();
    });
  }

  #dispatch(events: readonly EngineEvent[]): void {
    for (const event of events) {
      if (event.kind === 'serving') this.#listener.serving();
      else if (event.kind === 'blocks') this.#listener.blocks(event.events);
      else if (event.kind === 'paused') this.#listener.rested();
      else if (event.kind === 'stopped') this.#listener.stopped();
      else if ('id' in event && event.kind !== 'preempted') {
        const listener = this.#listeners.get(event.id);
        if (event.kind !== 'token') this.#listeners.delete(event.id);
        listener?.(event);
      }
    }
  }
}
