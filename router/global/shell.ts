// A global router's shell: it turns the world into events for the core and carries the core's effects out. What comes in
// through which door is in the desks; this joins them.

import { ChurnMap } from '../../shared/lib/churn.ts';
import { SaidLately } from '../../shared/lib/said-lately.ts';
import type { GlobalDecision } from '../../shared/model/global-decision.ts';
import type { LeaseId, RegionId, RouterId } from '../../shared/model/ids.ts';
import { CoreDriver, type CoreMachine } from '../../shared/runtime/core-driver.ts';
import type { Metrics } from '../../shared/runtime/metrics.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import type { Canonicaliser } from '../gateway/canonical.ts';
import type { GatewayReloadable } from '../gateway/gateway-options.ts';
import { anotherServersStatus } from '../gateway/own-answer.ts';
import { RequestDesk } from '../gateway/request-desk.ts';
import { Unserved } from '../gateway/unserved.ts';
import type { RequestEvent, RouteRequest } from '../policy/request-events.ts';
import { RegionConnections } from './connections.ts';
import type { GlobalAttempt, GlobalCoreConfig, GlobalEffect, GlobalEvent } from './events.ts';
import type { MetricName } from './metrics.ts';
import type { GlobalOptions, GlobalReloadable } from './options.ts';
import { RegionDesk } from './region-desk.ts';
import { NOWHERE, RegionWords, type RegionWordsDeps } from './region-words.ts';
import type { GlobalTls } from './tls.ts';

export interface GlobalShellDeps {
  readonly core: CoreMachine<GlobalEvent, GlobalEffect> & {
    explain(request: RouteRequest, nowMs: number): GlobalDecision;
  };
  readonly routerId: RouterId;
  readonly options: GlobalOptions;
  readonly runtime: RoleRuntime;
  readonly metrics: Metrics<MetricName>;
  readonly tls: GlobalTls;
  readonly canonicaliser: Canonicaliser;
  readonly hints: RegionWordsDeps['hints'];
}

/** A region says with these that it knows nothing of us, of this request, or that it should not have got it. */
const OUR_FAULT = /^status (401|403|421)$/;

export class GlobalShell {
  readonly requests: RequestDesk<GlobalAttempt, GlobalDecision>;
  readonly unserved: Unserved;
  readonly links: RegionDesk;
  readonly connections: RegionConnections;
  reloadable: GlobalReloadable;
  private readonly deps: GlobalShellDeps;
  private readonly driver: CoreDriver<GlobalEvent, GlobalEffect>;
  /** Where each attempt under way went. */
  private readonly regionOf = new ChurnMap<LeaseId, RegionId>();
  private readonly said = new SaidLately();

  constructor(deps: GlobalShellDeps) {
    this.deps = deps;
    const { core, runtime, metrics, options, tls, routerId, canonicaliser } = deps;
    this.reloadable = options.reloadable;
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
    const post = this.post;
    this.links = new RegionDesk({
      ...{ runtime, tls, post },
      listen: options.links,
      regions: () => this.reloadable.regions,
      ended: (reason) => metrics.add('link_ends_total', { reason }),
    });
    const { settings, regions } = this.reloadable;
    this.connections = new RegionConnections(
      { connectTimeoutMs: settings.connectTimeoutMs, tls, runtime, post },
      regions,
    );
    const words = new RegionWords({
      routerId,
      hints: deps.hints,
      connections: this.connections,
      keyOf: (region) => this.keyOf(region),
      wallMs: () => runtime.clock.wallMs(),
    });
    this.requests = new RequestDesk(
      { runtime, metrics, words, canonicaliser, post: (event) => this.ofRequest(event) },
      gatewayReloadable(this.reloadable),
    );
  }

  readonly post = (event: GlobalEvent): void => {
    this.driver.post(event);
    if (event.kind !== 'probed' || event.result.kind !== 'failed') return;
    this.sayWhoseFault(event.region, event.result.detail);
  };

  /** What signs for a region; null where there is none. */
  keyOf(region: string) {
    return this.reloadable.regions.find(({ id }) => id === region)?.tierKey ?? null;
  }

  configure(reloadable: GlobalReloadable): void {
    this.reloadable = reloadable;
    this.connections.configure(reloadable.regions);
    this.requests.configure(gatewayReloadable(reloadable));
    this.driver.post({ kind: 'configured', config: coreConfig(this.deps.options, reloadable) });
    this.links.review();
  }

  /** New arrivals are refused from here on. */
  drain(): void {
    this.driver.post({ kind: 'drain' });
  }

  async close(): Promise<void> {
    this.requests.cutOff();
    await this.links.close();
    this.driver.stop();
    await this.connections.close();
  }

  private carry(effect: GlobalEffect): void {
    switch (effect.kind) {
      case 'attempt':
        return this.attempt(effect);
      case 'queued':
        return this.requests.queued(effect);
      case 'refuse':
        return this.requests.refuse(effect);
      case 'abort':
        return this.requests.abort(effect);
      case 'extend':
        return this.requests.extend(effect);
      case 'send':
        return this.links.send(effect.link, effect.message);
      case 'close':
        return this.links.closeLink(effect.link, effect.reason);
      case 'hinted':
        return this.deps.metrics.add('hints_total', { result: effect.result });
      case 'limit':
        return this.deps.metrics.add('limit_hits_total', { limit: effect.limit });
      case 'log':
        return this.deps.runtime.log[effect.level](effect.fields, effect.code);
    }
  }

  private attempt({ attempt, decision }: Extract<GlobalEffect, { kind: 'attempt' }>): void {
    const { lease, region } = attempt;
    this.regionOf.set(lease, region);
    const { conversation: known } = decision;
    if (attempt.number === 1 && known !== null) {
      this.deps.metrics.add('conversations_placed_total', { known });
    }
    this.requests.attempt(attempt, decision);
    this.connections.look(region);
  }

  private ofRequest(event: RequestEvent): void {
    // Before what is decided anew: it goes to another router of the region than the one that is gone.
    if (event.kind === 'attemptEnded') this.connections.ended(event.lease, event.result);
    this.driver.post(event);
    if (event.kind !== 'attemptEnded') return;
    const region = this.regionOf.get(event.lease);
    if (region === undefined) return;
    this.regionOf.delete(event.lease);
    this.connections.look(region);
    if (event.result.kind === 'serverFault') this.sayWhoseFault(region, event.result.detail);
  }

  /** Keys, clocks or lists of the two tiers that do not agree, or a wrong base URL, are for an operator to mend. */
  private sayWhoseFault(region: RegionId, detail: string): void {
    const another = anotherServersStatus(detail);
    const status = another ?? OUR_FAULT.exec(detail)?.[1];
    if (status === undefined) return;
    const { metrics, runtime } = this.deps;
    metrics.add('tier_refusals_total', { region, status });
    if (!this.said.due(`${region} ${status}`, runtime.clock.nowMs())) return;
    if (another === null) {
      runtime.log.error({ region, status: Number(status) }, 'region_refuses_tier');
      return;
    }
    const check = 'regions[].baseUrl: host, port, no path; what a proxy before it leads to';
    runtime.log.error({ region, status: Number(status), check }, 'region_is_another_server');
  }
}

function gatewayReloadable(reloadable: GlobalReloadable): GatewayReloadable {
  const { limits, surface, settings, conversationIds } = reloadable;
  return { limits, surface, keepAliveAfterMs: settings.keepAliveAfterMs, conversationIds };
}

export function coreConfig(
  { zone }: GlobalOptions,
  { settings, regions, tenants }: GlobalReloadable,
): GlobalCoreConfig {
  return { settings, zone, regions, tenants };
}
