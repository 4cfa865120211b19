// The `vllm:` families of a real vLLM 0.32.0: names, words, types, further labels, and which figure stands in them
// (test/fixtures/vllm-0.32.0/metrics-*.prom). In its order.
//
// Families that the model has no notion of (external cache, multi-modal cache, floating point operations)
// stand at 0, as they do in an engine that does not use them.

import type { EngineStats, Histogram } from '../../stats.ts';
import type { Labels } from './text-format.ts';

export type Row = readonly [Labels, number];

interface FamilyBase {
  /** Without `vllm:` and, of a counter, `_total`. */
  readonly name: string;
  readonly help: string;
}

export interface GaugeFamily extends FamilyBase {
  readonly type: 'gauge';
  readonly rows: (stats: EngineStats) => readonly Row[];
  /** Set when the engine starts; the others by its first step, which several front ends hear of only then. */
  readonly fromStart: boolean;
}

export interface CounterFamily extends FamilyBase {
  readonly type: 'counter';
  readonly rows: (stats: EngineStats) => readonly Row[];
  /** Rows carry the engine's number. */
  readonly perEngine: boolean;
}

export interface HistogramFamily extends FamilyBase {
  readonly type: 'histogram';
  readonly of: (stats: EngineStats) => Histogram;
}

const ZERO: readonly Row[] = [[{}, 0]];
const QUERIED = 'in terms of number of queried';
const CACHED = 'in terms of number of cached';

function counter(
  name: string,
  help: string,
  rows: (stats: EngineStats) => readonly Row[],
): CounterFamily {
  return { type: 'counter', name, help, rows, perEngine: true };
}

function unused(name: string, help: string): CounterFamily {
  return counter(name, help, () => ZERO);
}

function gauge(
  name: string,
  help: string,
  rows: (stats: EngineStats) => readonly Row[],
): GaugeFamily {
  return { type: 'gauge', name, help, rows, fromStart: false };
}

function one(value: (stats: EngineStats) => number): (stats: EngineStats) => readonly Row[] {
  return (stats) => [[{}, value(stats)]];
}

const MFU = 'per GPU (for Model Flops Utilization calculations).';

export const EFFORT: readonly CounterFamily[] = [
  unused('estimated_flops_per_gpu', `Estimated number of floating point operations ${MFU}`),
  unused('estimated_read_bytes_per_gpu', `Estimated number of bytes read from memory ${MFU}`),
  unused('estimated_write_bytes_per_gpu', `Estimated number of bytes written to memory ${MFU}`),
];

export const GAUGES: readonly GaugeFamily[] = [
  gauge(
    'num_requests_running',
    'Number of requests in model execution batches.',
    one(({ running }) => running),
  ),
  gauge(
    'num_requests_waiting',
    'Number of requests waiting to be processed.',
    one(({ waiting }) => waiting),
  ),
  gauge(
    'num_requests_waiting_by_reason',
    "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting.",
    ({ waiting, waitingDeferred }) => [
      [{ reason: 'capacity' }, waiting - waitingDeferred],
      [{ reason: 'deferred' }, waitingDeferred],
    ],
  ),
  {
    ...gauge(
      'engine_sleep_state',
      'Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.',
      ({ sleepLevel }) => [
        [{ sleep_state: 'awake' }, sleepLevel === null ? 1 : 0],
        [{ sleep_state: 'weights_offloaded' }, sleepLevel === 1 ? 1 : 0],
        [{ sleep_state: 'discard_all' }, sleepLevel === 2 ? 1 : 0],
      ],
    ),
    fromStart: true,
  },
  gauge(
    'kv_cache_usage_perc',
    'KV-cache usage. 1 means 100 percent usage.',
    one(({ kvUsageRatio }) => kvUsageRatio),
  ),
];

