// How many connections of an address have come to a listener and not asked for a link yet.

import type { Socket } from 'node:net';

/** Connections that have not asked for an upgrade yet, by address. */
export class Pending {
  readonly #counts = new Map<string, number>();
  /** By address and port: under TLS the socket of a request is another object than the connection. */
  readonly #leaving = new Map<string, () => void>();

  /** How many there are of its address, itself included. */
  enter(stream: Socket): number {
    const { remoteAddress = '' } = stream;
    const key = keyOf(stream);
    const count = (this.#counts.get(remoteAddress) ?? 0) + 1;
    this.#counts.set(remoteAddress, count);
    const leave = (): void => {
      if (!this.#leaving.delete(key)) return;
      const left = (this.#counts.get(remoteAddress) ?? 1) - 1;
      if (left > 0) this.#counts.set(remoteAddress, left);
      else this.#counts.delete(remoteAddress);
    };
    this.#leaving.set(key, leave);
    stream.once('close', leave);
    return count;
  }

  leave(stream: Socket): void {
    this.#leaving.get(keyOf(stream))?.();
  }
}

function keyOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
