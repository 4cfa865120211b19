// The distance to a region, in the demo: a TCP proxy that passes everything on `oneWayMs` later, in both directions. Nothing
// of it is read. Who is behind it may go and come back elsewhere; while it is gone, connections are refused as at a machine that
// is down.

import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import type { Timers } from '../../shared/runtime/timers.ts';

/** Bytes on their way in one direction, beyond which no more are taken from the sender. */
const UNDER_WAY_MAX = 4 * 1_048_576;

export interface DelayOptions {
  readonly oneWayMs: number;
  readonly timers: Timers;
}

export class DelayProxy {
  readonly #options: DelayOptions;
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;
  /** Port behind it, on this machine; null: nobody is there. */
  #target: number | null = null;
  #port = 0;

  constructor(options: DelayOptions) {
    this.#options = options;
    this.#server = createServer({ noDelay: true, allowHalfOpen: true }, (near) => this.#join(near));
  }

  get port(): number {
    return this.#port;
  }

  /** Somebody is behind it from now on, at this port of this machine. */
  reaches(target: number): void {
    this.#target = target;
    if (!this.#server.listening) this.#server.listen(this.#port, '127.0.0.1');
  }

  /** Nobody is behind it any more. */
  loses(): void {
    this.#target = null;
    if (this.#server.listening) this.#server.close();
  }

  listen(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(0, '127.0.0.1', () => {
        this.#port = (this.#server.address() as AddressInfo).port;
        resolve();
      });
    });
  }

  close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    if (!this.#server.listening) return Promise.resolve();
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
    });
  }

  #join(near: Socket): void {
    const target = this.#target;
    if (target === null) return void near.destroy();
    const far = connect({ port: target, host: '127.0.0.1', noDelay: true, allowHalfOpen: true });
    for (const socket of [near, far]) {
      this.#sockets.add(socket);
      // Its other end is told by the close.
      socket.on('error', () => undefined);
      socket.once('close', () => this.#sockets.delete(socket));
    }
    this.#carry(near, far);
    this.#carry(far, near);
  }

  /** What was sent first arrives first: timers of one length end in the order in which they began. */
  #carry(from: Socket, to: Socket): void {
    const later = (task: () => void): void => {
      this.#options.timers.after(this.#options.oneWayMs, task);
    };
    let underWay = 0;
    from.on('data', (piece: Buffer) => {
      underWay += piece.length;
      if (underWay > UNDER_WAY_MAX) from.pause();
      later(() => {
        to.write(piece, () => {
          underWay -= piece.length;
          if (underWay <= UNDER_WAY_MAX) from.resume();
        });
      });
    });
    from.once('end', () => later(() => to.end()));
    from.once('close', () => later(() => to.destroy()));
  }
}
