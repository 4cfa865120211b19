// Whether a request may wait at all, and what a client is told that may not.
//
//   wait = max((backlog + queued prefill ahead) / ready targets, requests ahead · ms per release)
//
// Retry-After is the predicted drain, 1 to 60 s, plus jitter so that those turned away do not come
// back together.

import type { Random } from '../../shared/lib/random.ts';
import type { DecisionReason } from '../../shared/model/decision.ts';
import type { RegionalSettings } from '../../shared/model/settings.ts';

const RETRY_MIN_MS = 1_000;
const RETRY_MAX_MS = 60_000;
const JITTER = 0.25;

export interface Outlook {
  /** Prefill ms that waits in targets. */
  readonly backlogMs: number;
  /** What goes before the request in the queue. */
  readonly ahead: { readonly requests: number; readonly prefillMs: number };
  readonly targets: number;
  /** Measured while the queue was not empty; null when it was not. */
  readonly msPerRelease: number | null;
  /** Expected time until a target is ready, where none is. */
  readonly etaMs: number;
}

export function predictedWaitMs(outlook: Outlook): number {
  const byWork = (outlook.backlogMs + outlook.ahead.prefillMs) / Math.max(1, outlook.targets);
  const byPace = outlook.ahead.requests * (outlook.msPerRelease ?? 0);
  return outlook.etaMs + Math.max(byWork, byPace);
}

export type ShedSettings = Pick<
  RegionalSettings,
  'queueMaxRequests' | 'queueMaxBytes' | 'queueMaxWaitMs'
>;

export interface ShedInput {
  readonly waitMs: number;
  readonly prefillMs: number;
  readonly clientLeftMs: number | null;
  readonly queue: { readonly requests: number; readonly bytes: number };
  readonly bytes: number;
}

/** Null when it may wait. `queue_full` can be answered by giving up a less urgent one. */
export function shedReason(input: ShedInput, settings: ShedSettings): DecisionReason | null {
  if (input.waitMs > settings.queueMaxWaitMs) return 'wait_limit';
  const left = input.clientLeftMs;
  if (left !== null && input.waitMs + input.prefillMs > left) return 'deadline_unreachable';
  if (input.queue.requests + 1 > settings.queueMaxRequests) return 'queue_full';
  if (input.queue.bytes + input.bytes > settings.queueMaxBytes) return 'queue_full';
  return null;
}

/** ms until a retry makes sense. */
export function retryAfterMs(drainMs: number, random: Random): number {
  const within = Math.min(RETRY_MAX_MS, Math.max(RETRY_MIN_MS, drainMs));
  return Math.min(RETRY_MAX_MS, within * (1 + JITTER * random.next()));
}

/** Pace of releases while others wait: what a full batch, rather than prefill, allows. */
export class ReleasePace {
  #msPerRelease: number | null = null;
  #lastMs: number | null = null;

  /** A request was released; `waiting` others still are. */
  released(waiting: number, nowMs: number): void {
    if (this.#lastMs !== null) {
      const interval = nowMs - this.#lastMs;
      this.#msPerRelease =
        this.#msPerRelease === null ? interval : 0.9 * this.#msPerRelease + 0.1 * interval;
    }
    this.#lastMs = waiting > 0 ? nowMs : null;
  }

  /** A first one waits: time counts from here. */
  started(nowMs: number): void {
    this.#lastMs ??= nowMs;
  }

  /** Null before the first release; a pause longer than the mean counts at once. */
  msPerRelease(nowMs: number): number | null {
    if (this.#lastMs === null || this.#msPerRelease === null) return this.#msPerRelease;
    return Math.max(this.#msPerRelease, Math.min(nowMs - this.#lastMs, RETRY_MAX_MS));
  }
}
