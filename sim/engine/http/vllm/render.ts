// The render endpoints: a request as the tokens that the engine would get.

import { errorReply, type Reply } from '../reply.ts';
import type { Generation } from './parse.ts';
import { integerOf, numberOf, textOf, type JsonObject } from './validation.ts';

export const SCALE_OUT_DISABLED = errorReply(
  403,
  'PermissionDeniedError',
  'Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.',
);

/** One request for each prompt; chat has one, which stands alone. */
export function renderReply(generation: Generation, body: JsonObject, requestId: string): Reply {
  const several = generation.kind === 'completion';
  const prefix = several ? 'cmpl' : 'chatcmpl';
  const requests = generation.prompts.map((prompt, at) => ({
    request_id: several ? `${prefix}-${requestId}-${at}` : `${prefix}-${requestId}`,
    token_ids: [...prompt],
    token_offsets: null,
    features: null,
    content_parts: null,
    sampling_params: samplingParams(generation, body),
    model: textOf(body['model']) ?? null,
    reasoning_ended: null,
    reasoning_parser_kwargs: null,
    return_token_ids: null,
    output_mode: 'tokens',
    stream: generation.stream,
    stream_options: generation.stream ? (body['stream_options'] ?? null) : null,
    cache_salt: generation.cacheSalt ?? null,
    priority: generation.priority,
    kv_transfer_params: null,
    ec_transfer_params: null,
  }));
  return { status: 200, body: several ? requests : requests[0] };
}

/** What differs from the defaults, as vLLM's encoder leaves it. */
function samplingParams(generation: Generation, body: JsonObject): object {
  const temperature = numberOf(body['temperature']);
  const seed = integerOf(body['seed']);
  return {
    ...(temperature === null ? {} : { temperature }),
    ...(seed === null ? {} : { seed }),
    stop: generation.stop,
    stop_token_ids: [],
    bad_words: [],
    ...(generation.maxTokens === null ? {} : { max_tokens: generation.maxTokens }),
    ...(generation.minTokens === 0 ? {} : { min_tokens: generation.minTokens }),
    skip_reading_prefix_cache: false,
  };
}
