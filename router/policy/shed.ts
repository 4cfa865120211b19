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
/** Time constant of the pace of releases, ms of waiting. */
const PACE_MEMORY_MS = 20_000;
/** The pace is believed from so many releases or so much waiting on. */
const PACE_RELEASES = 8;
const PACE_WAITED_MS = 2_000;

export interface Outlook {
  /** Prefill ms that waits in targets. */
  readonly backlogMs: number;
  /** What goes before the request in the queue. */
  readonly ahead: { readonly requests: number; readonly prefillMs: number };
  readonly targets: number;
  /** Measured while the queue was not empty; null when it was not for long enough. */
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

/**
 * Pace of releases while others wait: what a full batch, rather than prefill, allows. Waited time over
 * releases, both forgotten with the same time constant: releases come in bursts, when a batch ends, and
 * neither the gap before a burst nor the one inside it is the pace. Each queue is measured anew: the last
 * one may have been of quite other requests.
 */
export class ReleasePace {
  #releases = 0;
  #waitedMs = 0;
  /** Up to when time is counted; null while nobody waits. */
  #countedMs: number | null = null;

  /** A first one waits: time counts from here. */
  started(nowMs: number): void {
    this.#countedMs ??= nowMs;
  }

  /** A request was released; `waiting` others still are. */
  released(waiting: number, nowMs: number): void {
    this.#count(nowMs);
    this.#releases += 1;
    if (waiting === 0) this.emptied();
  }

  /** Nobody waits any more. */
  emptied(): void {
    this.#releases = 0;
    this.#waitedMs = 0;
    this.#countedMs = null;
  }

  /** Null while too little was seen. */
  msPerRelease(nowMs: number): number | null {
    const { releases, waitedMs } = this.#at(nowMs);
    if (releases === 0 || (releases < PACE_RELEASES && waitedMs < PACE_WAITED_MS)) return null;
    return Math.min(RETRY_MAX_MS, waitedMs / releases);
  }

  #count(nowMs: number): void {
    const { releases, waitedMs } = this.#at(nowMs);
    this.#releases = releases;
    this.#waitedMs = waitedMs;
    this.#countedMs = nowMs;
  }

  #at(nowMs: number): { releases: number; waitedMs: number } {
    const passedMs = Math.max(0, nowMs - (this.#countedMs ?? nowMs));
    const kept = Math.exp(-passedMs / PACE_MEMORY_MS);
    return {
      releases: this.#releases * kept,
      waitedMs: this.#waitedMs * kept + PACE_MEMORY_MS * (1 - kept),
    };
  }
}
