// The engine's port: closed while it loads or is down, the same number every time it opens.

import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

import type { Timers } from '../../../shared/runtime/timers.ts';

/** Uvicorn's, ms: a pooled client must use less. */
const KEEP_ALIVE_MS = 5_000;
const RETRY_MS = 50;
const RETRIES = 100;

export class Listener {
  readonly #host: string;
  readonly #timers: Timers;
  readonly #handler: RequestListener;
  #port: number;
  #server: Server | null = null;
  /** No longer accepting; some of its connections may be at work. */
  #closing: { readonly server: Server; readonly closed: Promise<void> } | null = null;
  /** Grows with every opening and shutting: an opening that was overtaken closes again. */
  #opening = 0;

  constructor(
    address: { readonly host: string; readonly port: number },
    timers: Timers,
    handler: RequestListener,
  ) {
    this.#host = address.host;
    this.#port = address.port;
    this.#timers = timers;
    this.#handler = handler;
  }

  get port(): number {
    return this.#port;
  }

  get isOpen(): boolean {
    return this.#server !== null;
  }

  /** Settles the port number; what listened for it is closed again. Rejects when the port is taken. */
  async reserve(): Promise<void> {
    await this.#listen();
    await this.shut();
  }

  /**
   * Opens the port, unless it is shut meanwhile. A number that was free at the start may be some client's for a
   * moment: it is tried again for 5 s.
   */
  async open(): Promise<void> {
    const opening = this.#opening;
    for (let tries = 0; ; tries += 1) {
      try {
        await this.#listen();
        return;
      } catch (error) {
        if (tries >= RETRIES) throw error;
        await new Promise<void>((resolve) => this.#timers.after(RETRY_MS, resolve));
        if (this.#opening !== opening + tries + 1) return;
      }
    }
  }

  /** Closes the port and idle connections; those at work stay until `shut`. */
  stopAccepting(): void {
    this.#opening += 1;
    const server = this.#server;
    if (server === null) return;
    this.#server = null;
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    this.#closing = { server, closed };
  }

  /** Closes the port and destroys every connection. */
  async shut(): Promise<void> {
    this.stopAccepting();
    const closing = this.#closing;
    this.#closing = null;
    closing?.server.closeAllConnections();
    await closing?.closed;
  }

  async #listen(): Promise<void> {
    this.#opening += 1;
    const opening = this.#opening;
    const server = createServer({ noDelay: true, keepAliveTimeout: KEEP_ALIVE_MS }, this.#handler);
    // Node adds a second of its own otherwise; its types do not know the property yet.
    Object.assign(server, { keepAliveTimeoutBuffer: 0 });
    server.requestTimeout = 0;
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(this.#port, this.#host, () => {
        server.off('error', reject);
        resolve();
      });
    });
    this.#port = (server.address() as AddressInfo).port;
    if (opening === this.#opening) this.#server = server;
    else server.close();
  }
}
