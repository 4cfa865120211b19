// An HTTP server that may speak TLS. A changed certificate is exchanged while it runs: connections that stand keep
// theirs, new ones get the new one.
//
//   clientAuth  none      no certificate is asked of clients
//               optional  a valid one stands in for the listener's secret or key
//               required  without a valid one nothing is served; the owner checks (`peerCertificate`), so that the refusal
//                         can be read by the client and names the certificate in the log

import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerOptions,
  type ServerResponse,
} from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { ListenerTls } from '../config/schema-tls.ts';
import type { TlsMaterial } from './tls-material.ts';

export type ClientAuth = ListenerTls['clientAuth'];

export interface ServerTls {
  readonly material: TlsMaterial;
  readonly clientAuth: ClientAuth;
}

/** A handshake that failed, or whose client spoke plain HTTP. */
export type HandshakeFailed = (remoteAddress: string, reason: string) => void;

/** ms for a handshake at most. */
const HANDSHAKE_MS = 10_000;

export interface HttpServerOptions {
  readonly http: ServerOptions;
  /** Null: plain HTTP. */
  readonly tls: ServerTls | null;
  readonly handshakeFailed: HandshakeFailed;
}

export function createHttpServer(
  { http, tls, handshakeFailed }: HttpServerOptions,
  handle: (request: IncomingMessage, response: ServerResponse) => void,
): Server {
  if (tls === null) return createServer(http, handle);
  const { material, clientAuth } = tls;
  const server = createTlsServer(
    {
      ...http,
      ...material.pems,
      ALPNProtocols: ['http/1.1'],
      minVersion: 'TLSv1.2',
      handshakeTimeout: HANDSHAKE_MS,
      requestCert: clientAuth !== 'none',
      rejectUnauthorized: false,
    },
    handle,
  );
  // Before the listener that hands it to `clientError`: nothing can be written in an encrypted stream that is none.
  server.prependListener('tlsClientError', (error, socket) => {
    handshakeFailed(socket.remoteAddress ?? 'unknown', reasonOf(error));
    socket.destroy();
  });
  const stop = material.onChange(() => server.setSecureContext(material.pems));
  server.once('close', stop);
  return server;
}

function reasonOf(error: Error): string {
  const { code, reason } = error as { code?: unknown; reason?: unknown };
  if (code === 'ERR_SSL_HTTP_REQUEST') return 'it spoke plain HTTP';
  return typeof reason === 'string' ? reason : error.message;
}
