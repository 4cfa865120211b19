// The bodies of SGLang's generation answers: OpenAI's two protocols and its own.
//
// A chat stream begins with the role alone and ends with an empty delta that has the reason. `cached_tokens` is given
// only with `--enable-cache-report`, and not when it is 0. A required tool call is named first and then gets its arguments.

import { END_TOKEN } from '../../tokenizer.ts';
import type { Choice, TokenPiece } from '../generation.ts';
import { tokenCounts } from '../token-counts.ts';

export interface AnswerHead {
  readonly kind: 'chat' | 'completion' | 'native';
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  /** As the request named it. */
  readonly model: string;
  readonly cacheReport: boolean;
  /** The tool that the answer calls, its text being the arguments; null where the model talks. */
  readonly tool: string | null;
}

export function usageOf(head: AnswerHead, choices: readonly Choice[]): object {
  const { prompt, completion, cached } = tokenCounts(choices);
  return {
    prompt_tokens: prompt,
    total_tokens: prompt + completion,
    completion_tokens: completion,
    prompt_tokens_details: head.cacheReport && cached > 0 ? { cached_tokens: cached } : null,
    reasoning_tokens: 0,
  };
}

export function wholeAnswer(
  head: AnswerHead,
  choices: readonly Choice[],
  totalSeconds: number,
): object {
  if (head.kind === 'native') {
    const answers = choices.map((choice) => nativeAnswer(head, choice, totalSeconds));
    return answers.length === 1 ? (answers[0] ?? {}) : answers;
  }
  const chat = head.kind === 'chat';
  const { id, created, model } = head;
  return {
    id,
    object: chat ? 'chat.completion' : 'text_completion',
    created,
    model,
    choices: choices.map((choice) => ({
      index: choice.index,
      ...(chat
        ? {
            message: { role: 'assistant', ...messageOf(head, choice) },
          }
        : { text: choice.text }),
      logprobs: null,
      finish_reason: reasonOf(head, choice),
      matched_stop: matchedStop(choice),
    })),
    usage: usageOf(head, choices),
    metadata: { weight_version: 'default' },
  };
}

function messageOf(head: AnswerHead, { index, text }: Choice): object {
  if (head.tool === null) return { content: text, reasoning_content: null, tool_calls: null };
  const called = { name: head.tool, arguments: text };
  const call = { id: callId(head, index), index: 0, type: 'function', function: called };
  return { content: null, reasoning_content: null, tool_calls: [call] };
}

/** A call that is whole ends by its own word. */
function reasonOf({ kind, tool }: AnswerHead, { finish }: Choice): string | null {
  return kind === 'chat' && tool !== null && finish === 'stop' ? 'tool_calls' : finish;
}

function callId({ id }: AnswerHead, index: number): string {
  return `call_${id.slice(0, 22)}${index.toString(16).padStart(2, '0')}`;
}

/** Cumulative, as SGLang's own streams are. */
export function nativeAnswer(head: AnswerHead, choice: Choice, totalSeconds: number): object {
  const finish_reason =
    choice.finish === 'length'
      ? { type: 'length', length: choice.tokens }
      : choice.finish === null
        ? null
        : { type: choice.finish, matched: matchedStop(choice) };
  return {
    text: choice.text,
    meta_info: {
      id: head.id,
      finish_reason,
      prompt_tokens: choice.promptTokens,
      weight_version: 'default',
      completion_tokens: choice.tokens,
      cached_tokens: choice.cachedTokens,
      ...(choice.finish === null ? {} : { e2e_latency: totalSeconds }),
    },
  };
}

/** Events of one token. `usage`: given in every chunk. */
export function tokenEvents(
  head: AnswerHead,
  choice: Choice,
  piece: TokenPiece & { readonly usage: boolean },
): object[] {
  const usage = piece.usage ? { usage: usageOf(head, [choice]) } : {};
  if (head.kind === 'native') return [nativeAnswer(head, choice, 0)];
  if (head.kind === 'completion') {
    const own = { index: choice.index, text: piece.text, logprobs: null };
    const end = { finish_reason: piece.finish, matched_stop: matchedStop(choice) };
    return [{ ...headOf(head), choices: [{ ...own, ...end }], ...usage }];
  }
  const events: object[] = [];
  const { index } = choice;
  if (piece.index === 0) {
    events.push(chatChunk(head, { index, delta: { role: 'assistant', content: '' } }));
  }
  if (head.tool !== null && piece.index === 0) {
    const named = { name: head.tool, arguments: '' };
    const call = { id: callId(head, index), index: 0, type: 'function', function: named };
    events.push(chatChunk(head, { index, delta: { tool_calls: [call] } }));
  }
  if (piece.text !== '') {
    const delta = head.tool === null ? { content: piece.text } : argumentsDelta(piece.text);
    events.push({ ...chatChunk(head, { index, delta }), ...usage });
  }
  return events;
}

function argumentsDelta(text: string): object {
  const more = { name: null, arguments: text };
  return { tool_calls: [{ id: null, index: 0, type: 'function', function: more }] };
}

/** The last chunk of a chat choice: the reason with an empty delta. */
export function endEvent(head: AnswerHead, choice: Choice): object {
  return chatChunk(head, {
    index: choice.index,
    delta: {},
    finish: reasonOf(head, choice),
    matched: matchedStop(choice),
  });
}

export function usageEvent(head: AnswerHead, choices: readonly Choice[]): object {
  return { ...headOf(head), choices: [], usage: usageOf(head, choices) };
}

function chatChunk(
  head: AnswerHead,
  choice: {
    readonly index: number;
    readonly delta: object;
    readonly finish?: string | null;
    readonly matched?: string | number | null;
  },
): object {
  return {
    ...headOf(head),
    choices: [
      {
        index: choice.index,
        delta: { reasoning_content: null, ...choice.delta },
        logprobs: null,
        finish_reason: choice.finish ?? null,
        matched_stop: choice.matched ?? null,
      },
    ],
  };
}

function headOf({ kind, id, created, model }: AnswerHead): object {
  const object = kind === 'chat' ? 'chat.completion.chunk' : 'text_completion';
  return { id, object, created, model };
}

/** The stop string that ended it, or the token at which the model stopped by itself. */
function matchedStop({ finish, stopReason }: Choice): string | number | null {
  return finish === 'stop' ? (stopReason ?? END_TOKEN) : null;
}
