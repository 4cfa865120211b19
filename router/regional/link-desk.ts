// Agents as the router's shell sees them: who may link, whether their engines are where they say, and what the gateway
// needs to know of them (which names are LoRA adapters, where their engines are).

import type { LinkId } from '../../shared/model/ids.ts';
import { DELTA_PARTS_MAX } from '../../shared/protocol/limits.ts';
import type { AgentMessage, Hello } from '../../shared/protocol/messages.ts';
import { ROUTER_OF_AGENTS } from '../../shared/runtime/agent-link.ts';
import {
  startLinkServer,
  type LinkServer,
  type LinkVerdict,
} from '../../shared/runtime/link-server.ts';
import type { CertificateRule, LinkCredential } from '../../shared/runtime/link-credentials.ts';
import type { LinkSlices } from '../../shared/runtime/link-slices.ts';
import type { LinkEnd } from '../../shared/runtime/link-socket.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import type { ClientAuth, HandshakeFailed, ServerTls } from '../../shared/runtime/tls-server.ts';
import { AdapterNames } from './adapter-names.ts';
import { proveAddresses } from './address-proof.ts';
import type { RouterEvent } from './events.ts';
import type { PoolOptions, RouterOptions } from './options.ts';

/** Messages of one agent in a second that are never too many. */
const MESSAGES_PER_S_MIN = 200;

export interface LinkDeskDeps {
  readonly options: RouterOptions;
  readonly runtime: RoleRuntime;
  readonly slices: LinkSlices;
  readonly post: (event: RouterEvent) => void;
  /** A link has ended, up or not. */
  readonly ended: (reason: LinkEnd) => void;
  /** Configured pools of the generation that runs. */
  readonly pools: () => readonly PoolOptions[];
  /** Secrets of the generation that runs, for pools that have none of their own. */
  readonly linkSecrets: () => readonly string[];
  /** The least time between two reports of a target that a welcome names. */
  readonly reportIntervalMs: () => number;
  /** Link ports of all workers of this router, itself included; empty where it is one process. */
  readonly workerPorts: () => readonly number[];
  readonly tls: ServerTls | null;
  readonly handshakeFailed: HandshakeFailed;
}

export class LinkDesk {
  private readonly deps: LinkDeskDeps;
  private readonly links = new Map<LinkId, Hello>();
  private readonly adapters = new AdapterNames((link) => this.links.has(link));

  constructor(deps: LinkDeskDeps) {
    this.deps = deps;
  }

  async listen(): Promise<LinkServer> {
    const { options, runtime, tls, handshakeFailed } = this.deps;
    return startLinkServer({
      words: ROUTER_OF_AGENTS,
      host: options.links.host,
      port: options.links.port,
      tls,
      handshakeFailed,
      rules: () =>
        linkRules(this.deps.pools(), {
          secrets: this.deps.linkSecrets(),
          clientAuth: tls?.clientAuth ?? 'none',
        }),
      clock: runtime.clock,
      timers: runtime.timers,
      log: runtime.log,
      onHello: (hello, certified) => this.judge(hello, certified),
      onUp: (link, hello, reachedAt) => this.up(link, hello, reachedAt),
      onMessage: (link, message) => this.message(link, message),
      onDown: (link, reason) => {
        this.links.delete(link);
        this.deps.ended(reason);
        this.deps.post({ kind: 'linkDown', link, reason });
      },
      onTurnedAway: (reason) => this.deps.ended(reason),
      slices: this.deps.slices,
      messagesPerS: (hello) => messagesPerS(hello, this.deps.reportIntervalMs()),
    });
  }

  get count(): number {
    return this.links.size;
  }

  isLora(model: string): boolean {
    return this.adapters.has(model);
  }

  /** Engines that linked agents advertise. */
  engineUrls(): ReadonlySet<string> {
    const urls = new Set<string>();
    for (const hello of this.links.values()) {
      for (const engine of hello.engines) urls.add(engine.advertiseUrl);
    }
    return urls;
  }

