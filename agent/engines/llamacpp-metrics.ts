// llama.cpp's metrics, slots and properties as figures. It has one rank.
//
//   computed tokens   `prompt_tokens_total`: uncached tokens only. Full prompts where a version counts cached ones too
//   prefill rate      Δ `prompt_tokens_total` ÷ Δ `prompt_seconds_total`
//   token time        Δ `tokens_predicted_seconds_total` ÷ Δ `tokens_predicted_total`
//   waiting prefill   of each slot that has generated nothing: prompt − processed − cached. Prompts that wait for a
//                     slot are in no answer, so with a request deferred the figure is unknown
//   KV capacity       context of a slot × slots (`--kv-unified` shares one context: then a bound)
//
// `prompt_tokens_seconds` and `predicted_tokens_seconds` are reset by whoever scrapes: never read. First tokens,
// preemptions and (since 2025) KV usage are in no version.

import { absentRank } from '../events.ts';
import type { RankScrape } from '../events.ts';
import { parseExposition } from './exposition.ts';
import {
  amountOf,
  arrayOf,
  objectOf,
  parseArray,
  positiveOf,
  type JsonObject,
} from './foreign-json.ts';
import { ratioOf, Series } from './series.ts';

/** Figures that stand for what llama.cpp does not tell. It reuses prefixes token by token. */
export const LLAMACPP_DERIVED = [
  'kvCapacityTokens',
  'blockTokens',
] as const satisfies readonly (keyof RankScrape)[];

const NAMES = [
  'prompt_tokens_total',
  'prompt_tokens_cached_total',
  'prompt_seconds_total',
  'tokens_predicted_total',
  'tokens_predicted_seconds_total',
  'n_decode_total',
  'requests_processing',
  'requests_deferred',
  'kv_cache_usage_ratio',
] as const;
type Name = (typeof NAMES)[number];

const PREFIX = 'llamacpp:';
const WANTED: ReadonlySet<string> = new Set(NAMES);
const MAX_SLOTS = 4_096;

/** Null where the text has no series of llama.cpp at all. */
export function readLlamacppMetrics(text: string): RankScrape | null {
  const { samples } = parseExposition(text, wantedName);
  if (samples.length === 0) return null;
  const series = new Series<Name>();
  for (const { name, value } of samples) series.add(name as Name, value);
  const computed = series.sum('prompt_tokens_total');
  const cached = series.sum('prompt_tokens_cached_total');
  return {
    ...absentRank(0),
    running: series.sum('requests_processing'),
    waiting: series.sum('requests_deferred'),
    kvUsageRatio: ratioOf(series.sum('kv_cache_usage_ratio')),
    promptTokensTotal: computed === null || cached === null ? null : computed + cached,
    computedTokensTotal: computed,
    cachedTokensTotal: cached,
    generationTokensTotal: series.sum('tokens_predicted_total'),
    itlSumSeconds: series.sum('tokens_predicted_seconds_total'),
    itlCount: series.sum('tokens_predicted_total'),
    prefillBusyTokens: computed,
    prefillBusySeconds: series.sum('prompt_seconds_total'),
    stepsTotal: series.sum('n_decode_total'),
  };
}

export interface SlotFigures {
  readonly slots: number;
  readonly running: number;
  /** Prompt tokens that requests in slots have still to compute; null where a version does not tell. */
  readonly waitingPrefillTokens: number | null;
  /** Context of all slots. */
  readonly contextTokens: number | null;
}

/** Null where the body is no slot list. */
export function readLlamacppSlots(body: string): SlotFigures | null {
  const slots = parseArray(body)?.slice(0, MAX_SLOTS).map(objectOf);
  if (slots === undefined || slots.some((slot) => amountOf(slot?.['id']) === null)) return null;
  let running = 0;
  let waiting: number | null = 0;
  let context: number | null = 0;
  for (const slot of slots) {
    if (slot === null) continue;
    const length = positiveOf(slot['n_ctx']);
    context = context === null || length === null ? null : context + length;
    if (slot['is_processing'] !== true) continue;
    running += 1;
    const left = leftOf(slot);
    waiting = waiting === null || left === null ? null : waiting + left;
  }
  return { slots: slots.length, running, waitingPrefillTokens: waiting, contextTokens: context };
}

export interface Properties {
  readonly slots: number | null;
  readonly asleep: boolean | null;
  readonly slotTokens: number | null;
  readonly build: unknown;
}

export function readLlamacppProperties(props: JsonObject): Properties {
  const settings = objectOf(props['default_generation_settings']);
  const asleep = props['is_sleeping'];
  return {
    slots: positiveOf(props['total_slots']),
    asleep: typeof asleep === 'boolean' ? asleep : null,
    slotTokens: positiveOf(settings?.['n_ctx']),
    build: props['build_info'],
  };
}

function wantedName(written: string): string | null {
  const name = written.startsWith(PREFIX) ? written.slice(PREFIX.length) : '';
  return WANTED.has(name) ? name : null;
}

/** While a slot generates, `n_prompt_tokens` grows with its answer: nothing of the prompt is left then. */
function leftOf(slot: JsonObject): number | null {
  const next = objectOf(arrayOf(slot['next_token'])[0] ?? slot['next_token']);
  if ((amountOf(next?.['n_decoded']) ?? 0) > 0) return 0;
  const prompt = amountOf(slot['n_prompt_tokens']);
  const processed = amountOf(slot['n_prompt_tokens_processed']);
  const cached = amountOf(slot['n_prompt_tokens_cache']);
  if (prompt === null || processed === null || cached === null) return null;
  return Math.max(0, prompt - processed - cached);
}
