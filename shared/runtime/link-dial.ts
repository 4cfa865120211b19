// One attempt to reach a router at one address, and how long to wait before the next.

import type { LookupFunction } from 'node:net';
import type { Writable } from 'node:stream';
import { WebSocket } from 'ws';
import type { Random } from '../lib/random.ts';
import type { PeerTrust } from './http-pool.ts';
import type { LinkEndpoint } from './link-names.ts';
import { LINK_WEBSOCKET, type LinkEnd } from './link-socket.ts';
import { tlsFailure, watchPeer, type TlsFailure } from './tls-peer.ts';

const CONNECT_TIMEOUT_MS = 5_000;
const BACKOFF_MIN_MS = 100;
const BACKOFF_MAX_MS = 2_000;
const REFUSED_RETRY_MS = 10_000;

/** Reasons that no retry lifts by itself. */
const OPERATORS_MATTER: ReadonlySet<string> = new Set<LinkEnd | TlsFailure['reason']>([
  'protocol_too_old',
  'unauthorized',
  'unknown_pool',
  'address_refused',
  'fenced',
  'certificate_untrusted',
  'certificate_name',
  'certificate_expired',
  'no_tls',
]);

export interface DialOptions {
  readonly endpoint: LinkEndpoint;
  readonly secret: string | null;
  /** For `wss` routers; null: the system's CAs, and no certificate of our own. */
  readonly trust: PeerTrust | null;
  readonly maxFrameBytes: number;
  readonly onOpen: (socket: WebSocket, stream: Writable) => void;
  /** The connection ended before it was open. `detail`: a line for the operator, where there is more to say. */
  readonly onFail: (reason: string, detail: string | null) => void;
}

/** Exactly one of `onOpen` and `onFail` follows. */
export function dialEndpoint(options: DialOptions): WebSocket {
  const { endpoint, secret, trust } = options;
  const peers: ReturnType<typeof watchPeer>[] = [];
  const socket = new WebSocket(endpoint.url, {
    ...LINK_WEBSOCKET,
    maxPayload: options.maxFrameBytes,
    handshakeTimeout: CONNECT_TIMEOUT_MS,
    lookup: lookupOf(endpoint.address),
    ...tlsOptions(trust),
    finishRequest: (request) => {
      request.once('socket', (connection) => peers.push(watchPeer(connection)));
      request.end();
    },
    ...(secret === null ? {} : { headers: { authorization: `Bearer ${secret}` } }),
  });
  let failure: string | null = null;
  let detail: string | null = null;
  let opened = false;
  socket.on('error', (error) => {
    const target = {
      peer: endpoint.url.origin,
      name: trust?.serverName ?? endpoint.url.hostname,
      ca: trust?.material.paths.ca ?? null,
    };
    const ofTls = tlsFailure(error, peers[0]?.certificate() ?? null, target);
    detail ??= ofTls?.line ?? null;
    failure ??= ofTls?.reason ?? failureOf(error);
  });
  socket.once('unexpected-response', (request, response) => {
    failure ??= response.statusCode === 401 ? 'unauthorized' : `http_${response.statusCode}`;
    request.destroy();
    response.destroy();
    socket.terminate();
  });
  socket.once('close', () => {
    if (!opened) options.onFail(failure ?? 'unreachable', detail);
  });
  socket.once('upgrade', ({ socket: stream }) => {
    socket.once('open', () => {
      opened = true;
      options.onOpen(socket, stream);
    });
  });
  return socket;
}

/** Whether an operator has to act: worth saying at once, and not worth trying often. */
export function isOperatorsMatter(reason: string): boolean {
  return OPERATORS_MATTER.has(reason);
}

/** ms before the next attempt: 100 doubling to 2,000, half of it drawn; 5,000 to 10,000 where an operator has to act. */
export function retryDelayMs(failures: number, reason: string, random: Random): number {
  const doubled = BACKOFF_MIN_MS * 2 ** Math.min(Math.max(failures, 1) - 1, 10);
  const ceiling = isOperatorsMatter(reason) ? REFUSED_RETRY_MS : Math.min(BACKOFF_MAX_MS, doubled);
  return ceiling * (0.5 + random.next() / 2);
}

function tlsOptions(trust: PeerTrust | null) {
  if (trust === null) return {};
  const { material, serverName } = trust;
  const named = serverName === null ? {} : { servername: serverName };
  return { secureContext: material.context, ...named };
}

/** Leads a connection for a host name to one chosen address of it. */
function lookupOf(address: string): LookupFunction {
  const family = address.includes(':') ? 6 : 4;
  return (_hostname, options, callback) => {
    if (options.all === true) callback(null, [{ address, family }]);
    else callback(null, address, family);
  };
}

function failureOf(error: Error): string {
  const code = (error as { code?: unknown }).code;
  if (code === 'ECONNREFUSED') return 'refused';
  return typeof code === 'string' ? code.toLowerCase() : 'unreachable';
}
