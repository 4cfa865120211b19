// One attempt at one engine, from the connection to the end of its answer. It says when the answer commits
// (first event of a stream that brings something, whole body otherwise), hands on what may be passed, ends exactly once.
//
//   connecting ─▶ waiting ─▶ streaming ─▶ over        streams: scanned event by event
//                        └─▶ holding ───▶ over        other answers: held whole up to HELD_ANSWER_BYTES
//
// A body that is held can still fail over: a cut, an error or an abort in it reaches nobody.

import type { IncomingHttpHeaders } from 'node:http';
import type { Dispatcher } from 'undici';
import {
  type AnswerVerdict,
  errorStatusOf,
  isBackPressure,
  judgeAnswer,
  judgedAnswer,
} from './engine-answer.ts';
import type { AnswerRoom } from './answer-room.ts';
import { BytePieces } from './byte-pieces.ts';
import { EventScan } from './event-scan.ts';
import { anotherServer, isAnotherServer } from './own-answer.ts';
import { retryAfterMs } from './retry-after.ts';
import { befellReused } from '../../shared/runtime/reused-connections.ts';
import type { AttemptResult, FaultCause } from '../policy/attempt-result.ts';

/** A stream's longest event, bytes: log-probabilities of a long chunk fit many times. */
const MAX_EVENT_BYTES = 4 * 1024 * 1024;
/** An answer up to this size is held until it is whole; a longer one is passed on as it comes. */
const HELD_ANSWER_BYTES = 4 * 1024 * 1024;
/** Of an unfinished event, which every stream may hold beside the room that all answers share, bytes. */
const FREE_EVENT_BYTES = 64 * 1024;
/** An error body longer than this is cut: it is an engine's fault page, not an answer. */
const MAX_ERROR_BYTES = 256 * 1024;
/** An answer that passes as it comes and brings less within the stall deadline has stalled, bytes. */
const PROGRESS_BYTES = 16 * 1024;
/** After `[DONE]` the body should end by itself; ms until the connection is closed instead. */
const END_AFTER_DONE_MS = 1_000;
/** A kept connection that breaks so soon after a request, ms, was closed before: both crossed on their ways. */
const CROSSED_MS = 250;

/** vLLM's `encoding_format: bytes`: the embeddings one after the other, and what they are in a header. */
const OPAQUE_TYPE = 'application/octet-stream';
const METADATA = 'metadata';
const METADATA_CHARS = 4_096;
const TYPE_CHARS = 256;
const SANE = /^[\x20-\x7e]+$/;
const JSON_TYPE = /^application\/(?:[a-z0-9.+-]+\+)?json\s*(?:;|$)/i;
/** One for all: what reaches it is dropped, and a trace of the stack for each would cost more than the rest of an end. */
const OVER = new Error('attempt is over');
const OPAQUE: AnswerVerdict = { kind: 'complete', usage: null };

export interface UpstreamOrder {
  readonly pool: Dispatcher;
  /** Connections that `pool` has kept may have been closed: none of them is to be used again. */
  readonly renew: () => void;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** For an answer that is held until it is whole, and for a long event of a stream. */
  readonly room: AnswerRoom;
  readonly stream: boolean;
  /** Not a generation: its answer may be a JSON list, or bytes under a type that says so. */
  readonly anyJson: boolean;
  /** The client did not ask for the usage chunk. */
  readonly dropUsage: boolean;
  /** What answers has judged whole answers itself. Absent: it has not. */
  readonly judged?: true;
  /** A router of ours is to answer: what another server does not find is a fault of the way there. Absent: an engine is. */
  readonly toRouter?: boolean;
  /** Headers of the answer that go on with it, in lower case. Absent: none. */
  readonly passed?: readonly string[];
  readonly connectTimeoutMs: number;
  readonly firstTokenTimeoutMs: number;
  readonly stallTimeoutMs: number;
}

/** Head of an answer that commits. `length` is null for streams and unknown lengths. */
export interface CommittedHead {
  readonly stream: boolean;
  readonly contentType: string;
  readonly length: number | null;
  /** What else of the engine's head belongs to the answer. */
  readonly passed: Readonly<Record<string, string>>;
}

export interface ClientError {
  readonly status: number;
  readonly body: Buffer;
}

