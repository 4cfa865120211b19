// Starts a global router in this process: core, shell, listeners. Everything it opened is closed again when a later step
// fails, and when it is closed.

import { createChainHasher } from '../../shared/lib/chain-hash.ts';
import { HmacConversationKeys } from '../../shared/lib/conversation-key.ts';
import { PlacementHints } from '../../shared/lib/placement-hint.ts';
import type { RouterId } from '../../shared/model/ids.ts';
import { randomHex } from '../../shared/runtime/entropy.ts';
import { createMetrics, type Metrics } from '../../shared/runtime/metrics.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { SOFTWARE, VERSION } from '../../shared/runtime/version.ts';
import { adminRoutes, type Exposition } from '../gateway/admin-routes.ts';
import { Canonicaliser } from '../gateway/canonical.ts';
import { openDoor } from '../gateway/client-door.ts';
import { clientRoutes, type ServedModel } from '../gateway/client-routes.ts';
import { drainRoutes } from '../gateway/drain-routes.ts';
import { explanation, type Explainable } from '../gateway/explanation.ts';
import type { Route } from '../gateway/http-listener.ts';
import { Leaving, type DrainOptions } from '../gateway/leaving.ts';
import { Listeners } from '../gateway/listeners.ts';
import { Tenants, type Tenant } from '../gateway/tenants.ts';
import { mayEverServe } from '../policy/region-filter.ts';
import { GlobalCore } from './core.ts';
import { setGauges } from './gauges.ts';
import { METRICS, METRICS_PREFIX, type MetricName } from './metrics.ts';
import type { GlobalOptions, GlobalReloadable } from './options.ts';
import { RegionProber } from './prober.ts';
import { coreConfig, GlobalShell } from './shell.ts';
import { readinessOf, statusText, type GlobalRouterStatus } from './status.ts';
import { GlobalTls, type ListenerName } from './tls.ts';

export interface RunningGlobalRouter {
  readonly clientsPort: number;
  readonly linksPort: number;
  readonly adminPort: number | null;
  /** What would be decided for a request. Throws `FleetError`. */
  explain(asked: Explainable): object;
  /** Out of its balancer, or back. False where it is too late for it. */
  mark(on: boolean): boolean;
  /** Swaps regions, tenants, settings and limits at once. */
  reload(reloadable: GlobalReloadable): void;
  status(): GlobalRouterStatus;
  /** Not ready from now on; resolves when nothing is open, or when the time is over. */
  drain(options?: DrainOptions): Promise<void>;
  /** Ends what is open with an error, then closes everything. */
  close(): Promise<void>;
}

const DRAIN_DEFAULTS: DrainOptions = { acceptMs: 0, drainMs: 900_000 };

export async function startGlobalRouter(
  options: GlobalOptions,
  runtime: RoleRuntime,
): Promise<RunningGlobalRouter> {
  const router = new GlobalRouter(options, runtime, new Canonicaliser(await createChainHasher()));
  try {
    await router.listen();
  } catch (error) {
    await router.close();
    throw error;
  }
  return router;
}

class GlobalRouter implements RunningGlobalRouter {
  clientsPort = 0;
  linksPort = 0;
  adminPort: number | null = null;
  private readonly options: GlobalOptions;
  private readonly runtime: RoleRuntime;
  private readonly core: GlobalCore;
  private readonly shell: GlobalShell;
  private readonly metrics: Metrics<MetricName>;
  private readonly tls: GlobalTls;
  private readonly tenants: Tenants;
  private readonly listeners: Listeners<ListenerName>;
  private readonly leaving: Leaving;
  private readonly prober: RegionProber;
  private readonly keys: HmacConversationKeys;
  private readonly hints: PlacementHints;
  /** Where the configuration names none. */
  private readonly ownSecret = randomHex(32);
  private readonly routerId = randomHex(8) as RouterId;
  private readonly startedMs: number;

  constructor(options: GlobalOptions, runtime: RoleRuntime, canonicaliser: Canonicaliser) {
    const { clock, random } = runtime;
    const { reloadable } = options;
    this.options = options;
    this.runtime = runtime;
    this.startedMs = clock.nowMs();
    this.metrics = createMetrics<MetricName>(METRICS_PREFIX, METRICS);
    this.tls = new GlobalTls(options, runtime, this.metrics);
    this.tenants = new Tenants(reloadable.tenancy);
    const secrets = this.secretsOf(reloadable);
    this.keys = new HmacConversationKeys(...secrets);
    this.hints = new PlacementHints(...secrets);
    const { routerId, metrics, tls } = this;
    this.core = new GlobalCore({
      routerId,
      software: SOFTWARE,
      config: coreConfig(options, reloadable),
      random,
      wallMs: () => clock.wallMs(),
      keys: this.keys,
      hints: this.hints,
    });
    const { core } = this;
    this.shell = new GlobalShell({
      ...{ core, routerId, options, runtime, metrics, tls, canonicaliser },
      hints: this.hints,
    });
    this.leaving = new Leaving(runtime);
    const { unserved } = this.shell;
    const cors = () => this.shell.reloadable.surface.cors;
    const leaving = () => this.leaving.now;
    const listening = { runtime, metrics, unserved, cors, leaving };
    this.listeners = new Listeners(listening, reloadable.limits);
    this.prober = this.startProber();
    metrics.set('build_info', 1, { version: VERSION, zone: options.zone ?? '' });
  }

