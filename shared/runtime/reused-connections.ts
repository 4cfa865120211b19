// Whether an error befell a connection that had carried a request before. Such a connection may have been closed at its other
// side while nothing was asked of it: of who sits there its breaking then says nothing.

import { subscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';

/** Requests that each connection has been sent. */
const sent = new WeakMap<object, number>();
const ofReused = new WeakSet<Error>();

// undici tells the connection of a request here and nowhere else.
subscribe('undici:client:sendHeaders', (message) => {
  const { socket } = message as { readonly socket: object };
  sent.set(socket, (sent.get(socket) ?? 0) + 1);
});

/** To be called when it stands, before its errors are heard by anybody else. */
export function watchReuse(socket: Socket): void {
  socket.prependListener('error', (error) => {
    if ((sent.get(socket) ?? 0) > 1) ofReused.add(error);
  });
}

/** Whether the connection had been sent a request before that which the error ended. */
export function befellReused(error: Error): boolean {
  return ofReused.has(error);
}
