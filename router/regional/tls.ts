// The certificates of a regional router: of its listeners, and what engines of each pool and global routers must prove.

import type { PeerTrust } from '../../shared/runtime/http-pool.ts';
import type { Metrics } from '../../shared/runtime/metrics.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { RouterTls, type Peers, type TlsMetric } from '../gateway/router-tls.ts';
import type { PoolOptions, RouterOptions } from './options.ts';

export type ListenerName = 'clients' | 'links' | 'admin' | 'tier';

const UPLINK = 'uplink';

export class RegionalTls extends RouterTls<ListenerName> {
  private readonly options: RouterOptions;

  /** Throws a `FleetError` with one line where files cannot be used. */
  constructor(options: RouterOptions, runtime: RoleRuntime, metrics: Metrics<TlsMetric>) {
    const { clients, links, admin, tier = null, reloadable } = options;
    const peers = peersOf(options, reloadable.pools);
    super({ runtime, metrics }, { clients, links, admin, tier }, peers);
    this.options = options;
  }

  /** What the engines of a pool must prove; null: what the system's CAs vouch for. */
  engineTrust(pool: string): PeerTrust | null {
    return this.trust(peerOf(pool));
  }

  /** What global routers must prove; null: what the system's CAs vouch for. */
  uplinkTrust(): PeerTrust | null {
    return this.trust(UPLINK);
  }

  /** Pools of a new generation. Throws, and changes nothing, where files cannot be used. */
  configure(pools: readonly PoolOptions[]): void {
    this.trustPeers(peersOf(this.options, pools));
  }
}

function peersOf({ uplink }: RouterOptions, pools: readonly PoolOptions[]): Peers {
  const engines = pools.map(({ id, engineTls }) => [peerOf(id), engineTls] as const);
  return { ...Object.fromEntries(engines), [UPLINK]: uplink?.tls ?? null };
}

function peerOf(pool: string): string {
  return `pool ${pool}`;
}
