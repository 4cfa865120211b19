// The listener that links come through: one port, and by the path of the upgrade whose link it becomes.
//
//   connect   few from one address that have not asked for a link yet, and not more than there may be links: else dropped
//   request   426; a head takes 5 s at most
//   upgrade   to whoever has the path, else 404

import type { IncomingMessage, Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { Pending } from './link-pending.ts';
import type { LinkRefusals } from './link-refusals.ts';
import { createHttpServer, type HandshakeFailed, type ServerTls } from './tls-server.ts';

/** What a path leads to. */
export interface LinkEntrance {
  upgrade(request: IncomingMessage, stream: Duplex, head: Buffer): void;
  close(): Promise<void>;
}

export interface LinkListenerOptions {
  readonly host: string;
  readonly port: number;
  readonly tls: ServerTls | null;
  readonly handshakeFailed: HandshakeFailed;
  readonly maxLinks: number;
  /** Connections of one address that have not linked yet, at most. */
  readonly maxPending: number;
}

/** Connections beyond the links that may be there: those on their way in, those refused. */
const SPARE_CONNECTIONS = 64;
/** Milliseconds for the head of an upgrade request. */
const HEAD_TIMEOUT_MS = 5_000;

export class LinkListener {
  readonly #options: LinkListenerOptions;
  readonly #refusals: LinkRefusals;
  readonly #http: Server;
  readonly #entrances = new Map<string, LinkEntrance>();
  readonly #pending = new Pending();

  constructor(options: LinkListenerOptions, refusals: LinkRefusals) {
    this.#options = options;
    this.#refusals = refusals;
    this.#http = createHttpServer(
      {
        http: {
          headersTimeout: HEAD_TIMEOUT_MS,
          requestTimeout: HEAD_TIMEOUT_MS,
          connectionsCheckingInterval: 1_000,
          noDelay: true,
        },
        tls: options.tls,
        handshakeFailed: options.handshakeFailed,
      },
      (_request, response) => {
        refusals.refusedOne();
        response.writeHead(426, { connection: 'close' }).end();
      },
    );
    this.#watch(options.maxLinks + SPARE_CONNECTIONS);
  }

  get port(): number {
    return (this.#http.address() as AddressInfo | null)?.port ?? 0;
  }

  lead(path: string, to: LinkEntrance): void {
    this.#entrances.set(path, to);
  }

  async listen(): Promise<void> {
    const { host, port } = this.#options;
    const http = this.#http;
    await new Promise<void>((resolve, reject) => {
      http.once('error', reject);
      http.listen({ host, port }, () => {
        http.off('error', reject);
        resolve();
      });
    });
  }

  /** Until all connections are gone; those that links have become are for their owners to end. */
  async close(): Promise<void> {
    await new Promise<void>((resolve) => this.#http.close(() => resolve()));
  }

  /** Ends those that have not become links. */
  cut(): void {
    this.#http.closeAllConnections();
  }

  #watch(maxConnections: number): void {
    const http = this.#http;
    http.maxConnections = maxConnections;
    http.on('upgrade', (request, stream, head) => this.#upgrade(request, stream, head));
    http.on('clientError', (_error, stream) => this.#refusals.refuse(stream, '400 Bad Request'));
    http.on('connection', (stream) => this.#connected(stream));
    http.on('drop', () => this.#refusals.overrun('connections', maxConnections));
  }

  #connected(stream: Socket): void {
    const { maxPending } = this.#options;
    const address = stream.remoteAddress ?? '';
    if (this.#pending.enter(stream) <= maxPending) return;
    stream.destroy();
    this.#refusals.overrun('pending', maxPending, address);
  }

  #upgrade(request: IncomingMessage, stream: Duplex, head: Buffer): void {
    this.#pending.leave(request.socket);
    stream.on('error', () => stream.destroy());
    const path = (request.url ?? '').split('?', 1)[0] ?? '';
    const to = this.#entrances.get(path);
    if (to === undefined) return this.#refusals.refuse(stream, '404 Not Found');
    return to.upgrade(request, stream, head);
  }
}
