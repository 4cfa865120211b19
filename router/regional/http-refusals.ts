// What the HTTP parser refuses has no request to answer: the envelope is written by hand, with the headers that
// every answer has. Where an answer is already under way, or nothing was ever sent, the connection just ends.
// One that is answered ends a moment later whatever its client does: it may never read, and never close.

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { ErrorCode } from '../../shared/errors.ts';
import type { LimitName } from '../../shared/model/limit.ts';
import { randomHex } from '../../shared/runtime/entropy.ts';
import type { Timers } from '../../shared/runtime/timers.ts';
import { errorAnswer } from '../gateway/error-envelope.ts';
import { requestIdOf } from '../gateway/openai-request.ts';

/** ms for a client to take its refusal before its connection is destroyed. */
const LINGER_MS = 1_000;

interface Refusal {
  readonly code: ErrorCode;
  readonly message: string;
  readonly limit: LimitName | null;
}

const REFUSALS: Readonly<Record<string, Refusal>> = {
  ERR_HTTP_REQUEST_TIMEOUT: {
    code: 'request_timeout',
    message: 'The request did not arrive in time.',
    limit: 'request_timeout',
  },
  HPE_HEADER_OVERFLOW: {
    code: 'headers_too_large',
    message: "The request's headers are too large.",
    limit: 'header_bytes',
  },
};
const NOT_HTTP: Refusal = {
  code: 'invalid_request',
  message: 'The request is not valid HTTP.',
  limit: null,
};

export class UnparsedRefusals {
  private readonly onLimit: (limit: LimitName) => void;
  private readonly timers: Timers;
  private readonly answers = new WeakMap<Duplex, ServerResponse>();
  private readonly timedOut = new WeakSet<Duplex>();

  constructor(onLimit: (limit: LimitName) => void, timers: Timers) {
    this.onLimit = onLimit;
    this.timers = timers;
  }

  /** A request has been parsed; `response` is its answer. */
  parsed(request: IncomingMessage, response: ServerResponse): void {
    this.answers.set(request.socket, response);
  }

  /** The request's body did not arrive in time, and its client has been told. */
  cameTooLate(request: IncomingMessage): boolean {
    return this.timedOut.has(request.socket);
  }

  /** For the server's `clientError`. */
  refuse(error: Error, socket: Duplex & { readonly bytesRead?: number }): void {
    const refusal = REFUSALS[String((error as { code?: unknown }).code)] ?? NOT_HTTP;
    if (socket.bytesRead === 0) return void socket.destroy();
    if (refusal.limit !== null) this.onLimit(refusal.limit);
    if (refusal.limit === 'request_timeout') this.timedOut.add(socket);
    const answer = this.answers.get(socket);
    const underWay = answer?.headersSent === true && !answer.writableFinished;
    // The rest of a body whose request has been answered already: there is nothing more to say.
    const answered = answer?.writableFinished === true && !answer.req.complete;
    if (underWay || answered || !socket.writable) return void socket.destroy();
    socket.end(written(refusal));
    const cancel = this.timers.after(LINGER_MS, () => socket.destroy());
    socket.once('close', cancel);
  }
}

function written({ code, message }: Refusal): string {
  const { status, contentType, body, shouldRetry } = errorAnswer({ code, message });
  const id = requestIdOf(randomHex(12));
  return [
    `HTTP/1.1 ${status} Refused`,
    `x-request-id: ${id}`,
    `x-spillway-request-id: ${id}`,
    `content-type: ${contentType}`,
    `content-length: ${body.length}`,
    `x-should-retry: ${String(shouldRetry)}`,
    'connection: close',
    '',
    body.toString(),
  ].join('\r\n');
}
