// The certificates of a global router: of its listeners, and what the tier listener of each region must prove.

import type { Metrics } from '../../shared/runtime/metrics.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { RouterTls, type Peers, type TlsMetric } from '../gateway/router-tls.ts';
import type { GlobalOptions, RegionOptions } from './options.ts';

export type ListenerName = 'clients' | 'links' | 'admin';

export class GlobalTls extends RouterTls<ListenerName> {
  /** Throws a `FleetError` with one line where files cannot be used. */
  constructor(options: GlobalOptions, runtime: RoleRuntime, metrics: Metrics<TlsMetric>) {
    const { clients, links, admin, reloadable } = options;
    super({ runtime, metrics }, { clients, links, admin }, peersOf(reloadable.regions));
  }

  /** Regions of a new generation. Throws, and changes nothing, where files cannot be used. */
  configure(regions: readonly RegionOptions[]): void {
    this.trustPeers(peersOf(regions));
  }
}

function peersOf(regions: readonly RegionOptions[]): Peers {
  return Object.fromEntries(regions.map(({ id, tls }) => [id, tls]));
}
