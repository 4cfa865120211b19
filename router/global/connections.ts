// Connections to regions. Each opening of one measures the round trip; whether one stands ready for the next request is
// known, not assumed: it is looked at whenever a request takes one or gives one back, and when one opens or closes. Counted
// here: undici's own figures are sums over all connections, 10 µs each time they are asked for.
// Where a region has several routers, each has connections of its own (`RegionEndpoints`).

import type { Pool } from 'undici';
import { ChurnMap } from '../../shared/lib/churn.ts';
import type { LeaseId, RegionId } from '../../shared/model/ids.ts';
import { createHttpPools, type HttpPools } from '../../shared/runtime/http-pool.ts';
import { LinkNames, systemResolve, type Resolve } from '../../shared/runtime/link-names.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import type { GlobalEvent } from './events.ts';
import type { RegionOptions } from './options.ts';
import {
  endpointAnswered,
  endpointFailed,
  isNamed,
  RegionEndpoints,
  type Endpoint,
} from './region-endpoints.ts';
import type { GlobalTls } from './tls.ts';

/** A region's listener keeps idle connections for minutes: here they are closed first, ms. */
const IDLE_CLOSE_MS = 60_000;
/** Names are looked up so often, ms. */
const RESOLVE_MS = 5_000;

export interface ConnectionsDeps {
  readonly connectTimeoutMs: number;
  readonly tls: Pick<GlobalTls, 'trust'>;
  readonly runtime: Pick<RoleRuntime, 'clock' | 'timers' | 'log'>;
  readonly post: (event: GlobalEvent) => void;
  /** Absent: as the system resolves. */
  readonly resolve?: Resolve | undefined;
}

interface Reached {
  readonly options: RegionOptions;
  readonly urls: readonly URL[];
  readonly endpoints: RegionEndpoints;
}

/** Of one pool. */
interface Load {
  readonly pool: Pool;
  connected: number;
  /** Requests that have taken a connection, or wait for one. */
  underWay: number;
}

interface Taken {
  readonly endpoint: Endpoint;
  readonly load: Load;
}

export class RegionConnections {
  private readonly deps: ConnectionsDeps;
  private readonly pools: HttpPools;
  private readonly names: LinkNames;
  private readonly loads = new WeakMap<Pool, Load>();
  private readonly warm = new Map<RegionId, boolean>();
  private readonly regions = new Map<RegionId, Reached>();
  /** Where attempts under way went. */
  private readonly taken = new ChurnMap<LeaseId, Taken>();
  private readonly stop: () => void;
  private closed = false;

  constructor(deps: ConnectionsDeps, regions: readonly RegionOptions[]) {
    this.deps = deps;
    const { log, timers } = deps.runtime;
    this.names = new LinkNames(deps.resolve ?? systemResolve, log.child({ tier: 'region' }));
    this.pools = createHttpPools(
      deps.connectTimeoutMs,
      (origin, problem) => log.warn({ origin, problem }, 'region refused: certificate'),
      {
        idleCloseMs: IDLE_CLOSE_MS,
        connected: (origin, rttMs) => this.connected(origin, rttMs),
      },
    );
    this.configure(regions);
    this.stop = timers.every(RESOLVE_MS, () => void this.resolve());
  }

  /** Those that are gone are closed once their requests have ended. */
  configure(regions: readonly RegionOptions[]): void {
    const before = new Map(this.regions);
    this.regions.clear();
    for (const options of regions) {
      const urls = urlsOf(options);
      const known = before.get(options.id);
      const endpoints = known?.endpoints ?? new RegionEndpoints(urls);
      if (known !== undefined && String(known.urls) !== String(urls)) {
        endpoints.resolved(urls, () => []);
      }
      this.regions.set(options.id, { options, urls, endpoints });
    }
    for (const region of this.warm.keys()) if (!this.regions.has(region)) this.warm.delete(region);
    this.retain();
    void this.resolve();
  }

  /** For what is no attempt: a request that ends when `use` does. Null where there is no such region any more. */
  async with<T>(id: RegionId, use: (pool: Pool) => Promise<T>): Promise<T | null> {
    const region = this.regions.get(id);
    if (region === undefined) return null;
    const load = this.open(region, this.pick(region));
    load.underWay += 1;
    try {
      return await use(load.pool);
    } finally {
      load.underWay -= 1;
      this.look(id);
    }
  }

