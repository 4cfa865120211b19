// The phases that each replica goes through, as `/status` shows them over time; a copy of it is kept each second, for
// whoever asks later why a prediction was wrong.

import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { viewOf, type Fleet, type ReplicaView } from './fleet.ts';

/** ms between two looks: shorter than any phase that matters. */
const LOOK_EVERY_MS = 200;
const KEEP_EVERY_MS = 1_000;

export interface PhaseStep {
  readonly phase: string;
  /** ms since the watch began. */
  readonly atMs: number;
}

export class PhaseWatch {
  readonly #fleet: Fleet;
  readonly #keepPath: string;
  readonly #steps = new Map<string, PhaseStep[]>();
  readonly #startMs = performance.now();
  #latest: readonly ReplicaView[] = [];
  #on = true;

  constructor(fleet: Fleet, keepPath: string) {
    this.#fleet = fleet;
    this.#keepPath = keepPath;
    void this.#look();
  }

  /** Phases of a replica in order since the watch began, or since `sinceMs` of its time. */
  of(replica: string, sinceMs = 0): PhaseStep[] {
    return (this.#steps.get(replica) ?? []).filter((step) => step.atMs >= sinceMs);
  }

  /** ms since the watch began. */
  nowMs(): number {
    return performance.now() - this.#startMs;
  }

  latest(replica: string): ReplicaView | null {
    return this.#latest.find((view) => view.replica === replica) ?? null;
  }

  stop(): void {
    this.#on = false;
  }

  async #look(): Promise<void> {
    let keptMs = -Infinity;
    while (this.#on) {
      const status = await this.#fleet.status();
      if (status !== null) this.#record(viewOf(status).replicas);
      if (status !== null && this.nowMs() - keptMs >= KEEP_EVERY_MS) {
        keptMs = this.nowMs();
        appendFileSync(this.#keepPath, `${JSON.stringify({ atMs: keptMs, status })}\n`);
      }
      await sleep(LOOK_EVERY_MS);
    }
  }

  #record(replicas: readonly ReplicaView[]): void {
    this.#latest = replicas;
    for (const { replica, phase } of replicas) {
      const steps = this.#steps.get(replica) ?? [];
      if (steps.at(-1)?.phase !== phase) steps.push({ phase, atMs: this.nowMs() });
      this.#steps.set(replica, steps);
    }
  }
}

/** `loading 0.2 s → warming 61.0 s → ready 64.5 s` */
export function stepsText(steps: readonly PhaseStep[]): string {
  return steps.map((step) => `${step.phase} ${(step.atMs / 1_000).toFixed(1)} s`).join(' → ');
}

/** Whether the steps contain these phases in this order, others between them allowed. */
export function passesThrough(steps: readonly PhaseStep[], phases: readonly string[]): boolean {
  let next = 0;
  for (const step of steps) if (step.phase === phases[next]) next += 1;
  return next === phases.length;
}
