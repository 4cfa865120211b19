// The certificates of a regional router: of its listeners, and what engines of each pool and global routers must prove.

import type { PeerTrust } from '../../shared/runtime/http-pool.ts';
import type { Metrics } from '../../shared/runtime/metrics.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import type { PeerTls } from '../gateway/gateway-options.ts';
import { RouterTls, type Peers, type TlsMetric } from '../gateway/router-tls.ts';
import type { PoolOptions, RouterOptions } from './options.ts';

export type ListenerName = 'clients' | 'links' | 'admin' | 'tier';

const UPLINK = 'uplink';
const SIBLINGS = 'siblings';

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

  /** What the region's other routers must prove; null: what the system's CAs vouch for. */
  siblingTrust(): PeerTrust | null {
    return this.trust(SIBLINGS);
  }

  /** Pools of a new generation. Throws, and changes nothing, where files cannot be used. */
  configure(pools: readonly PoolOptions[]): void {
    this.trustPeers(peersOf(this.options, pools));
  }
}

function peersOf(options: RouterOptions, pools: readonly PoolOptions[]): Peers {
  const engines = pools.map(({ id, engineTls }) => [peerOf(id), engineTls] as const);
  const uplink = options.uplink?.tls ?? null;
  return { ...Object.fromEntries(engines), [UPLINK]: uplink, [SIBLINGS]: siblingTls(options) };
}

/** Routers of one region are mostly of one CA, and show each other what they show agents. */
function siblingTls({ siblingTls: own = null, links }: RouterOptions): PeerTls | null {
  if (own !== null || !links.tls) return own;
  const { ca, cert, key } = links.tls;
  return { ca, cert, key, serverName: null };
}

function peerOf(pool: string): string {
  return `pool ${pool}`;
}
