// Generation requests as most checks send them: completions of token ids, whose lengths are exact with any tokenizer.

import { json, openStream, type Stream } from './client.ts';
import type { ConformanceSubject } from './subject.ts';

export interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details?: {
    readonly cached_tokens: number | null;
    readonly created_cache_tokens?: number | null;
  } | null;
}

export interface Completion {
  readonly choices: readonly {
    readonly text: string;
    readonly finish_reason: string;
    readonly token_ids: readonly number[] | null;
  }[];
  readonly usage: Usage;
}

export interface Ask {
  readonly prompt: readonly number[] | string;
  /** Tokens of the answer, exactly. */
  readonly tokens: number;
  /** Further members of the request. */
  readonly extra?: object;
}

export function completionBody({ model }: ConformanceSubject, { prompt, tokens, extra }: Ask) {
  return { model, prompt, max_tokens: tokens, ignore_eos: true, temperature: 0, ...extra };
}

/** A whole completion of exactly so many tokens. */
export function complete(subject: ConformanceSubject, ask: Ask): Promise<Completion> {
  return json<Completion>(subject.url, '/v1/completions', { body: completionBody(subject, ask) });
}

/** A streamed completion, once its head is there. */
export function stream(subject: ConformanceSubject, ask: Ask): Promise<Stream> {
  return openStream(subject.url, '/v1/completions', completionBody(subject, ask));
}

/** Cached tokens that a completion of the prompt reports; it is computed and cached by asking. */
export async function cachedOf(
  subject: ConformanceSubject,
  prompt: readonly number[],
  extra: object = {},
): Promise<number | null> {
  const { usage } = await complete(subject, { prompt, tokens: 1, extra });
  return usage.prompt_tokens_details?.cached_tokens ?? null;
}