export interface UpstreamOwner {
  nowMs(): number;
  committed(head: CommittedHead): void;
  /** False pauses the engine's connection until `resume`. */
  pass(pieces: readonly Buffer[], dataEvents: number): boolean;
  /** Too many bytes of answers are held: one is passed on before it is whole, or given up in a long event. */
  noRoom(): void;
  /** The first-token deadline passed. Answered by `extend` or `abort`. */
  late(): void;
  /** Last call. `clientError` comes with a result of that kind. */
  over(result: AttemptResult, committed: boolean, clientError: ClientError | null): void;
}

type Phase = 'connecting' | 'waiting' | 'streaming' | 'holding' | 'error' | 'over';

export class Upstream implements Dispatcher.DispatchHandler {
  private readonly order: UpstreamOrder;
  private readonly owner: UpstreamOwner;
  private readonly scan: EventScan;
  private phase: Phase = 'connecting';
  private controller: Dispatcher.DispatchController | null = null;
  private committedAt: number | null = null;
  private status = 0;
  private headers: IncomingHttpHeaders = {};
  private readonly held = new BytePieces();
  /** Of the room that all answers share. */
  private roomBytes = 0;
  /** Since the last that counted as progress, of a committed answer that is no stream. */
  private movedBytes = 0;
  private readonly startedMs: number;
  private sentMs = 0;
  private lastProgressMs: number;
  private firstTokenDeadlineMs: number;
  private lateSaid = false;
  private doneMs: number | null = null;

  constructor(order: UpstreamOrder, owner: UpstreamOwner) {
    this.order = order;
    this.owner = owner;
    this.scan = new EventScan(order.dropUsage, MAX_EVENT_BYTES);
    this.startedMs = owner.nowMs();
    this.lastProgressMs = this.startedMs;
    this.firstTokenDeadlineMs = this.startedMs + order.firstTokenTimeoutMs;
  }

  start(): void {
    const { pool, path, headers, body } = this.order;
    pool.dispatch({ method: 'POST', path, headers, body, blocking: false }, this);
  }

  /** Gives the first token more time, counted from now. */
  extend(timeoutMs: number): void {
    this.firstTokenDeadlineMs = this.owner.nowMs() + timeoutMs;
    this.lateSaid = false;
  }

  /** Destroys the connection and ends with `result`, unless it has ended. */
  abort(result: AttemptResult): void {
    this.end(result);
  }

  /** `[DONE]` has been passed on: the answer lacks nothing but the end of its body. */
  get whole(): boolean {
    return this.phase === 'streaming' && this.committedAt !== null && this.scan.done;
  }

  /** The client has taken what it was given. */
  resume(): void {
    if (this.phase === 'over' || this.controller?.paused !== true) return;
    this.lastProgressMs = this.owner.nowMs();
    this.controller.resume();
  }

  /** Looks at the deadlines. Called every few tens of ms; a paused connection has none of its own. */
  check(nowMs: number): void {
    if (this.phase === 'over' || this.controller?.paused === true) return;
    const { connectTimeoutMs, stallTimeoutMs } = this.order;
    if (this.phase === 'connecting' && nowMs - this.startedMs >= connectTimeoutMs) {
      return this.end({ kind: 'connectFailed', detail: 'connect timeout' });
    }
    if (this.doneMs !== null) {
      if (nowMs - this.doneMs >= END_AFTER_DONE_MS) this.endStream();
      return;
    }
    if (this.committedAt !== null) {
      if (nowMs - this.lastProgressMs >= stallTimeoutMs) this.fault('stall', 'no token');
      return;
    }
    if (nowMs < this.firstTokenDeadlineMs || this.lateSaid) return;
    this.lateSaid = true;
    this.owner.late();
  }

