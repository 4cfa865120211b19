// Token counts of an answer, in the three forms in which vLLM tells them.

import type { Choice } from '../generation.ts';
import { tokenCounts, type TokenCounts } from '../token-counts.ts';

/** What of the usage is told. */
export interface UsageForm {
  /** `prompt_tokens_details` is given. */
  readonly details: boolean;
  /** Tokens put into the cache are told: of a chat, not of a completion. */
  readonly created: boolean;
  readonly blockTokens: number;
}

/** Of the last chunk of a stream: what is not known is left out. */
export function streamedUsage(choices: readonly Choice[], form: UsageForm): object {
  const counts = tokenCounts(choices);
  const created = createdTokens(choices, form);
  const details = {
    cached_tokens: counts.cached,
    ...(created === null ? {} : { created_cache_tokens: created }),
  };
  return {
    ...countsOf(counts),
    ...(form.details ? { prompt_tokens_details: details } : {}),
  };
}

/** Of a whole answer: what is not known is null. */
export function wholeUsage(choices: readonly Choice[], form: UsageForm): object {
  const counts = tokenCounts(choices);
  const details = {
    cached_tokens: counts.cached,
    created_cache_tokens: createdTokens(choices, form),
    multimodal_tokens: null,
  };
  return {
    ...countsOf(counts),
    prompt_tokens_details: form.details ? details : null,
    completion_tokens_details: null,
  };
}

/** Of one choice so far, as `continuous_usage_stats` puts it in every chunk. */
export function runningUsage(promptTokens: number, tokens: number, chat: boolean): object {
  return {
    prompt_tokens: promptTokens,
    total_tokens: promptTokens + tokens,
    completion_tokens: tokens,
    ...(chat ? { completion_tokens_details: null } : {}),
  };
}

/** Prompt tokens whose full blocks this request put into the cache; null where that is not known. */
export function createdTokens(
  choices: readonly Choice[],
  { created, blockTokens }: UsageForm,
): number | null {
  const [first] = choices;
  if (!created || first === undefined) return null;
  const full = Math.floor(first.promptTokens / blockTokens) * blockTokens;
  return Math.max(0, full - first.cachedTokens);
}

function countsOf({ prompt, completion }: TokenCounts): object {
  return {
    prompt_tokens: prompt,
    total_tokens: prompt + completion,
    completion_tokens: completion,
  };
}
