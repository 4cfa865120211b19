// A global router before regions whose every answer and report a test scripts. The router is the real one; a region is a
// link of the real protocol and an HTTP listener that verifies what it is told, as a region's tier listener does.

import { startGlobalRouter, type RunningGlobalRouter } from '../../router/global/start.ts';
import type { GlobalOptions, RegionOptions } from '../../router/global/options.ts';
import { ContextDoor, isBody, type TierContext } from '../../router/gateway/tier-context.ts';
import { UNTENANTED } from '../../router/gateway/tenants.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import { CONVERSATION_IDS } from '../../shared/model/conversation-ids.ts';
import { GLOBAL_DEFAULTS } from '../../shared/model/global-settings.ts';
import type { LinkId, PoolId, RegionId, RouterId } from '../../shared/model/ids.ts';
import {
  REGION_PROTOCOL_VERSION,
  type RegionChildMessage,
  type RegionPoolReport,
} from '../../shared/protocol/region-messages.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import { startLinkClient, type LinkClient } from '../../shared/runtime/link-client.ts';
import { REGION_LINK_LIMITS, REGION_OF_ROUTERS } from '../../shared/runtime/region-link.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import {
  startScriptedEngine,
  statusOf,
  streamOf,
  type Received,
  type Script,
  type ScriptedEngine,
} from './scripted-engine.ts';
import { captureLog, LIMITS } from './shell-harness.ts';
import { until } from './until.ts';

export const MODEL = 'm';
const LOCAL = { host: '127.0.0.1', port: 0 };
const WHATEVER: Script = (received, response) =>
  received.path === '/v1/chat/completions'
    ? streamOf('hello', ' there')(received, response)
    : statusOf(404, '{}', { 'server-timing': 'total;dur=1' })(received, response);

export interface ToldRequest extends Received {
  readonly context: TierContext;
}

/** A region of the test's own. */
export class ScriptedRegion {
  readonly id: RegionId;
  readonly options: RegionOptions;
  /** What came signed for this region, and was. */
  readonly told: ToldRequest[] = [];
  /** What was refused, by why. */
  readonly refused: string[] = [];
  script: Script = WHATEVER;
  /** Where the global router's link listener is; its region dials `linkPort` where that is set: a proxy before it. */
  linksPort = 0;
  linkPort: number | null = null;
  /** That its reports speak of. */
  routers = 1;
  private readonly engine: ScriptedEngine;
  private readonly door: ContextDoor;
  private link: LinkClient<RegionChildMessage> | null = null;
  private up: LinkId | null = null;
  private seq = 0;

  private constructor(id: string, engine: ScriptedEngine, more: Partial<RegionOptions>) {
    this.id = id as RegionId;
    this.engine = engine;
    const key = { id: `key-${id}`, secret: `tier-secret-of-${id}` };
    this.door = new ContextDoor(this.id, [key]);
    this.options = {
      id: this.id,
      zone: id,
      certifications: [],
      tiers: [],
      costMs: 0,
      baseUrl: engine.url,
      rollout: 'active',
      tls: null,
      tierKey: key,
      linkSecrets: [`link-secret-of-${id}`],
      linkNames: [],
      otherBaseUrls: [],
      ...more,
    };
  }

  static async open(id: string, more: Partial<RegionOptions> = {}): Promise<ScriptedRegion> {
    const engine = await startScriptedEngine(() => undefined);
    const region = new ScriptedRegion(id, engine, more);
    engine.script = (received, response) => region.answer(received, response);
    return region;
  }

  get linked(): boolean {
    return this.up !== null;
  }

  /** Of its tier listener. */
  get port(): number {
    return Number(new URL(this.engine.url).port);
  }

  dial(linksPort: number, runtime: RoleRuntime): void {
    this.linksPort = linksPort;
    this.link = startLinkClient({
      words: REGION_OF_ROUTERS,
      urls: [`ws://127.0.0.1:${this.linkPort ?? linksPort}`],
      secret: this.options.linkSecrets[0] ?? null,
      runtime,
      limits: REGION_LINK_LIMITS,
      onUp: (link) => {
        this.up = link;
        this.link?.send(link, {
          kind: 'hello',
          protocol: [REGION_PROTOCOL_VERSION, REGION_PROTOCOL_VERSION],
          features: [],
          routerId: `router-of-${this.id}-${this.port}` as RouterId,
          software: 'test',
          region: this.id,
          wallMs: Date.now(),
        });
        this.report();
      },
      onMessage: () => undefined,
      onDown: () => (this.up = null),
    });
  }

  report(more: Partial<RegionPoolReport> = {}): void {
    if (this.up === null) return;
    this.link?.send(this.up, {
      kind: 'report',
      seq: this.seq,
      pools: [{ ...REPORT, ...more }],
      routers: this.routers,
      draining: false,
      arrived: [],
    });
    this.seq += 1;
  }