  async listen(): Promise<void> {
    const { options, shell } = this;
    const { requests, unserved } = shell;
    this.linksPort = await shell.links.listen();
    const client = clientRoutes({ requests, unserved, served: (tenant) => this.served(tenant) });
    const admin = adminRoutes<GlobalRouterStatus>({
      exposition: () => this.exposition(),
      budget: requests.budget,
      bounds: () => shell.reloadable.limits,
      status: () => this.status(),
      statusText,
      readiness: () => readinessOf(this.coreStatus(), this.leaving.now),
      explain: (asked) => this.explain(asked),
    });
    if (options.admin !== null) {
      const drain = drainRoutes({
        state: () => this.leaving.state(this.coreStatus().openRequests),
        set: (on) => this.mark(on),
        // No secret of its own: an operator elsewhere shows a certificate.
        secrets: () => [],
      });
      this.adminPort = await this.listenOn('admin', [...admin, ...drain]);
    }
    const routes = options.admin === null ? [...client, ...admin] : client;
    this.clientsPort = await this.listenOn('clients', routes);
    const { clientsPort, linksPort, adminPort } = this;
    this.runtime.log.info({ clientsPort, linksPort, adminPort }, 'global router listening');
  }

  reload(reloadable: GlobalReloadable): void {
    // First: it refuses files that cannot be used, and then nothing has changed.
    this.tls.configure(reloadable.regions);
    this.tls.look();
    const secrets = this.secretsOf(reloadable);
    this.keys.configure(...secrets);
    this.hints.configure(...secrets);
    this.tenants.configure(reloadable.tenancy);
    this.shell.configure(reloadable);
    this.listeners.configure(reloadable.limits);
  }

  status(): GlobalRouterStatus {
    const status = this.coreStatus();
    const upMs = this.runtime.clock.nowMs() - this.startedMs;
    return {
      router: { id: this.routerId, software: SOFTWARE, upForS: Math.round(upMs / 1_000) },
      ready: readinessOf(status, this.leaving.now).ready,
      config: this.runtime.configView?.() ?? null,
      bodyBytes: this.shell.requests.budget.heldBytes,
      connections: this.listeners.connections(),
      linkTotals: this.shell.links.stats(),
      ...status,
    };
  }

  explain(asked: Explainable): object {
    const request = this.shell.requests.explainable(asked, this.tenants.asked(asked.tenant));
    return explanation(request, this.core.explain(request, this.runtime.clock.nowMs()));
  }

  mark(on: boolean): boolean {
    return this.leaving.mark(on);
  }

  drain(options: DrainOptions = DRAIN_DEFAULTS): Promise<void> {
    return this.leaving.drain(options, {
      refuseNew: () => this.shell.drain(),
      whenIdle: (task) => this.shell.requests.whenIdle(task),
    });
  }

  async close(): Promise<void> {
    this.leaving.end();
    this.prober.close();
    await this.shell.close();
    await this.listeners.close();
    this.tls.close();
  }

  private secretsOf({ affinitySecrets }: GlobalReloadable): readonly [string, ...string[]] {
    const [first, ...older] = affinitySecrets;
    return first === undefined ? [this.ownSecret] : [first, ...older];
  }

  private coreStatus() {
    return this.core.status(this.runtime.clock.nowMs());
  }

  private async exposition(): Promise<Exposition> {
    const { metrics } = this;
    setGauges(metrics, this.status());
    return { text: await metrics.text(), contentType: metrics.contentType };
  }

  /** What regions that may serve the tenant report: their list, their certifications, and whether they serve at all. */
  private served(tenant: Tenant): ServedModel[] {
    const served = new Map<string, ServedModel>();
    const { regions, tenants } = this.shell.reloadable;
    const facts = tenants.get(tenant.name) ?? null;
    for (const region of regions) {
      if (!mayEverServe({ ...region, region: region.id }, tenant.residency, facts)) continue;
      for (const [name, maxModelLen] of this.shell.links.modelsOf(region.id)) {
        if (served.has(name)) continue;
        served.set(name, { id: name, root: name, parent: null, maxModelLen });
      }
    }
    return [...served.values()];
  }

  private startProber(): RegionProber {
    const { runtime, routerId, shell, metrics } = this;
    return new RegionProber({
      ...{ runtime, routerId, metrics },
      options: () => shell.reloadable.probes,
      connections: shell.connections,
      regions: () => shell.reloadable.regions,
      modelsOf: (region) => shell.links.readyModelsOf(region),
      post: shell.post,
    });
  }

  private listenOn(name: 'clients' | 'admin', routes: readonly Route[]): Promise<number> {
    const listen = this.options[name];
    if (listen === null) throw new Error(`no address for the ${name} listener`);
    const tls = this.tls.listener(name);
    return this.listeners.add(name, {
      listen,
      tls,
      handshakeFailed: this.tls.failedAt(name),
      door: openDoor({
        clientAuth: tls?.clientAuth ?? 'none',
        tenants: name === 'clients' ? this.tenants : null,
        wallMs: () => this.runtime.clock.wallMs(),
        onRefused: (credential) => this.metrics.add('client_refusals_total', { credential }),
      }),
      routes,
    });
  }
}
