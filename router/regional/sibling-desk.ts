// The region's other routers as this one's shell sees them: each dials every other, and tells it on that link what it
// sends. Who may link: whoever has a secret of the region's, or a certificate that bears one of `siblingNames`, or any where
// those of agents need bear no name. Where nobody names others, nobody is dialled.

import type { LinkId, RouterId } from '../../shared/model/ids.ts';
import type { CloseReason } from '../../shared/protocol/messages.ts';
import {
  SIBLING_PROTOCOL_VERSION,
  type SiblingChildMessage,
  type SiblingHello,
  type SiblingSends,
  type SiblingWelcome,
} from '../../shared/protocol/sibling-messages.ts';
import type { PeerTrust } from '../../shared/runtime/http-pool.ts';
import {
  startLinkClient,
  type LinkClient,
  type LinkClientStats,
} from '../../shared/runtime/link-client.ts';
import type { LinkServer, LinkServerStats, LinkVerdict } from '../../shared/runtime/link-server.ts';
import type { LinkSlices } from '../../shared/runtime/link-slices.ts';
import type { LinkEnd } from '../../shared/runtime/link-socket.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import {
  ROUTER_OF_SIBLINGS,
  SIBLING_LINK_LIMITS,
  SIBLING_OF_ROUTERS,
  SIBLING_PATH,
  siblingUrl,
} from '../../shared/runtime/sibling-link.ts';
import { SOFTWARE } from '../../shared/runtime/version.ts';
import type { RouterEvent } from './events.ts';
import { linkRules, siblingsAt, type LinkDeskDeps } from './link-desk.ts';

export interface SiblingDeskDeps extends Pick<
  LinkDeskDeps,
  'options' | 'pools' | 'linkSecrets' | 'workerPorts' | 'tls'
> {
  readonly runtime: RoleRuntime;
  readonly routerId: RouterId;
  readonly slices: LinkSlices;
  /** For `wss` siblings; null: the system's CAs. */
  readonly trust: PeerTrust | null;
  readonly post: (event: RouterEvent) => void;
  readonly ended: (reason: LinkEnd) => void;
}

/** Hosts that stand for all of this machine's addresses. */
const UNSPECIFIED: ReadonlySet<string> = new Set(['0.0.0.0', '::']);

export class SiblingDesk {
  readonly #deps: SiblingDeskDeps;
  readonly #server: LinkServer<SiblingWelcome>;
  readonly #runtime: RoleRuntime;
  #client: LinkClient<SiblingChildMessage> | null = null;
  /** Those that this router has dialled itself to, which tell nothing. */
  readonly #own = new Set<LinkId>();

  constructor(deps: SiblingDeskDeps, links: LinkServer) {
    this.#deps = deps;
    this.#runtime = { ...deps.runtime, log: deps.runtime.log.child({ links: 'siblings' }) };
    const { clock, timers, log } = this.#runtime;
    const { host, port } = deps.options.links;
    this.#server = links.beside(SIBLING_PATH, {
      ...{ words: ROUTER_OF_SIBLINGS, host, port, clock, timers, log },
      tls: deps.tls,
      slices: deps.slices,
      limits: SIBLING_LINK_LIMITS,
      rules: () => siblingRules(deps),
      onHello: (hello) => this.#judge(hello),
      onUp: (link, hello, reachedAt) => this.#up(link, hello, reachedAt),
      onMessage: (link, message) => deps.post({ kind: 'siblingMessage', link, message }),
      onDown: (link, reason) => {
        if (this.#own.delete(link)) return;
        deps.ended(reason);
        deps.post({ kind: 'siblingDown', link });
      },
      onTurnedAway: deps.ended,
    });
  }

  /** Links to those that are named, to whom they name, and to the workers of this router. */
  dial(): void {
    const { routerId, options, post, trust, linkSecrets } = this.#deps;
    const hello: SiblingHello = {
      kind: 'hello',
      protocol: [SIBLING_PROTOCOL_VERSION, SIBLING_PROTOCOL_VERSION],
      features: [],
      routerId,
      software: SOFTWARE,
      region: options.region,
    };
    this.#client = startLinkClient({
      words: SIBLING_OF_ROUTERS,
      urls: options.siblings.flatMap((url) => siblingUrl(url) ?? []),
      more: () => this.#workers(),
      // While secrets are rotated, a sibling may know one of them alone.
      secret: (failures) => linkSecrets()[failures % linkSecrets().length] ?? null,
      self: routerId,
      trust,
      runtime: this.#runtime,
      limits: SIBLING_LINK_LIMITS,
      onUp: (link) => void this.#client?.send(link, hello),
      onMessage: (link) => post({ kind: 'siblingListens', link }),
      onDown: (link) => post({ kind: 'siblingDeaf', link }),
    });
  }

  /** More workers may be known. */
  look(): void {
    this.#client?.refresh();
  }

  send(link: LinkId, message: SiblingSends): void {
    this.#client?.send(link, message);
  }

  tell(message: SiblingSends): void {
    this.#client?.sendAll(message);
  }

  closeLink(link: LinkId, reason: CloseReason): void {
    this.#server.closeLink(link, reason);
  }

  /** The rules may have changed. */
  review(): void {
    this.#server.review();
  }

  /** Totals since the start, of either direction. */
  stats(): readonly (LinkServerStats | LinkClientStats | undefined)[] {
    return [this.#server.stats(), this.#client?.stats()];
  }

  async close(): Promise<void> {
    await Promise.all([this.#client?.close(), this.#server.close()]);
  }

  /** On this machine; over TLS they are found by the address that `siblings` has for this router, which its certificate names. */
  #workers(): string[] {
    const { options, workerPorts, tls } = this.#deps;
    if (tls !== null) return [];
    const { host } = options.links;
    const near = UNSPECIFIED.has(host) ? '127.0.0.1' : host.includes(':') ? `[${host}]` : host;
    return workerPorts().map((port) => `ws://${near}:${port}${SIBLING_PATH}`);
  }

  /** Whoever speaks of another region's replicas is at the wrong door. */
  #judge({ region }: SiblingHello): LinkVerdict {
    return region === this.#deps.options.region ? 'accept' : 'unauthorized';
  }

  #up(link: LinkId, { routerId }: SiblingHello, reachedAt: string | null): void {
    this.#server.send(link, {
      kind: 'welcome',
      protocol: SIBLING_PROTOCOL_VERSION,
      features: [],
      routerId: this.#deps.routerId,
      software: SOFTWARE,
      siblings: siblingsAt(reachedAt, this.#deps.workerPorts()),
    });
    if (routerId === this.#deps.routerId) this.#own.add(link);
    else this.#deps.post({ kind: 'siblingUp', link, router: routerId });
  }
}

/** A credential of some pools alone is an agent's: a router speaks of all of them. */
function siblingRules({ options, pools, linkSecrets, tls }: SiblingDeskDeps) {
  const { credentials, certificates } = linkRules(pools(), {
    secrets: linkSecrets(),
    clientAuth: tls?.clientAuth ?? 'none',
  });
  const { region, siblingNames = [] } = options;
  return {
    // Where pools have secrets of their own, being near is no credential.
    openNearby: credentials.length === 0,
    credentials: credentials
      .filter(({ secret }) => linkSecrets().includes(secret))
      .map(({ secret }) => ({ secret, speaksFor: [region] })),
    certificates: [
      ...certificates
        .filter(({ names, speaksFor }) => names === null && speaksFor === null)
        .map(({ names }) => ({ names, speaksFor: [region] })),
      ...(siblingNames.length === 0 ? [] : [{ names: siblingNames, speaksFor: [region] }]),
    ],
  };
}
