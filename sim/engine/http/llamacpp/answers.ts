// The bodies of llama.cpp's generation answers. Every whole answer and every last chunk tells its `timings`.

import type { Choice, TokenPiece } from '../generation.ts';
import { tokenCounts } from '../token-counts.ts';
import type { Timings } from './slots.ts';

export interface AnswerHead {
  readonly kind: 'chat' | 'completion';
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
  readonly fingerprint: string;
}

export function usageOf(choices: readonly Choice[]): object {
  const { prompt, completion, cached } = tokenCounts(choices);
  return {
    completion_tokens: completion,
    prompt_tokens: prompt,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: cached },
  };
}

export function wholeAnswer(
  head: AnswerHead,
  choices: readonly Choice[],
  timings: Timings,
): object {
  const chat = head.kind === 'chat';
  return {
    choices: choices.map(({ index, text, finish }) => ({
      ...(chat ? {} : { text }),
      finish_reason: finish,
      index,
      ...(chat ? { message: { role: 'assistant', content: text } } : { logprobs: null }),
    })),
    ...headOf(head, chat ? 'chat.completion' : 'text_completion'),
    usage: usageOf(choices),
    timings,
  };
}

/** Events of one token; a chat's first is the role with no content yet. */
export function tokenEvents(head: AnswerHead, choice: Choice, piece: TokenPiece): object[] {
  const { index } = choice;
  if (head.kind === 'completion') {
    const own = { text: piece.text, index, logprobs: null, finish_reason: null };
    return [{ choices: [own], ...headOf(head, 'text_completion') }];
  }
  const chunk = (delta: object): object => ({
    choices: [{ finish_reason: null, index, delta }],
    ...headOf(head, 'chat.completion.chunk'),
  });
  const first = piece.index === 0 ? [chunk({ role: 'assistant', content: null })] : [];
  return [...first, chunk({ content: piece.text })];
}

/** The last chunk of a choice, and the usage where it was asked for. */
export function endEvents(
  head: AnswerHead,
  choices: readonly Choice[],
  end: { readonly timings: Timings; readonly includeUsage: boolean },
): object[] {
  const chat = head.kind === 'chat';
  const object = chat ? 'chat.completion.chunk' : 'text_completion';
  const { timings } = end;
  const last = choices.map(({ index, finish }) => ({
    choices: [{ finish_reason: finish, index, ...(chat ? { delta: {} } : { text: '' }) }],
    ...headOf(head, object),
    ...(end.includeUsage ? {} : { timings }),
  }));
  if (!end.includeUsage) return last;
  return [...last, { choices: [], ...headOf(head, object), usage: usageOf(choices), timings }];
}

function headOf({ created, model, fingerprint, id }: AnswerHead, object: string): object {
  return { created, model, system_fingerprint: fingerprint, object, id };
}
