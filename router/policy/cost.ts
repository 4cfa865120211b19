// What it costs to send a request to a target, in ms.
//
//   wait = max(waitingPrefillMs + own unacknowledged, slotWaitMs)
//   cost = wait + prefill(u, c) + (crowding − 1)·prefill(u, c) by the pool's curve + α·outputTokens·(itl − itl_min) + λ·K/(1 − K) + preemption
//   K = min(kvUsageRatio, 0.98)
//   preemption = preemptions per s · prefill of a mean prompt · horizon
//
// wait + prefill is the predicted TTFT; the rest is what the request does to others and they to it.
// The cost of losing a cached prefix is in `prefill`, so a queue that costs more than the prefill
// elsewhere sends traffic elsewhere. A figure that nobody in the pool knows leaves its term out for
// all.

import type { RegionalSettings } from '../../shared/model/settings.ts';

const KV_USAGE_MAX = 0.98;

export type CostSettings = Pick<
  RegionalSettings,
  'outputWeight' | 'kvPressureMs' | 'preemptionHorizonMs'
>;

export interface CostInput {
  readonly waitMs: number;
  readonly prefillMs: number;
  /** Tokens that the answer is expected to have. */
  readonly outputTokens: number;
  readonly itlMs: number | null;
  /** Least ITL among the candidates. */
  readonly itlMinMs: number | null;
  /** 0..1 */
  readonly kvUsageRatio: number | null;
  readonly preemptionsPerMin: number | null;
  /** Prefill of a mean prompt on this target. */
  readonly meanPromptMs: number;
  /** What its prefill delays others behind it, in a pool so full, ms (policy/sight.ts). */
  readonly delayMs: number;
}

export function costMs(input: CostInput, settings: CostSettings): number {
  return (
    input.waitMs +
    input.prefillMs +
    input.delayMs +
    tokenTimeMs(input, settings) +
    kvPressureMs(input.kvUsageRatio, settings) +
    preemptionMs(input, settings)
  );
}

function tokenTimeMs(input: CostInput, settings: CostSettings): number {
  if (input.itlMs === null || input.itlMinMs === null) return 0;
  return settings.outputWeight * input.outputTokens * Math.max(0, input.itlMs - input.itlMinMs);
}

function kvPressureMs(kvUsageRatio: number | null, settings: CostSettings): number {
  if (kvUsageRatio === null) return 0;
  const usage = Math.min(Math.max(0, kvUsageRatio), KV_USAGE_MAX);
  return (settings.kvPressureMs * usage) / (1 - usage);
}

function preemptionMs(input: CostInput, settings: CostSettings): number {
  const { preemptionsPerMin } = input;
  if (preemptionsPerMin === null || preemptionsPerMin === 0) return 0;
  const perSecond = preemptionsPerMin / 60;
  return (perSecond * input.meanPromptMs * settings.preemptionHorizonMs) / 1_000;
}
