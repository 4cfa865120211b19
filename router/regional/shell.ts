// A regional router's shell: it turns the world into events for the core and carries the core's effects out.
// What comes in through which door is in the desks; this joins them.

import type { Decision } from '../../shared/model/decision.ts';
import { UPLINK_DEFAULTS } from '../../shared/model/global-settings.ts';
import type { LinkId, RegionId, RouterId } from '../../shared/model/ids.ts';
import type { RegionChildMessage } from '../../shared/protocol/region-messages.ts';
import { CoreDriver, type CoreMachine } from '../../shared/runtime/core-driver.ts';
import type { LinkServer, LinkServerStats } from '../../shared/runtime/link-server.ts';
import type { Metrics } from '../../shared/runtime/metrics.ts';
import { LinkSlices } from '../../shared/runtime/link-slices.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import type { HttpPools } from '../../shared/runtime/http-pool.ts';
import type { Canonicaliser } from '../gateway/canonical.ts';
import type {
  Attempt,
  RegionalCoreConfig,
  RouterEffect,
  RouterEvent,
  UplinkConfig,
} from './events.ts';
import type { RouteRequest } from '../policy/request-events.ts';
import type { GatewayReloadable } from '../gateway/gateway-options.ts';
import { LinkDesk } from './link-desk.ts';
import type { MetricName } from './metrics.ts';
import type { RouterOptions, RouterReloadable } from './options.ts';
import { probeReplica } from './prober.ts';
import { RequestDesk } from '../gateway/request-desk.ts';
import { Unserved } from '../gateway/unserved.ts';
import { EngineWords, NOWHERE } from './engine-words.ts';
import { SiblingDesk } from './sibling-desk.ts';
import type { RegionalTls } from './tls.ts';
import { Uplink } from './uplink.ts';

export interface ShellDeps {
  readonly core: CoreMachine<RouterEvent, RouterEffect> & {
    explain(request: RouteRequest, nowMs: number): Decision;
  };
  readonly options: RouterOptions;
  readonly routerId: RouterId;
  readonly runtime: RoleRuntime;
  readonly metrics: Metrics<MetricName>;
  readonly pools: HttpPools;
  readonly tls: RegionalTls;
  readonly canonicaliser: Canonicaliser;
  /** Link ports of all workers of this router; absent: it is one process. */
  readonly workerPorts?: (() => readonly number[]) | undefined;
}

export class RegionalShell {
  readonly requests: RequestDesk<Attempt, Decision>;
  readonly unserved: Unserved;
  readonly links: LinkDesk;
  reloadable: RouterReloadable;
  private readonly deps: ShellDeps;
  private readonly words: EngineWords;
  private readonly slices: LinkSlices;
  private readonly driver: CoreDriver<RouterEvent, RouterEffect>;
  private linkServer: LinkServer | null = null;
  private siblings: SiblingDesk | null = null;
  private uplink: Uplink | null = null;

  constructor(deps: ShellDeps) {
    this.deps = deps;
    this.reloadable = deps.options.reloadable;
    const { core, runtime, metrics, options } = deps;
    this.unserved = new Unserved({ runtime, metrics, nowhere: NOWHERE });
    this.driver = new CoreDriver({
      core,
      tick: { kind: 'tick' },
      clock: runtime.clock,
      timers: runtime.timers,
      carry: (effect) => this.carry(effect),
      onBug: (error, event) => {
        this.unserved.bug(error);
        this.requests.breakOff(event);
      },
    });
    const post = this.driver.post.bind(this.driver);
    const slices = new LinkSlices(() => runtime.clock.nowMs());
    this.slices = slices;
    this.links = new LinkDesk({
      options,
      runtime,
      slices,
      post,
      ended: (reason) => metrics.add('link_ends_total', { reason }),
      pools: () => this.reloadable.pools,
      linkSecrets: () => this.reloadable.linkSecrets,
      reportIntervalMs: () => this.reloadable.settings.minReportIntervalMs,
      workerPorts: deps.workerPorts ?? (() => []),
      tls: deps.tls.listener('links'),
      handshakeFailed: deps.tls.failedAt('links'),
    });
    this.words = new EngineWords(
      {
        pools: deps.pools,
        engineTrust: (pool) => deps.tls.engineTrust(pool),
        isLora: (model) => this.links.isLora(model),
      },
      this.reloadable.pools,
    );
    const { words } = this;
    const { canonicaliser } = deps;
    this.requests = new RequestDesk(
      { runtime, metrics, post, words, canonicaliser, slices },
      gatewayReloadable(this.reloadable),
    );
  }

  /** The port on which agents link. */
  async listen(): Promise<number> {
    this.linkServer = await this.links.listen();
    this.siblings = this.siblingDesk(this.linkServer);
    return this.linkServer.port;
  }

  /** Tells other routers what it sends, and reports to global ones, from here on, where there are any. */
  report(): void {
    this.siblings?.dial();
    const { options, runtime, metrics, tls } = this.deps;
    if (!options.uplink) return;
    this.uplink = new Uplink({
      options: options.uplink,
      runtime,
      trust: tls.uplinkTrust(),
      post: (event) => this.driver.post(event),
      ended: (reason) => metrics.add('global_link_ends_total', { reason }),
    });
  }

