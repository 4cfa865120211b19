// How an engine is asked for an answer of its own: as a generation where it generates, else by what it serves instead. A
// pooling model neither completes nor chats: its embeddings, or the scores of a reranker, are what its users wait for.
//
//   completions, chat     a stream of a few tokens
//   embeddings, rerank    one whole answer, due when a first token would be
//
// An engine does not offer a way: 404 or 405 (no such route; vLLM registers those of its model's tasks), 501, or 400
// whose text says that the model does not support it (older vLLM).

import type { GenerateOrder, GenerationOutcome } from './events.ts';

export type ProbeWay = 'completions' | 'chat' | 'embeddings' | 'rerank';

/** In the order in which an engine that nothing is known of is asked. */
export const PROBE_WAYS: readonly ProbeWay[] = ['completions', 'chat', 'embeddings', 'rerank'];

const NOT_OFFERED: readonly number[] = [404, 405, 501];

export function probePath(way: ProbeWay): string {
  return way === 'chat' ? '/v1/chat/completions' : `/v1/${way}`;
}

export function probeBody(way: ProbeWay, order: GenerateOrder): object {
  const { model, prompt } = order;
  if (way === 'embeddings') return { model, input: prompt };
  if (way === 'rerank') return { model, query: 'probe', documents: [prompt] };
  return {
    model,
    ...(way === 'chat' ? { messages: [{ role: 'user', content: prompt }] } : { prompt }),
    max_tokens: order.maxTokens,
    temperature: 0,
    stream: true,
    stream_options: { include_usage: true },
  };
}

export function isWhole(way: ProbeWay): boolean {
  return way === 'embeddings' || way === 'rerank';
}

/** `text` is the body of a 400, else empty. */
export function isNotOffered(status: number, text: string): boolean {
  return NOT_OFFERED.includes(status) || (status === 400 && /does(?:n't| not) support/i.test(text));
}

/** A whole answer of status 200 that came after `ttftMs`. */
export function readWhole(text: string, ttftMs: number): GenerationOutcome {
  const answer = parsed(text);
  if (answer === null || (answer.error ?? null) !== null) return BROKEN;
  const vectors = answer.data ?? [];
  const answered = vectors.length > 0 && vectors.every(({ embedding }) => isVector(embedding));
  if (!answered && (answer.results ?? []).length === 0) return BROKEN;
  const tokens = answer.usage?.prompt_tokens ?? answer.usage?.total_tokens ?? null;
  return { kind: 'ok', ttftMs, promptTokens: tokens, cachedTokens: null, pooled: true };
}

interface WholeAnswer {
  readonly error?: unknown;
  readonly data?: readonly { readonly embedding?: unknown }[];
  readonly results?: readonly unknown[];
  readonly usage?: { readonly prompt_tokens?: number; readonly total_tokens?: number } | null;
}

const BROKEN: GenerationOutcome = { kind: 'failed', cause: 'broken' };

function parsed(text: string): WholeAnswer | null {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null) return null;
    const { data, results } = value as { data?: unknown; results?: unknown };
    const lists = [data, results].every((each) => each === undefined || isObjectList(each));
    return lists ? (value as WholeAnswer) : null;
  } catch {
    // What is no JSON is no answer; the caller says so.
    return null;
  }
}

function isObjectList(value: unknown): boolean {
  return Array.isArray(value) && value.every((each) => typeof each === 'object' && each !== null);
}

function isVector(value: unknown): boolean {
  return (Array.isArray(value) || typeof value === 'string') && value.length > 0;
}
