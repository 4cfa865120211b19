// Errors in OpenAI's shape, as a body and as an event of a stream that has begun.

import { ERRORS, type ErrorCode, FleetError } from '../../shared/errors.ts';
import { isObject } from './canonical.ts';

export interface ErrorAnswer {
  readonly status: number;
  readonly body: Buffer;
  readonly contentType: string;
  readonly shouldRetry: boolean;
  /** Whole seconds, 1 to 60: SDKs ignore or mistreat longer waits. */
  readonly retryAfterS: number | null;
}

export interface ErrorFacts {
  readonly code: ErrorCode;
  readonly message: string;
  readonly param?: string | null;
  readonly retryAfterMs?: number | null;
}

const JSON_TYPE = 'application/json';
const DONE_EVENT = 'data: [DONE]\n\n';

export function errorAnswer(facts: ErrorFacts): ErrorAnswer {
  const row = ERRORS[facts.code];
  return {
    status: row.status,
    body: Buffer.from(JSON.stringify(envelope(facts))),
    contentType: JSON_TYPE,
    shouldRetry: row.retryable,
    retryAfterS: retryAfterS(facts.retryAfterMs ?? null),
  };
}

/** An operational error as facts; anything else is a bug and says nothing of itself to the client. */
export function errorFacts(error: unknown): ErrorFacts {
  if (!(error instanceof FleetError)) {
    return { code: 'internal', message: 'The router failed on this request.' };
  }
  const retryAfterMs = error.retryAfterS === null ? null : error.retryAfterS * 1_000;
  return { code: error.code, message: error.message, param: error.param, retryAfterMs };
}

/** The error as the last words of a stream: a cut stream never looks complete. */
export function errorEvent(facts: ErrorFacts): string {
  return `data: ${JSON.stringify(envelope(facts))}\n\n${DONE_EVENT}`;
}

/** An engine's own 4xx body as an event of a stream that has begun. */
export function errorBodyEvent(body: Buffer): string {
  return `data: ${JSON.stringify(JSON.parse(body.toString('utf8')))}\n\n${DONE_EVENT}`;
}

/**
 * An engine's answer about the request itself. A body that already is an envelope passes byte for byte;
 * anything else (HTML, `{"detail": …}`, nothing) is wrapped.
 */
export function engineErrorAnswer(status: number, body: Buffer): ErrorAnswer {
  const common = { status, contentType: JSON_TYPE, shouldRetry: false, retryAfterS: null };
  const value = parse(body);
  if (isObject(value) && isObject(value['error'])) return { ...common, body };
  const wrapped = {
    error: {
      message: detailOf(value) ?? `The engine answered with status ${status}.`,
      type: 'invalid_request_error',
      param: null,
      code: 'engine_error',
    },
  };
  return { ...common, body: Buffer.from(JSON.stringify(wrapped)) };
}

function envelope(facts: ErrorFacts): object {
  return {
    error: {
      message: facts.message,
      type: ERRORS[facts.code].type,
      param: facts.param ?? null,
      code: facts.code,
    },
  };
}

function retryAfterS(ms: number | null): number | null {
  return ms === null ? null : Math.min(60, Math.max(1, Math.ceil(ms / 1_000)));
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8')) as unknown;
  } catch {
    // Not JSON: it is wrapped.
    return null;
  }
}

/** The sentence of a body that is JSON but no envelope; other text of an engine is not shown to clients. */
function detailOf(value: unknown): string | null {
  if (!isObject(value)) return null;
  const text = value['message'] ?? value['detail'] ?? value['error'];
  return typeof text === 'string' ? text.slice(0, 1_000) : null;
}
