// TGI's metrics as figures. It has one rank, no labels of its own and no `_total` in its names.
//
//   running, waiting  `tgi_batch_current_size`, `tgi_queue_size`
//   prefill rate      Δ `tgi_request_input_length_sum` ÷ Δ `tgi_batch_forward_duration_sum{method="prefill"}`: prompt
//                     tokens are counted whole, cached ones included, so the rate is an upper bound
//   first tokens      requests that went into a prefill batch (`tgi_batch_next_size_sum`), while no prefill runs: then
//                     all of them have shown one. While one runs the figure is unknown
//   token time        of finished requests, the mean of each one's mean
//   steps             `tgi_batch_inference_count`, all methods
//
// `tgi_request_input_length` is observed before the queue: it moves while the engine hangs, so it is no counter of
// prompts processed. Preemptions, KV usage and cached tokens are in no version.

import { absentRank } from '../events.ts';
import type { RankScrape } from '../events.ts';
import { parseExposition } from './exposition.ts';
import { Series } from './series.ts';

/** Figures that stand for what TGI does not tell. */
export const TGI_DERIVED = [
  'kvCapacityTokens',
  'prefillBusyTokens',
  'firstTokensTotal',
  'itlSumSeconds',
] as const satisfies readonly (keyof RankScrape)[];

const PLAIN = [
  'tgi_batch_current_size',
  'tgi_queue_size',
  'tgi_batch_max_total_tokens',
  'tgi_request_input_length_sum',
  'tgi_request_generated_tokens_sum',
  'tgi_request_mean_time_per_token_duration_sum',
  'tgi_request_mean_time_per_token_duration_count',
  'tgi_batch_next_size_sum',
] as const;
const BY_METHOD = [
  'tgi_batch_inference_count',
  'tgi_batch_inference_success',
  'tgi_batch_inference_failure',
  'tgi_batch_forward_duration_sum',
] as const;
const WANTED: ReadonlySet<string> = new Set([...PLAIN, ...BY_METHOD]);
const METHODS: ReadonlySet<string> = new Set(BY_METHOD);

/** Null where the text has no TGI series at all. */
export function readTgiMetrics(text: string): RankScrape | null {
  const { samples } = parseExposition(text, (name) => (WANTED.has(name) ? name : null));
  if (samples.length === 0) return null;
  const series = new Series<string>();
  for (const { name, labels, value } of samples) {
    series.add(name, value);
    if (METHODS.has(name)) series.add(`${name}/${labels['method'] ?? ''}`, value);
  }
  return {
    ...absentRank(0),
    running: series.sum('tgi_batch_current_size'),
    waiting: series.sum('tgi_queue_size'),
    kvCapacityTokens: positive(series.sum('tgi_batch_max_total_tokens')),
    generationTokensTotal: series.sum('tgi_request_generated_tokens_sum'),
    firstTokensTotal: firstTokens(series),
    itlSumSeconds: series.sum('tgi_request_mean_time_per_token_duration_sum'),
    itlCount: series.sum('tgi_request_mean_time_per_token_duration_count'),
    prefillBusyTokens: series.sum('tgi_request_input_length_sum'),
    prefillBusySeconds: series.sum('tgi_batch_forward_duration_sum/prefill'),
    stepsTotal: series.sum('tgi_batch_inference_count'),
  };
}

function firstTokens(series: Series<string>): number | null {
  const begun = series.sum('tgi_batch_inference_count/prefill');
  if (begun === null) return null;
  const succeeded = series.sum('tgi_batch_inference_success/prefill') ?? 0;
  const failed = series.sum('tgi_batch_inference_failure/prefill') ?? 0;
  return begun === succeeded + failed ? series.sum('tgi_batch_next_size_sum') : null;
}

function positive(value: number | null): number | null {
  return value !== null && value > 0 ? value : null;
}
