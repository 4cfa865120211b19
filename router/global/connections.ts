// Connections to regions. Each opening of one measures the round trip; whether one stands ready for the next request is
// known, not assumed: it is looked at whenever a request takes one or gives one back, and when one opens or closes.

import type { Pool } from 'undici';
import type { RegionId } from '../../shared/model/ids.ts';
import { createHttpPools, type HttpPools } from '../../shared/runtime/http-pool.ts';
import type { Logger } from '../../shared/runtime/log.ts';
import type { GlobalEvent } from './events.ts';
import type { RegionOptions } from './options.ts';
import type { GlobalTls } from './tls.ts';

/** A region's listener keeps idle connections for minutes: here they are closed first, ms. */
const IDLE_CLOSE_MS = 60_000;

export interface ConnectionsDeps {
  readonly connectTimeoutMs: number;
  readonly tls: GlobalTls;
  readonly log: Logger;
  readonly post: (event: GlobalEvent) => void;
}

export class RegionConnections {
  private readonly deps: ConnectionsDeps;
  private readonly pools: HttpPools;
  private readonly watched = new WeakSet<Pool>();
  private readonly warm = new Map<RegionId, boolean>();
  private regions: readonly RegionOptions[] = [];
  private closed = false;

  constructor(deps: ConnectionsDeps, regions: readonly RegionOptions[]) {
    this.deps = deps;
    this.pools = createHttpPools(
      deps.connectTimeoutMs,
      (origin, problem) => deps.log.warn({ origin, problem }, 'region refused: certificate'),
      {
        idleCloseMs: IDLE_CLOSE_MS,
        connected: (origin, rttMs) => this.connected(origin, rttMs),
      },
    );
    this.configure(regions);
  }

  /** Those that are gone are closed once their requests have ended. */
  configure(regions: readonly RegionOptions[]): void {
    this.regions = regions;
    this.pools.retain(new Set(regions.map(originOf)));
    for (const region of this.warm.keys()) {
      if (!regions.some(({ id }) => id === region)) this.warm.delete(region);
    }
  }

  /** Null where there is no such region any more. */
  poolOf(id: RegionId): Pool | null {
    const region = this.regions.find((each) => each.id === id);
    return region === undefined ? null : this.open(region);
  }

  renew(pool: Pool): void {
    this.pools.renew(pool);
  }

  /** A request has taken or given back a connection to the region. */
  readonly look = (id: RegionId): void => {
    // undici counts what it tells only when those who are told have returned.
    queueMicrotask(() => this.judge(id));
  };

  private judge(id: RegionId): void {
    const region = this.regions.find((each) => each.id === id);
    if (region === undefined || this.closed) return;
    const { connected, running, pending, queued } = this.open(region).stats;
    const warm = connected > running + pending + queued;
    if ((this.warm.get(id) ?? false) === warm) return;
    this.warm.set(id, warm);
    this.deps.post({ kind: 'warmth', region: id, warm });
  }

  close(): Promise<void> {
    this.closed = true;
    return this.pools.close();
  }

  private open(region: RegionOptions): Pool {
    const pool = this.pools.get(originOf(region), this.deps.tls.trust(region.id));
    if (this.watched.has(pool)) return pool;
    this.watched.add(pool);
    const look = (): void => {
      for (const each of this.regions) if (originOf(each) === originOf(region)) this.look(each.id);
    };
    pool.on('connect', look);
    pool.on('disconnect', look);
    return pool;
  }

  private connected(origin: string, rttMs: number): void {
    for (const region of this.regions) {
      if (originOf(region) !== origin) continue;
      this.deps.post({ kind: 'rtt', region: region.id, rttMs, over: 'connection' });
    }
  }
}

/** Asked several times a request: read once from each region's configuration. */
const ORIGINS = new WeakMap<RegionOptions, string>();

function originOf(region: RegionOptions): string {
  let origin = ORIGINS.get(region);
  if (origin === undefined) {
    origin = new URL(region.baseUrl).origin;
    ORIGINS.set(region, origin);
  }
  return origin;
}
