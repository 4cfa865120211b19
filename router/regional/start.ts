// Starts a regional router in this process: core, shell, listeners. Everything it opened is closed again when
// a later step fails, and when it is closed.

import { createChainHasher } from '../../shared/lib/chain-hash.ts';
import type { RegionId, RouterId } from '../../shared/model/ids.ts';
import { randomHex } from '../../shared/runtime/entropy.ts';
import { createHttpPools } from '../../shared/runtime/http-pool.ts';
import type { ConnectionSource } from '../../shared/runtime/handed-connections.ts';
import { createMetrics, type Metrics } from '../../shared/runtime/metrics.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { SOFTWARE, VERSION } from '../../shared/runtime/version.ts';
import { Canonicaliser } from '../gateway/canonical.ts';
import { Tenants } from '../gateway/tenants.ts';
import { adminRoutes, type Exposition } from '../gateway/admin-routes.ts';
import { openDoor, type CertificateRules, type Door } from '../gateway/client-door.ts';
import { clientRoutes } from '../gateway/client-routes.ts';
import { RegionalCore } from './core.ts';
import { drainRoutes } from '../gateway/drain-routes.ts';
import { explanation, type Explainable } from '../gateway/explanation.ts';
import type { SeenRefusal } from '../gateway/seen-attempts.ts';
import { ContextDoor } from '../gateway/tier-context.ts';
import { openTierDoor } from '../gateway/tier-door.ts';
import { servedModels } from './served-models.ts';
import type { Route } from '../gateway/http-listener.ts';
import { Leaving, type DrainOptions } from '../gateway/leaving.ts';
import { Listeners } from '../gateway/listeners.ts';
import { METRICS, METRICS_PREFIX, type MetricName } from './metrics.ts';
import type { RouterOptions, RouterReloadable } from './options.ts';
import { coreConfig, RegionalShell } from './shell.ts';
import type { Readiness } from '../gateway/readiness.ts';
import { setGauges } from './gauges.ts';
import { readinessOf, statusText, type RouterStatus } from './status.ts';
import { RegionalTls, type ListenerName } from './tls.ts';

export interface RunningRouter {
  readonly clientsPort: number;
  readonly linksPort: number;
  readonly adminPort: number | null;
  /** Where global routers send requests; null: nowhere. */
  readonly tierPort: number | null;
  /** Whether it is ready and what it does, in short: cheap enough for once a second. */
  beat(): Beat;
  /** What would be decided for a request. Throws `FleetError`. */
  explain(asked: Explainable): object;
  /** Out of its balancer, or back. False where it is too late for it. */
  mark(on: boolean): boolean;
  /** More workers of this router are known: `WorkerPart.linkPorts` says where. */
  workersKnown(): void;
  /** Swaps pools, settings and limits at once. */
  reload(reloadable: RouterReloadable): void;
  status(): RouterStatus;
  /** Not ready from now on; resolves when nothing is open, or when the time is over. */
  drain(options?: DrainOptions): Promise<void>;
  /** Ends what is open with an error, then closes everything. */
  close(): Promise<void>;
}

/** What a router says of itself once a second. */
export interface Beat {
  readonly readiness: Readiness;
  readonly openRequests: number;
  /** Pools with a replica that a live report calls ready. */
  readonly readyPools: number;
}

/** What a router has from its parent where it is one of several workers. */
export interface WorkerPart {
  /** The connections of clients and of global routers, which the parent accepts; null: there is no such listener. */
  readonly sources: { readonly clients: ConnectionSource; readonly tier: ConnectionSource | null };
  /** What it measures goes to the parent, which answers operators. */
  readonly metrics: Metrics<MetricName>;
  /** Link ports of all workers, in their order. */
  readonly linkPorts: () => readonly number[];
  /** Whether an attempt of a global router's is the first of its name among all workers; null: it is. */
  readonly claim: (attempt: string) => Promise<SeenRefusal | null>;
}

const DRAIN_DEFAULTS: DrainOptions = { acceptMs: 0, drainMs: 900_000 };
const TIDY_INTERVAL_MS = 60_000;
/** Each attempt's own deadline rules; this only ends what nobody waits for any more, ms. */
const CONNECT_CEILING_MS = 10_000;

export async function startRegionalRouter(
  options: RouterOptions,
  runtime: RoleRuntime,
  worker: WorkerPart | null = null,
): Promise<RunningRouter> {
  const canonicaliser = new Canonicaliser(await createChainHasher());
  const router = new RegionalRouter(options, runtime, { canonicaliser, worker });
  try {
    await router.listen();
  } catch (error) {
    await router.close();
    throw error;
  }
  return router;
}

