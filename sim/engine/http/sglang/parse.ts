// Reads SGLang's requests: OpenAI's two by the common reader, its own, and refuses in SGLang's words.
//
// The request's model is repeated and not looked at. A limit on the answer is the client's, or none.

import { BEGIN_TOKEN, tokenize } from '../../tokenizer.ts';
import { ANSWERS_MAX } from '../generation.ts';
import { readOpenAi, type OpenAiGeneration } from '../openai-generation.ts';
import type { JsonObject } from '../vllm/parse.ts';
import { badRequest, type SglangFault } from './reply.ts';

export type SglangGeneration = OpenAiGeneration & {
  readonly kind: 'chat' | 'completion' | 'native';
  readonly model: string;
  /** Named by the client; null lets the server choose. */
  readonly rid: string | null;
  readonly rank: number | null;
};

export type SglangParsed =
  | { readonly ok: true; readonly generation: SglangGeneration }
  | { readonly ok: false; readonly fault: SglangFault };

export function readBody(
  contentType: string | undefined,
  body: Buffer,
): { readonly json: JsonObject } | { readonly fault: SglangFault } {
  const mediaType = (contentType ?? '').split(';')[0]?.trim().toLowerCase();
  if (mediaType !== 'application/json') {
    return { fault: { ...badRequest('Unsupported Media Type', '415'), status: 415 } };
  }
  try {
    const value: unknown = JSON.parse(body.toString('utf8'));
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
      return { json: value as JsonObject };
    }
    return { fault: badRequest('the body is no object', 'Bad Request') };
  } catch (error) {
    const detail = error instanceof Error ? error.message : 'JSON decode error';
    return { fault: badRequest(detail, 'Bad Request') };
  }
}

export function parseOpenAi(kind: 'chat' | 'completion', body: JsonObject): SglangParsed {
  const read = readOpenAi(kind, body);
  if (!read.ok) return { ok: false, fault: badRequest(read.words) };
  const model = read.model === '' ? 'default' : read.model;
  return { ok: true, generation: { ...read.generation, ...idsOf(body), kind, model } };
}

export function parseNative(body: JsonObject): SglangParsed {
  const { text, input_ids: ids } = body;
  const prompt =
    typeof text === 'string'
      ? [BEGIN_TOKEN, ...tokenize(text)]
      : Array.isArray(ids) && ids.every(Number.isInteger)
        ? (ids as readonly number[])
        : null;
  if (prompt === null || prompt.length === 0) {
    return { ok: false, fault: badRequest('Either text or input_ids should be provided.') };
  }
  const given = body['sampling_params'];
  const sampling = typeof given === 'object' && given !== null ? (given as JsonObject) : {};
  const salt = body['cache_salt'];
  return {
    ok: true,
    generation: {
      kind: 'native',
      prompts: [Uint32Array.from(prompt)],
      n: Math.max(1, wholeNumber(sampling['n']) ?? 1),
      maxTokens: wholeNumber(sampling['max_new_tokens']) ?? 128,
      stream: body['stream'] === true,
      includeUsage: false,
      continuousUsage: false,
      cacheSalt: typeof salt === 'string' ? salt : undefined,
      ...idsOf(body),
      model: '',
    },
  };
}

/** What keeps it out; null when it may run. */
export function validate(
  { prompts, maxTokens, n }: SglangGeneration,
  contextTokens: number,
): SglangFault | null {
  if (n > ANSWERS_MAX) {
    return badRequest(`n is ${n}, and ${ANSWERS_MAX} answers at most are simulated.`);
  }
  for (const { length } of prompts) {
    if (length >= contextTokens) {
      return badRequest(
        `The input (${length} tokens) is longer than the model's context length (${contextTokens} tokens).`,
      );
    }
    if (maxTokens !== null && length + maxTokens > contextTokens) {
      return badRequest(
        `Requested token count exceeds the model's maximum context length of ${contextTokens} tokens. You requested a total of ${length + maxTokens} tokens: ${length} tokens from the input messages and ${maxTokens} tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.`,
      );
    }
  }
  return null;
}

function idsOf(body: JsonObject): Pick<SglangGeneration, 'rid' | 'rank'> {
  const rid = typeof body['rid'] === 'string' ? body['rid'] : null;
  return { rid, rank: wholeNumber(body['routed_dp_rank']) };
}

function wholeNumber(value: unknown): number | null {
  return typeof value === 'number' && Number.isInteger(value) ? value : null;
}
