// One WebSocket of a link, whichever side opened it: bounded in every direction and never silently dead.
//
//   liveness   a ping every `pingIntervalMs`; nothing received for `silentMs` ends it as `silent`
//   sending    more than `maxBufferedBytes` unsent ends it as `flooded`: a slow peer costs no unbounded memory. What is
//              sent in one turn of the event loop leaves in one write
//   receiving  token buckets for messages (pings and pongs among them), for pings and pongs alone, and bytes; past them it
//              ends as `flooded`, and nothing more is read from it
//   framing    what is no WebSocket, text, or many fragments ends it as `bad_frame`
//
// What this side finds wrong is told by `onFault` before the end: a close by the peer under the same name is not.
//
// It ends exactly once: `onEnd` comes after the call that ended it has returned, and no frame comes after the end.

import type { Writable } from 'node:stream';
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

/** What this side found wrong with a peer. */
export interface LinkFault {
  readonly reason: 'bad_frame' | 'flooded' | 'too_large';
  readonly detail: string;
}

export interface LinkSocketOptions {
  readonly socket: WebSocket;
  /** The connection below it. */
  readonly stream: Writable;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly limits: LinkLimits;
  readonly onFrame: (frame: Uint8Array) => void;
  readonly onFault: (fault: LinkFault) => void;
  readonly onEnd: (reason: LinkEnd) => void;
  /** The peer has answered a ping, this long after it was sent. */
  readonly onRtt?: (rttMs: number) => void;
}

const BURST_S = 4;
/** Pings and pongs of a second: each side sends one every few seconds, whatever else the link may carry. */
const PINGS_PER_S = 100;
const BINARY = { binary: true } as const;
/** ms that a peer may take to answer a close before its socket is destroyed. */
const CLOSE_WAIT_MS = 1_000;
const CODE_MESSAGE_TOO_BIG = 1009;
/** How both sides open their WebSockets: pings are answered here, within the bounds, and nobody of ours fragments. */
export const LINK_WEBSOCKET = {
  perMessageDeflate: false,
  autoPong: false,
  maxFragments: 64,
} as const;
const NAME_OF_CODE = new Map<number, CloseReason>(
  Object.entries(CLOSE_CODES).map(([name, code]) => [code, name as CloseReason]),
);

export class LinkSocket {
  readonly #options: LinkSocketOptions;
  #ended = false;
  /** Frames of this turn wait for its end. */
  #corked = false;
  #heardMs: number;
  #pausedFrames: Uint8Array[] | null = null;
  /** A close by the peer waits behind the frames that wait; once it has come, how it was. */
  #holdsEnd = false;
  #heldEnd: LinkEnd | null = null;
  /** The last ping; null once it is answered. */
  #pinging: { readonly id: number; readonly sentMs: number } | null = null;
  #pings = 0;
  #refilledMs: number;
  #messagesPerS: number;
  #messageTokens: number;
  #byteTokens: number;
  /** When a ping or pong came last. */
  #pingedMs: number;
  #pingTokens = PINGS_PER_S * BURST_S;

