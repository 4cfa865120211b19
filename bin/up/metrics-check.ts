// What an engine's exposition says about how it was started.

import type { EngineFacts, Finding } from './facts.ts';

export function metricsFindings(metrics: string | null, kind: EngineFacts['kind']): Finding[] {
  if (metrics === null) {
    return [
      {
        missing: '/metrics',
        cost: 'its load is unknown: it is served with bounded concurrency, and the prefix index is not bounded by its KV cache',
      },
    ];
  }
  if (kind !== 'vllm') {
    return [
      {
        missing: kind === 'unknown' ? 'metrics of a known engine' : `an adapter for ${kind}`,
        cost: 'this release reads the metrics of vLLM: the load of this engine is unknown, and it is served with bounded concurrency',
      },
    ];
  }
  if (!/^vllm[:_]/m.test(metrics)) {
    return [
      {
        missing: 'engine metrics (it runs with --disable-log-stats)',
        cost: 'its load is unknown: it is served with bounded concurrency',
      },
    ];
  }
  if (!/^vllm:cache_config_info\{.*enable_prefix_caching="False"/m.test(metrics)) return [];
  return [
    {
      missing: '--enable-prefix-caching',
      cost: 'every turn of a conversation is computed again from its first token',
    },
  ];
}
