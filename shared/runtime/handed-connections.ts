// Serves connections that another process has accepted: an HTTP server that has no socket of its own, only what it is
// handed. All that Node does for a listening server holds here too: the time-outs of slow requests (they begin with
// `listening`), the greatest number of connections, the closing of idle ones.

import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Timers } from './timers.ts';

export interface ConnectionSource {
  /** Where the connections were accepted. */
  readonly port: number;
  /** From now on connections go to `take`. */
  start(take: (socket: Socket) => void): void;
}

export interface HandedServer {
  readonly connections: number;
  /** Takes no more and closes every connection, those with an answer under way a moment later. */
  close(): Promise<void>;
}

export interface HandedOptions {
  readonly timers: Timers;
  /** ms for what was written last to leave, when it closes. */
  readonly lastWritesMs: number;
  /** A connection was refused: `server.maxConnections` are open. */
  readonly onDrop: () => void;
}

export function serveHanded(
  server: Server,
  source: ConnectionSource,
  options: HandedOptions,
): HandedServer {
  const open = new Set<Socket>();
  let closing = false;
  let onEmpty: () => void = () => undefined;
  server.emit('listening');
  source.start((socket) => {
    if (closing) return void socket.destroy();
    if (open.size >= server.maxConnections) {
      options.onDrop();
      return void socket.destroy();
    }
    open.add(socket);
    socket.once('close', () => {
      open.delete(socket);
      if (open.size === 0) onEmpty();
    });
    socket.allowHalfOpen = true;
    socket.setNoDelay(true);
    server.emit('connection', socket);
  });
  return {
    get connections() {
      return open.size;
    },
    async close() {
      closing = true;
      // It stops the time-outs and closes what is idle; that it does not listen is known.
      server.close(() => undefined);
      if (open.size === 0) return;
      const cancel = options.timers.after(options.lastWritesMs, () => {
        for (const socket of open) socket.destroy();
      });
      await new Promise<void>((resolve) => {
        onEmpty = resolve;
      });
      cancel();
    },
  };
}