  constructor(options: LinkSocketOptions) {
    this.#options = options;
    this.#heardMs = options.clock.nowMs();
    this.#refilledMs = this.#heardMs;
    this.#pingedMs = this.#heardMs;
    this.#messagesPerS = options.limits.messagesPerS;
    this.#messageTokens = this.#messagesPerS * BURST_S;
    this.#byteTokens = options.limits.bytesPerS * BURST_S;
    const socket = options.socket;
    socket.binaryType = 'nodebuffer';
    socket.on('message', (data, binary) => this.#receive(data, binary));
    socket.on('ping', (data) => this.#pinged(data));
    socket.on('pong', (data) => this.#ponged(data));
    socket.on('error', (error) => this.#fail(error));
    socket.on('close', (code) => {
      if (this.#holdsEnd) this.#heldEnd = endOfCode(code);
      else this.#finish(endOfCode(code));
    });
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** False where the link is gone or goes because of this frame. */
  send(frame: Uint8Array): boolean {
    const { socket, limits } = this.#options;
    if (this.#ended || socket.readyState !== WebSocket.OPEN) return false;
    if (socket.bufferedAmount + frame.length > limits.maxBufferedBytes) {
      this.#flooded('it does not read');
      return false;
    }
    if (!this.#corked) this.#cork();
    socket.send(frame, BINARY);
    return true;
  }

  /** From now on no more messages than this in a second, where that is less than before. */
  limitMessages(perS: number): void {
    this.#messagesPerS = Math.min(this.#messagesPerS, perS);
    this.#messageTokens = Math.min(this.#messageTokens, this.#messagesPerS * BURST_S);
  }

  /** Called every `pingIntervalMs` by the owner, which has one timer for all its links. */
  beat(): void {
    const { socket, clock, limits } = this.#options;
    // A paused link reads no pongs: whoever pauses it bounds the pause.
    if (this.#ended || this.#pausedFrames !== null) return;
    if (clock.nowMs() - this.#heardMs >= limits.silentMs) this.#destroy('silent');
    else if (socket.readyState === WebSocket.OPEN) this.#ping(clock.nowMs());
  }

  /** Frames wait, those already on their way included, until `resume`. */
  pause(): void {
    this.#pausedFrames ??= [];
    this.#options.socket.pause();
  }

  /** As `pause`; a close by the peer waits too, so that its last words are heard. */
  hold(): void {
    this.#holdsEnd = true;
    this.pause();
  }

  resume(): void {
    const waiting = this.#pausedFrames ?? [];
    this.#pausedFrames = null;
    this.#holdsEnd = false;
    this.#options.socket.resume();
    this.#heard();
    for (const frame of waiting) if (!this.#ended) this.#options.onFrame(frame);
    if (this.#heldEnd !== null && !this.#holdsEnd) this.#finish(this.#heldEnd);
  }

  close(reason: CloseReason): void {
    if (this.#ended) return;
    const { socket, timers } = this.#options;
    this.#uncork();
    socket.resume();
    socket.close(CLOSE_CODES[reason], reason);
    const cancel = timers.after(CLOSE_WAIT_MS, () => socket.terminate());
    socket.once('close', cancel);
    this.#finish(reason);
  }

  #cork(): void {
    this.#corked = true;
    this.#options.stream.cork();
    setImmediate(() => this.#uncork());
  }

  #uncork(): void {
    if (!this.#corked) return;
    this.#corked = false;
    this.#options.stream.uncork();
  }

  #receive(data: RawData, binary: boolean): void {
    if (this.#ended) return;
    this.#heard();
    if (!binary || !Buffer.isBuffer(data)) {
      this.#options.onFault({ reason: 'bad_frame', detail: 'a text frame' });
      return this.close('bad_frame');
    }
    if (!this.#admit(data.length)) return this.#flooded('it sends more than a link may carry');
    if (this.#pausedFrames === null) return this.#options.onFrame(data);
    this.#pausedFrames.push(data);
  }

  /** Whether a ping or pong is within the bounds. */
  #control(data: Buffer): boolean {
    if (this.#ended) return false;
    this.#heard();
    const nowMs = this.#options.clock.nowMs();
    const passedS = Math.max(0, nowMs - this.#pingedMs) / 1_000;
    this.#pingedMs = nowMs;
    this.#pingTokens = refill(this.#pingTokens, PINGS_PER_S, passedS) - 1;
    const admitted = this.#admit(data.length) && this.#pingTokens >= 0;
    if (!admitted) this.#flooded('it sends more pings than a link may carry');
    return admitted;
  }

  #ping(nowMs: number): void {
    this.#pings = (this.#pings + 1) >>> 0;
    this.#pinging = { id: this.#pings, sentMs: nowMs };
    const payload = Buffer.alloc(4);
    payload.writeUInt32LE(this.#pings);
    this.#options.socket.ping(payload);
  }

  /** One that answers an earlier ping, or none of ours, says nothing of how far the peer is. */
  #ponged(data: Buffer): void {
    if (!this.#control(data) || this.#pinging === null || data.length !== 4) return;
    if (data.readUInt32LE() !== this.#pinging.id) return;
    this.#options.onRtt?.(this.#options.clock.nowMs() - this.#pinging.sentMs);
    this.#pinging = null;
  }

  #pinged(data: Buffer): void {
    const { socket, limits } = this.#options;
    if (!this.#control(data) || socket.readyState !== WebSocket.OPEN) return;
    if (socket.bufferedAmount > limits.maxBufferedBytes) return this.#flooded('it does not read');
    socket.pong(data);
  }

  #flooded(detail: string): void {
    if (this.#ended) return;
    this.#options.onFault({ reason: 'flooded', detail });
    this.#destroy('flooded');
    this.#options.socket.pause();
  }

  #admit(bytes: number): boolean {
    const { clock, limits } = this.#options;
    const nowMs = clock.nowMs();
    const passedS = Math.max(0, nowMs - this.#refilledMs) / 1_000;
    this.#refilledMs = nowMs;
    this.#messageTokens = refill(this.#messageTokens, this.#messagesPerS, passedS) - 1;
    this.#byteTokens = refill(this.#byteTokens, limits.bytesPerS, passedS) - bytes;
    return this.#messageTokens >= 0 && this.#byteTokens >= 0;
  }

  #heard(): void {
    this.#heardMs = this.#options.clock.nowMs();
  }

  /** A close frame behind a full buffer would never arrive: the socket is destroyed. */
  #destroy(reason: LinkEnd): void {
    const { socket } = this.#options;
    this.#uncork();
    if (reason in CLOSE_CODES && socket.bufferedAmount === 0) {
      this.close(reason as CloseReason);
      return;
    }
    this.#finish(reason);
    socket.terminate();
  }

  #fail(error: Error): void {
    if (this.#ended) return;
    const reason = faultOf((error as { code?: unknown }).code);
    if (reason !== null) this.#options.onFault({ reason, detail: error.message });
    this.#finish(reason ?? 'lost');
  }

  #finish(reason: LinkEnd): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#pausedFrames = null;
    queueMicrotask(() => this.#options.onEnd(reason));
  }
}

const TOO_LARGE: ReadonlySet<string> = new Set([
  'WS_ERR_UNSUPPORTED_MESSAGE_LENGTH',
  'WS_ERR_UNSUPPORTED_DATA_PAYLOAD_LENGTH',
]);

/** What the WebSocket itself refuses; null for what happened to the connection. */
function faultOf(code: unknown): LinkFault['reason'] | null {
  if (typeof code !== 'string' || !code.startsWith('WS_ERR_')) return null;
  return TOO_LARGE.has(code) ? 'too_large' : 'bad_frame';
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
