// The `/metrics` body of an SGLang 0.5.18: families, words, labels, buckets and order of the real 0.5.9 body
// test/fixtures/metrics/sglang-v0.5.9-2026-04-gorgo.prom, less what later versions took out, and at its end what they added.
//
// It is always written in the multi-process layout: no start time, no `_created`, a histogram's sum before its buckets.
// Schedulers' families carry the ranks as labels, `dp_rank` only where there are several; the front end's only the model.

import type { Histogram } from '../../stats.ts';
import { formatFloat } from '../vllm/text-format.ts';
import type { SglangFrontStats, SglangGauges, SglangRankStats } from './stats.ts';

export interface SglangExpositionInput {
  readonly modelName: string;
  readonly front: SglangFrontStats;
  /** One a data-parallel rank. */
  readonly ranks: readonly SglangRankStats[];
  readonly pageSize: number;
  readonly capacityTokens: number;
  readonly contextTokens: number;
}

type Labels = Readonly<Record<string, string>>;
type Row<T> = readonly [Labels, T];

export function renderSglangExposition(input: SglangExpositionInput): string {
  const writer = new Writer(input);
  writeHttpCounts(writer, input.front);
  writeFrontCounts(writer, input.front);
  writeGauges(writer, input);
  writeRoutingKeys(writer);
  writeActive(writer, input.front);
  writeHistograms(writer, input);
  writeLater(writer, input);
  return `${writer.lines.join('\n')}\n`;
}

function writeHttpCounts(writer: Writer, front: SglangFrontStats): void {
  const requests = [...front.httpRequests.values()];
  writer.counter(
    ['http_requests_total', 'Total number of HTTP requests by endpoint and method'],
    requests.map(({ endpoint, method, count }) => [{ endpoint, method }, count]),
  );
  writer.counter(
    ['http_responses_total', 'Total number of HTTP responses by endpoint and status code'],
    [...front.httpResponses.values()].map(({ endpoint, method, status, count }) => [
      { endpoint, method, status_code: String(status) },
      count,
    ]),
  );
}

function writeFrontCounts(writer: Writer, front: SglangFrontStats): void {
  if (front.requests === 0) return;
  const rows: readonly (readonly [string, string, number])[] = [
    ['prompt_tokens_total', 'Number of prefill tokens processed.', front.promptTokens],
    ['generation_tokens_total', 'Number of generation tokens processed.', front.generatedTokens],
    ['num_requests_total', 'Number of requests processed.', front.requests],
  ];
  for (const [name, help, value] of rows) writer.counter([name, help], [[writer.model, value]]);
}

/** Gauges of a scheduler; those without a function are of things that the model does not have. */
const GAUGES: readonly (readonly [string, string, ((gauges: SglangGauges) => number)?])[] = [
  ['num_running_reqs', 'The number of running requests.', (each) => each.running],
  ['num_used_tokens', 'The number of used tokens.', (each) => each.usedTokens],
  ['token_usage', 'The token usage.', (each) => each.usageRatio],
  ['full_token_usage', 'The token usage for full attention layers.', (each) => each.usageRatio],
  [
    'pending_prealloc_token_usage',
    'The token usage for pending preallocated tokens (not preallocated yet).',
  ],
  ['swa_token_usage', 'The token usage for SWA layers.'],
  ['mamba_usage', 'The token usage for Mamba layers.'],
  [
    'decode_sum_seq_lens',
    'The sum of all sequence lengths in decode.',
    (each) => each.decodeTokens,
  ],
  ['gen_throughput', 'The generation throughput (token/s).', (each) => each.generatedPerSecond],
  ['num_queue_reqs', 'The number of requests in the waiting queue.', (each) => each.waiting],
  ['num_grammar_queue_reqs', 'The number of requests in the grammar waiting queue.'],
  [
    'num_running_reqs_offline_batch',
    "The number of running low-priority offline batch requests(label is 'batch').",
  ],
  ['cache_hit_rate', 'The prefix cache hit rate.', (each) => each.hitRatio],
];

const UNUSED_GAUGES: readonly (readonly [string, string])[] = [
  ['spec_accept_length', 'The average acceptance length of speculative decoding.'],
  [
    'spec_accept_rate',
    'The average acceptance rate of speculative decoding (`accepted tokens / total draft tokens` in batch).',
  ],
  ['num_prefill_bootstrap_queue_reqs', 'The number of requests in the prefill bootstrap queue.'],
  ['num_prefill_inflight_queue_reqs', 'The number of requests in the prefill inflight queue.'],
  ['num_decode_prealloc_queue_reqs', 'The number of requests in the decode prealloc queue.'],
  ['num_decode_transfer_queue_reqs', 'The number of requests in the decode transfer queue.'],
  ['utilization', 'The utilization.'],
  ['new_token_ratio', 'The new token ratio.'],
  ['is_cuda_graph', 'Whether the batch is using CUDA graph.'],
  ['num_unique_running_routing_keys', 'Number of unique routing keys in running batch.'],
];

