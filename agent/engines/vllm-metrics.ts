// vLLM's metrics as figures, per data-parallel rank. What is absent stays null; what an old version names
// otherwise is read under its old name.
//
//   prompt tokens     `prompt_tokens_total` counts whole prompts, cached tokens included, and jumps at the first token
//   computed tokens   by source `local_compute`; before that, prompts less cache hits; in V0 `prompt_tokens_total`
//                     itself, which counted computed tokens only
//   cache hits        tokens; in V1 0.8 blocks, as its HELP says, and then × `block_size`
//   KV capacity       `kv_cache_size_tokens`, else `block_size` × `num_gpu_blocks` of `cache_config_info`
//   first tokens      count of the time-to-first-token histogram
//   steps             count of the iteration histogram: one observation for each output of a step
//
// Under Ray `vllm:` reads `vllm_` or `ray_vllm_`. One series per rank has the label `engine`; none means rank 0. Where a
// balancer is outside (one server for each rank, or for each machine's ranks), the label is the rank among all servers:
// ranks are counted from the lowest one here, as `X-data-parallel-rank` does.

import { absentRank } from '../events.ts';
import type { EngineScrape, RankScrape } from '../events.ts';
import { parseExposition, type Sample } from './exposition.ts';
import { ratioOf, Series, sizeLabel } from './series.ts';

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
  'vllm:gpu_prefix_cache_hits_total',
  'vllm:external_prefix_cache_hits_total',
  'vllm:generation_tokens_total',
  'vllm:num_preemptions_total',
  'vllm:time_to_first_token_seconds_count',
  'vllm:inter_token_latency_seconds_sum',
  'vllm:inter_token_latency_seconds_count',
  'vllm:time_per_output_token_seconds_sum',
  'vllm:time_per_output_token_seconds_count',
  'vllm:num_requests_swapped',
  'vllm:iteration_tokens_total_count',
] as const;
type Plain = (typeof PLAIN)[number];

const WANTED: ReadonlySet<string> = new Set([...PLAIN, START_TIME, CONFIG, BY_SOURCE, SLEEP]);
const OLD_HITS_HELP =
  /^# HELP (?:ray_)?vllm[:_]gpu_prefix_cache_hits(?:_total)? .*\b(blocks|tokens)\b/m;
const MAX_RANK = 1_023;

/** In what `gpu_prefix_cache_hits_total` counts; null where nothing says. */
type HitUnit = 'blocks' | 'tokens' | null;

/** Null where the text has no vLLM series at all. */
export function readVllmMetrics(text: string): EngineScrape | null {
  const { samples } = parseExposition(text, wantedName);
  let startTimeSeconds: number | null = null;
  const ranks = new Map<number, RankFigures>();
  let everyRank: Readonly<Record<string, string>> | null = null;
  const unit = (OLD_HITS_HELP.exec(text)?.[1] ?? null) as HitUnit;
  for (const sample of samples) {
    if (sample.name === START_TIME) {
      startTimeSeconds = Number.isFinite(sample.value) ? sample.value : null;
    } else if (sample.name === CONFIG && sample.labels['engine'] === undefined) {
      everyRank = sample.labels;
    } else {
      figuresOf(ranks, rankOf(sample.labels['engine'])).add(sample);
    }
  }
  if (ranks.size === 0) return null;
  const ordered = [...ranks].sort(([a], [b]) => a - b);
  const lowest = ordered[0]?.[0] ?? 0;
  return {
    startTimeSeconds,
    ranks: ordered.map(([rank, figures]) => figures.scrape(rank - lowest, { everyRank, unit })),
  };
}

