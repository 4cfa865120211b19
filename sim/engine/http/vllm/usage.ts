// Token counts of an answer, in the three forms in which vLLM tells them.

import type { Choice } from '../generation.ts';

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
  const created = createdTokens(choices, form);
  const details = {
    cached_tokens: cachedTokens(choices),
    ...(created === null ? {} : { created_cache_tokens: created }),
  };
  return {
    ...tokenCounts(choices),
    ...(form.details ? { prompt_tokens_details: details } : {}),
  };
}

/** Of a whole answer: what is not known is null. */
export function wholeUsage(choices: readonly Choice[], form: UsageForm): object {
  const details = {
    cached_tokens: cachedTokens(choices),
    created_cache_tokens: createdTokens(choices, form),
    multimodal_tokens: null,
  };
  return {
    ...tokenCounts(choices),
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

export function promptTokens(choices: readonly Choice[]): number {
  return sumOf(choices, (choice) => (choice.first ? choice.promptTokens : 0));
}

export function completionTokens(choices: readonly Choice[]): number {
  return sumOf(choices, (choice) => choice.tokens);
}

export function cachedTokens(choices: readonly Choice[]): number {
  return sumOf(choices, (choice) => (choice.first ? choice.cachedTokens : 0));
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

function tokenCounts(choices: readonly Choice[]): object {
  const prompt = promptTokens(choices);
  const completion = completionTokens(choices);
  return {
    prompt_tokens: prompt,
    total_tokens: prompt + completion,
    completion_tokens: completion,
  };
}

function sumOf(choices: readonly Choice[], value: (choice: Choice) => number): number {
  return choices.reduce((sum, choice) => sum + value(choice), 0);
}
