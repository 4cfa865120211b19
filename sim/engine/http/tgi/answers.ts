// The bodies of TGI's generation answers: OpenAI's two protocols and its own.
//
// `id` is empty, `model` is the server's own whatever the request named, usage has no cached tokens. Every chunk of a chat
// has the role. A call of a tool that was required ends by `stop`. A completion's chunks have an empty `finish_reason` until the last, which carries the usage.

import type { Choice, TokenPiece } from '../generation.ts';
import { tokenCounts } from '../token-counts.ts';

export interface AnswerHead {
  readonly kind: 'chat' | 'completion' | 'native';
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
  readonly fingerprint: string;
  /** Native answers only: more than the text was asked for. */
  readonly details: boolean;
  readonly listed: boolean;
  /** The tool that a chat calls, its text being the arguments; null where the model talks. */
  readonly tool: string | null;
}

interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
}

export function usageOf(choices: readonly Choice[]): Usage {
  const { prompt, completion } = tokenCounts(choices);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
  };
}

export function wholeAnswer(head: AnswerHead, choices: readonly Choice[]): object {
  const { created, model, fingerprint } = head;
  const usage = usageOf(choices);
  switch (head.kind) {
    case 'native':
      return head.listed ? [nativeAnswer(head, choices)] : nativeAnswer(head, choices);
    case 'chat':
      return {
        object: 'chat.completion',
        ...{ id: '', created, model, system_fingerprint: fingerprint },
        choices: choices.map(({ index, text, finish }) => ({
          index,
          message: { role: 'assistant', ...messageOf(head, text) },
          logprobs: null,
          finish_reason: finish,
        })),
        usage,
      };
    case 'completion':
      return {
        object: 'text_completion',
        ...{ id: '', created, model, system_fingerprint: fingerprint },
        choices: choices.map((choice) => completionChoice(choice, choice.text)),
        usage,
      };
  }
}

function messageOf({ tool }: AnswerHead, text: string): object {
  if (tool === null) return { content: text };
  const called = { description: null, name: tool, arguments: text };
  return { tool_calls: [{ id: '0', type: 'function', function: called }] };
}

/** The name stands in a call's first chunk only. */
function deltaOf({ tool }: AnswerHead, { text, index }: TokenPiece): object {
  if (tool === null) return { content: text };
  const called = { name: index === 0 ? tool : null, arguments: text };
  return { tool_calls: [{ index: 0, id: '0', type: 'function', function: called }] };
}

function completionChoice({ index, finish }: Choice, text: string): object {
  return { index, text, logprobs: null, finish_reason: finish ?? '' };
}

function nativeAnswer(head: AnswerHead, [choice]: readonly Choice[]): object {
  const text = choice?.text ?? '';
  if (!head.details || choice === undefined) return { generated_text: text };
  const finish_reason = nativeReason(choice);
  const details = { finish_reason, generated_tokens: choice.tokens, seed: null };
  return { generated_text: text, details: { ...details, prefill: [], tokens: [] } };
}

/** Events of one token. */
export function tokenEvents(
  head: AnswerHead,
  choice: Choice,
  piece: TokenPiece & { readonly includeUsage: boolean },
): object[] {
  const { created, model, fingerprint } = head;
  switch (head.kind) {
    case 'native':
      return [nativeToken(head, choice, piece)];
    case 'chat': {
      const chunk = {
        object: 'chat.completion.chunk',
        ...{ id: '', created, model, system_fingerprint: fingerprint },
      };
      const delta = { role: 'assistant', ...deltaOf(head, piece) };
      const finish_reason = piece.finish;
      const own = { index: choice.index, delta, logprobs: null, finish_reason };
      const events: object[] = [{ ...chunk, choices: [own], usage: null }];
      if (piece.finish !== null && piece.includeUsage) {
        events.push({ ...chunk, choices: [], usage: usageOf([choice]) });
      }
      return events;
    }
    case 'completion': {
      const chunk = { object: 'text_completion', id: '', created };
      const choices = [completionChoice(choice, piece.text)];
      const end = piece.finish === null ? {} : { usage: usageOf([choice]) };
      return [{ ...chunk, choices, model, system_fingerprint: fingerprint, ...end }];
    }
  }
}

function nativeToken(head: AnswerHead, choice: Choice, piece: TokenPiece): object {
  const ended = piece.finish !== null;
  const details = {
    finish_reason: nativeReason(choice),
    ...{ generated_tokens: choice.tokens, seed: null, input_length: choice.promptTokens },
  };
  return {
    index: piece.index + 1,
    token: { id: piece.tokenId, text: piece.text, logprob: 0, special: piece.text === '' },
    generated_text: ended ? choice.text : null,
    details: ended && head.details ? details : null,
  };
}

function nativeReason({ finish, stopReason }: Choice): string {
  if (finish !== 'stop') return 'length';
  return stopReason === null ? 'eos_token' : 'stop_sequence';
}
