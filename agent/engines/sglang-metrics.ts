// SGLang's metrics as figures, per data-parallel rank.
//
//   computed tokens   `realtime_tokens_total{mode="prefill_compute"}`, counted batch by batch; older versions: prompts
//                     less cached ones, both counted when a request ends
//   generated tokens  the greater of what finished requests had and of what was decoded, which leaves out each
//                     request's first token: both only grow, and the first stands still while a long answer runs
//   preemptions       retractions; before they had a counter, those of finished requests
//   KV capacity       `max_total_num_tokens`, else pages × page size
//
// Scheduler series say their `dp_rank`. With `--enable-metrics-for-all-schedulers` every tensor-parallel rank repeats
// the figures of its data-parallel rank, so the lowest one counts. Series of the front end (prompts, first tokens,
// token times) are of all ranks together: with several ranks they belong to none.

import { absentRank } from '../events.ts';
import type { RankScrape } from '../events.ts';
import { parseExposition, type Sample } from './exposition.ts';
import { ratioOf, Series, sizeLabel } from './series.ts';

const CONFIG = 'sglang:cache_config_info';
const REALTIME = 'sglang:realtime_tokens_total';

/** Of a scheduler. */
const SCHEDULER = [
  'sglang:num_running_reqs',
  'sglang:num_queue_reqs',
  'sglang:num_grammar_queue_reqs',
  'sglang:token_usage',
  'sglang:full_token_usage',
  'sglang:max_total_num_tokens',
  'sglang:page_size',
  'sglang:num_pages',
  'sglang:num_retracted_requests_total',
  'sglang:cuda_graph_passes_total',
  REALTIME,
  CONFIG,
] as const;

/** Of the front end. */
const FRONT_END = [
  'sglang:prompt_tokens_total',
  'sglang:cached_tokens_total',
  'sglang:generation_tokens_total',
  'sglang:time_to_first_token_seconds_count',
  'sglang:inter_token_latency_seconds_sum',
  'sglang:inter_token_latency_seconds_count',
  'sglang:time_per_output_token_seconds_sum',
  'sglang:time_per_output_token_seconds_count',
  'sglang:num_retractions_sum',
] as const;
type FrontEnd = (typeof FRONT_END)[number];

const SCHEDULER_NAMES: ReadonlySet<string> = new Set(SCHEDULER);
const FRONT_END_NAMES: ReadonlySet<string> = new Set(FRONT_END);
const MAX_RANK = 1_023;

/**
 * Of each rank what the exposition has; null where it has no SGLang series at all. `ranksElsewhere`: how many ranks
 * another source tells of.
 */
export function readSglangMetrics(text: string, ranksElsewhere = 0): readonly RankScrape[] | null {
  const { samples } = parseExposition(text, wantedName);
  if (samples.length === 0) return null;
  const ranks = new Map<number, SchedulerFigures>();
  const frontEnd = new Series<FrontEnd>();
  for (const sample of samples) {
    if (FRONT_END_NAMES.has(sample.name)) frontEnd.add(sample.name as FrontEnd, sample.value);
    else figuresOf(ranks, rankOf(sample.labels['dp_rank'])).add(sample);
  }
  if (ranks.size === 0) ranks.set(0, new SchedulerFigures());
  const ordered = [...ranks].sort(([a], [b]) => a - b);
  const several = ordered.length > 1 || ranksElsewhere > 1;
  const shared = several ? new Series<FrontEnd>() : frontEnd;
  return ordered.map(([rank, figures]) => figures.scrape(rank, shared));
}

function wantedName(written: string): string | null {
  const name = written.startsWith('sglang_') ? `sglang:${written.slice(7)}` : written;
  return SCHEDULER_NAMES.has(name) || FRONT_END_NAMES.has(name) ? name : null;
}

function figuresOf(ranks: Map<number, SchedulerFigures>, rank: number): SchedulerFigures {
  const found = ranks.get(rank) ?? new SchedulerFigures();
  ranks.set(rank, found);
  return found;
}

function rankOf(label: string | undefined): number {
  const rank = label === undefined || label === '' ? 0 : Number(label);
  return Number.isInteger(rank) && rank >= 0 && rank <= MAX_RANK ? rank : 0;
}

/** The series of one data-parallel rank, each from the lowest tensor- and pipeline-parallel rank that has it. */
class SchedulerFigures {
  readonly #series = new Series<string>();
  readonly #from = new Map<string, number>();
  #pageTokens: number | null = null;
  #pages: number | null = null;