  // ── undici ───────────────────────────────────────────────────────────────────────────────────────────

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.controller = controller;
    if (this.phase === 'over') return controller.abort(OVER);
    this.phase = 'waiting';
    this.sentMs = this.owner.nowMs();
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
  ): void {
    if (this.phase === 'over' || status < 200) return;
    this.status = status;
    this.headers = headers;
    if (status !== 200) {
      this.phase = 'error';
      return;
    }
    if (isEncoded(headers)) return this.fault('bad_answer', 'a content encoding nobody asked for');
    const events = contentTypeOf(headers).toLowerCase().startsWith('text/event-stream');
    if (this.order.stream !== events) {
      return this.fault('bad_answer', events ? 'an event stream' : 'no event stream');
    }
    this.phase = events ? 'streaming' : 'holding';
    if (!events) this.held.expect(lengthOf(headers));
  }

  onResponseData(controller: Dispatcher.DispatchController, piece: Buffer): void {
    if (this.phase === 'streaming') return this.streamed(controller, piece);
    if (this.phase === 'error') return this.failed(piece);
    if (this.phase === 'holding') this.answered(controller, piece);
  }

  onResponseEnd(): void {
    if (this.phase === 'streaming') return this.endStream();
    if (this.phase === 'error') return this.endError();
    if (this.phase === 'holding') this.endAnswer();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (this.phase === 'over') return;
    const detail = errorName(error);
    if (this.phase === 'connecting') return this.end({ kind: 'connectFailed', detail });
    if (this.isStale(error)) {
      this.order.renew();
      return this.end({ kind: 'staleConnection', detail });
    }
    // The status was the answer; a body that is cut behind it adds nothing.
    if (this.phase === 'error') return this.endError();
    // Nothing is lacking behind `[DONE]`.
    if (this.whole) return this.endStream();
    this.fault('reset', detail);
  }

  private isStale(error: Error): boolean {
    const early = this.owner.nowMs() - this.sentMs < CROSSED_MS;
    return this.phase === 'waiting' && early && befellReused(error);
  }

  // ── streams ──────────────────────────────────────────────────────────────────────────────────────────

  private streamed(controller: Dispatcher.DispatchController, piece: Buffer): void {
    const { forward, dataEvents, fault } = this.scan.push(piece);
    if (dataEvents > 0) this.lastProgressMs = this.owner.nowMs();
    if (dataEvents > 0 && this.committedAt === null) {
      this.commitStream();
    }
    // What comes without data before the first data event (a lone `[DONE]`) is no answer.
    if (forward.length > 0 && this.committedAt !== null) this.pass(controller, forward, dataEvents);
    if (fault === null) {
      if (this.scan.done && this.doneMs === null) this.doneMs = this.owner.nowMs();
      return this.holdEvent();
    }
    if (fault.kind === 'abort') return this.fault('abort', 'the engine aborted the request');
    if (fault.kind === 'too_large') return this.fault('bad_answer', 'an event is too large');
    this.refused(fault.status, fault.detail, fault.body);
  }

  /** Takes room for an event whose end has not come, or gives up what it has no more need of. */
  private holdEvent(): void {
    if (this.phase !== 'streaming') return;
    const needed = Math.max(0, this.scan.heldBytes - FREE_EVENT_BYTES);
    const { room } = this.order;
    if (needed <= this.roomBytes) room.give(this.roomBytes - needed);
    else if (!room.take(needed - this.roomBytes)) {
      this.owner.noRoom();
      return this.fault('bad_answer', 'no room for so long an event');
    }
    this.roomBytes = needed;
  }

  /** An error as an event: before anything was passed on it means what a status would. */
  private refused(named: number | null, detail: string, body: Buffer): void {
    if (this.committedAt !== null) return this.fault('error_event', detail);
    if (isBackPressure(named)) {
      return this.end({ kind: 'backPressure', status: named, retryAfterMs: null });
    }
    const status = errorStatusOf(named);
    if (status === null) return this.fault('error_event', detail);
    this.end({ kind: 'clientError', status }, { status, body });
  }

  private endStream(): void {
    if (this.phase === 'over') return;
    const last = this.scan.finish();
    if (last !== null && this.committedAt !== null) this.owner.pass([last], 0);
    if (!this.scan.done) return this.fault('truncated', 'the stream ended without [DONE]');
    if (this.committedAt === null) return this.fault('truncated', 'the stream had no data');
    this.end({ kind: 'complete', usage: this.scan.usage });
  }

  // ── other answers ────────────────────────────────────────────────────────────────────────────────────

  private answered(controller: Dispatcher.DispatchController, piece: Buffer): void {
    if (this.committedAt !== null) {
      this.moved(piece.length);
      return this.pass(controller, [piece], 0);
    }
    const room = this.order.room.take(piece.length);
    if (room) this.roomBytes += piece.length;
    else this.owner.noRoom();
    this.held.add(piece);
    if (room && this.held.length <= HELD_ANSWER_BYTES) return;
    this.lastProgressMs = this.owner.nowMs();
    this.commitAnswer(contentTypeOf(this.headers), lengthOf(this.headers));
    this.pass(controller, [this.takeHeld()], 0);
  }

  private takeHeld(): Buffer {
    this.giveRoom();
    return this.held.take();
  }

  private giveRoom(): void {
    this.order.room.give(this.roomBytes);
    this.roomBytes = 0;
  }

  /** Bytes alone are no progress: one a second would be an answer without end. */
  private moved(bytes: number): void {
    this.movedBytes += bytes;
    if (this.movedBytes < PROGRESS_BYTES) return;
    this.movedBytes = 0;
    this.lastProgressMs = this.owner.nowMs();
  }

  private endAnswer(): void {
    // Too long to be held: its length was checked by the HTTP parser, its usage is not known.
    if (this.committedAt !== null) return this.end({ kind: 'complete', usage: null });
    const body = this.takeHeld();
    const type = contentTypeOf(this.headers);
    const opaque = this.order.anyJson && type === OPAQUE_TYPE;
    const { anyJson, judged = false } = this.order;
    const judge = judged ? judgedAnswer : judgeAnswer;
    const verdict = opaque ? OPAQUE : judge(body, anyJson);
    if (verdict.kind === 'fault') return this.fault(verdict.cause, verdict.detail);
    // SDKs go by the type: JSON under another name would be handed to the caller as text.
    this.commitAnswer(opaque || JSON_TYPE.test(type) ? type : 'application/json', body.length);
    this.owner.pass([body], 0);
    this.end({ kind: 'complete', usage: verdict.usage });
  }

  private commitStream(): void {
    const contentType = contentTypeOf(this.headers);
    this.commit({ stream: true, contentType, length: null, passed: this.passedHeaders() });
  }

  private commitAnswer(contentType: string, length: number | null): void {
    const metadata = sane(this.headers[METADATA], METADATA_CHARS);
    const passes = this.order.anyJson && metadata !== null;
    const passed = this.passedHeaders();
    if (passes) passed[METADATA] = metadata;
    this.commit({ stream: false, contentType, length, passed });
  }

  private passedHeaders(): Record<string, string> {
    const passed: Record<string, string> = {};
    for (const name of this.order.passed ?? []) {
      const value = sane(this.headers[name], TYPE_CHARS);
      if (value !== null) passed[name] = value;
    }
    return passed;
  }

  private failed(piece: Buffer): void {
    this.held.add(piece);
    if (this.held.length >= MAX_ERROR_BYTES) this.endError();
  }

  /** An engine's answer that is not 200, by whose fault it is. */
  private endError(): void {
    const { status } = this;
    if (isBackPressure(status)) {
      const after = retryAfterMs(this.headers);
      return this.end({ kind: 'backPressure', status, retryAfterMs: after });
    }
    if (errorStatusOf(status) === null) return this.fault('status', `status ${status}`);
    if (this.order.toRouter === true && isAnotherServer(status, this.headers)) {
      return this.fault('status', anotherServer(status));
    }
    this.end({ kind: 'clientError', status }, { status, body: this.held.take() });
  }

  // ── common ───────────────────────────────────────────────────────────────────────────────────────────

  private commit(head: CommittedHead): void {
    this.committedAt = this.owner.nowMs();
    this.owner.committed(head);
  }

  private pass(
    controller: Dispatcher.DispatchController,
    pieces: readonly Buffer[],
    dataEvents: number,
  ): void {
    const more = this.owner.pass(pieces, dataEvents);
    if (!more && this.phase !== 'over') controller.pause();
  }

  private fault(cause: FaultCause, detail: string): void {
    this.end({ kind: 'serverFault', cause, detail });
  }

  private end(result: AttemptResult, clientError: ClientError | null = null): void {
    if (this.phase === 'over') return;
    this.phase = 'over';
    this.giveRoom();
    this.held.clear();
    // Destroys the connection, unless its answer was read to the end: undici ignores the abort then.
    this.controller?.abort(OVER);
    this.owner.over(result, this.committedAt !== null, clientError);
  }
}

function contentTypeOf(headers: IncomingHttpHeaders): string {
  return sane(headers['content-type'], TYPE_CHARS) ?? OPAQUE_TYPE;
}

/** What may go on to the client as a header; null for anything else. */
function sane(value: string | string[] | undefined, chars: number): string | null {
  const fits = typeof value === 'string' && value.length <= chars && SANE.test(value);
  return fits ? value : null;
}

function isEncoded(headers: IncomingHttpHeaders): boolean {
  const encoding = headers['content-encoding'] ?? 'identity';
  return typeof encoding !== 'string' || !/^(?:identity)?$/i.test(encoding.trim());
}

function lengthOf(headers: IncomingHttpHeaders): number | null {
  const length = Number(headers['content-length'] ?? Number.NaN);
  return Number.isSafeInteger(length) ? length : null;
}

function errorName(error: Error): string {
  const code = (error as { code?: unknown }).code;
  return typeof code === 'string' ? code : error.name;
}
