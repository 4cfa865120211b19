// Kept-alive connections to engines, one pool for an origin and what it must prove of itself. The deadlines of a request
// are its caller's: no time-out of the pool's own but that for connecting. Connections idle for 3 s are closed, because
// uvicorn closes at 5 s and a request sent into a closing connection would be lost.
//
// An `https` origin is verified against the CAs of its trust, by the name that it says or the origin's own. CAs that
// have changed count from the next connection on. A certificate that is not accepted is told once, until another one is or
// the reason changes.

import { isIP, type LookupFunction, type Socket } from 'node:net';
import { Pool, buildConnector } from 'undici';
import { RecentMap } from '../lib/recent-map.ts';
import { systemClock } from './clock.ts';
import { READ_AT_ONCE, readsAtOnce } from './reads-at-once.ts';
import { watchReuse } from './reused-connections.ts';
import type { TlsMaterial } from './tls-material.ts';
import { tlsFailure, watchPeer } from './tls-peer.ts';

const IDLE_CLOSE_MS = 3_000;
/** Pools kept at most; the one unused longest is closed for a new one. */
const MAX_POOLS = 4_096;

/** What an `https` or `wss` server must prove, and what we show it. */
export interface PeerTrust {
  readonly material: TlsMaterial;
  /** The name that its certificate must be for; null: that of the URL. */
  readonly serverName: string | null;
}

export interface HttpPools {
  /**
   * The pool of an origin: `http://host:port`, no path. Without a trust the system's CAs count. With an address its
   * connections go there, whatever else the name stands for; what is proved is still the name.
   */
  get(origin: string, trust?: PeerTrust | null, address?: string | null): Pool;
  /** Closes pools that are not named, once their requests have ended: by the origin, and the address behind a space. */
  retain(keys: ReadonlySet<string>): void;
  /** No further request goes over the connections that this pool has now. */
  renew(pool: Pool): void;
  /** Destroys every connection. */
  close(): Promise<void>;
}

/** A server's certificate was not accepted: one line. */
export type RefusedPeer = (origin: string, line: string) => void;

interface Entry {
  readonly key: string;
  readonly trust: PeerTrust | null;
  readonly pool: Pool;
}

export interface PoolHabits {
  /** Connections that are idle for so long are closed, ms; absent: 3 s. */
  readonly idleCloseMs?: number;
  /** A connection stands: how long its peer took to accept it, one round trip, ms. */
  readonly connected?: (origin: string, rttMs: number) => void;
}

/** `connectTimeoutMs` bounds each connection attempt; the name look-up is part of it. */
export function createHttpPools(
  connectTimeoutMs: number,
  refused?: RefusedPeer,
  { idleCloseMs = IDLE_CLOSE_MS, connected }: PoolHabits = {},
): HttpPools {
  /** The one that is used longest ago first. */
  const entries = new RecentMap<string, Entry>();

  const open = (key: string, { origin, address, trust }: Target): Entry => ({
    key,
    trust,
    pool: new Pool(origin, {
      connect: connector({ origin, address, trust, connectTimeoutMs, refused, connected }),
      pipelining: 1,
      allowH2: false,
      keepAliveTimeout: idleCloseMs,
      keepAliveMaxTimeout: idleCloseMs,
      headersTimeout: 0,
      bodyTimeout: 0,
    }),
  });

  return {
    get(origin, trust = null, address = null) {
      const key = address === null ? origin : `${origin} ${address}`;
      const found = entries.get(key);
      const fits = found !== undefined && sameTrust(found.trust, trust);
      if (found !== undefined && !fits) closeGently(entries, key);
      const entry = found !== undefined && fits ? found : open(key, { origin, address, trust });
      entries.set(key, entry);
      if (entries.size > MAX_POOLS) closed(entries.takeOldest()?.[1]);
      return entry.pool;
    },
    retain(keys) {
      for (const { key } of entries.values()) if (!keys.has(key)) closeGently(entries, key);
    },
    renew(pool) {
      const found = [...entries.values()].find((entry) => entry.pool === pool);
      if (found !== undefined) closeGently(entries, found.key);
    },
    async close() {
      const all = [...entries.values()];
      for (const { key } of all) entries.delete(key);
      await Promise.all(all.map(({ pool }) => pool.destroy()));
    },
  };
}