  /** Credit for what it may be sent from afar, ms of prefill. */
  grant(prefillMs: number): void {
    if (this.up === null) return;
    this.link?.send(this.up, { kind: 'grant', pool: REPORT.pool, prefillMs, lifeMs: 5_000 });
  }

  /** Ends its link for good. */
  async hangUp(): Promise<void> {
    await this.link?.close();
    this.link = null;
  }

  async close(): Promise<void> {
    await this.hangUp();
    await this.engine.close();
  }

  private answer(received: Received, response: Parameters<Script>[1]): void {
    const { method, path, headers, body } = received;
    const token = headers['x-spillway-context'];
    const verdict =
      typeof token === 'string'
        ? this.door.open(token, { method, path }, Date.now())
        : ({ kind: 'refused', why: 'missing' } as const);
    const why =
      verdict.kind === 'refused'
        ? verdict.why
        : isBody(body, verdict.bodySha256)
          ? null
          : 'other_body';
    if (why !== null || verdict.kind === 'refused') {
      this.refused.push(String(why));
      return void statusOf(401, '{"error":{"message":"no","code":"context_refused"}}')(
        received,
        response,
      );
    }
    this.told.push({ ...received, context: verdict.context });
    void this.script(received, response);
  }
}

const REPORT: RegionPoolReport = {
  pool: 'default' as PoolId,
  observedAgoMs: 0,
  readyReplicas: 2,
  waitingPrefillMs: 0,
  waitingPrefillTokens: 0,
  prefillCost: {
    ...{ baseMs: 5, frontMsPerToken: 0, linearMsPerToken: 0.1, contextMsPerToken2: 0 },
    stepTokens: 8_192,
  },
  prefillTps: 20_000,
  slotWaitMs: 0,
  kvUsageRatio: 0.1,
  preemptionsPerS: 0,
  kvLifetimeMs: 600_000,
  kvRoomTokens: null,
  pending: [],
  models: [{ name: MODEL, revision: 'unknown', maxModelLen: 8_192 }],
  tiers: [],
  queuedPrefillMs: 0,
  queuedRequests: 0,
  oldestQueuedMs: null,
  kvRoomWaitMs: null,
  unacknowledgedMs: 0,
};

export interface GlobalTier {
  readonly router: RunningGlobalRouter;
  readonly options: GlobalOptions;
  /** Of its clients' listener, no path. */
  readonly url: string;
  readonly lines: Record<string, unknown>[];
  metric(name: string): Promise<Record<string, number>>;
  close(): Promise<void>;
}

export interface TierChanges extends Partial<Omit<GlobalOptions, 'reloadable'>> {
  readonly reloadable?: Partial<GlobalOptions['reloadable']>;
}

export async function startTier(
  regions: readonly ScriptedRegion[],
  changes: TierChanges = {},
): Promise<GlobalTier> {
  const { lines, log } = captureLog();
  const runtime = { clock: systemClock, timers: systemTimers, random: seededRandom(1), log };
  const options: GlobalOptions = {
    zone: null,
    clients: LOCAL,
    links: LOCAL,
    admin: LOCAL,
    ...changes,
    reloadable: {
      tenancy: UNTENANTED,
      tenants: new Map(),
      regions: regions.map((region) => region.options),
      settings: GLOBAL_DEFAULTS,
      limits: LIMITS,
      surface: { cors: null, explain: true },
      conversationIds: CONVERSATION_IDS,
      affinitySecrets: ['affinity secret'],
      probes: null,
      ...changes.reloadable,
    },
  };
  const router = await startGlobalRouter(options, runtime);
  for (const region of regions) region.dial(router.linksPort, runtime);
  await until(() => router.status().regions.every(({ seen, rttMs }) => seen && rttMs !== null), {
    timeoutMs: 5_000,
    says: () => JSON.stringify(lines.slice(-5)),
  });
  return {
    router,
    options,
    url: `http://127.0.0.1:${router.clientsPort}`,
    lines,
    metric: (name) => metricRows(router.adminPort, name),
    async close() {
      await Promise.all(regions.map((region) => region.close()));
      // However its requests ended: nothing of them is left.
      const left = () => {
        const { openRequests, attempts, queued, bodyBytes } = router.status();
        return { openRequests, attempts, queued: queued.requests, bodyBytes };
      };
      await until(() => Object.values(left()).every((figure) => figure === 0), {
        says: () => JSON.stringify(left()),
      });
      await router.close();
    },
  };
}

async function metricRows(port: number | null, name: string): Promise<Record<string, number>> {
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  const rows = text.matchAll(new RegExp(`^spillway_global_${name}(?:\\{(.*)\\})? (\\S+)$`, 'gm'));
  return Object.fromEntries(
    Array.from(rows, ([, labels = '', value]) => [labels, Number(value)] as const),
  );
}
