// Reads TGI's requests: OpenAI's two by the common reader, its own, and refuses in TGI's words.
//
// The request's model is not looked at; `n` has no effect. Without a limit an answer may fill the context.

import { BEGIN_TOKEN, tokenize } from '../../tokenizer.ts';
import { readOpenAi, type OpenAiGeneration } from '../openai-generation.ts';
import type { JsonObject } from '../vllm/parse.ts';
import { malformed, type TgiFault, type TgiReply } from './reply.ts';

/** Tokens. */
export interface TgiLimits {
  readonly maxInputTokens: number;
  readonly maxTotalTokens: number;
  /** Prompts in one completion request. */
  readonly maxClientBatch: number;
}

export type TgiGeneration = OpenAiGeneration & {
  readonly kind: 'chat' | 'completion' | 'native';
  readonly details: boolean;
  /** Native: the answer stands in a list, as `POST /` has it. */
  readonly listed: boolean;
};

export type TgiParsed =
  | { readonly ok: true; readonly generation: TgiGeneration }
  /** The form is wrong: nothing is counted. */
  | { readonly ok: false; readonly reply: TgiReply };

const PLAIN = { details: false, listed: false };

/** The JSON object of a body, or what the web framework says of it. */
export function readBody(contentType: string | undefined, body: Buffer): JsonObject | TgiReply {
  const mediaType = (contentType ?? '').split(';')[0]?.trim().toLowerCase();
  if (mediaType !== 'application/json') {
    return malformed(415, 'Expected request with `Content-Type: application/json`');
  }
  const text = body.toString('utf8');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const detail = error instanceof Error ? error.message : 'syntax error';
    return malformed(400, `Failed to parse the request body as JSON: ${detail}`);
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
    return value as JsonObject;
  }
  return wrongForm('invalid type, expected a map');
}

export function isReply(value: JsonObject | TgiReply): value is TgiReply {
  return typeof value['status'] === 'number' && 'body' in value;
}

export function parseOpenAi(kind: 'chat' | 'completion', body: JsonObject): TgiParsed {
  const { prompt } = body;
  if (kind === 'completion' && prompt === undefined) return wrong('missing field `prompt`');
  if (kind === 'chat' && body['messages'] === undefined) return wrong('missing field `messages`');
  // An empty prompt has the right form: that is for the validation to refuse.
  const read = readOpenAi(kind, prompt === '' ? { ...body, prompt: [BEGIN_TOKEN] } : body);
  if (!read.ok) return wrong(read.words);
  const { generation } = read;
  const maxTokens =
    kind === 'completion' ? (wholeNumber(body['max_tokens']) ?? null) : generation.maxTokens;
  return { ok: true, generation: { ...generation, kind, n: 1, maxTokens, ...PLAIN } };
}

export function parseNative(
  body: JsonObject,
  { stream, listed }: { readonly stream: boolean; readonly listed: boolean },
): TgiParsed {
  const { inputs } = body;
  if (typeof inputs !== 'string') return wrong('missing field `inputs`');
  const given = body['parameters'];
  const parameters = typeof given === 'object' && given !== null ? (given as JsonObject) : {};
  return {
    ok: true,
    generation: {
      kind: 'native',
      prompts: [Uint32Array.from([BEGIN_TOKEN, ...tokenize(inputs)])],
      n: 1,
      maxTokens: wholeNumber(parameters['max_new_tokens']) ?? null,
      stream,
      includeUsage: false,
      continuousUsage: false,
      cacheSalt: undefined,
      details: parameters['details'] === true,
      listed,
    },
  };
}

/** What TGI's validation says of it; null when it may run. */
export function validate(generation: TgiGeneration, limits: TgiLimits): TgiFault | null {
  const { maxTokens, prompts } = generation;
  const fault = (detail: string): TgiFault => ({ kind: 'validation', detail });
  if (prompts.length > limits.maxClientBatch) {
    return fault(
      `Number of prompts exceeds the maximum allowed batch size of ${limits.maxClientBatch}`,
    );
  }
  for (const { length } of prompts) {
    if (length <= 1) return fault('`inputs` cannot be empty');
    if (length > limits.maxInputTokens) {
      return fault(
        `\`inputs\` must have less than ${limits.maxInputTokens} tokens. Given: ${length}`,
      );
    }
    if (maxTokens === null) continue;
    if (maxTokens < 1) return fault('`max_new_tokens` must be strictly positive');
    if (length + maxTokens > limits.maxTotalTokens) {
      return fault(
        `\`inputs\` tokens + \`max_new_tokens\` must be <= ${limits.maxTotalTokens}. Given: ${length} \`inputs\` tokens and ${maxTokens} \`max_new_tokens\``,
      );
    }
  }
  return null;
}

export function wrongForm(detail: string): TgiReply {
  return malformed(422, `Failed to deserialize the JSON body into the target type: ${detail}`);
}

function wrong(detail: string): TgiParsed {
  return { ok: false, reply: wrongForm(detail) };
}

function wholeNumber(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isInteger(value) ? value : undefined;
}
