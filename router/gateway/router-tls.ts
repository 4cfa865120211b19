// The certificates of a router: of its listeners, and what those must prove whom it connects to. All are opened, and so
// checked, before anything listens, and again when a new configuration names others.

import { SaidLately } from '../../shared/lib/said-lately.ts';
import type { PeerTrust } from '../../shared/runtime/http-pool.ts';
import type { Metrics } from '../../shared/runtime/metrics.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { TlsStore, type TlsMaterial } from '../../shared/runtime/tls-material.ts';
import type { HandshakeFailed, ServerTls } from '../../shared/runtime/tls-server.ts';
import type { Listen, PeerTls } from './gateway-options.ts';

export type TlsMetric = 'tls_certificate_not_after_seconds' | 'tls_handshake_failures_total';

export interface RouterTlsDeps {
  readonly runtime: RoleRuntime;
  readonly metrics: Metrics<TlsMetric>;
}

/** By whom they are for; null: by the CAs of the system, with no certificate of our own. */
export type Peers = Readonly<Record<string, PeerTls | null>>;

export class RouterTls<Name extends string> {
  private readonly deps: RouterTlsDeps;
  private readonly store: TlsStore;
  private readonly listeners = new Map<Name, ServerTls>();
  private readonly said = new SaidLately();
  private trusts: ReadonlyMap<string, PeerTrust> = new Map();

  /** Throws a `FleetError` with one line where files cannot be used. */
  constructor(deps: RouterTlsDeps, listeners: Readonly<Record<Name, Listen | null>>, peers: Peers) {
    this.deps = deps;
    this.store = new TlsStore({ ...deps.runtime, onChange: () => this.tell() });
    try {
      for (const name in listeners) this.openListener(name, listeners[name]);
      this.trustPeers(peers);
    } catch (error) {
      this.store.close();
      throw error;
    }
  }

  /** Null: plain HTTP. */
  listener(name: Name): ServerTls | null {
    return this.listeners.get(name) ?? null;
  }

  /** What a peer must prove; null: what the system's CAs vouch for. */
  trust(peer: string): PeerTrust | null {
    return this.trusts.get(peer) ?? null;
  }

  /** Those of a new generation. Throws, and changes nothing, where files cannot be used. */
  trustPeers(peers: Peers): void {
    const trusts = new Map<string, PeerTrust>();
    for (const [name, tls] of Object.entries(peers)) {
      if (tls === null) continue;
      const { serverName, ...paths } = tls;
      trusts.set(name, { material: this.store.open(paths), serverName });
    }
    this.trusts = trusts;
    this.store.retain(this.used());
    this.tell();
  }

  /** A client whose handshake with a listener failed. */
  failedAt(listener: Name): HandshakeFailed {
    const { runtime, metrics } = this.deps;
    return (remoteAddress, problem) => {
      metrics.add('tls_handshake_failures_total', { listener });
      const words = `${listener} ${remoteAddress} ${problem}`;
      if (!this.said.due(words, runtime.clock.nowMs())) return;
      runtime.log.info({ listener, remoteAddress, problem }, 'TLS handshake failed');
    };
  }

  /** Looks at all files now. */
  look(): void {
    this.store.look();
  }

  close(): void {
    this.store.close();
  }

  private openListener(name: Name, listen: Listen | null): void {
    const tls = listen?.tls ?? null;
    if (tls === null) return;
    const { clientAuth, cert, key, ca } = tls;
    this.listeners.set(name, { material: this.store.open({ cert, key, ca }), clientAuth });
  }

  private used(): ReadonlySet<TlsMaterial> {
    const all = [...this.listeners.values(), ...this.trusts.values()];
    return new Set(all.map(({ material }) => material));
  }

  private tell(): void {
    this.deps.metrics.replace('tls_certificate_not_after_seconds', this.store.expiries());
  }
}
