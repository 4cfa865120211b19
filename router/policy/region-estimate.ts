// What the first token costs a client in a region, in ms, and how a region is drawn from such estimates.
//
//   ttft  = rtts · rtt + queue + prefillCost(u, c) + cost      rtts: 1 on a warm connection, 3 on a cold one
//   queue = (Σ waitingPrefillMs of ready replicas + Σ queuedPrefillMs of its routers + own unacknowledged) / ready replicas
//   c     = history · exp(−idle / kvLifetimeMs) where the conversation lives, else 0
//   cost  = price of a thousand tokens in ms · expected tokens / 1,000
//   draw  weight exp(−ttft / temperature)
//
// Agents' figures are the same in every router's report, so the freshest counts; a router's own queue is its own, so
// those are summed. Unknown is unknown: a region without a ready replica or without a figure has no estimate.

import { prefillMs, type CostCurve } from '../../shared/model/cost-curve.ts';

export const WARM_RTTS = 1;
/** TCP, TLS and the request itself. */
export const COLD_RTTS = 3;
/**
 * No prompt takes longer, ms, whatever curve a region tells: what one region says of itself is counted in what others are
 * asked for, and they read no greater figure.
 */
const PREFILL_MAX_MS = 3_600_000;

export interface RegionQueueInput {
  /** Ready replicas alone: others take nothing off a queue. */
  readonly readyReplicas: number;
  /** Of all ready replicas; null where none of them tells. */
  readonly waitingPrefillMs: number | null;
  /** Of each live router of the region: what it holds back. */
  readonly queuedPrefillMs: readonly number[];
  /** Sent there by this router and in no report yet. */
  readonly unacknowledgedMs: number;
  /** What a new conversation waits for KV room; null where nobody does. */
  readonly kvRoomWaitMs?: number | null;
}

/** ms until work that comes now is begun; null where that is unknown. */
export function regionQueueMs(input: RegionQueueInput): number | null {
  const { readyReplicas, waitingPrefillMs, queuedPrefillMs, unacknowledgedMs } = input;
  if (!(readyReplicas > 0) || waitingPrefillMs === null) return null;
  const queued = queuedPrefillMs.reduce((sum, each) => sum + each, 0);
  const queue = (waitingPrefillMs + queued + unacknowledgedMs) / readyReplicas;
  return Math.max(queue, input.kvRoomWaitMs ?? 0);
}

export interface TtftInput {
  readonly rttMs: number;
  readonly warm: boolean;
  readonly queueMs: number;
  readonly promptTokens: number;
  /** Expected in a KV cache of the region. */
  readonly cachedTokens: number;
  /** Of its ready replicas. */
  readonly curve: CostCurve;
  /** Price of the region, ms per thousand tokens; 0 where none is set. */
  readonly costMs: number;
  /** Tokens that the request is expected to take, prompt and answer. */
  readonly expectedTokens: number;
}

/** The parts of an estimate, as explain shows them; all ms. */
export interface TtftEstimate {
  readonly networkMs: number;
  readonly queueMs: number;
  readonly prefillMs: number;
  readonly costMs: number;
  readonly ttftMs: number;
}

export function estimateTtft(input: TtftInput): TtftEstimate {
  const cached = Math.min(Math.max(0, input.cachedTokens), input.promptTokens);
  const networkMs = (input.warm ? WARM_RTTS : COLD_RTTS) * input.rttMs;
  const asTold = prefillMs(input.curve, input.promptTokens - cached, cached);
  const prefill = Math.min(asTold, PREFILL_MAX_MS);
  const costMs = (input.costMs * input.expectedTokens) / 1_000;
  const ttftMs = networkMs + input.queueMs + prefill + costMs;
  return { networkMs, queueMs: input.queueMs, prefillMs: prefill, costMs, ttftMs };
}

/** Tokens of a conversation that its region still holds after `idleMs`. */
export function keptTokens(
  historyTokens: number,
  idleMs: number,
  kvLifetimeMs: number | null,
): number {
  if (kvLifetimeMs === null || !(kvLifetimeMs > 0)) return 0;
  return historyTokens * Math.exp(-Math.max(0, idleMs) / kvLifetimeMs);
}

/** Probability of each estimate to be drawn, in the order given; all 0 for none. */
export function regionProbabilities(
  ttftMs: readonly number[],
  temperatureMs: number,
): readonly number[] {
  const least = Math.min(...ttftMs);
  const weights = ttftMs.map((ttft) =>
    temperatureMs > 0 ? Math.exp((least - ttft) / temperatureMs) : Number(ttft === least),
  );
  const sum = weights.reduce((total, weight) => total + weight, 0);
  return weights.map((weight) => weight / sum);
}

/** An estimate between reports: what was, with the half-life, and what is. */
export class Smoothed {
  #value: number | null = null;
  #atMs = 0;
  readonly #halfLifeMs: number;

  constructor(halfLifeMs: number) {
    this.#halfLifeMs = halfLifeMs;
  }

  get value(): number | null {
    return this.#value;
  }

  /** Unknown leaves what was. */
  note(value: number | null, nowMs: number): void {
    if (value === null) return;
    const kept =
      this.#value === null ? 0 : 0.5 ** (Math.max(0, nowMs - this.#atMs) / this.#halfLifeMs);
    this.#value = kept * (this.#value ?? 0) + (1 - kept) * value;
    this.#atMs = nowMs;
  }
}