class RegionalRouter implements RunningRouter {
  clientsPort = 0;
  linksPort = 0;
  adminPort: number | null = null;
  tierPort: number | null = null;
  private readonly options: RouterOptions;
  private readonly runtime: RoleRuntime;
  private readonly core: RegionalCore;
  private readonly shell: RegionalShell;
  private readonly metrics: Metrics<MetricName>;
  private readonly worker: WorkerPart | null;
  private readonly pools: ReturnType<typeof createHttpPools>;
  private readonly tls: RegionalTls;
  private readonly tenants: Tenants;
  private readonly contexts: ContextDoor;
  private readonly listeners: Listeners<ListenerName>;
  private readonly stopTidying: () => void;
  private readonly routerId = randomHex(8) as RouterId;
  private readonly startedMs: number;
  private readonly leaving: Leaving;

  constructor(
    options: RouterOptions,
    outer: RoleRuntime,
    { canonicaliser, worker }: { canonicaliser: Canonicaliser; worker: WorkerPart | null },
  ) {
    const runtime = { ...outer, log: outer.log.child({ region: options.region }) };
    const { clock, random, timers } = runtime;
    this.options = options;
    this.worker = worker;
    this.metrics = worker?.metrics ?? createMetrics<MetricName>(METRICS_PREFIX, METRICS);
    this.runtime = runtime;
    this.startedMs = clock.nowMs();
    this.pools = createHttpPools(
      Math.max(CONNECT_CEILING_MS, options.reloadable.settings.connectTimeoutMs),
      (_origin, problem) => runtime.log.warn({ problem }, 'engine refused: certificate'),
    );
    this.tls = new RegionalTls(options, runtime, this.metrics);
    this.tenants = new Tenants(options.reloadable.tenancy);
    const { tierKeys = [] } = options.reloadable;
    this.contexts = new ContextDoor(options.region as RegionId, tierKeys);
    this.core = new RegionalCore({
      routerId: this.routerId,
      software: SOFTWARE,
      config: coreConfig(options, options.reloadable),
      random,
      wallMs: () => clock.wallMs(),
    });
    const { core, metrics, pools, tls } = this;
    const workerPorts = worker?.linkPorts;
    this.shell = new RegionalShell({
      ...{ core, options, runtime, metrics, pools, tls, canonicaliser, workerPorts },
      routerId: this.routerId,
    });
    this.leaving = new Leaving(runtime);
    const { unserved } = this.shell;
    const cors = () => this.shell.reloadable.surface.cors;
    const leaving = () => this.leaving.now;
    const listening = { runtime, metrics, unserved, cors, leaving };
    this.listeners = new Listeners(listening, options.reloadable.limits);
    metrics.set('build_info', 1, { version: VERSION, region: options.region });
    this.stopTidying = timers.every(TIDY_INTERVAL_MS, () => pools.retain(this.usedOrigins()));
  }

  async listen(): Promise<void> {
    const { options, shell } = this;
    const { requests, unserved } = shell;
    const served = () => servedModels(this.coreStatus().pools, shell.reloadable.pools);
    const client = clientRoutes({ requests, unserved, served });
    this.linksPort = await shell.listen();
    if (this.worker !== null) {
      this.clientsPort = await this.listenOn('clients', client);
      if (options.tier) this.tierPort = await this.listenOn('tier', client);
      shell.report();
      return;
    }
    const admin = adminRoutes<RouterStatus>({
      exposition: () => this.exposition(),
      budget: shell.requests.budget,
      bounds: () => shell.reloadable.limits,
      status: () => this.status(),
      statusText,
      readiness: () => this.beat().readiness,
      explain: (asked) => this.explain(asked),
    });
    if (options.admin !== null) {
      const drain = drainRoutes({
        state: () => this.leaving.state(this.coreStatus().openRequests),
        set: (on) => this.mark(on),
        secrets: () => shell.reloadable.linkSecrets,
      });
      this.adminPort = await this.listenOn('admin', [...admin, ...drain]);
    }
    const routes = options.admin === null ? [...client, ...admin] : client;
    this.clientsPort = await this.listenOn('clients', routes);
    if (options.tier) this.tierPort = await this.listenOn('tier', client);
    shell.report();
    const { clientsPort, linksPort, adminPort, tierPort } = this;
    const fields = { clientsPort, linksPort, adminPort, tierPort };
    this.runtime.log.info(fields, 'router listening');
  }

