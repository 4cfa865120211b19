// What an engine sends is handed to its reader within the call that brought it. By itself a socket buffers each piece, asks
// for a tick, and tells its reader there that it may read: at a chunk of a stream that is as much work as all that is done
// with it.
//
// A piece is offered: `readable` is said while `read` would return it. Who does not take it then (a parser that is paused,
// nobody) finds it in the socket's buffer, behind what has waited longer, so that nothing is lost and nothing overtakes.
//
// Reads go through one buffer, and what came is copied: of its own accord Node makes 64 KiB for each read of a few hundred
// bytes. A read is over before the next one begins, whichever connection it is of.

import { Socket, type OnReadOpts } from 'node:net';

const READ_BUFFER = Buffer.allocUnsafeSlow(64 * 1024);

/** The piece that is offered, and by whom. */
let offered: Buffer | null = null;
let offeredBy: Socket | null = null;

/** For a connection's `onread`. Without `readsAtOnce` its pieces are buffered as ever. */
export const READ_AT_ONCE: OnReadOpts = {
  buffer: READ_BUFFER,
  callback(this: Socket, bytes: number) {
    const piece = Buffer.allocUnsafe(bytes);
    READ_BUFFER.copy(piece, 0, 0, bytes);
    return this.readableLength > 0 || !isTaken(this, piece) ? this.push(piece) : true;
  },
};

/** Whoever reads this connection by `readable` and `read` may find what has come while it is told so. */
export function readsAtOnce(socket: Socket): void {
  socket.read = readOffered;
}

function isTaken(socket: Socket, piece: Buffer): boolean {
  if (socket.read !== readOffered) return false;
  offered = piece;
  offeredBy = socket;
  try {
    socket.emit('readable');
    return offered === null;
  } finally {
    offered = null;
    offeredBy = null;
  }
}

function readOffered(this: Socket, size?: number): unknown {
  if (offered === null || offeredBy !== this || size === 0) {
    return Socket.prototype.read.call(this, size);
  }
  const piece = offered;
  offered = null;
  return piece;
}
