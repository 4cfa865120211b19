// The regional router's shell with a plain core and a real listener, for tests of the data path alone.

import { Writable } from 'node:stream';
import { createChainHasher } from '../../shared/lib/chain-hash.ts';
import type { RouterId } from '../../shared/model/ids.ts';
import { REGIONAL_DEFAULTS } from '../../shared/model/settings.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import { createHttpPools } from '../../shared/runtime/http-pool.ts';
import { createLog, type Logger } from '../../shared/runtime/log.ts';
import { createMetrics, type Metrics } from '../../shared/runtime/metrics.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { Canonicaliser } from '../../router/gateway/canonical.ts';
import { openDoor } from '../../router/gateway/client-door.ts';
import { clientRoutes } from '../../router/gateway/client-routes.ts';
import { startHttpListener } from '../../router/gateway/http-listener.ts';
import { Tenants, UNTENANTED, type TenancyOptions } from '../../router/gateway/tenants.ts';
import { METRICS, METRICS_PREFIX, type MetricName } from '../../router/regional/metrics.ts';
import type { GatewayLimits, SurfaceOptions } from '../../router/gateway/gateway-options.ts';
import type { PoolOptions, RouterOptions } from '../../router/regional/options.ts';
import { RegionalShell } from '../../router/regional/shell.ts';
import { RegionalTls } from '../../router/regional/tls.ts';
import { PlainCore } from './plain-core.ts';

export const LIMITS: GatewayLimits = {
  bodyBytes: 8 * 1024 * 1024,
  bodyBytesMax: 64 * 1024 * 1024,
  answerBytesMax: 64 * 1024 * 1024,
  jsonDepth: 64,
  openRequests: 1_000,
  headerBytes: 16 * 1024,
  requestTimeoutMs: 30_000,
  bodyRatio: 100,
  keepAliveMs: 75_000,
  clientStallMs: 300_000,
};

export function poolOptions(changes: Partial<PoolOptions> = {}): PoolOptions {
  return {
    id: 'default',
    models: [],
    aliases: {},
    engineApiKey: null,
    agentSecrets: [],
    agentNames: [],
    engineTls: null,
    engineCidrs: [],
    enginePriority: false,
    cacheSalt: null,
    ...changes,
  };
}

export function routerOptions(changes: {
  pool?: Partial<PoolOptions>;
  limits?: Partial<GatewayLimits>;
  settings?: Partial<RouterOptions['reloadable']['settings']>;
  surface?: Partial<SurfaceOptions>;
  linkSecrets?: readonly string[];
  clientKeys?: TenancyOptions['clientKeys'];
  tenancy?: Partial<TenancyOptions>;
}): RouterOptions {
  return {
    region: 'test',
    clients: { host: '127.0.0.1', port: 0 },
    links: { host: '127.0.0.1', port: 0 },
    admin: null,
    addressProof: false,
    siblings: [],
    reloadable: {
      linkSecrets: changes.linkSecrets ?? [],
      tenancy: { ...UNTENANTED, clientKeys: changes.clientKeys ?? [], ...changes.tenancy },
      pools: [poolOptions(changes.pool)],
      settings: { ...REGIONAL_DEFAULTS, ...changes.settings },
      limits: { ...LIMITS, ...changes.limits },
      surface: { cors: null, explain: false, ...changes.surface },
    },
  };
}

/** A log whose lines are kept, parsed. */
export function captureLog(): { readonly lines: Record<string, unknown>[]; readonly log: Logger } {
  const lines: Record<string, unknown>[] = [];
  const destination = new Writable({
    write(piece: Buffer, _encoding, done) {
      for (const line of piece.toString().split('\n')) {
        if (line !== '') lines.push(JSON.parse(line) as Record<string, unknown>);
      }
      done();
    },
  });
  return { lines, log: createLog({ level: 'debug', readable: false, destination }) };
}

export interface Harness {
  readonly url: string;
  readonly core: PlainCore;
  readonly shell: RegionalShell;
  readonly metrics: Metrics<MetricName>;
  /** Request lines of the log, parsed. */
  readonly lines: Record<string, unknown>[];
  close(): Promise<void>;
}

export async function startHarness(
  urls: string[],
  changes: Parameters<typeof routerOptions>[0] & { readonly connections?: number } = {},
): Promise<Harness> {
  const { lines, log } = captureLog();
  const runtime = { clock: systemClock, timers: systemTimers, random: seededRandom(1), log };
  const options = routerOptions(changes);
  const core = new PlainCore(urls);
  const pools = createHttpPools(2_000);
  const metrics = createMetrics<MetricName>(METRICS_PREFIX, METRICS);
  const canonicaliser = new Canonicaliser(await createChainHasher());
  const tls = new RegionalTls(options, runtime, metrics);
  const routerId = 'plain' as RouterId;
  const shell = new RegionalShell({
    ...{ core, options, routerId, runtime, metrics, pools, tls, canonicaliser },
  });
  const { limits } = options.reloadable;
  const listener = await startHttpListener({
    listen: options.clients,
    tls: null,
    handshakeFailed: () => undefined,
    door: openDoor({
      clientAuth: 'none',
      tenants: new Tenants(options.reloadable.tenancy),
      wallMs: () => systemClock.wallMs(),
      onRefused: (credential) => metrics.add('client_refusals_total', { credential }),
    }),
    clock: systemClock,
    timers: systemTimers,
    limits: { ...limits, connections: changes.connections ?? 10_000 },
    routes: clientRoutes({
      requests: shell.requests,
      unserved: shell.unserved,
      served: () => [
        { id: 'm', root: 'm', parent: null, maxModelLen: null },
        { id: 'org/m:1', root: 'org/m:1', parent: null, maxModelLen: 4_096 },
      ],
    }),
    cors: () => options.reloadable.surface.cors,
    leaving: () => false,
    onLimit: (limit) => metrics.add('limit_hits_total', { limit }),
    onUnparsed: (code, limit) => shell.unserved.unparsed(code, limit),
    onRefused: (call, error) => shell.unserved.refused(call, error),
  });
  return {
    url: `http://127.0.0.1:${listener.port}`,
    core,
    shell,
    metrics,
    lines,
    async close() {
      await shell.close();
      await pools.close();
      await listener.close();
    },
  };
}