  add({ name, labels, value }: Sample): void {
    if (name === CONFIG) {
      this.#pageTokens = sizeLabel(labels['page_size']);
      this.#pages = sizeLabel(labels['num_pages']);
      return;
    }
    // With priorities the row without one has them all.
    if ((labels['priority'] ?? '') !== '') return;
    const key = name === REALTIME ? realtime(labels['mode'] ?? '') : name;
    const place = placeOf(labels);
    const from = this.#from.get(key) ?? Infinity;
    if (place > from) return;
    if (place < from && from !== Infinity) this.#series.set(key, value);
    else this.#series.add(key, value);
    this.#from.set(key, place);
  }

  scrape(rank: number, frontEnd: Series<FrontEnd>): RankScrape {
    const series = this.#series;
    const pageTokens = series.sum('sglang:page_size') ?? this.#pageTokens;
    return {
      ...absentRank(rank),
      running: series.sum('sglang:num_running_reqs'),
      waiting: this.#waiting(),
      kvUsageRatio: ratioOf(this.#usage()),
      kvCapacityTokens: series.sum('sglang:max_total_num_tokens') ?? this.#capacity(pageTokens),
      blockTokens: pageTokens,
      promptTokensTotal: frontEnd.sum('sglang:prompt_tokens_total'),
      computedTokensTotal: this.#computed(frontEnd),
      cachedTokensTotal: this.#cached(frontEnd),
      generationTokensTotal: this.#generated(frontEnd),
      preemptionsTotal:
        series.sum('sglang:num_retracted_requests_total') ??
        frontEnd.sum('sglang:num_retractions_sum'),
      firstTokensTotal: frontEnd.sum('sglang:time_to_first_token_seconds_count'),
      stepsTotal: series.sum('sglang:cuda_graph_passes_total'),
      ...itlOf(frontEnd),
    };
  }

  /** Requests that wait for their grammar wait too. */
  #waiting(): number | null {
    const queue = this.#series.sum('sglang:num_queue_reqs');
    if (queue === null) return null;
    return queue + (this.#series.sum('sglang:num_grammar_queue_reqs') ?? 0);
  }

  /** `token_usage` is of the fullest pool, rounded to a hundredth; `full_token_usage` is exact, of one pool. */
  #usage(): number | null {
    const fullest = this.#series.sum('sglang:token_usage');
    const exact = this.#series.sum('sglang:full_token_usage');
    if (fullest === null || exact === null) return fullest ?? exact;
    return Math.abs(fullest - exact) <= 0.005 ? exact : Math.max(fullest, exact);
  }

  #capacity(pageTokens: number | null): number | null {
    const pages = this.#series.sum('sglang:num_pages') ?? this.#pages;
    return pages === null || pageTokens === null ? null : pages * pageTokens;
  }

  #computed(frontEnd: Series<FrontEnd>): number | null {
    const progressive = this.#series.sum(realtime('prefill_compute'));
    if (progressive !== null) return progressive;
    const prompts = frontEnd.sum('sglang:prompt_tokens_total');
    const cached = frontEnd.sum('sglang:cached_tokens_total');
    return prompts === null || cached === null ? null : Math.max(0, prompts - cached);
  }

  #cached(frontEnd: Series<FrontEnd>): number | null {
    const progressive = this.#series.sum(realtime('prefill_cache'));
    return progressive ?? frontEnd.sum('sglang:cached_tokens_total');
  }

  #generated(frontEnd: Series<FrontEnd>): number | null {
    const finished = frontEnd.sum('sglang:generation_tokens_total');
    const decoded = this.#series.sum(realtime('decode'));
    if (finished === null || decoded === null) return finished ?? decoded;
    return Math.max(finished, decoded);
  }
}

function realtime(mode: string): string {
  return `${REALTIME}/${mode}`;
}

function placeOf(labels: Readonly<Record<string, string>>): number {
  const part = (label: string | undefined): number => Number(label ?? 0) || 0;
  return part(labels['pp_rank']) * 65_536 + part(labels['tp_rank']);
}

function itlOf(frontEnd: Series<FrontEnd>): {
  itlSumSeconds: number | null;
  itlCount: number | null;
} {
  const itlSumSeconds = frontEnd.first(
    'sglang:inter_token_latency_seconds_sum',
    'sglang:time_per_output_token_seconds_sum',
  );
  const itlCount = frontEnd.first(
    'sglang:inter_token_latency_seconds_count',
    'sglang:time_per_output_token_seconds_count',
  );
  return { itlSumSeconds, itlCount };
}
