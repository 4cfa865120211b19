// The engine's `/metrics` body: every `vllm:` family of a real vLLM 0.32.0, in its order, with its words, labels, types and
// number format (test/fixtures/vllm-0.32.0/metrics-*.prom), plus `process_start_time_seconds`.
//
// Families that the model has no notion of (external cache, multi-modal cache, floating point operations)
// stand at 0, as they do in an engine that does not use them. The families of the Python runtime and of the
// HTTP middleware are left out: there is neither.

import { kvCapacityTokens, type EngineProfile } from '../../profiles.ts';
import type { EngineStats, Histogram } from '../../stats.ts';

export interface ExpositionInput {
  readonly modelName: string;
  readonly profile: EngineProfile;
  readonly maxModelLen: number;
  readonly stats: EngineStats;
  /** Unix seconds. */
  readonly startTimeSeconds: number;
  /** Unix seconds at which the counters came into being. */
  readonly createdSeconds: number;
}

type Labels = Readonly<Record<string, string>>;
type Row = readonly [Labels, number];

export function renderExposition(input: ExpositionInput): string {
  const writer = new Writer(input);
  writer.family('process_start_time_seconds', 'gauge', TEXTS.startTime);
  writer.lines.push(`process_start_time_seconds ${formatFloat(input.startTimeSeconds)}`);
  writeUnused(writer);
  writeGauges(writer, input.stats);
  writeCaches(writer, input.stats);
  writeTokens(writer, input.stats);
  writeRequests(writer, input.stats);
  writeHistograms(writer, input.stats);
  writer.family('vllm:cache_config_info', 'gauge', 'Information of the LLMEngine CacheConfig');
  writer.sample('vllm:cache_config_info', cacheConfigLabels(input.profile, input.maxModelLen), 1);
  return `${writer.lines.join('\n')}\n`;
}

const TEXTS = {
  startTime: 'Start time of the process since unix epoch in seconds.',
  flops:
    'Estimated number of floating point operations per GPU (for Model Flops Utilization calculations).',
  reads:
    'Estimated number of bytes read from memory per GPU (for Model Flops Utilization calculations).',
  writes:
    'Estimated number of bytes written to memory per GPU (for Model Flops Utilization calculations).',
  byReason:
    "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting.",
  sleep:
    'Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.',
  externalQueries:
    'External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens.',
  externalHits:
    'External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.',
  cachedBySource:
    'Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.',
} as const;

function writeUnused(writer: Writer): void {
  writer.counter('vllm:estimated_flops_per_gpu', TEXTS.flops, [[{}, 0]]);
  writer.counter('vllm:estimated_read_bytes_per_gpu', TEXTS.reads, [[{}, 0]]);
  writer.counter('vllm:estimated_write_bytes_per_gpu', TEXTS.writes, [[{}, 0]]);
}

function writeGauges(writer: Writer, stats: EngineStats): void {
  const { running, waiting } = stats;
  writer.gauge('vllm:num_requests_running', 'Number of requests in model execution batches.', [
    [{}, running],
  ]);
  writer.gauge('vllm:num_requests_waiting', 'Number of requests waiting to be processed.', [
    [{}, waiting],
  ]);
  writer.gauge('vllm:num_requests_waiting_by_reason', TEXTS.byReason, [
    [{ reason: 'capacity' }, waiting],
    [{ reason: 'deferred' }, 0],
  ]);
  writer.gauge('vllm:engine_sleep_state', TEXTS.sleep, [
    [{ sleep_state: 'awake' }, 1],
    [{ sleep_state: 'weights_offloaded' }, 0],
    [{ sleep_state: 'discard_all' }, 0],
  ]);
  writer.gauge('vllm:kv_cache_usage_perc', 'KV-cache usage. 1 means 100 percent usage.', [
    [{}, stats.kvUsageRatio],
  ]);
}

function writeCaches(writer: Writer, stats: EngineStats): void {
  const tokens = 'in terms of number of';
  writer.counter('vllm:prefix_cache_queries', `Prefix cache queries, ${tokens} queried tokens.`, [
    [{}, stats.prefixCacheQueries],
  ]);
  writer.counter('vllm:prefix_cache_hits', `Prefix cache hits, ${tokens} cached tokens.`, [
    [{}, stats.prefixCacheHits],
  ]);
  writer.counter('vllm:external_prefix_cache_queries', TEXTS.externalQueries, [[{}, 0]]);
  writer.counter('vllm:external_prefix_cache_hits', TEXTS.externalHits, [[{}, 0]]);
  writer.counter('vllm:mm_cache_queries', `Multi-modal cache queries, ${tokens} queried items.`, [
    [{}, 0],
  ]);
  writer.counter('vllm:mm_cache_hits', `Multi-modal cache hits, ${tokens} cached items.`, [
    [{}, 0],
  ]);
}