function writeGauges(writer: Writer, input: SglangExpositionInput): void {
  for (const [name, help, of] of GAUGES) {
    writer.perRank('gauge', [name, help], (rank) => of?.(rank.gauges) ?? 0);
  }
  writer.perRank(
    'gauge',
    ['max_total_num_tokens', 'Maximum total number of tokens in the KV cache pool.'],
    () => input.capacityTokens,
  );
  for (const each of UNUSED_GAUGES) writer.perRank('gauge', each, () => 0);
}

function writeRoutingKeys(writer: Writer): void {
  const bounds = ['0', '1', '2', '3', '5', '7', '10', '20', '50', '100', '200', '+Inf'];
  const rows = bounds.slice(1).map((le, at): Labels => ({ gt: bounds[at] ?? '', le }));
  const words = 'Distribution of routing keys by';
  for (const [name, what] of [
    ['routing_key_running_req_count', 'running'],
    ['routing_key_all_req_count', 'running+waiting'],
  ] as const) {
    const help = `${words} ${what} request count (gt < count <= le).`;
    writer.family(name, 'gauge', help);
    for (const labels of writer.rankLabels) {
      for (const row of rows) writer.sample(name, { ...labels, ...row }, 0);
    }
  }
}

function writeActive(writer: Writer, front: SglangFrontStats): void {
  writer.family(
    'routing_keys_active',
    'gauge',
    'Number of unique routing keys with active requests',
  );
  writer.sample('routing_keys_active', {}, 0);
  const rows = [...front.httpRequests.values()];
  writer.family('http_requests_active', 'gauge', 'Number of currently active HTTP requests');
  for (const { endpoint, method, open } of rows) {
    writer.sample('http_requests_active', { endpoint, method }, open);
  }
  writer.perRank('gauge', ['num_retracted_reqs', 'The number of retracted requests.'], () => 0);
  writer.perRank(
    'gauge',
    ['num_paused_reqs', 'The number of paused requests by async weight sync.'],
    () => 0,
  );
}

function writeHistograms(writer: Writer, { ranks, front }: SglangExpositionInput): void {
  if (ranks.some(({ prefillSeconds }) => prefillSeconds.count > 0)) {
    const stages = (rank: SglangRankStats): Row<Histogram>[] => [
      [{ stage: 'request_process' }, rank.processSeconds],
      [{ stage: 'prefill_forward' }, rank.prefillSeconds],
    ];
    writer.rankHistogram(
      ['per_stage_req_latency_seconds', 'The latency of each stage of requests.'],
      stages,
    );
    writer.rankHistogram(
      ['queue_time_seconds', 'Histogram of queueing time in seconds.'],
      (rank) => [[{}, rank.queueSeconds]],
    );
  }
  writePasses(writer, ranks);
  const rows: readonly (readonly [string, string, Histogram])[] = [
    [
      'time_to_first_token_seconds',
      'Histogram of time to first token in seconds.',
      front.firstTokenSeconds,
    ],
    [
      'e2e_request_latency_seconds',
      'Histogram of End-to-end request latency in seconds',
      front.totalSeconds,
    ],
    ['num_retractions', 'Histogram of retraction counts per request.', front.retractions],
  ];
  for (const [name, help, histogram] of rows) {
    if (histogram.count > 0) writer.histogram([name, help], [[writer.model, histogram]]);
  }
}

function writePasses(writer: Writer, ranks: readonly SglangRankStats[]): void {
  if (ranks.every(({ prefillSteps }) => prefillSteps === 0)) return;
  writer.rankCounter(
    ['cuda_graph_passes_total', 'Total number of forward passes categorized by CUDA graph.'],
    (rank) => [
      [{ mode: 'prefill_none' }, rank.prefillSteps],
      [{ mode: 'decode_cuda_graph' }, rank.decodeSteps],
    ],
  );
  writer.rankCounter(
    [
      'realtime_tokens_total',
      'Total number of tokens processed (updated on each log interval). mode: prefill_compute, prefill_cache, decode.',
    ],
    (rank) => [
      [{ mode: 'prefill_compute' }, rank.computedTokens],
      [{ mode: 'prefill_cache' }, rank.cachedTokens],
      [{ mode: 'decode' }, rank.decodedTokens],
    ],
  );
}