export const COUNTERS: readonly CounterFamily[] = [
  counter(
    'prefix_cache_queries',
    `Prefix cache queries, ${QUERIED} tokens.`,
    one(({ prefixCacheQueries }) => prefixCacheQueries),
  ),
  counter(
    'prefix_cache_hits',
    `Prefix cache hits, ${CACHED} tokens.`,
    one(({ prefixCacheHits }) => prefixCacheHits),
  ),
  unused(
    'external_prefix_cache_queries',
    `External prefix cache queries from KV connector cross-instance cache sharing, ${QUERIED} tokens.`,
  ),
  unused(
    'external_prefix_cache_hits',
    `External prefix cache hits from KV connector cross-instance cache sharing, ${CACHED} tokens.`,
  ),
  unused('mm_cache_queries', `Multi-modal cache queries, ${QUERIED} items.`),
  unused('mm_cache_hits', `Multi-modal cache hits, ${CACHED} items.`),
  counter(
    'num_preemptions',
    'Cumulative number of preemption from the engine.',
    one(({ preemptions }) => preemptions),
  ),
  counter(
    'prompt_tokens',
    'Number of prefill tokens processed.',
    one(({ promptTokens }) => promptTokens),
  ),
  counter(
    'prompt_tokens_by_source',
    'Number of prompt tokens by source.',
    ({ computedTokens, cachedTokens }) => [
      [{ source: 'local_compute' }, computedTokens],
      [{ source: 'local_cache_hit' }, cachedTokens],
      [{ source: 'external_kv_transfer' }, 0],
    ],
  ),
  counter(
    'prompt_tokens_cached',
    'Number of cached prompt tokens (local + external).',
    one(({ cachedTokens }) => cachedTokens),
  ),
  counter(
    'prompt_tokens_cached_by_source',
    'Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.',
    ({ prefixCacheHits }) => [
      [{ source: 'device' }, prefixCacheHits],
      [{ source: 'host' }, 0],
      [{ source: 'p2p' }, 0],
      [{ source: 'disk' }, 0],
      [{ source: 'external_unspecified' }, 0],
    ],
  ),
  counter(
    'generation_tokens',
    'Number of generation tokens processed.',
    one(({ generationTokens }) => generationTokens),
  ),
  counter('request_success', 'Count of successfully processed requests.', ({ finished }) => [
    [{ finished_reason: 'stop' }, finished.stop],
    [{ finished_reason: 'length' }, finished.length],
    [{ finished_reason: 'abort' }, finished.abort],
    [{ finished_reason: 'error' }, 0],
    [{ finished_reason: 'repetition' }, 0],
  ]),
  {
    ...counter(
      'admission_rejections',
      'Number of admission attempts rejected by a queue limit, by reason.',
      ({ queueRejections, queueTokenRejections }) => [
        [{ reason: 'max_num_queued_reqs' }, queueRejections],
        [{ reason: 'max_num_queued_tokens' }, queueTokenRejections],
      ],
    ),
    perEngine: false,
  },
];

function histogram(
  name: string,
  help: string,
  of: (stats: EngineStats) => Histogram,
): HistogramFamily {
  return { type: 'histogram', name, help, of };
}

export const HISTOGRAMS: readonly HistogramFamily[] = [
  histogram(
    'request_prompt_tokens',
    'Number of prefill tokens processed.',
    (stats) => stats.requestPromptTokens,
  ),
  histogram(
    'request_generation_tokens',
    'Number of generation tokens processed.',
    (stats) => stats.requestGenerationTokens,
  ),
  histogram(
    'iteration_tokens_total',
    'Histogram of number of tokens per engine_step.',
    (stats) => stats.iterationTokens,
  ),
  histogram(
    'request_max_num_generation_tokens',
    'Histogram of maximum number of requested generation tokens.',
    (stats) => stats.maxGenerationTokens,
  ),
  histogram('request_params_n', 'Histogram of the n request parameter.', (stats) => stats.paramsN),
  histogram(
    'request_params_max_tokens',
    'Histogram of the max_tokens request parameter.',
    (stats) => stats.paramsMaxTokens,
  ),
  histogram(
    'time_to_first_token_seconds',
    'Histogram of time to first token in seconds.',
    (stats) => stats.timeToFirstToken,
  ),
  histogram(
    'inter_token_latency_seconds',
    'Histogram of inter-token latency in seconds.',
    (stats) => stats.interTokenLatency,
  ),
  histogram(
    'request_time_per_output_token_seconds',
    'Histogram of time_per_output_token_seconds per request.',
    (stats) => stats.timePerOutputToken,
  ),
  histogram(
    'e2e_request_latency_seconds',
    'Histogram of e2e request latency in seconds.',
    (stats) => stats.e2eLatency,
  ),
  histogram(
    'request_queue_time_seconds',
    'Histogram of time spent in WAITING phase for request.',
    (stats) => stats.queueTime,
  ),
  histogram(
    'request_inference_time_seconds',
    'Histogram of time spent in RUNNING phase for request.',
    (stats) => stats.inferenceTime,
  ),
  histogram(
    'request_prefill_time_seconds',
    'Histogram of time spent in PREFILL phase for request.',
    (stats) => stats.prefillTime,
  ),
  histogram(
    'request_decode_time_seconds',
    'Histogram of time spent in DECODE phase for request.',
    (stats) => stats.decodeTime,
  ),
  histogram(
    'request_num_preemptions',
    'Histogram of the number of times a request was preempted.',
    (stats) => stats.requestPreemptions,
  ),
  histogram(
    'request_prefill_kv_computed_tokens',
    'Histogram of new KV tokens computed during prefill (excluding cached tokens).',
    (stats) => stats.prefillComputedTokens,
  ),
];
