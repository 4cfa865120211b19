// An engine that is no HTTP server: bytes on a socket, whatever they are. Each connection is told to `play` once it has sent
// a whole request, or at once where `asked` is not waited for.

import { createServer, type AddressInfo, type Socket } from 'node:net';

export interface Played {
  /** Which request of all, from 0. */
  readonly number: number;
  /** Which request of its connection, from 0. */
  readonly onConnection: number;
}

export type Play = (socket: Socket, played: Played) => void;

export interface RawEngine {
  readonly url: string;
  /** Requests that have come whole. */
  requests(): number;
  /** Open connections. */
  sockets(): number;
  close(): Promise<void>;
}

/** `before`: what a connection does as soon as it stands, before anybody asks. */
export async function startRawEngine(play: Play, before?: (socket: Socket) => void) {
  const sockets = new Set<Socket>();
  let requests = 0;
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => undefined);
    before?.(socket);
    let text = Buffer.alloc(0);
    let onConnection = 0;
    socket.on('data', (piece) => {
      text = Buffer.concat([text, piece]);
      for (let end = requestEnd(text); end > 0; end = requestEnd(text)) {
        text = text.subarray(end);
        play(socket, { number: requests, onConnection });
        requests += 1;
        onConnection += 1;
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests: () => requests,
    sockets: () => sockets.size,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  } satisfies RawEngine;
}

/** One past the first whole request; 0 while there is none. */
function requestEnd(text: Buffer): number {
  const head = text.indexOf('\r\n\r\n');
  if (head < 0) return 0;
  const length = /content-length: (\d+)/i.exec(text.toString('latin1', 0, head))?.[1];
  const end = head + 4 + Number(length ?? 0);
  return text.length >= end ? end : 0;
}
