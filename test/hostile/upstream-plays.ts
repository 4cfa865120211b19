// An entry of what engines may answer, what may become of it, and the ways to play it.

import { chunk } from '../e2e/scripted-engine.ts';
import type { Play } from './raw-engine.ts';

export type Fate =
  /** Nobody sees it: the attempt ends with this cause and another engine is asked. */
  | { readonly kind: 'failover'; readonly cause: string }
  /** The client gets exactly this body, with 200. */
  | { readonly kind: 'passes'; readonly body: string }
  /** The client gets this beginning, then an error event. */
  | { readonly kind: 'interrupted'; readonly cause: string; readonly body: string }
  /** The client gets that status in an envelope, with this code. */
  | { readonly kind: 'refused'; readonly status: number; readonly code: string | number };

export interface HostileAnswer {
  readonly name: string;
  readonly stream: boolean;
  readonly play: Play;
  readonly fate: Fate;
}

export const STREAM_HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n';
export const OPEN = `${STREAM_HEAD}connection: close\r\n\r\n`;
export const JSON_HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n';
export const CHUNKED = 'transfer-encoding: chunked\r\n\r\n';
export const ANSWER = JSON.stringify({
  object: 'chat.completion',
  choices: [{ index: 0, message: { role: 'assistant', content: 'hi' }, finish_reason: 'stop' }],
});
export const EVENTS = chunk('a') + chunk('b', 'stop');

export const failover = (cause: string): Fate => ({ kind: 'failover', cause });
export const interrupted = (cause: string, body = chunk('a')): Fate => ({
  kind: 'interrupted',
  cause,
  body,
});
export const passes = (body: string): Fate => ({ kind: 'passes', body });

/** Writes and ends. */
export const says =
  (...texts: readonly (string | Buffer)[]): Play =>
  (socket) => {
    for (const text of texts) socket.write(text);
    socket.end();
  };
/** Writes and leaves the connection as it is. */
export const holds =
  (...texts: readonly (string | Buffer)[]): Play =>
  (socket) => {
    for (const text of texts) socket.write(text);
  };
export const resets =
  (...texts: readonly string[]): Play =>
  (socket) => {
    for (const text of texts) socket.write(text);
    setTimeout(() => socket.resetAndDestroy(), 10);
  };
/** The same bytes again and again, as fast as they are taken. */
export const endlessly =
  (head: string, piece: string | Buffer): Play =>
  (socket) => {
    socket.write(head);
    const more = (): void => {
      while (!socket.destroyed && socket.write(piece));
    };
    socket.on('drain', more);
    more();
  };
export const inChunks = (...pieces: readonly string[]): string =>
  [...pieces, '']
    .map((piece) => `${Buffer.byteLength(piece).toString(16)}\r\n${piece}\r\n`)
    .join('');
export const withLength = (head: string, body: string): string =>
  `${head}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;

/** Of a stream and of a whole answer. */
export function both(name: string, play: Play, fate: Fate): HostileAnswer[] {
  return [true, false].map((stream) => ({ name, stream, play, fate }));
}
export const stream = (name: string, play: Play, fate: Fate): HostileAnswer => ({
  ...{ name, play, fate },
  stream: true,
});
export const whole = (name: string, play: Play, fate: Fate): HostileAnswer => ({
  ...{ name, play, fate },
  stream: false,
});

export const status = (line: string, more = '', body = '{}'): string =>
  withLength(`HTTP/1.1 ${line}\r\ncontent-type: application/json\r\n${more}`, body);