  private async judge(hello: Hello, certified: boolean): Promise<LinkVerdict> {
    const { options, runtime } = this.deps;
    const pool = this.deps.pools().find((each) => each.id === hello.pool);
    const own = pool?.agentSecrets ?? [];
    const secrets = own.length > 0 ? own : this.deps.linkSecrets();
    const result = await proveAddresses(hello, {
      engineCidrs: pool?.engineCidrs ?? [],
      addressProof: options.addressProof,
      // An agent with a certificate may have no secret: its id is the key of its proof.
      secrets: certified || secrets.length === 0 ? [...secrets, hello.agentId] : secrets,
    });
    if (result.ok) return 'accept';
    const { url, detail } = result;
    runtime.log.warn({ pool: hello.pool, url, detail }, 'engine address refused');
    return 'address_refused';
  }

  private up(link: LinkId, hello: Hello, reachedAt: string | null): void {
    this.links.set(link, hello);
    this.adapters.linked(
      link,
      hello.pool,
      hello.engines.map(({ replica }) => replica),
    );
    const siblings = siblingsAt(reachedAt, this.deps.workerPorts());
    this.deps.post({ kind: 'linkUp', link, hello, siblings });
  }

  private message(link: LinkId, message: Exclude<AgentMessage, Hello>): void {
    if (message.kind === 'report') this.adapters.reported(link, message.report);
    if (message.kind === 'bye') this.adapters.left(link, message.replica);
    this.deps.post({ kind: 'message', link, message });
  }
}

/**
 * Each target has a report and the parts of a delta of its prefixes in an interval; twice of that, so that nobody is cut
 * off for a timer that fires early. What had to wait on a slow network may come at once (the link's own burst).
 */
export function messagesPerS(hello: Hello, intervalMs: number): number {
  const targets = hello.engines.reduce((sum, { ranks }) => sum + ranks, 0);
  return Math.max(MESSAGES_PER_S_MIN, (2 * (1 + DELTA_PARTS_MAX) * targets * 1_000) / intervalMs);
}

/**
 * A pool's own secrets and certificate names speak for that pool alone; the region's secrets for every pool that has no
 * secret of its own. A certificate of any name speaks for pools that have neither; where the listener requires
 * certificates and the region has secrets, both are asked for.
 */
export function linkRules(
  pools: readonly PoolOptions[],
  regional: { readonly secrets: readonly string[]; readonly clientAuth: ClientAuth },
): {
  readonly credentials: readonly LinkCredential[];
  readonly certificates: readonly CertificateRule[];
} {
  const plain = pools.filter((pool) => pool.agentSecrets.length === 0);
  const all = plain.length === pools.length;
  const plainIds = all ? null : plain.map(({ id }) => id);
  const bothAsked = regional.clientAuth === 'required' && regional.secrets.length > 0;
  const open = plain.filter((pool) => pool.agentNames.length === 0).map(({ id }) => id);
  return {
    credentials: [
      ...regional.secrets.map((secret) => ({ secret, speaksFor: plainIds })),
      ...pools.flatMap(({ id, agentSecrets }) =>
        agentSecrets.map((secret) => ({ secret, speaksFor: [id] })),
      ),
    ],
    certificates: [
      ...(bothAsked || open.length === 0
        ? []
        : [{ names: null, speaksFor: open.length === pools.length ? null : open }]),
      ...pools.flatMap(({ id, agentNames }) =>
        agentNames.length === 0 ? [] : [{ names: agentNames, speaksFor: [id] }],
      ),
    ],
  };
}

/** The workers of this router as the agent that dialled `reachedAt` reaches them: where it found this one, by port. */
export function siblingsAt(reachedAt: string | null, ports: readonly number[]): string[] {
  if (reachedAt === null) return [];
  return ports.map((port) => {
    const url = new URL(reachedAt);
    url.port = String(port);
    return `${url.protocol}//${url.host}`;
  });
}
