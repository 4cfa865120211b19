// The certificates of a regional router: of its listeners, and what engines of each pool and global routers must prove.
// All are opened, and so checked, before anything listens, and again when a new configuration names others.

import type { PeerTrust } from '../../shared/runtime/http-pool.ts';
import type { Metrics } from '../../shared/runtime/metrics.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { TlsStore, type TlsMaterial } from '../../shared/runtime/tls-material.ts';
import type { HandshakeFailed, ServerTls } from '../../shared/runtime/tls-server.ts';
import type { MetricName } from './metrics.ts';
import type { Listen } from '../gateway/gateway-options.ts';
import type { PeerTls, PoolOptions, RouterOptions } from './options.ts';

export type ListenerName = 'clients' | 'links' | 'admin' | 'tier';

/** The same words about the same address come again after this time, ms. */
const SAY_AGAIN_MS = 60_000;
const MAX_SAID = 1_024;

export class RegionalTls {
  private readonly runtime: RoleRuntime;
  private readonly metrics: Metrics<MetricName>;
  private readonly store: TlsStore;
  private readonly listeners = new Map<ListenerName, ServerTls>();
  private readonly said = new Map<string, number>();
  private trusts: ReadonlyMap<string, PeerTrust> = new Map();
  private uplink: PeerTrust | null = null;

  /** Throws a `FleetError` with one line where files cannot be used. */
  constructor(options: RouterOptions, runtime: RoleRuntime, metrics: Metrics<MetricName>) {
    this.runtime = runtime;
    this.metrics = metrics;
    this.store = new TlsStore({ ...runtime, onChange: () => this.tell() });
    try {
      this.openListener('clients', options.clients);
      this.openListener('links', options.links);
      if (options.admin !== null) this.openListener('admin', options.admin);
      if (options.tier) this.openListener('tier', options.tier);
      if (options.uplink?.tls) this.uplink = this.trustOf(options.uplink.tls);
      this.configure(options.reloadable.pools);
    } catch (error) {
      this.store.close();
      throw error;
    }
  }

  /** Null: plain HTTP. */
  listener(name: ListenerName): ServerTls | null {
    return this.listeners.get(name) ?? null;
  }

  /** What the engines of a pool must prove; null: what the system's CAs vouch for. */
  engineTrust(pool: string): PeerTrust | null {
    return this.trusts.get(pool) ?? null;
  }

  /** What global routers must prove; null: what the system's CAs vouch for. */
  uplinkTrust(): PeerTrust | null {
    return this.uplink;
  }

  /** Pools of a new generation. Throws, and changes nothing, where files cannot be used. */
  configure(pools: readonly PoolOptions[]): void {
    const trusts = new Map<string, PeerTrust>();
    for (const { id, engineTls } of pools) {
      if (engineTls === null) continue;
      trusts.set(id, this.trustOf(engineTls));
    }
    this.trusts = trusts;
    this.store.retain(this.used());
    this.tell();
  }

  /** A client whose handshake with a listener failed. */
  failedAt(listener: ListenerName): HandshakeFailed {
    return (remoteAddress, problem) => {
      this.metrics.add('tls_handshake_failures_total', { listener });
      const nowMs = this.runtime.clock.nowMs();
      const words = `${listener} ${remoteAddress} ${problem}`;
      const saidMs = this.said.get(words);
      if (saidMs !== undefined && nowMs - saidMs < SAY_AGAIN_MS) return;
      if (this.said.size >= MAX_SAID) this.said.clear();
      this.said.set(words, nowMs);
      this.runtime.log.info({ listener, remoteAddress, problem }, 'TLS handshake failed');
    };
  }

  /** Looks at all files now. */
  look(): void {
    this.store.look();
  }

  close(): void {
    this.store.close();
  }

  private openListener(name: ListenerName, { tls }: Listen): void {
    if (tls === null || tls === undefined) return;
    const { clientAuth, cert, key, ca } = tls;
    this.listeners.set(name, { material: this.store.open({ cert, key, ca }), clientAuth });
  }

  private trustOf({ serverName, ...paths }: PeerTls): PeerTrust {
    return { material: this.store.open(paths), serverName };
  }

  private used(): ReadonlySet<TlsMaterial> {
    const uplink = this.uplink === null ? [] : [this.uplink];
    const all = [...this.listeners.values(), ...this.trusts.values(), ...uplink];
    return new Set(all.map(({ material }) => material));
  }

  private tell(): void {
    this.metrics.replace('tls_certificate_not_after_seconds', this.store.expiries());
  }
}