  /** Of the link listener, and what global routers said that was not understood; null before it listens. */
  linkStats(): LinkServerStats | null {
    const agents = this.linkServer?.stats() ?? null;
    if (agents === null) return null;
    const others = [...(this.siblings?.stats() ?? []), this.uplink?.stats()];
    return others.reduce<LinkServerStats>(
      (all, other) => (other ? withOddities(all, other) : all),
      agents,
    );
  }

  /** More workers of this router are known. */
  workersKnown(): void {
    this.siblings?.look();
  }

  configure(reloadable: RouterReloadable): void {
    this.reloadable = reloadable;
    this.words.configure(reloadable.pools);
    this.requests.configure(gatewayReloadable(reloadable));
    const config = coreConfig(this.deps.options, reloadable);
    this.driver.post({ kind: 'configured', config });
    this.linkServer?.review();
    this.siblings?.review();
  }

  /** New arrivals are refused from here on. */
  drain(): void {
    this.driver.post({ kind: 'drain' });
  }

  async close(): Promise<void> {
    this.requests.cutOff();
    await Promise.all([this.siblings?.close(), this.linkServer?.close(), this.uplink?.close()]);
    this.driver.stop();
  }

  private carry(effect: RouterEffect): void {
    switch (effect.kind) {
      case 'attempt':
        return this.requests.attempt(effect.attempt, effect.decision);
      case 'queued':
        return this.requests.queued(effect);
      case 'refuse':
        return this.requests.refuse(effect);
      case 'abort':
        return this.requests.abort(effect);
      case 'extend':
        return this.requests.extend(effect);
      case 'send':
        return void this.linkServer?.send(effect.link, effect.message);
      case 'close':
        return this.linkServer?.closeLink(effect.link, effect.reason);
      case 'sendSibling':
        return this.siblings?.send(effect.link, effect.message);
      case 'tellSiblings':
        return this.siblings?.tell(effect.message);
      case 'closeSibling':
        return this.siblings?.closeLink(effect.link, effect.reason);
      case 'sendGlobal':
        return this.tell(effect.link, effect.message);
      case 'closeGlobal':
        return this.uplink?.closeLink(effect.link, effect.reason);
      case 'probe':
        return void this.probe(effect);
      case 'limit':
        return this.deps.metrics.add('limit_hits_total', { limit: effect.limit });
      case 'log':
        return this.deps.runtime.log[effect.level](effect.fields, effect.code);
    }
  }

  private siblingDesk(links: LinkServer): SiblingDesk {
    const { options, runtime, metrics, tls, routerId, workerPorts } = this.deps;
    return new SiblingDesk(
      {
        ...{ options, runtime, routerId, slices: this.slices, trust: tls.siblingTrust() },
        pools: () => this.reloadable.pools,
        linkSecrets: () => this.reloadable.linkSecrets,
        workerPorts: workerPorts ?? (() => []),
        tls: tls.listener('links'),
        post: (event) => this.driver.post(event),
        ended: (reason) => metrics.add('sibling_link_ends_total', { reason }),
      },
      links,
    );
  }

  private tell(link: LinkId, message: RegionChildMessage): void {
    this.uplink?.send(link, message);
    if (message.kind !== 'grant') return;
    const { pool, prefillMs } = message;
    this.deps.metrics.add('credit_granted_seconds_total', { pool }, prefillMs / 1_000);
  }

  private async probe(effect: Extract<RouterEffect, { kind: 'probe' }>): Promise<void> {
    const { replica, pool, url, model } = effect;
    const apiKey = this.words.poolOf(pool)?.engineApiKey ?? null;
    const trust = this.deps.tls.engineTrust(pool);
    const ok = await probeReplica({ pool: this.deps.pools.get(url, trust), model, apiKey });
    this.driver.post({ kind: 'probed', replica, ok });
  }
}

/** Whose links they are, an operator sees in the log. */
function withOddities(all: LinkServerStats, other: Partial<LinkServerStats>): LinkServerStats {
  const { refusedUpgrades = 0, malformed = 0, unknownKinds = 0, unknownFields = 0 } = other;
  return {
    links: all.links,
    refusedUpgrades: all.refusedUpgrades + refusedUpgrades,
    malformed: all.malformed + malformed,
    unknownKinds: all.unknownKinds + unknownKinds,
    unknownFields: all.unknownFields + unknownFields,
  };
}

function gatewayReloadable({ limits, surface, settings }: RouterReloadable): GatewayReloadable {
  // Where a prefix is cached its index knows: a conversation's name would tell it nothing.
  const conversationIds = null;
  return { limits, surface, keepAliveAfterMs: settings.keepAliveAfterMs, conversationIds };
}

export function coreConfig(
  options: RouterOptions,
  reloadable: RouterReloadable,
): RegionalCoreConfig {
  return {
    settings: reloadable.settings,
    pools: reloadable.pools.map(({ id, models, aliases, revisions = {} }) => ({
      id: id as RegionalCoreConfig['pools'][number]['id'],
      models,
      aliases,
      revisions,
    })),
    siblings: options.siblings,
    ...(options.uplink ? { uplink: uplinkConfig(options, reloadable) } : {}),
  };
}

function uplinkConfig(
  { region }: RouterOptions,
  { uplinkSettings = UPLINK_DEFAULTS }: RouterReloadable,
): UplinkConfig {
  return { region: region as RegionId, settings: uplinkSettings };
}
