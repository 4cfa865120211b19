// The bodies of generation answers, member by member as a vLLM 0.32.0 writes them
// (test/fixtures/vllm-0.32.0/chat-*.http, completion*.http).

import type { FinishReason } from '../../stats.ts';
import type { Choice } from '../generation.ts';

export interface AnswerHead {
  readonly kind: 'chat' | 'completion';
  readonly id: string;
  /** Tells requests apart to which clients gave the same id. */
  readonly serial: number;
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
  readonly fingerprint: string;
  /** `usage.prompt_tokens_details` is given. */
  readonly details: boolean;
}

export interface ChunkOptions {
  readonly text: string;
  readonly finish: FinishReason | null;
  /** Given in every chunk (`continuous_usage_stats`). */
  readonly usage: object | null;
  /** The chunk is the stream's last with choices and no usage chunk follows. */
  readonly last: boolean;
}

export const DONE_EVENT = 'data: [DONE]\n\n';

export function dataEvent(body: object): string {
  return `data: ${JSON.stringify(body)}\n\n`;
}

/** The first chunk of a chat choice: only the role. */
export function roleChunk(head: AnswerHead, index: number, usage: object | null): object {
  return {
    ...chunkHead(head),
    choices: [
      { index, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null },
    ],
    ...(usage === null ? {} : { usage }),
    prompt_token_ids: null,
    prompt_text: null,
  };
}

export function textChunk(head: AnswerHead, index: number, options: ChunkOptions): object {
  return {
    ...chunkHead(head),
    choices: [head.kind === 'chat' ? chatDelta(index, options) : completionDelta(index, options)],
    ...(options.usage === null ? {} : { usage: options.usage }),
    ...(options.last ? { system_fingerprint: head.fingerprint } : {}),
  };
}

function chatDelta(index: number, { text, finish }: ChunkOptions): object {
  return {
    index,
    delta: { content: text },
    logprobs: null,
    finish_reason: finish,
    ...(finish === null ? {} : { stop_reason: null }),
    token_ids: null,
  };
}

function completionDelta(index: number, { text, finish }: ChunkOptions): object {
  return {
    index,
    text,
    logprobs: null,
    finish_reason: finish,
    stop_reason: null,
    prompt_token_ids: null,
    token_ids: null,
  };
}

/** The chunk after all choices, where usage was asked for. */
export function usageChunk(
  head: AnswerHead,
  choices: readonly Choice[],
  blockTokens: number,
): object {
  const counts = tokenCounts(choices);
  const details = !head.details
    ? {}
    : {
        prompt_tokens_details: {
          cached_tokens: cachedOf(choices),
          ...(head.kind === 'chat'
            ? { created_cache_tokens: createdOf(choices, blockTokens) }
            : {}),
        },
      };
  return {
    ...chunkHead(head),
    choices: [],
    usage: { ...counts, ...details },
    system_fingerprint: head.fingerprint,
  };
}

/** Usage so far, as `continuous_usage_stats` puts it in every chunk. */
export function runningUsage(choice: Choice): object {
  return { ...tokenCounts([choice]), completion_tokens_details: null };
}

export function wholeAnswer(
  head: AnswerHead,
  choices: readonly Choice[],
  blockTokens: number,
): object {
  const shared = {
    service_tier: null,
    system_fingerprint: head.fingerprint,
    usage: wholeUsage(head, choices, blockTokens),
  };
  const transfer = { kv_transfer_params: null, ec_transfer_params: null, metrics: null };
  if (head.kind === 'completion') {
    return {
      id: head.id,
      object: 'text_completion',
      created: head.created,
      model: head.model,
      choices: choices.map(completionChoice),
      ...shared,
      ...transfer,
    };
  }
  return {
    id: head.id,
    object: 'chat.completion',
    created: head.created,
    model: head.model,
    choices: choices.map(chatChoice),
    ...shared,
    prompt_logprobs: null,
    prompt_token_ids: null,
    prompt_text: null,
    ...transfer,
  };
}

function chatChoice(choice: Choice): object {
  return {
    index: choice.index,
    message: {
      role: 'assistant',
      content: choice.text,
      refusal: null,
      annotations: null,
      audio: null,
      function_call: null,
      reasoning: null,
    },
    logprobs: null,
    finish_reason: choice.finish,
    stop_reason: null,
    token_ids: null,
    routed_experts: null,
  };
}

function completionChoice(choice: Choice): object {
  return {
    index: choice.index,
    text: choice.text,
    logprobs: null,
    finish_reason: choice.finish,
    stop_reason: null,
    token_ids: null,
    prompt_logprobs: null,
    prompt_token_ids: null,
    routed_experts: null,
  };
}

function wholeUsage(head: AnswerHead, choices: readonly Choice[], blockTokens: number): object {
  const details = {
    cached_tokens: cachedOf(choices),
    created_cache_tokens: head.kind === 'chat' ? createdOf(choices, blockTokens) : null,
    multimodal_tokens: null,
  };
  return {
    ...tokenCounts(choices),
    prompt_tokens_details: head.details ? details : null,
    completion_tokens_details: null,
  };
}

function chunkHead(head: AnswerHead): object {
  const object = head.kind === 'chat' ? 'chat.completion.chunk' : 'text_completion';
  return { id: head.id, object, created: head.created, model: head.model };
}

function tokenCounts(choices: readonly Choice[]): object {
  const prompt = sumOf(choices, (choice) => (choice.first ? choice.promptTokens : 0));
  const completion = sumOf(choices, (choice) => choice.tokens);
  return {
    prompt_tokens: prompt,
    total_tokens: prompt + completion,
    completion_tokens: completion,
  };
}

function cachedOf(choices: readonly Choice[]): number {
  return sumOf(choices, (choice) => (choice.first ? choice.cachedTokens : 0));
}

/** Prompt tokens whose full blocks this request put into the cache. */
function createdOf(choices: readonly Choice[], blockTokens: number): number {
  const [first] = choices;
  if (first === undefined) return 0;
  const full = Math.floor(first.promptTokens / blockTokens) * blockTokens;
  return Math.max(0, full - first.cachedTokens);
}

function sumOf(choices: readonly Choice[], value: (choice: Choice) => number): number {
  return choices.reduce((sum, choice) => sum + value(choice), 0);
}