function writeTokens(writer: Writer, stats: EngineStats): void {
  writer.counter('vllm:num_preemptions', 'Cumulative number of preemption from the engine.', [
    [{}, stats.preemptions],
  ]);
  writer.counter('vllm:prompt_tokens', 'Number of prefill tokens processed.', [
    [{}, stats.promptTokens],
  ]);
  writer.counter('vllm:prompt_tokens_by_source', 'Number of prompt tokens by source.', [
    [{ source: 'local_compute' }, stats.computedTokens],
    [{ source: 'local_cache_hit' }, stats.cachedTokens],
    [{ source: 'external_kv_transfer' }, 0],
  ]);
  writer.counter(
    'vllm:prompt_tokens_cached',
    'Number of cached prompt tokens (local + external).',
    [[{}, stats.cachedTokens]],
  );
  writer.counter('vllm:prompt_tokens_cached_by_source', TEXTS.cachedBySource, [
    [{ source: 'device' }, stats.prefixCacheHits],
    [{ source: 'host' }, 0],
    [{ source: 'p2p' }, 0],
    [{ source: 'disk' }, 0],
    [{ source: 'external_unspecified' }, 0],
  ]);
  writer.counter('vllm:generation_tokens', 'Number of generation tokens processed.', [
    [{}, stats.generationTokens],
  ]);
}

function writeRequests(writer: Writer, stats: EngineStats): void {
  writer.counter('vllm:request_success', 'Count of successfully processed requests.', [
    [{ finished_reason: 'stop' }, stats.finished.stop],
    [{ finished_reason: 'length' }, stats.finished.length],
    [{ finished_reason: 'abort' }, 0],
    [{ finished_reason: 'error' }, 0],
    [{ finished_reason: 'repetition' }, 0],
  ]);
  writer.counter(
    'vllm:admission_rejections',
    'Number of admission attempts rejected by a queue limit, by reason.',
    [
      [{ reason: 'max_num_queued_reqs' }, stats.queueRejections],
      [{ reason: 'max_num_queued_tokens' }, 0],
    ],
    { perEngine: false },
  );
}

function writeHistograms(writer: Writer, stats: EngineStats): void {
  const rows: readonly (readonly [string, string, Histogram])[] = [
    ['request_prompt_tokens', 'Number of prefill tokens processed.', stats.requestPromptTokens],
    [
      'request_generation_tokens',
      'Number of generation tokens processed.',
      stats.requestGenerationTokens,
    ],
    [
      'iteration_tokens_total',
      'Histogram of number of tokens per engine_step.',
      stats.iterationTokens,
    ],
    [
      'request_max_num_generation_tokens',
      'Histogram of maximum number of requested generation tokens.',
      stats.maxGenerationTokens,
    ],
    ['request_params_n', 'Histogram of the n request parameter.', stats.paramsN],
    [
      'request_params_max_tokens',
      'Histogram of the max_tokens request parameter.',
      stats.paramsMaxTokens,
    ],
    [
      'time_to_first_token_seconds',
      'Histogram of time to first token in seconds.',
      stats.timeToFirstToken,
    ],
    [
      'inter_token_latency_seconds',
      'Histogram of inter-token latency in seconds.',
      stats.interTokenLatency,
    ],
    [
      'request_time_per_output_token_seconds',
      'Histogram of time_per_output_token_seconds per request.',
      stats.timePerOutputToken,
    ],
    [
      'e2e_request_latency_seconds',
      'Histogram of e2e request latency in seconds.',
      stats.e2eLatency,
    ],
    [
      'request_queue_time_seconds',
      'Histogram of time spent in WAITING phase for request.',
      stats.queueTime,
    ],
    [
      'request_inference_time_seconds',
      'Histogram of time spent in RUNNING phase for request.',
      stats.inferenceTime,
    ],
    [
      'request_prefill_time_seconds',
      'Histogram of time spent in PREFILL phase for request.',
      stats.prefillTime,
    ],
    [
      'request_decode_time_seconds',
      'Histogram of time spent in DECODE phase for request.',
      stats.decodeTime,
    ],
    [
      'request_num_preemptions',
      'Histogram of the number of times a request was preempted.',
      stats.requestPreemptions,
    ],
    [
      'request_prefill_kv_computed_tokens',
      'Histogram of new KV tokens computed during prefill (excluding cached tokens).',
      stats.prefillComputedTokens,
    ],
  ];
  for (const [name, help, histogram] of rows) writer.histogram(`vllm:${name}`, help, histogram);
}

