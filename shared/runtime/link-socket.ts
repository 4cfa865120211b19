// One WebSocket of a link, whichever side opened it: bounded in every direction and never silently dead.
//
//   liveness   a ping every `pingIntervalMs`; nothing received for `silentMs` ends it as `silent`
//   sending    more than `maxBufferedBytes` unsent ends it as `flooded`: a slow peer costs no unbounded memory
//   receiving  token buckets for messages and bytes; past them it ends as `flooded`
//
// It ends exactly once: `onEnd` comes after the call that ended it has returned, and no frame comes after the end.

import { WebSocket, type RawData } from 'ws';
import { MAX_FRAME_BYTES } from '../protocol/limits.ts';
import { CLOSE_CODES, type CloseReason } from '../protocol/messages.ts';
import type { Clock } from './clock.ts';
import type { Timers } from './timers.ts';

export interface LinkLimits {
  readonly pingIntervalMs: number;
  /** Silence after which the peer counts as gone; with a ping interval it is found within their sum. */
  readonly silentMs: number;
  readonly maxFrameBytes: number;
  /** Unsent bytes of one link. */
  readonly maxBufferedBytes: number;
  /** Received messages per second, sustained; four seconds' worth may come at once. */
  readonly messagesPerS: number;
  /** Received bytes per second, sustained; four seconds' worth may come at once. */
  readonly bytesPerS: number;
}

export const LINK_LIMITS: LinkLimits = {
  pingIntervalMs: 2_500,
  silentMs: 7_000,
  maxFrameBytes: MAX_FRAME_BYTES,
  maxBufferedBytes: 2 * MAX_FRAME_BYTES,
  messagesPerS: 5_000,
  bytesPerS: 16 * 1024 * 1024,
};

/** Why a link ended: a named close of either side, or what happened to the connection. */
export type LinkEnd = CloseReason | 'lost' | 'silent' | 'too_large' | 'going_away';

export interface LinkSocketOptions {
  readonly socket: WebSocket;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly limits: LinkLimits;
  readonly onFrame: (frame: Uint8Array) => void;
  readonly onEnd: (reason: LinkEnd) => void;
}

const BURST_S = 4;
/** ms that a peer may take to answer a close before its socket is destroyed. */
const CLOSE_WAIT_MS = 1_000;
const CODE_MESSAGE_TOO_BIG = 1009;
const NAME_OF_CODE = new Map<number, CloseReason>(
  Object.entries(CLOSE_CODES).map(([name, code]) => [code, name as CloseReason]),
);

export class LinkSocket {
  readonly #options: LinkSocketOptions;
  #ended = false;
  #heardMs: number;
  #pausedFrames: Uint8Array[] | null = null;
  #refilledMs: number;
  #messageTokens: number;
  #byteTokens: number;

  constructor(options: LinkSocketOptions) {
    this.#options = options;
    this.#heardMs = options.clock.nowMs();
    this.#refilledMs = this.#heardMs;
    this.#messageTokens = options.limits.messagesPerS * BURST_S;
    this.#byteTokens = options.limits.bytesPerS * BURST_S;
    const socket = options.socket;
    socket.binaryType = 'nodebuffer';
    socket.on('message', (data, binary) => this.#receive(data, binary));
    socket.on('ping', () => this.#heard());
    socket.on('pong', () => this.#heard());
    socket.on('error', (error) => this.#fail(error));
    socket.on('close', (code) => this.#finish(endOfCode(code)));
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** False where the link is gone or goes because of this frame. */
  send(frame: Uint8Array): boolean {
    const { socket, limits } = this.#options;
    if (this.#ended || socket.readyState !== WebSocket.OPEN) return false;
    if (socket.bufferedAmount + frame.length > limits.maxBufferedBytes) {
      this.#destroy('flooded');
      return false;
    }
    socket.send(frame, { binary: true });
    return true;
  }

  /** Called every `pingIntervalMs` by the owner, which has one timer for all its links. */
  beat(): void {
    const { socket, clock, limits } = this.#options;
    // A paused link reads no pongs: whoever pauses it bounds the pause.
    if (this.#ended || this.#pausedFrames !== null) return;
    if (clock.nowMs() - this.#heardMs >= limits.silentMs) this.#destroy('silent');
    else if (socket.readyState === WebSocket.OPEN) socket.ping();
  }

  /** Frames wait, those already on their way included, until `resume`. */
  pause(): void {
    this.#pausedFrames ??= [];
    this.#options.socket.pause();
  }

  resume(): void {
    const waiting = this.#pausedFrames ?? [];
    this.#pausedFrames = null;
    this.#options.socket.resume();
    this.#heard();
    for (const frame of waiting) if (!this.#ended) this.#options.onFrame(frame);
  }

  close(reason: CloseReason): void {
    if (this.#ended) return;
    const { socket, timers } = this.#options;
    socket.resume();
    socket.close(CLOSE_CODES[reason], reason);
    const cancel = timers.after(CLOSE_WAIT_MS, () => socket.terminate());
    socket.once('close', cancel);
    this.#finish(reason);
  }

  #receive(data: RawData, binary: boolean): void {
    if (this.#ended) return;
    this.#heard();
    if (!binary || !Buffer.isBuffer(data)) return this.close('bad_frame');
    if (!this.#admit(data.length)) return this.#destroy('flooded');
    if (this.#pausedFrames === null) return this.#options.onFrame(data);
    this.#pausedFrames.push(data);
  }

  #admit(bytes: number): boolean {
    const { clock, limits } = this.#options;
    const nowMs = clock.nowMs();
    const passedS = Math.max(0, nowMs - this.#refilledMs) / 1_000;
    this.#refilledMs = nowMs;
    this.#messageTokens = refill(this.#messageTokens, limits.messagesPerS, passedS) - 1;
    this.#byteTokens = refill(this.#byteTokens, limits.bytesPerS, passedS) - bytes;
    return this.#messageTokens >= 0 && this.#byteTokens >= 0;
  }

  #heard(): void {
    this.#heardMs = this.#options.clock.nowMs();
  }

  /** A close frame behind a full buffer would never arrive: the socket is destroyed. */
  #destroy(reason: LinkEnd): void {
    const { socket } = this.#options;
    if (reason in CLOSE_CODES && socket.bufferedAmount === 0) {
      this.close(reason as CloseReason);
      return;
    }
    this.#finish(reason);
    socket.terminate();
  }

  #fail(error: Error): void {
    const tooLarge = (error as { code?: unknown }).code === 'WS_ERR_UNSUPPORTED_MESSAGE_LENGTH';
    this.#finish(tooLarge ? 'too_large' : 'lost');
  }

  #finish(reason: LinkEnd): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#pausedFrames = null;
    queueMicrotask(() => this.#options.onEnd(reason));
  }
}

function refill(tokens: number, perS: number, passedS: number): number {
  return Math.min(perS * BURST_S, tokens + perS * passedS);
}

function endOfCode(code: number): LinkEnd {
  const named = NAME_OF_CODE.get(code);
  if (named !== undefined) return named;
  if (code === CODE_MESSAGE_TOO_BIG) return 'too_large';
  return code === 1000 || code === 1001 ? 'going_away' : 'lost';
}