interface Target {
  readonly origin: string;
  /** Null: as the system resolves the name. */
  readonly address: string | null;
  readonly trust: PeerTrust | null;
}

interface ConnectorOptions extends Target {
  readonly connectTimeoutMs: number;
  readonly refused: RefusedPeer | undefined;
  readonly connected: PoolHabits['connected'];
}

function connector(options: ConnectorOptions): buildConnector.connector {
  const { origin, address, trust, connectTimeoutMs, refused, connected } = options;
  const isPlain = origin.startsWith('http:');
  const build = (): buildConnector.connector =>
    buildConnector({
      timeout: connectTimeoutMs,
      keepAlive: true,
      ...(isPlain ? { onread: READ_AT_ONCE } : {}),
      ...(address === null ? {} : { lookup: alwaysAt(address) }),
      ...(trust === null ? {} : { secureContext: trust.material.context }),
      ...(trust === null || trust.serverName === null ? {} : { servername: trust.serverName }),
    });
  const target = {
    peer: origin,
    name: trust?.serverName ?? new URL(origin).hostname,
    ca: trust?.material.paths.ca ?? null,
  };
  let version = trust?.material.version;
  let connect = build();
  let told: string | null = null;
  return (connection, callback) => {
    if (trust !== null && trust.material.version !== version) {
      version = trust.material.version;
      // Its kept sessions, too, were verified by the CAs that have gone.
      connect = build();
    }
    const attempt = connect(connection, (...args) => {
      const [error, socket] = args;
      if (error === null) {
        told = null;
        // Small requests leave at once; nothing waits for a delayed acknowledgement.
        socket.setNoDelay(true);
        if (isPlain) readsAtOnce(socket);
        watchReuse(socket);
        return callback(...args);
      }
      const failure = tlsFailure(error, peer.certificate(), target);
      if (failure === null) return callback(...args);
      if (failure.line !== told) refused?.(origin, failure.line);
      told = failure.line;
      return callback(
        Object.assign(new Error(failure.line, { cause: error }), codeOf(error)),
        null,
      );
    }) as unknown as Parameters<typeof watchPeer>[0];
    const peer = watchPeer(attempt);
    if (connected !== undefined) timeConnect(attempt, (rttMs) => connected(origin, rttMs));
  };
}

/** In place of a name's look-up. */
function alwaysAt(address: string): LookupFunction {
  const family = isIP(address);
  return (_host, { all }, found) => {
    if (all === true) found(null, [{ address, family }]);
    else found(null, address, family);
  };
}

/** From the name's look-up, where there is one, to the peer's answer: a handshake of TLS comes after it. */
function timeConnect(socket: Socket, tell: (rttMs: number) => void): void {
  let sinceMs = systemClock.nowMs();
  socket.once('lookup', () => (sinceMs = systemClock.nowMs()));
  socket.once('connect', () => tell(systemClock.nowMs() - sinceMs));
}

function codeOf(error: Error): { code?: unknown } {
  return 'code' in error ? { code: error.code } : {};
}

function sameTrust(a: PeerTrust | null, b: PeerTrust | null): boolean {
  return a?.material === b?.material && a?.serverName === b?.serverName;
}

function closeGently(entries: RecentMap<string, Entry>, origin: string): void {
  const entry = entries.get(origin);
  entries.delete(origin);
  closed(entry);
}

/** Requests in it end as they would; a failure to close has nobody left to tell. */
function closed(entry: Entry | undefined): void {
  entry?.pool.close().catch(() => undefined);
}
