// Kept-alive connections to engines, one pool an origin. The deadlines of a request are its caller's: no
// time-out of the pool's own but that for connecting. Connections idle for 3 s are closed, because uvicorn
// closes at 5 s and a request sent into a closing connection would be lost.

import { Pool, buildConnector } from 'undici';

const IDLE_CLOSE_MS = 3_000;
/** Pools kept at most; the one unused longest is closed for a new one. */
const MAX_POOLS = 4_096;

export interface HttpPools {
  /** The pool of an origin: `http://host:port`, no path. */
  get(origin: string): Pool;
  /** Closes pools of origins that are not named, once their requests have ended. */
  retain(origins: ReadonlySet<string>): void;
  /** Destroys every connection. */
  close(): Promise<void>;
}

/** `connectTimeoutMs` bounds each connection attempt; the name look-up is part of it. */
export function createHttpPools(connectTimeoutMs: number): HttpPools {
  const pools = new Map<string, Pool>();

  const open = (origin: string): Pool => {
    const connect = buildConnector({ timeout: connectTimeoutMs, keepAlive: true });
    return new Pool(origin, {
      connect: (options, callback) => {
        connect(options, (...args) => {
          // Small requests leave at once; nothing waits for a delayed acknowledgement.
          args[1]?.setNoDelay(true);
          callback(...args);
        });
      },
      pipelining: 1,
      allowH2: false,
      keepAliveTimeout: IDLE_CLOSE_MS,
      keepAliveMaxTimeout: IDLE_CLOSE_MS,
      headersTimeout: 0,
      bodyTimeout: 0,
    });
  };

  return {
    get(origin) {
      const found = pools.get(origin);
      const pool = found ?? open(origin);
      // Moved to the end: the first in the map is the one unused longest.
      pools.delete(origin);
      pools.set(origin, pool);
      const oldest = pools.keys().next().value;
      if (pools.size > MAX_POOLS && oldest !== undefined) closeGently(pools, oldest);
      return pool;
    },
    retain(origins) {
      for (const origin of pools.keys()) if (!origins.has(origin)) closeGently(pools, origin);
    },
    async close() {
      const all = [...pools.values()];
      pools.clear();
      await Promise.all(all.map((pool) => pool.destroy()));
    },
  };
}

function closeGently(pools: Map<string, Pool>, origin: string): void {
  const pool = pools.get(origin);
  pools.delete(origin);
  // Requests in it end as they would; a failure to close has nobody left to tell.
  pool?.close().catch(() => undefined);
}
