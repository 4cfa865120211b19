// vLLM's metrics as figures, per data-parallel rank. What is absent stays null; what an old version names
// otherwise is read under its old name.
//
//   prompt tokens     `prompt_tokens_total` counts whole prompts, cached tokens included, and jumps at the first token
//   computed tokens   by source `local_compute`; before that, prompts less cache hits; in V0 `prompt_tokens_total`
//                     itself, which counted computed tokens only
//   KV capacity       `kv_cache_size_tokens`, else `block_size` × `num_gpu_blocks` of `cache_config_info`
//   first tokens      count of the time-to-first-token histogram
//
// Under Ray `vllm:` reads `vllm_` or `ray_vllm_`. One series per rank has the label `engine`; none means rank 0.

import { absentRank } from '../events.ts';
import type { EngineScrape, RankScrape } from '../events.ts';
import { parseExposition, type Sample } from './exposition.ts';

const START_TIME = 'process_start_time_seconds';
const CONFIG = 'vllm:cache_config_info';
const BY_SOURCE = 'vllm:prompt_tokens_by_source_total';
const SLEEP = 'vllm:engine_sleep_state';

const PLAIN = [
  'vllm:num_requests_running',
  'vllm:num_requests_waiting',
  'vllm:kv_cache_usage_perc',
  'vllm:gpu_cache_usage_perc',
  'vllm:prompt_tokens_total',
  'vllm:prompt_tokens_cached_total',
  'vllm:prefix_cache_hits_total',
  'vllm:external_prefix_cache_hits_total',
  'vllm:generation_tokens_total',
  'vllm:num_preemptions_total',
  'vllm:time_to_first_token_seconds_count',
  'vllm:inter_token_latency_seconds_sum',
  'vllm:inter_token_latency_seconds_count',
  'vllm:time_per_output_token_seconds_sum',
  'vllm:time_per_output_token_seconds_count',
  'vllm:num_requests_swapped',
] as const;
type Plain = (typeof PLAIN)[number];

const WANTED: ReadonlySet<string> = new Set([...PLAIN, START_TIME, CONFIG, BY_SOURCE, SLEEP]);
const MAX_RANK = 1_023;

/** Null where the text has no vLLM series at all. */
export function readVllmMetrics(text: string): EngineScrape | null {
  const { samples } = parseExposition(text, wantedName);
  let startTimeSeconds: number | null = null;
  const ranks = new Map<number, RankFigures>();
  let everyRank: Readonly<Record<string, string>> | null = null;
  for (const sample of samples) {
    if (sample.name === START_TIME) {
      startTimeSeconds = finite(sample.value);
    } else if (sample.name === CONFIG && sample.labels['engine'] === undefined) {
      everyRank = sample.labels;
    } else {
      figuresOf(ranks, rankOf(sample.labels['engine'])).add(sample);
    }
  }
  if (ranks.size === 0) return null;
  const ordered = [...ranks].sort(([a], [b]) => a - b);
  return {
    startTimeSeconds,
    ranks: ordered.map(([rank, figures]) => figures.scrape(rank, everyRank)),
  };
}

function wantedName(written: string): string | null {
  if (written === START_TIME) return written;
  const bare = written.startsWith('ray_') ? written.slice(4) : written;
  const name = bare.startsWith('vllm_') ? `vllm:${bare.slice(5)}` : bare;
  return WANTED.has(name) ? name : null;
}

function figuresOf(ranks: Map<number, RankFigures>, rank: number): RankFigures {
  const found = ranks.get(rank) ?? new RankFigures();
  ranks.set(rank, found);
  return found;
}

function rankOf(label: string | undefined): number {
  const rank = label === undefined ? 0 : Number(label);
  return Number.isInteger(rank) && rank >= 0 && rank <= MAX_RANK ? rank : 0;
}

/** Sums of one rank's series; NaN and infinite samples are absent. */
class RankFigures {
  readonly #sums = new Map<Plain, number>();
  readonly #sources = new Map<string, number>();
  #config: Readonly<Record<string, string>> | null = null;
  #awake: boolean | null = null;