  /** For an attempt, which says with `ended` what came of it. Null where there is no such region any more. */
  take(id: RegionId, lease: LeaseId): Pool | null {
    const region = this.regions.get(id);
    if (region === undefined) return null;
    const endpoint = this.pick(region);
    if (region.endpoints.all.length > 1) region.endpoints.turn();
    const load = this.open(region, endpoint);
    load.underWay += 1;
    this.taken.set(lease, { endpoint, load });
    return load.pool;
  }

  ended(lease: LeaseId, result: AttemptResult): void {
    const taken = this.taken.get(lease);
    if (taken === undefined) return;
    this.taken.delete(lease);
    const { endpoint, load } = taken;
    load.underWay -= 1;
    if (isLost(result)) endpointFailed(endpoint, this.deps.runtime.clock.nowMs());
    else if (result.kind === 'complete') endpointAnswered(endpoint);
  }

  renew(pool: Pool): void {
    this.pools.renew(pool);
  }

  /** A request has taken or given back a connection to the region. */
  readonly look = (id: RegionId): void => {
    const region = this.regions.get(id);
    if (region === undefined || this.closed) return;
    const { connected, underWay } = this.open(region, this.pick(region));
    const warm = connected > underWay;
    if ((this.warm.get(id) ?? false) === warm) return;
    this.warm.set(id, warm);
    this.deps.post({ kind: 'warmth', region: id, warm });
  };

  close(): Promise<void> {
    this.closed = true;
    this.stop();
    return this.pools.close();
  }

  /** What names stand for now. Never rejects: a name that is not found keeps what it had. */
  private async resolve(): Promise<void> {
    const named = [...this.regions.values()].filter(({ urls }) => urls.some(isNamed));
    if (named.length === 0 || this.closed) return;
    const found = await this.names.endpoints(named.flatMap(({ urls }) => urls.filter(isNamed)));
    if (this.closed) return;
    const addresses = new Map<string, string[]>();
    for (const { address, url } of found.values()) {
      addresses.set(url.hostname, [...(addresses.get(url.hostname) ?? []), address]);
    }
    for (const reached of named) {
      const { options, urls, endpoints } = reached;
      // Another configuration has come meanwhile: it looks for itself.
      if (this.regions.get(options.id) !== reached) continue;
      endpoints.resolved(urls, ({ hostname }) => addresses.get(hostname) ?? []);
    }
    this.retain();
  }

  private retain(): void {
    const all = [...this.regions.values()].flatMap(({ endpoints }) => endpoints.all);
    this.pools.retain(new Set(all.map(({ key }) => key)));
  }

  private pick(region: Reached): Endpoint {
    const { endpoints } = region;
    const nowMs = this.deps.runtime.clock.nowMs();
    return endpoints.pick(nowMs, (endpoint) => this.open(region, endpoint).underWay);
  }

  private open({ options }: Reached, { origin, address }: Endpoint): Load {
    const pool = this.pools.get(origin, this.deps.tls.trust(options.id), address);
    const known = this.loads.get(pool);
    if (known !== undefined) return known;
    const load: Load = { pool, connected: 0, underWay: 0 };
    this.loads.set(pool, load);
    const count = (by: number): void => {
      load.connected += by;
      for (const id of this.reachedAt(origin)) this.look(id);
    };
    pool.on('connect', () => count(1));
    pool.on('disconnect', () => count(-1));
    return load;
  }

  private reachedAt(origin: string): RegionId[] {
    return [...this.regions.values()]
      .filter(({ urls }) => urls.some((url) => url.origin === origin))
      .map(({ options }) => options.id);
  }

  private connected(origin: string, rttMs: number): void {
    for (const region of this.reachedAt(origin)) {
      this.deps.post({ kind: 'rtt', region, rttMs, over: 'connection' });
    }
  }
}

function urlsOf({ baseUrl, otherBaseUrls }: RegionOptions): URL[] {
  return [...new Set([baseUrl, ...otherBaseUrls])].map((url) => new URL(url));
}

/** What says of the router behind the connection that it may be gone, or stands still. */
function isLost(result: AttemptResult): boolean {
  if (result.kind === 'connectFailed') return true;
  if (result.kind !== 'serverFault') return false;
  const { cause } = result;
  return cause === 'reset' || cause === 'first_token_timeout' || cause === 'region_silent';
}
