// Errors in OpenAI's shape, as a body and as an event of a stream that has begun.

import { ERRORS, type ErrorCode, FleetError } from '../../shared/errors.ts';
import { isObject } from './canonical.ts';

export interface ErrorAnswer {
  readonly status: number;
  readonly body: Buffer;
  readonly contentType: string;
  readonly shouldRetry: boolean;
  /** 1,000 to 60,000 ms: SDKs ignore or mistreat longer waits. */
  readonly retryAfterMs: number | null;
}

export interface ErrorFacts {
  readonly code: ErrorCode;
  readonly message: string;
  readonly param?: string | null;
  readonly retryAfterMs?: number | null;
}

const JSON_TYPE = 'application/json';

export function errorAnswer(facts: ErrorFacts): ErrorAnswer {
  const row = ERRORS[facts.code];
  return {
    status: row.status,
    body: Buffer.from(JSON.stringify(envelope(facts))),
    contentType: JSON_TYPE,
    shouldRetry: row.retryable,
    retryAfterMs: saidMs(facts.retryAfterMs ?? null),
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

/** The error as the last words of a stream. No `[DONE]` follows: to a client that knows no errors it says that all is there. */
export function errorEvent(facts: ErrorFacts): string {
  return `data: ${JSON.stringify(envelope(facts))}\n\n`;
}

/** An engine's own 4xx body as an event of a stream that has begun. */
export function errorBodyEvent(body: Buffer): string {
  return `data: ${JSON.stringify(JSON.parse(body.toString('utf8')))}\n\n`;
}

/**
 * An engine's answer about the request itself. A body that is an envelope with a message passes byte for byte; anything else
 * is wrapped: SGLang's flat errors and TGI's `{"error": "…", "error_type": …}` with what they say, a plain sentence as it
 * is, HTML and nothing as the status.
 */
export function engineErrorAnswer(status: number, body: Buffer): ErrorAnswer {
  const common = { status, contentType: JSON_TYPE, shouldRetry: false, retryAfterMs: null };
  const value = parse(body);
  const error = isObject(value) && isObject(value['error']) ? value['error'] : null;
  if (typeof error?.['message'] === 'string') return { ...common, body };
  const said = error ?? (isObject(value) ? value : {});
  const message = isObject(value) ? detailOf(said) : sentenceOf(body);
  const wrapped = {
    error: {
      message: message ?? `The engine answered with status ${status}.`,
      type: wordOf(said['type']) ?? 'invalid_request_error',
      param: wordOf(said['param']),
      code: wordOf(said['error_type']) ?? 'engine_error',
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

function saidMs(ms: number | null): number | null {
  return ms === null ? null : Math.min(60_000, Math.max(1_000, Math.ceil(ms)));
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8')) as unknown;
  } catch {
    // Not JSON: it is wrapped.
    return null;
  }
}

/** A body that is plain text, as TGI's web framework answers; a page of a proxy is none. */
function sentenceOf(body: Buffer): string | null {
  if (body.length === 0 || body.length > 1_000) return null;
  const text = body.toString('utf8').trim();
  return text === '' || /[<{[]/.test(text[0] ?? '') ? null : text;
}

function wordOf(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value.slice(0, 100) : null;
}

/** The sentence of a body that is JSON but no envelope. */
function detailOf(value: Readonly<Record<string, unknown>>): string | null {
  const text = value['message'] ?? value['detail'] ?? value['error'];
  return typeof text === 'string' ? text.slice(0, 1_000) : null;
}