  add(sample: Sample): void {
    const value = finite(sample.value);
    if (sample.name === CONFIG) this.#config = sample.labels;
    else if (value === null) return;
    else if (sample.name === BY_SOURCE) add(this.#sources, sample.labels['source'] ?? '', value);
    else if (sample.name === SLEEP) {
      if (sample.labels['sleep_state'] === 'awake') this.#awake = value > 0;
    } else add(this.#sums, sample.name as Plain, value);
  }

  scrape(rank: number, everyRank: Readonly<Record<string, string>> | null): RankScrape {
    const config = this.#config ?? everyRank;
    return {
      ...absentRank(rank),
      running: this.#sum('vllm:num_requests_running'),
      waiting: this.#sum('vllm:num_requests_waiting'),
      kvUsageRatio: this.#kvUsage(),
      kvCapacityTokens: capacityOf(config),
      blockTokens: count(config?.['cache_hit_alignment_tokens']) ?? count(config?.['block_size']),
      asleep: this.#awake === null ? null : !this.#awake,
      promptTokensTotal: this.#isV0() ? null : this.#sum('vllm:prompt_tokens_total'),
      computedTokensTotal: this.#computed(),
      cachedTokensTotal: this.#cached(),
      generationTokensTotal: this.#sum('vllm:generation_tokens_total'),
      preemptionsTotal: this.#sum('vllm:num_preemptions_total'),
      firstTokensTotal: this.#sum('vllm:time_to_first_token_seconds_count'),
      ...this.#itl(),
    };
  }

  #sum(name: Plain): number | null {
    return this.#sums.get(name) ?? null;
  }

  /** V0 alone swaps, and alone counts computed prompt tokens where V1 counts whole prompts. */
  #isV0(): boolean {
    return this.#sums.has('vllm:num_requests_swapped');
  }

  #kvUsage(): number | null {
    const ratio = this.#sum('vllm:kv_cache_usage_perc') ?? this.#sum('vllm:gpu_cache_usage_perc');
    return ratio === null ? null : Math.min(1, Math.max(0, ratio));
  }

  #computed(): number | null {
    const local = this.#sources.get('local_compute');
    if (local !== undefined) return local;
    const prompts = this.#sum('vllm:prompt_tokens_total');
    if (this.#isV0()) return prompts;
    const hits = this.#hits();
    return prompts === null || hits === null ? null : Math.max(0, prompts - hits);
  }

  #cached(): number | null {
    const total = this.#sum('vllm:prompt_tokens_cached_total');
    if (total !== null) return total;
    if (this.#sources.size === 0) return this.#hits();
    const local = this.#sources.get('local_cache_hit') ?? 0;
    return local + (this.#sources.get('external_kv_transfer') ?? 0);
  }

  #hits(): number | null {
    const local = this.#sum('vllm:prefix_cache_hits_total');
    if (local === null) return null;
    return local + (this.#sum('vllm:external_prefix_cache_hits_total') ?? 0);
  }

  #itl(): { itlSumSeconds: number | null; itlCount: number | null } {
    const now = this.#sum('vllm:inter_token_latency_seconds_count');
    if (now !== null) {
      return { itlSumSeconds: this.#sum('vllm:inter_token_latency_seconds_sum'), itlCount: now };
    }
    return {
      itlSumSeconds: this.#sum('vllm:time_per_output_token_seconds_sum'),
      itlCount: this.#sum('vllm:time_per_output_token_seconds_count'),
    };
  }
}

function add<Key>(sums: Map<Key, number>, key: Key, value: number): void {
  sums.set(key, (sums.get(key) ?? 0) + value);
}

function capacityOf(config: Readonly<Record<string, string>> | null): number | null {
  if (config === null) return null;
  const size = count(config['kv_cache_size_tokens']);
  if (size !== null) return size;
  const blocks = count(config['num_gpu_blocks']);
  const blockTokens = count(config['block_size']);
  return blocks === null || blockTokens === null ? null : blocks * blockTokens;
}

/** Labels are Python's `str()`: `None` is absent. */
function count(label: string | undefined): number | null {
  const value = Number(label ?? 'None');
  return Number.isFinite(value) && value > 0 ? value : null;
}

function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}
