// Whether a request may wait at all.
//
//   by work = (backlog + queued ahead, the other routers' too) / (ready targets − what comes ahead meanwhile)
//   by pace = requests ahead · ms per release / (1 − releases of what comes ahead meanwhile)
//   wait    = the longer of the two
//
// It may while the wait is within the limit, and while wait, prefill and answer are within the client's deadline. Of the
// limit, those who come for the first time leave what is kept for those who were told to come back (`promises.ts`).

import type { DecisionReason } from '../../shared/model/decision.ts';
import type { RegionalSettings } from '../../shared/model/settings.ts';
import type { InflowRate } from './inflow.ts';
import { RETRY_MAX_MS } from './promises.ts';

/** Time constant of the pace of releases, ms of waiting. */
const PACE_MEMORY_MS = 20_000;
/** The pace is believed from so many releases or so much waiting on. */
const PACE_RELEASES = 8;
const PACE_WAITED_MS = 2_000;
/** Part of the capacity that is left to a request, however much comes ahead of it. */
const LEFT_MIN = 0.05;
/** Of the wait limit, kept for those who were told to come back at most. */
const KEPT_MAX = 0.25;

export interface Outlook {
  /** Prefill ms that waits in targets. */
  readonly backlogMs: number;
  /** What goes before the request in the queue. */
  readonly ahead: { readonly requests: number; readonly prefillMs: number };
  /** Prefill ms that goes before it in other routers' queues. */
  readonly othersMs: number;
  readonly targets: number;
  /** What comes meanwhile and goes before it: to this router, and of the work to all of them. */
  readonly inflow: InflowRate;
  /** Measured while the queue was not empty; null when it was not for long enough. */
  readonly msPerRelease: number | null;
  /** Expected time until a target is ready, where none is. */
  readonly etaMs: number;
}

export function predictedWaitMs(outlook: Outlook): number {
  const { ahead, inflow, msPerRelease } = outlook;
  const targets = Math.max(1, outlook.targets);
  const work = outlook.backlogMs + ahead.prefillMs + outlook.othersMs;
  const byWork = work / Math.max(LEFT_MIN * targets, targets - inflow.workPerMs);
  const paceMs = msPerRelease ?? 0;
  const byPace = (ahead.requests * paceMs) / Math.max(LEFT_MIN, 1 - inflow.requestsPerMs * paceMs);
  return outlook.etaMs + Math.max(byWork, byPace);
}

export type ShedSettings = Pick<
  RegionalSettings,
  'queueMaxRequests' | 'queueMaxBytes' | 'queueMaxWaitMs'
>;

export interface ShedInput {
  readonly waitMs: number;
  readonly prefillMs: number;
  /** From the first token to the end, where the client sees nothing before the end; else 0. */
  readonly answerMs: number;
  /** Wait that is kept for others, who were told to come about now. */
  readonly keptMs: number;
  readonly clientLeftMs: number | null;
  readonly queue: { readonly requests: number; readonly bytes: number };
  readonly bytes: number;
}

/** Null when it may wait. `queue_full` can be answered by giving up a less urgent one. */
export function shedReason(input: ShedInput, settings: ShedSettings): DecisionReason | null {
  const limitMs =
    settings.queueMaxWaitMs - Math.min(input.keptMs, KEPT_MAX * settings.queueMaxWaitMs);
  if (input.waitMs > limitMs) return 'wait_limit';
  const neededMs = input.waitMs + input.prefillMs + input.answerMs;
  if (input.clientLeftMs !== null && neededMs > input.clientLeftMs) return 'deadline_unreachable';
  if (input.queue.requests + 1 > settings.queueMaxRequests) return 'queue_full';
  if (input.queue.bytes + input.bytes > settings.queueMaxBytes) return 'queue_full';
  return null;
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
