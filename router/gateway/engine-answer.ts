// Whether an engine's 200 really is an answer, and whose fault a status is.

import type { Usage } from '../../shared/protocol/messages.ts';
import { isObject } from './canonical.ts';
import { faultText, isFault } from './event-scan.ts';
import { usageAtEnd, usageOf } from './usage.ts';

export type AnswerVerdict =
  | { readonly kind: 'complete'; readonly usage: Usage | null }
  | {
      readonly kind: 'fault';
      readonly cause: 'error_event' | 'abort' | 'bad_answer';
      readonly detail: string;
    };

/** A whole body of status 200. A list is an answer only where `anyJson` says so. */
export function judgeAnswer(body: Buffer, anyJson = false): AnswerVerdict {
  const value = parse(body);
  if (anyJson && Array.isArray(value)) return { kind: 'complete', usage: null };
  if (!isObject(value)) return { kind: 'fault', cause: 'bad_answer', detail: 'not a JSON object' };
  if (isFault(value)) return { kind: 'fault', cause: 'error_event', detail: faultText(value) };
  const choices = value['choices'];
  if (Array.isArray(choices) && choices.some(isAborted)) {
    return { kind: 'fault', cause: 'abort', detail: 'the engine aborted the request' };
  }
  return { kind: 'complete', usage: usageOf(value['usage']) };
}

/** A whole body that the tier behind has judged already: of it the usage is looked for, and nothing else is read. */
export function judgedAnswer(body: Buffer, anyJson = false): AnswerVerdict {
  const usage = usageAtEnd(body);
  return usage === undefined ? judgeAnswer(body, anyJson) : { kind: 'complete', usage };
}

/**
 * 401 and 403 are about our own key, 408 about the engine's time, 421 about a region that we should not have asked, 424 is
 * TGI's batch that failed, 429 back-pressure.
 */
const NOT_THE_CLIENTS: readonly number[] = [401, 403, 408, 421, 424, 429];

/** The status, where the request itself is at fault; null where the engine is. */
export function errorStatusOf(status: number | null): number | null {
  if (status === null || status < 400 || status > 499) return null;
  return NOT_THE_CLIENTS.includes(status) ? null : status;
}

/** It has no room now: in a header, or as the first event of a stream. */
export function isBackPressure(status: number | null): status is 429 | 503 | 529 {
  return status === 429 || status === 503 || status === 529;
}

function isAborted(choice: unknown): boolean {
  return isObject(choice) && choice['finish_reason'] === 'abort';
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8')) as unknown;
  } catch {
    // Judged by the caller: no object, no answer.
    return null;
  }
}