/** The name under which newer versions have it; null for what is not read. */
export function wantedName(written: string): string | null {
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

type Labels = Readonly<Record<string, string>>;

/** One rank's series. */
class RankFigures {
  readonly #plain = new Series<Plain>();
  readonly #sources = new Series<string>();
  #config: Labels | null = null;
  #awake: boolean | null = null;

  add({ name, labels, value }: Sample): void {
    if (name === CONFIG) this.#config = labels;
    else if (name === BY_SOURCE) this.#sources.add(labels['source'] ?? '', value);
    else if (name !== SLEEP) this.#plain.add(name as Plain, value);
    else if (labels['sleep_state'] === 'awake' && Number.isFinite(value)) this.#awake = value > 0;
  }

  scrape(
    rank: number,
    process: { readonly everyRank: Labels | null; readonly unit: HitUnit },
  ): RankScrape {
    const config = this.#config ?? process.everyRank;
    const plain = this.#plain;
    const hits = this.#hits(process.unit, sizeLabel(config?.['block_size']));
    return {
      ...absentRank(rank),
      running: plain.sum('vllm:num_requests_running'),
      waiting: plain.sum('vllm:num_requests_waiting'),
      kvUsageRatio: ratioOf(plain.first('vllm:kv_cache_usage_perc', 'vllm:gpu_cache_usage_perc')),
      kvCapacityTokens: capacityOf(config),
      blockTokens:
        sizeLabel(config?.['cache_hit_alignment_tokens']) ?? sizeLabel(config?.['block_size']),
      asleep: this.#awake === null ? null : !this.#awake,
      promptTokensTotal: this.#isV0() ? null : plain.sum('vllm:prompt_tokens_total'),
      computedTokensTotal: this.#computed(hits),
      cachedTokensTotal: this.#cached(hits),
      generationTokensTotal: plain.sum('vllm:generation_tokens_total'),
      preemptionsTotal: plain.sum('vllm:num_preemptions_total'),
      firstTokensTotal: plain.sum('vllm:time_to_first_token_seconds_count'),
      stepsTotal: plain.sum('vllm:iteration_tokens_total_count'),
      ...this.#itl(),
    };
  }

  /** V0 alone swaps, and alone counts computed prompt tokens where V1 counts whole prompts. */
  #isV0(): boolean {
    return this.#plain.has('vllm:num_requests_swapped');
  }

  #computed(hits: number | null): number | null {
    const local = this.#sources.sum('local_compute');
    if (local !== null) return local;
    const prompts = this.#plain.sum('vllm:prompt_tokens_total');
    if (this.#isV0()) return prompts;
    return prompts === null || hits === null ? null : Math.max(0, prompts - hits);
  }

  #cached(hits: number | null): number | null {
    const total = this.#plain.sum('vllm:prompt_tokens_cached_total');
    if (total !== null) return total;
    if (this.#sources.isEmpty) return hits;
    const local = this.#sources.sum('local_cache_hit') ?? 0;
    return local + (this.#sources.sum('external_kv_transfer') ?? 0);
  }

  /** Tokens found in the cache; null where the unit of an old count is unknown. */
  #hits(unit: HitUnit, blockTokens: number | null): number | null {
    const local =
      this.#plain.sum('vllm:prefix_cache_hits_total') ?? this.#oldHits(unit, blockTokens);
    if (local === null) return null;
    return local + (this.#plain.sum('vllm:external_prefix_cache_hits_total') ?? 0);
  }

  #oldHits(unit: HitUnit, blockTokens: number | null): number | null {
    const count = this.#plain.sum('vllm:gpu_prefix_cache_hits_total');
    if (count === null || unit === null) return null;
    if (unit === 'tokens' || count === 0) return count;
    return blockTokens === null ? null : count * blockTokens;
  }

  #itl(): { itlSumSeconds: number | null; itlCount: number | null } {
    const now = this.#plain.sum('vllm:inter_token_latency_seconds_count');
    if (now !== null) {
      const itlSumSeconds = this.#plain.sum('vllm:inter_token_latency_seconds_sum');
      return { itlSumSeconds, itlCount: now };
    }
    return {
      itlSumSeconds: this.#plain.sum('vllm:time_per_output_token_seconds_sum'),
      itlCount: this.#plain.sum('vllm:time_per_output_token_seconds_count'),
    };
  }
}

function capacityOf(config: Labels | null): number | null {
  if (config === null) return null;
  const size = sizeLabel(config['kv_cache_size_tokens']);
  if (size !== null) return size;
  const blocks = sizeLabel(config['num_gpu_blocks']);
  const blockTokens = sizeLabel(config['block_size']);
  return blocks === null || blockTokens === null ? null : blocks * blockTokens;
}