  workersKnown(): void {
    this.shell.workersKnown();
  }

  reload(reloadable: RouterReloadable): void {
    // First: it refuses files that cannot be used, and then nothing has changed.
    this.tls.configure(reloadable.pools);
    this.tls.look();
    this.tenants.configure(reloadable.tenancy);
    this.contexts.configure(reloadable.tierKeys ?? []);
    this.shell.configure(reloadable);
    this.shell.requests.withdraw((tenant) => this.tenants.keepsOut(tenant));
    this.listeners.configure(reloadable.limits);
  }

  status(): RouterStatus {
    const status = this.coreStatus();
    const upMs = this.runtime.clock.nowMs() - this.startedMs;
    return {
      router: {
        id: this.routerId,
        region: this.options.region,
        software: SOFTWARE,
        upForS: Math.round(upMs / 1_000),
      },
      ready: readinessOf(status, this.leaving.now).ready,
      config: this.runtime.configView?.() ?? null,
      bodyBytes: this.shell.requests.budget.heldBytes,
      connections: this.listeners.connections(),
      linkTotals: this.shell.linkStats(),
      ...status,
    };
  }

  explain(asked: Explainable): object {
    const tenant = this.tenants.asked(asked.tenant);
    const request = this.shell.requests.explainable(asked, tenant);
    return explanation(request, this.core.explain(request, this.runtime.clock.nowMs()));
  }

  drain(options: DrainOptions = DRAIN_DEFAULTS): Promise<void> {
    return this.leaving.drain(options, {
      refuseNew: () => this.shell.drain(),
      whenIdle: (task) => this.shell.requests.whenIdle(task),
    });
  }

  async close(): Promise<void> {
    this.leaving.end();
    this.stopTidying();
    await this.shell.close();
    await this.listeners.close();
    await this.pools.close();
    this.tls.close();
  }

  private async exposition(): Promise<Exposition> {
    const { metrics } = this;
    setGauges(metrics, this.status());
    return { text: await metrics.text(), contentType: metrics.contentType };
  }

  beat(): Beat {
    const status = this.coreStatus();
    return {
      readiness: readinessOf(status, this.leaving.now),
      openRequests: status.openRequests,
      readyPools: status.pools.filter(({ ready }) => ready > 0).length,
    };
  }

  mark(on: boolean): boolean {
    return this.leaving.mark(on);
  }

  private coreStatus() {
    return this.core.status(this.runtime.clock.nowMs());
  }

  /** Engines of linked agents, and those that are still used without one. */
  private usedOrigins(): ReadonlySet<string> {
    const urls = new Set(this.shell.links.engineUrls());
    for (const pool of this.coreStatus().pools) for (const { url } of pool.replicas) urls.add(url);
    return urls;
  }

  private clientDoor(name: 'clients' | 'admin'): Door {
    const tenants = name === 'clients' ? this.tenants : null;
    return openDoor({ ...this.certificates(name), tenants });
  }

  private certificates(name: Exclude<ListenerName, 'links'>): CertificateRules {
    return {
      clientAuth: this.tls.listener(name)?.clientAuth ?? 'none',
      wallMs: () => this.runtime.clock.wallMs(),
      onRefused: (credential) => this.metrics.add('client_refusals_total', { credential }),
    };
  }

  private tierDoor(): Door {
    const { clock, log } = this.runtime;
    return openTierDoor({
      region: this.options.region as RegionId,
      contexts: this.contexts,
      claim: this.worker?.claim,
      keepsOut: (tenant) => this.tenants.keepsOut(tenant),
      clock,
      log,
      certificates: this.certificates('tier'),
      onRefused: (reason) => this.metrics.add('tier_refusals_total', { reason }),
    });
  }

  private listenOn(
    name: Exclude<ListenerName, 'links'>,
    routes: readonly Route[],
  ): Promise<number> {
    const listen = this.options[name];
    if (!listen) throw new Error(`no address for the ${name} listener`);
    return this.listeners.add(name, {
      listen,
      source: name === 'admin' ? undefined : (this.worker?.sources[name] ?? undefined),
      tls: this.tls.listener(name),
      handshakeFailed: this.tls.failedAt(name),
      door: name === 'tier' ? this.tierDoor() : this.clientDoor(name),
      pageless: name === 'tier',
      bare: name === 'tier',
      routes,
    });
  }
}
