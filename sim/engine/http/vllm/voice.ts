// How an answer is told: one protocol each of vLLM's four gives its words to the events of a generation.

import type { FinishReason } from '../../stats.ts';
import type { Choice, GenerationRun, TokenPiece } from '../generation.ts';
import type { Generation } from './parse.ts';
import { streamedUsage, type UsageForm } from './usage.ts';

export interface AnswerHead {
  /** Without a prefix. */
  readonly requestId: string;
  /** Unix seconds. */
  readonly created: number;
  /** As it is told: the adapter's name where one answers. */
  readonly model: string;
  readonly fingerprint: string;
  readonly usage: UsageForm;
  /** Random hex digits. */
  readonly hex: (digits: number) => string;
  /** `--enable-per-request-metrics`: of the request when it has ended; null where it is not told. */
  readonly timing: (run: GenerationRun) => object | null;
}

/** Text of a stream; it is written as it is. */
export interface Voice {
  /** At once, with the head. */
  opening(): string;
  token(choice: Choice, piece: TokenPiece): string;
  /** The engine ended the answer itself, without a token. */
  cut(choice: Choice, reason: FinishReason): string;
  /** After all answers. */
  ending(): string;
  /** Null: the connection is cut. */
  failure(): string | null;
  /** The answer in one piece. */
  whole(): object;
}

export interface VoiceInput {
  readonly head: AnswerHead;
  readonly generation: Generation;
  readonly run: GenerationRun;
}

export const DONE_EVENT = 'data: [DONE]\n\n';

export function dataEvent(body: object): string {
  return `data: ${JSON.stringify(body)}\n\n`;
}

export function namedEvent(name: string, body: object): string {
  return `event: ${name}\ndata: ${JSON.stringify(body)}\n\n`;
}

/** The end of a stream of chunks that begin like `chunkHead`: the usage where it was asked for, and `[DONE]`. */
export function endingEvents(
  { head, generation, run }: VoiceInput,
  chunkHead: object,
  form: UsageForm,
): string {
  if (!generation.includeUsage) return DONE_EVENT;
  const timing = head.timing(run);
  const usage = {
    ...chunkHead,
    choices: [],
    usage: streamedUsage(run.choices, form),
    system_fingerprint: head.fingerprint,
    ...(timing === null ? {} : { metrics: timing }),
  };
  return dataEvent(usage) + DONE_EVENT;
}
