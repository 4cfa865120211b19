// One answer to one client. It knows what has been written, so that each failure takes the form that is
// still possible: a status while nothing was written, an error event once a stream has begun. Behind such an event the
// answer has no end of its own: its connection is cut. Client libraries differ in whether an error event is an error (the
// AI SDK's `textStream` just ends, curl's exit code is 0); an answer that breaks off is one to all of them.
//
// Head and first event leave in one write, every later piece in one write, without delay, and a whole answer in one. Nothing
// is compressed and nothing is announced that a cut could make a lie.
//
// Later pieces of a chunked answer are framed here and written to the connection itself: `ServerResponse.write` makes four
// writes of each, which the end of the turn gathers again, and costs half of what a stream costs in all. That is safe once
// the head has left and while the response gathers nothing: it holds pieces back, itself, until the end of their turn.

import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import {
  type ErrorAnswer,
  type ErrorFacts,
  errorAnswer,
  errorBodyEvent,
  errorEvent,
} from './error-envelope.ts';
import type { ResponseHeader } from './headers.ts';

export type AnswerHeaders = Partial<Record<ResponseHeader, string>>;

const KEEP_ALIVE_COMMENT = ': keep-alive\n\n';
const STREAM_HEADERS = {
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no',
} as const;

/** A whole answer up to this size goes out as text with its head, one write in place of two, bytes. */
const TEXT_BYTES = 16 * 1024;

export class Reply {
  /** The 200 of a stream went out with nothing but comments: a failure is an event from here on. */
  keptAlive = false;
  /** Time of the last write, by the clock of `nowMs` arguments. */
  lastWriteMs: number;
  private readonly response: ServerResponse;
  private readonly own: Readonly<Record<string, string>>;
  private readonly breakOff: (response: ServerResponse) => void;
  private over = false;
  /** Bytes that the head announces, until anything is written; null where it announces none. */
  private announced: number | null = null;
  /** Head and a first piece are on their way. */
  private opened = false;
  /** The whole answer has been handed over, its end too. */
  private whole = false;
  /** Who says when there is room again. */
  private slow: Writable | null = null;

  /** `own` headers go with whatever the answer is; `breakOff` cuts its connection once the client has read what was written. */
  constructor(
    response: ServerResponse,
    own: Readonly<Record<string, string>>,
    how: { readonly nowMs: number; readonly breakOff: (response: ServerResponse) => void },
  ) {
    this.response = response;
    this.own = own;
    this.lastWriteMs = how.nowMs;
    this.breakOff = how.breakOff;
  }

  get begun(): boolean {
    return this.response.headersSent;
  }

  get ended(): boolean {
    return this.over;
  }

  /** Calls `task` once when the client has taken what was written. */
  onceDrained(task: () => void): void {
    (this.slow ?? this.response).once('drain', task);
  }

  /** Begins a stream, if need be, and says that the server is still there. */
  keepAlive(nowMs: number): void {
    if (this.over) return;
    if (!this.begun) {
      this.keptAlive = true;
      this.head(200, { 'content-type': 'text/event-stream; charset=utf-8', ...STREAM_HEADERS });
    }
    this.write(Buffer.from(KEEP_ALIVE_COMMENT), nowMs);
  }

  /** Head of a stream; left out where comments have sent it already. */
  beginStream(contentType: string, routed: AnswerHeaders): void {
    if (this.begun || this.over) return;
    this.head(200, { 'content-type': contentType, ...STREAM_HEADERS, ...routed });
  }

  beginAnswer(
    status: number,
    facts: {
      readonly contentType: string;
      readonly length: number | null;
      readonly passed?: Readonly<Record<string, string>>;
    },
    routed: AnswerHeaders,
  ): void {
    if (this.begun || this.over) return;
    this.announced = facts.length;
    const length = facts.length === null ? {} : { 'content-length': String(facts.length) };
    this.head(status, { 'content-type': facts.contentType, ...length, ...facts.passed, ...routed });
  }

  /** Ends without content. */
  endEmpty(headers: Readonly<Record<string, string>>): void {
    if (this.begun || this.over) return;
    this.head(204, headers);
    this.end();
  }