function cacheConfigLabels(profile: EngineProfile, maxModelLen: number): Labels {
  const block = String(profile.blockTokens);
  const capacity = kvCapacityTokens(profile);
  return {
    _block_size_resolved: 'True',
    block_size: block,
    cache_dtype: 'auto',
    cache_hit_alignment_tokens: 'None',
    effective_attention_block_size: block,
    enable_mamba_shared_prefix_checkpoint: 'False',
    enable_prefix_caching: 'True',
    engine: '0',
    gpu_memory_utilization: '0.92',
    hash_block_size: 'None',
    is_attention_free: 'False',
    kv_cache_dtype_skip_layers: '[]',
    kv_cache_layout: 'None',
    kv_cache_max_concurrency: formatFloat(capacity / maxModelLen),
    kv_cache_memory_bytes: 'None',
    kv_cache_size_tokens: String(capacity),
    kv_offloading_backend: 'native',
    kv_offloading_size: 'None',
    kv_sharing_fast_prefill: 'False',
    mamba_block_size: 'None',
    mamba_cache_dtype: 'auto',
    mamba_cache_mode: 'none',
    mamba_page_size_padded: 'None',
    mamba_ssm_cache_dtype: 'float32',
    num_cpu_blocks: 'None',
    num_gpu_blocks: String(profile.kvBlocks),
    num_gpu_blocks_override: 'None',
    prefix_cache_retention_interval: '0',
    prefix_caching_hash_algo: 'sha256',
    prefix_match_unit: 'None',
    replayssm_buffer_len: '16',
    skip_page_size_padded: 'None',
    sliding_window: 'None',
    swa_bounded_replay: 'True',
    use_kda_recoverssm: 'False',
    use_replayssm: 'False',
    user_specified_block_size: 'True',
  };
}

class Writer {
  readonly lines: string[] = [];
  readonly #perModel: Labels;
  readonly #perEngine: Labels;
  readonly #createdSeconds: number;

  constructor(input: ExpositionInput) {
    this.#perModel = { model_name: input.modelName };
    this.#perEngine = { ...this.#perModel, engine: '0' };
    this.#createdSeconds = input.createdSeconds;
  }

  family(name: string, type: string, help: string): void {
    this.lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
  }

  sample(name: string, labels: Labels, value: number): void {
    const text = Object.keys(labels)
      .toSorted()
      .map((label) => `${label}="${escapeLabel(labels[label] ?? '')}"`)
      .join(',');
    this.lines.push(`${name}{${text}} ${formatFloat(value)}`);
  }

  gauge(name: string, help: string, rows: readonly Row[]): void {
    this.family(name, 'gauge', help);
    for (const [labels, value] of rows) this.sample(name, { ...labels, ...this.#perEngine }, value);
  }

  counter(name: string, help: string, rows: readonly Row[], options = { perEngine: true }): void {
    const shared = options.perEngine ? this.#perEngine : this.#perModel;
    this.family(`${name}_total`, 'counter', help);
    for (const [labels, value] of rows) {
      this.sample(`${name}_total`, { ...labels, ...shared }, value);
    }
    this.family(`${name}_created`, 'gauge', help);
    for (const [labels] of rows) {
      this.sample(`${name}_created`, { ...labels, ...shared }, this.#createdSeconds);
    }
  }

  histogram(name: string, help: string, histogram: Histogram): void {
    this.family(name, 'histogram', help);
    const shared = this.#perEngine;
    const cumulative = histogram.cumulative();
    histogram.bounds.forEach((bound, at) => {
      this.sample(`${name}_bucket`, { le: formatFloat(bound), ...shared }, cumulative[at] ?? 0);
    });
    this.sample(`${name}_bucket`, { le: '+Inf', ...shared }, histogram.count);
    this.sample(`${name}_count`, shared, histogram.count);
    this.sample(`${name}_sum`, shared, histogram.sum);
    this.family(`${name}_created`, 'gauge', help);
    this.sample(`${name}_created`, shared, this.#createdSeconds);
  }
}

function escapeLabel(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}

/** As Python's Prometheus client writes it: `16046.0`, from 1e6 on `1.796e+09`. */
export function formatFloat(value: number): string {
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? '+Inf' : '-Inf';
  const plain = Number.isInteger(value) ? `${value}.0` : String(value);
  const dot = plain.indexOf('.');
  if (value <= 0 || dot <= 6 || plain.includes('e')) return plain;
  const digits = `${plain[0]}.${plain.slice(1, dot)}${plain.slice(dot + 1)}`.replace(/[0.]+$/, '');
  return `${digits}e+0${dot - 1}`;
}
