// What an engine's figures say about how it was started, and what its owner can change.

import type { EngineSight } from '../../agent/look.ts';
import { askQuietly } from './ask.ts';
import type { DetectOptions, Finding } from './facts.ts';

const LOAD = 'its load is unknown: it is served with bounded concurrency';

/** Every kind that has metrics counts what it generates. */
export function hasMetrics({ absent }: EngineSight): boolean {
  return !absent.includes('generationTokensTotal');
}

export async function configurationFindings(
  sight: EngineSight,
  options: DetectOptions,
): Promise<Finding[]> {
  if (!hasMetrics(sight)) return [WITHOUT_METRICS[sight.kind](tellsLoad(sight))];
  if (sight.kind !== 'vllm') return [];
  const metrics = await askQuietly('/metrics', options);
  const off = /^vllm:cache_config_info\{.*enable_prefix_caching="False"/m.test(metrics ?? '');
  return off ? [PREFIX_CACHING] : [];
}

function tellsLoad({ absent }: EngineSight): boolean {
  return !absent.includes('running') || !absent.includes('waiting');
}

const PREFIX_CACHING: Finding = {
  missing: '--enable-prefix-caching',
  cost: 'every turn of a conversation is computed again from its first token',
};

const WITHOUT_METRICS: Readonly<Record<EngineSight['kind'], (load: boolean) => Finding>> = {
  vllm: () => ({ missing: 'engine metrics (it runs with --disable-log-stats)', cost: LOAD }),
  sglang: (load) => ({
    missing: '--enable-metrics',
    cost: load
      ? 'only its load and KV cache are known: nothing of what it has computed, nor its preemptions'
      : LOAD,
  }),
  tgi: () => ({ missing: '/metrics', cost: LOAD }),
  llamacpp: (load) => ({
    missing: '--metrics',
    cost: load
      ? 'requests that wait for a slot are invisible, and so is how fast it computes'
      : LOAD,
  }),
  generic: () => ({
    missing: 'figures of an engine that Spillway knows',
    cost: 'only what routers send is known: it is served with bounded concurrency, and the prefix index is not bounded by its KV cache',
  }),
};
