// What the HTTP parser refuses has no request to answer: the envelope is written by hand, with the headers that
// every answer has. Where an answer is already under way, or nothing was ever sent, the connection just ends.
// One that is answered ends a moment later whatever its client does: it may never read, and never close.

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { FleetError, type ErrorCode } from '../../shared/errors.ts';
import type { LimitName } from '../../shared/model/limit.ts';
import { randomHex } from '../../shared/runtime/entropy.ts';
import type { Timers } from '../../shared/runtime/timers.ts';
import { errorAnswer } from './error-envelope.ts';
import { requestIdOf } from './openai-request.ts';

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
  HPE_CHUNK_EXTENSIONS_OVERFLOW: {
    code: 'request_too_large',
    message: "The extensions of the request's chunks are too large.",
    limit: 'chunk_extensions',
  },
};
/** The client has ended its side in the middle of a request. */
const ENDED_EARLY = 'HPE_INVALID_EOF_STATE';
const NOT_HTTP: Refusal = {
  code: 'invalid_request',
  message: 'The request is not valid HTTP.',
  limit: null,
};
const TUNNEL: Refusal = {
  code: 'method_not_allowed',
  message: 'There are no tunnels here.',
  limit: null,
};

export class UnparsedRefusals {
  private readonly counted: (code: ErrorCode | null, limit: LimitName | null) => void;
  private readonly timers: Timers;
  private readonly answers = new WeakMap<Duplex, ServerResponse>();
  private readonly told = new WeakMap<Duplex, Refusal>();

  /** `counted` hears of each refusal. A request that had begun is counted by its own end: of it only the limit is told. */
  constructor(counted: (code: ErrorCode | null, limit: LimitName | null) => void, timers: Timers) {
    this.counted = counted;
    this.timers = timers;
  }

  /** A request has been parsed; `response` is its answer. */
  parsed(request: IncomingMessage, response: ServerResponse): void {
    this.answers.set(request.socket, response);
  }

  /** What its client has been told of a request whose body broke off or came too late; null where that is not so. */
  saidOf(request: IncomingMessage, cause: unknown): FleetError | null {
    const refusal = this.told.get(request.socket);
    return refusal === undefined ? null : new FleetError(refusal.code, refusal.message, { cause });
  }

  /** For the server's `connect`. */
  refuseTunnel(socket: Duplex): void {
    socket.on('error', () => undefined);
    this.counted(TUNNEL.code, TUNNEL.limit);
    this.tell(socket, TUNNEL);
  }

  /** For the server's `clientError`. */
  refuse(error: Error, socket: Duplex & { readonly bytesRead?: number }): void {
    const code = String((error as { code?: unknown }).code);
    // A client that is gone, or never said anything, did nothing wrong.
    const wrong = code === 'ERR_HTTP_REQUEST_TIMEOUT' || code.startsWith('HPE_');
    if (socket.bytesRead === 0 || !wrong || this.told.has(socket)) return void socket.destroy();
    const refusal = REFUSALS[code] ?? NOT_HTTP;
    const answer = this.answers.get(socket);
    const begun = answer !== undefined && !answer.req.complete;
    if (!begun) this.counted(refusal.code, refusal.limit);
    else if (refusal.limit !== null) this.counted(null, refusal.limit);
    // It has most likely left, and is counted as that; where it only half-closed it can still read why.
    if (code !== ENDED_EARLY) this.told.set(socket, refusal);
    if (!socket.writable || answer === undefined) return this.tell(socket, refusal);
    // An answer is under way, is waited for, or was given before the rest of its request came: what was written now
    // would be taken for it.
    const mute = begun ? answer.headersSent || answer.socket === null : !answer.writableFinished;
    if (mute) return void socket.destroy();
    this.tell(socket, refusal);
  }

  private tell(socket: Duplex, refusal: Refusal): void {
    if (!socket.writable) return void socket.destroy();
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
