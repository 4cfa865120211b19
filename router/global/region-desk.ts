// Regions as the global router's shell sees them: who may link as which, and what models their last reports name. Who a
// region is comes from the credential of its link alone.

import type { LinkId, RegionId } from '../../shared/model/ids.ts';
import type { RegionHello, RegionParentMessage } from '../../shared/protocol/region-messages.ts';
import { startLinkServer, type LinkServer } from '../../shared/runtime/link-server.ts';
import type { LinkServerStats } from '../../shared/runtime/link-server.ts';
import type { LinkEnd } from '../../shared/runtime/link-socket.ts';
import type { CertificateRule, LinkCredential } from '../../shared/runtime/link-credentials.ts';
import {
  REGION_LINK_LIMITS,
  ROUTER_OF_REGIONS,
  type ToldByRegion,
} from '../../shared/runtime/region-link.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import type { CloseReason } from '../../shared/protocol/messages.ts';
import type { Listen } from '../gateway/gateway-options.ts';
import type { GlobalEvent } from './events.ts';
import type { RegionOptions } from './options.ts';
import type { GlobalTls } from './tls.ts';

export interface RegionDeskDeps {
  readonly listen: Listen;
  readonly runtime: RoleRuntime;
  readonly tls: GlobalTls;
  readonly post: (event: GlobalEvent) => void;
  /** Of the generation that runs. */
  readonly regions: () => readonly RegionOptions[];
  /** A link has ended, up or not. */
  readonly ended: (reason: LinkEnd) => void;
}

interface Linked {
  readonly region: RegionId;
  /** Public name → longest prompt and answer together, tokens; null where no replica says. */
  models: ReadonlyMap<string, number | null>;
  /** Of those, what some ready replica may serve. */
  ready: readonly string[];
}

export class RegionDesk {
  private readonly deps: RegionDeskDeps;
  private readonly links = new Map<LinkId, Linked>();
  private server: LinkServer<RegionParentMessage> | null = null;

  constructor(deps: RegionDeskDeps) {
    this.deps = deps;
  }

  /** Listens, and says at which port. */
  async listen(): Promise<number> {
    const { listen, runtime, tls, regions, ended } = this.deps;
    this.server = await startLinkServer({
      words: ROUTER_OF_REGIONS,
      host: listen.host,
      port: listen.port,
      limits: REGION_LINK_LIMITS,
      tls: tls.listener('links'),
      handshakeFailed: tls.failedAt('links'),
      rules: () => regionRules(regions()),
      clock: runtime.clock,
      timers: runtime.timers,
      log: runtime.log,
      onHello: () => 'accept',
      onUp: (link, hello) => this.up(link, hello),
      onMessage: (link, message) => this.message(link, message),
      onRtt: (link, rttMs) => this.rtt(link, rttMs),
      onDown: (link, reason) => {
        this.links.delete(link);
        ended(reason);
        this.deps.post({ kind: 'regionDown', link, reason });
      },
      onTurnedAway: (reason) => ended(reason),
    });
    return this.server.port;
  }

  send(link: LinkId, message: RegionParentMessage): void {
    this.server?.send(link, message);
  }

  closeLink(link: LinkId, reason: CloseReason): void {
    this.server?.closeLink(link, reason);
  }

  /** Regions have been configured anew: ends the links of those that may link no longer. */
  review(): void {
    this.server?.review();
  }

  /** Null before it listens. */
  stats(): LinkServerStats | null {
    return this.server?.stats() ?? null;
  }

  /** Models that routers of the region name, with the least length of each; null where none says. */
  modelsOf(region: RegionId): ReadonlyMap<string, number | null> {
    const all = new Map<string, number | null>();
    for (const linked of this.links.values()) {
      if (linked.region !== region) continue;
      for (const [name, length] of linked.models) all.set(name, least(all.get(name), length));
    }
    return all;
  }

  /** What it could be asked now. */
  readyModelsOf(region: RegionId): readonly string[] {
    const all = new Set<string>();
    for (const linked of this.links.values()) {
      if (linked.region === region) for (const name of linked.ready) all.add(name);
    }
    return [...all];
  }

  close(): Promise<void> {
    return this.server?.close() ?? Promise.resolve();
  }

  private up(link: LinkId, hello: RegionHello): void {
    const { region } = hello;
    this.links.set(link, { region, models: new Map(), ready: [] });
    this.deps.post({ kind: 'regionUp', link, region, hello });
  }

  private message(link: LinkId, message: ToldByRegion): void {
    const linked = this.links.get(link);
    if (linked !== undefined && message.kind === 'report') {
      const models = message.pools.flatMap((pool) => pool.models);
      linked.models = new Map(models.map(({ name, maxModelLen }) => [name, maxModelLen]));
      const ready = message.pools.filter(({ readyReplicas }) => readyReplicas > 0);
      linked.ready = ready.flatMap((pool) => pool.models.map(({ name }) => name));
    }
    this.deps.post({ kind: 'regionMessage', link, message });
  }

  private rtt(link: LinkId, rttMs: number): void {
    const linked = this.links.get(link);
    if (linked !== undefined) this.deps.post({ kind: 'rtt', region: linked.region, rttMs });
  }
}

/**
 * A region's secrets and certificate names speak for that region alone; where it has both, both are asked for. Nobody
 * links without either, not from this machine either.
 */
export function regionRules(regions: readonly RegionOptions[]): {
  readonly credentials: readonly LinkCredential[];
  readonly certificates: readonly CertificateRule[];
  readonly openNearby: false;
} {
  return {
    credentials: regions.flatMap(({ id, linkSecrets, linkNames }) =>
      linkSecrets.map((secret) => ({ secret, speaksFor: [id], names: linkNames })),
    ),
    certificates: regions.flatMap(({ id, linkSecrets, linkNames }) =>
      linkNames.length === 0 || linkSecrets.length > 0
        ? []
        : [{ names: linkNames, speaksFor: [id] }],
    ),
    openNearby: false,
  };
}

function least(a: number | null | undefined, b: number | null): number | null {
  return a === undefined || a === null ? b : b === null ? a : Math.min(a, b);
}