  /** False when the client reads more slowly than this writes: wait for `onceDrained`. `last`: its end follows at once. */
  write(piece: Buffer, nowMs: number, last = false): boolean {
    if (this.over || piece.length === 0) return true;
    this.lastWriteMs = nowMs;
    const { response } = this;
    if (piece.length === this.announced && !this.opened) return this.writeWhole(piece);
    this.slow = last ? null : this.connection();
    if (this.slow !== null) return this.slow.write(chunkOf(piece));
    if (!this.opened && !last) return this.writeFirst(piece);
    this.opened = true;
    // With what comes last goes the end, in one write.
    return response.write(piece);
  }

  /** All that was written has gone out. */
  get flushed(): boolean {
    return this.response.writableLength === 0;
  }

  end(): void {
    if (this.over) return;
    this.over = true;
    if (!this.whole) this.response.end();
  }

  /** Ends with an error in whichever form is still possible. True when it had to be an event. */
  fail(facts: ErrorFacts, routed: AnswerHeaders = {}): boolean {
    if (this.over) return this.begun;
    if (!this.begun) {
      this.answer(errorAnswer(facts), routed);
      return false;
    }
    this.lastWords(errorEvent(facts));
    return true;
  }

  /** Ends with an engine's own error answer. True when it had to be an event. */
  passError(answer: ErrorAnswer, routed: AnswerHeaders): boolean {
    if (this.over) return this.begun;
    if (!this.begun) {
      this.answer(answer, routed);
      return false;
    }
    this.lastWords(errorBodyEvent(answer.body));
    return true;
  }

  /** Cuts the connection: the last resort, where a clean end would look complete. */
  destroy(): void {
    this.over = true;
    const { response } = this;
    // Others that are asked for on its connection come first: at its turn Node would write what waits, and then nothing.
    if (response.socket === null) response.once('socket', (socket: Socket) => socket.destroy());
    response.destroy();
  }

  private lastWords(event: string): void {
    this.over = true;
    this.response.write(event);
    this.breakOff(this.response);
  }

  /** Where the next chunk may be written to itself; null where only the response knows its place. */
  private connection(): Writable | null {
    const { chunkedEncoding, writableCorked, socket } = this.response;
    const direct = this.opened && chunkedEncoding && writableCorked === 0;
    // A client that ends its side has its connection ended, and what comes until that is done is no error.
    return direct && socket?.writable === true ? socket : null;
  }

  /** Leaves now: of its own accord the response would gather until the turn ends, with all that is noted of a first token. */
  private writeFirst(piece: Buffer): boolean {
    const { response } = this;
    const { socket } = response;
    this.opened = true;
    socket?.cork();
    const more = response.write(piece);
    socket?.uncork();
    return more;
  }

  private writeWhole(body: Buffer): true {
    this.whole = true;
    if (body.length > TEXT_BYTES) this.response.end(body);
    else this.response.end(body.toString('latin1'), 'latin1');
    return true;
  }

  private answer(answer: ErrorAnswer, routed: AnswerHeaders): void {
    const { retryAfterMs } = answer;
    const retry =
      retryAfterMs === null
        ? {}
        : {
            'retry-after': String(Math.ceil(retryAfterMs / 1_000)),
            'retry-after-ms': String(retryAfterMs),
          };
    this.head(answer.status, {
      'content-type': answer.contentType,
      'content-length': String(answer.body.length),
      'x-should-retry': String(answer.shouldRetry),
      ...retry,
      ...routed,
    });
    this.over = true;
    this.response.end(answer.body);
  }

  private head(status: number, headers: Readonly<Record<string, string>>): void {
    this.response.writeHead(status, { ...this.own, ...headers });
  }
}

const CR = 0x0d;
const LF = 0x0a;
const HEX = Buffer.from('0123456789abcdef');

/** As HTTP/1.1 frames it. By single bytes: each call that writes a few of them costs more than these. */
function chunkOf(piece: Buffer): Buffer {
  const { length } = piece;
  const digits = (35 - Math.clz32(length)) >> 2;
  const frame = Buffer.allocUnsafe(digits + length + 4);
  for (let at = digits - 1, rest = length; at >= 0; at -= 1, rest >>>= 4) {
    frame[at] = HEX[rest & 0xf] as number;
  }
  frame[digits] = CR;
  frame[digits + 1] = LF;
  frame.set(piece, digits + 2);
  frame[digits + length + 2] = CR;
  frame[digits + length + 3] = LF;
  return frame;
}