/** Families that versions after the recorded one have. */
function writeLater(writer: Writer, input: SglangExpositionInput): void {
  const { pageSize, capacityTokens, contextTokens, front } = input;
  writer.perRank('gauge', ['page_size', 'KV cache page size in tokens.'], () => pageSize);
  writer.perRank('gauge', ['num_pages', 'Number of KV cache pages.'], () =>
    Math.floor(capacityTokens / pageSize),
  );
  writer.perRank('gauge', ['context_len', 'Maximum context length.'], () => contextTokens);
  writer.perRank(
    'counter',
    ['num_retracted_requests_total', 'Total number of retracted requests.'],
    (rank) => rank.retractedRequests,
  );
  if (front.tokenSeconds.count > 0) {
    writer.histogram(
      ['inter_token_latency_seconds', 'Histogram of inter-token latency in seconds.'],
      [[writer.model, front.tokenSeconds]],
    );
  }
  if (front.cachedTokens > 0) {
    writer.counter(
      ['cached_tokens_total', 'Number of cached prompt tokens.'],
      [[{ ...writer.model, cache_source: 'device' }, front.cachedTokens]],
    );
  }
  if (front.aborted > 0) {
    writer.counter(
      ['num_aborted_requests_total', 'Number of requests aborted.'],
      [[writer.model, front.aborted]],
    );
  }
}

class Writer {
  readonly lines: string[] = [];
  readonly model: Labels;
  readonly rankLabels: readonly Labels[];
  readonly #ranks: readonly SglangRankStats[];

  constructor({ modelName, ranks }: SglangExpositionInput) {
    this.model = { model_name: modelName };
    this.#ranks = ranks;
    this.rankLabels = ranks.map((_, rank) => ({
      ...(ranks.length > 1 ? { dp_rank: String(rank) } : {}),
      engine_type: 'unified',
      ...this.model,
      moe_ep_rank: '0',
      pp_rank: '0',
      tp_rank: '0',
    }));
  }

  family(name: string, type: string, help: string): void {
    this.lines.push(`# HELP sglang:${name} ${help}`, `# TYPE sglang:${name} ${type}`);
  }

  sample(name: string, labels: Labels, value: number): void {
    const text = Object.keys(labels)
      .toSorted()
      .map((label) => `${label}="${escapeLabel(labels[label] ?? '')}"`)
      .join(',');
    this.lines.push(`sglang:${name}${text === '' ? '' : `{${text}}`} ${formatFloat(value)}`);
  }

  counter([name, help]: readonly [string, string], rows: readonly Row<number>[]): void {
    if (rows.length === 0) return;
    this.family(name, 'counter', help);
    for (const [labels, value] of rows) this.sample(name, labels, value);
  }

  perRank(
    type: 'gauge' | 'counter',
    [name, help]: readonly [string, string],
    of: (rank: SglangRankStats) => number,
  ): void {
    this.family(name, type, help);
    this.#ranks.forEach((rank, at) => this.sample(name, this.rankLabels[at] ?? {}, of(rank)));
  }

  /** Rows at 0 have not been touched: they are left out. */
  rankCounter(
    name: readonly [string, string],
    rows: (rank: SglangRankStats) => readonly Row<number>[],
  ): void {
    const all = this.#ranks.flatMap((rank, at) =>
      rows(rank).map(([own, value]): Row<number> => [{ ...this.rankLabels[at], ...own }, value]),
    );
    this.counter(
      name,
      all.filter(([, value]) => value > 0),
    );
  }

  rankHistogram(
    name: readonly [string, string],
    rows: (rank: SglangRankStats) => readonly Row<Histogram>[],
  ): void {
    this.histogram(
      name,
      this.#ranks.flatMap((rank, at) =>
        rows(rank).map(([own, value]) => [{ ...this.rankLabels[at], ...own }, value] as const),
      ),
    );
  }

  histogram([name, help]: readonly [string, string], rows: readonly Row<Histogram>[]): void {
    this.family(name, 'histogram', help);
    for (const [labels, histogram] of rows) {
      this.sample(`${name}_sum`, labels, histogram.sum);
      const cumulative = histogram.cumulative();
      histogram.bounds.forEach((bound, at) => {
        const le = formatFloat(bound);
        this.sample(`${name}_bucket`, { ...labels, le }, cumulative[at] ?? 0);
      });
      this.sample(`${name}_bucket`, { ...labels, le: '+Inf' }, histogram.count);
      this.sample(`${name}_count`, labels, histogram.count);
    }
  }
}

function escapeLabel(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}
