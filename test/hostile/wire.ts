// Raw bytes over a socket, and an HTTP answer read from them as strictly as a client would: status, headers, a body of
// the announced length.

import { connect, type Socket } from 'node:net';
import { until } from '../e2e/until.ts';
import { CHAT } from './small-region.ts';

export interface WireAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface Wire {
  readonly socket: Socket;
  /** Everything that has been received. */
  received(): string;
  /** The first answer, once it is whole; null where the connection ends without one. */
  answer(): Promise<WireAnswer | null>;
  /** The other side has ended the connection. */
  closed(): boolean;
  close(): void;
}

/** A connection that keeps what it receives. */
export function openWire(port: number): Wire {
  const socket = connect({ port, host: '127.0.0.1' });
  const pieces: Buffer[] = [];
  let closed = false;
  socket.on('data', (piece: Buffer) => pieces.push(piece));
  socket.on('end', () => (closed = true));
  socket.on('close', () => (closed = true));
  socket.on('error', () => undefined);
  const received = (): string => Buffer.concat(pieces).toString('latin1');
  return {
    socket,
    received,
    closed: () => closed,
    async answer() {
      await until(() => parsed(received(), closed) !== null || closed);
      return parsed(received(), closed);
    },
    close: () => socket.destroy(),
  };
}

/** The first final answer in the text; null while it is not whole. */
function parsed(text: string, ended: boolean): WireAnswer | null {
  const end = text.indexOf('\r\n\r\n');
  if (end < 0) return null;
  const [first = '', ...lines] = text.slice(0, end).split('\r\n');
  const rest = text.slice(end + 4);
  const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(first)?.[1]);
  if (status < 200) return parsed(rest, ended);
  const headers = Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const;
    }),
  );
  const length = headers['content-length'];
  const last = headers['transfer-encoding'] === 'chunked' && rest.includes('\r\n0\r\n\r\n');
  const whole = length === undefined ? ended || last : rest.length >= Number(length);
  return whole ? { status, headers, body: rest.slice(0, Number(length ?? rest.length)) } : null;
}

/** A request's bytes: `lines` are headers as they are to stand, without `host` (it is added). */
export function wireText(first: string, lines: readonly string[], body = ''): Buffer {
  return Buffer.from([first, 'host: x', ...lines, '', body].join('\r\n'), 'latin1');
}

/** A POST with its right length; `body` as bytes or text (UTF-8). */
export function wirePost(
  body: string | Buffer,
  lines: readonly string[] = ['content-type: application/json'],
  path = CHAT,
): Buffer {
  const bytes = Buffer.from(body);
  const length = `content-length: ${bytes.length}`;
  return Buffer.concat([wireText(`POST ${path} HTTP/1.1`, [...lines, length]), bytes]);
}

/** The body as chunks of that many bytes. */
export function chunked(body: Buffer, size: number): Buffer {
  const pieces: Buffer[] = [];
  for (let at = 0; at < body.length; at += size) {
    const piece = body.subarray(at, at + size);
    pieces.push(Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n'));
  }
  return Buffer.concat([...pieces, Buffer.from('0\r\n\r\n')]);
}
