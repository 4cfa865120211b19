// Tokens of one request's answers together. A prompt counts once however many answers it gets.

import type { Choice } from './generation.ts';

export interface TokenCounts {
  readonly prompt: number;
  readonly completion: number;
  /** Of the prompts, found in the cache. */
  readonly cached: number;
}

export function tokenCounts(choices: readonly Choice[]): TokenCounts {
  let prompt = 0;
  let completion = 0;
  let cached = 0;
  for (const choice of choices) {
    completion += choice.tokens;
    if (!choice.first) continue;
    prompt += choice.promptTokens;
    cached += choice.cachedTokens;
  }
  return { prompt, completion, cached };
}
