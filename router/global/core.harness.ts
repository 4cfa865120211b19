// A global core with scripted regions, for tests: short words for links, reports, requests and ends.

import { GLOBAL_DEFAULTS, type GlobalSettings } from '../../shared/model/global-settings.ts';
import type {
  LeaseId,
  LinkId,
  PoolId,
  RegionId,
  RequestId,
  RouterId,
} from '../../shared/model/ids.ts';
import type { CostCurve } from '../../shared/model/cost-curve.ts';
import type { PromptChain, TurnEnd } from '../../shared/model/prompt.ts';
import { PlacementHints } from '../../shared/lib/placement-hint.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import type {
  RegionChildMessage,
  RegionHello,
  RegionPoolReport,
} from '../../shared/protocol/region-messages.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import type { RouteRequest } from '../policy/request-events.ts';
import { GlobalCore } from './core.ts';
import type {
  ConversationKeys,
  GlobalAttempt,
  GlobalCoreConfig,
  GlobalEffect,
  GlobalEvent,
  RegionConfig,
  TenantFacts,
} from './events.ts';

export const MODEL = 'm';
export const POOL = 'pool' as PoolId;
export const COMPLETE: AttemptResult = {
  kind: 'complete',
  usage: { promptTokens: 1_000, cachedTokens: null, completionTokens: 10 },
};
export const RESET: AttemptResult = { kind: 'serverFault', cause: 'reset', detail: '' };

/** 8,000 tokens a second and nothing else. */
export const FLAT: CostCurve = {
  baseMs: 0,
  frontMsPerToken: 0,
  linearMsPerToken: 1 / 8,
  contextMsPerToken2: 0,
  stepTokens: 1_000_000,
};

/** Readable, so that a test can say what it expects. */
export const PLAIN_KEYS: ConversationKeys = {
  generations: 1,
  keyOf: (tenant, { hashLow, offset }) => `${tenant}/${hashLow}@${offset}`,
  keyOfId: ({ tenant, model, id }) => `${tenant}/${model}#${id}`,
};
/** Of the fleet that a rig belongs to. */
export const RIG_HINTS = new PlacementHints('a secret of the rig');
export const RIG_WALL_MS = 1_800_000_000_000;

export function regionOf(id: string, more: Partial<RegionConfig> = {}): RegionConfig {
  return {
    id: id as RegionId,
    zone: id,
    certifications: [],
    tiers: [],
    costMs: 0,
    baseUrl: `http://${id}`,
    rollout: 'active',
    ...more,
  };
}

export function tenantOf(
  allow: readonly string[] | null,
  fallback: readonly string[] = [],
  more: Partial<TenantFacts> = {},
): TenantFacts {
  const residency = { allow: (allow ?? []) as RegionId[], fallback: fallback as RegionId[] };
  return {
    residency: allow === null ? null : residency,
    saltGroup: 's',
    models: null,
    certifications: [],
    tier: null,
    ...more,
  };
}

export function poolReport(more: Partial<RegionPoolReport> = {}): RegionPoolReport {
  return {
    pool: POOL,
    observedAgoMs: 0,
    readyReplicas: 2,
    waitingPrefillMs: 0,
    waitingPrefillTokens: null,
    prefillCost: FLAT,
    prefillTps: null,
    slotWaitMs: null,
    kvUsageRatio: null,
    preemptionsPerS: null,
    kvLifetimeMs: 600_000,
    kvRoomTokens: null,
    pending: [],
    models: [{ name: MODEL, revision: 'unknown', maxModelLen: null }],
    tiers: [],
    queuedPrefillMs: 0,
    queuedRequests: 0,
    oldestQueuedMs: null,
    kvRoomWaitMs: null,
    unacknowledgedMs: 0,
    ...more,
  };
}

/** A prompt of one conversation after so many turns, 4,000 bytes (1,000 tokens) each. */
export function turnsOf(conversation: number, turns: number, turnBytes = 4_000): PromptChain {
  const end = (turn: number): TurnEnd => ({
    ...{ offset: turn * turnBytes, chunks: Math.floor((turn * turnBytes) / 512) },
    ...{ hashLow: conversation, hashHigh: 0 },
  });
  return {
    keySpace: 'text/1',
    bytes: turns * turnBytes,
    hashes: new Uint32Array(0),
    turnEnds: Array.from({ length: turns - 1 }, (_, k) => end(k + 1)),
    end: end(turns),
    parts: {},
    tokenIds: null,
  };
}

export interface RigOptions {
  readonly regions?: readonly RegionConfig[];
  readonly tenants?: Readonly<Record<string, TenantFacts>>;
  readonly settings?: Partial<GlobalSettings>;
  readonly seed?: number;
  /** Absent: readable ones. */
  readonly keys?: ConversationKeys;
}

export class GlobalRig {
  readonly core: GlobalCore;
  nowMs = 0;
  config: GlobalCoreConfig;
  readonly #seqs = new Map<string, number>();
  #requests = 0;

  constructor(options: RigOptions = {}) {
    this.config = {
      settings: { ...GLOBAL_DEFAULTS, ...options.settings },
      zone: null,
      regions: options.regions ?? [regionOf('near'), regionOf('far')],
      tenants: new Map(Object.entries(options.tenants ?? {})),
    };
    this.core = new GlobalCore({
      routerId: 'g' as RouterId,
      software: 'test',
      config: this.config,
      random: seededRandom(options.seed ?? 1),
      wallMs: () => RIG_WALL_MS,
      keys: options.keys ?? PLAIN_KEYS,
      hints: RIG_HINTS,
    });
  }

  handle(event: GlobalEvent): GlobalEffect[] {
    return this.core.handle(event, this.nowMs);
  }

  pass(ms: number): GlobalEffect[] {
    this.nowMs += ms;
    return this.handle({ kind: 'tick' });
  }

  configure(more: Partial<GlobalCoreConfig>): GlobalEffect[] {
    this.config = { ...this.config, ...more };
    return this.handle({ kind: 'configured', config: this.config });
  }

  hello(region: string, more: Partial<RegionHello> = {}): RegionHello {
    return {
      kind: 'hello',
      protocol: [1, 1],
      features: [],
      routerId: `${region}/r` as RouterId,
      software: 'test',
      region: region as RegionId,
      wallMs: RIG_WALL_MS,
      ...more,
    };
  }

  /** A link of a region, named as its router. */
  up(region: string, link = region): GlobalEffect[] {
    const hello = this.hello(region, { routerId: link as RouterId });
    this.#seqs.delete(link);
    return this.handle({
      ...{ kind: 'regionUp', link: link as LinkId, region: region as RegionId, hello },
    });
  }

  say(link: string, message: Exclude<RegionChildMessage, RegionHello>): GlobalEffect[] {
    return this.handle({ kind: 'regionMessage', link: link as LinkId, message });
  }

  report(
    link: string,
    pool: Partial<RegionPoolReport> = {},
    arrived: readonly number[] = [],
    routers = 1,
  ): GlobalEffect[] {
    const seq = (this.#seqs.get(link) ?? -1) + 1;
    this.#seqs.set(link, seq);
    const pools = [poolReport(pool)];
    return this.say(link, { kind: 'report', seq, pools, routers, draining: false, arrived });
  }

  grant(link: string, prefillMs: number, lifeMs = 5_000): GlobalEffect[] {
    return this.say(link, { kind: 'grant', pool: POOL, prefillMs, lifeMs });
  }

  /** Linked, at a distance, warm, with a first report. */
  join(region: string, rttMs: number, pool: Partial<RegionPoolReport> = {}): void {
    this.up(region);
    this.handle({ kind: 'rtt', region: region as RegionId, rttMs });
    this.handle({ kind: 'warmth', region: region as RegionId, warm: true });
    this.report(region, pool);
  }

  request(more: Partial<RouteRequest> = {}): RouteRequest {
    this.#requests += 1;
    return {
      id: `r${this.#requests}` as RequestId,
      tenant: 't',
      model: MODEL,
      stream: true,
      priority: 0,
      maxTokens: 10,
      clientDeadlineMs: null,
      bodyBytes: 100,
      prompts: [turnsOf(this.#requests, 1)],
      ...more,
    };
  }

  arrive(more: Partial<RouteRequest> = {}): GlobalEffect[] {
    return this.handle({ kind: 'arrived', request: this.request(more) });
  }

  end(lease: string, result: AttemptResult, committed = result.kind === 'complete') {
    return this.handle({ kind: 'attemptEnded', lease: lease as LeaseId, result, committed });
  }
}

export function attemptsIn(effects: readonly GlobalEffect[]): GlobalAttempt[] {
  return effects.flatMap((effect) => (effect.kind === 'attempt' ? [effect.attempt] : []));
}

/** Of the first attempt; fails where there is none. */
export function attemptIn(effects: readonly GlobalEffect[]): GlobalAttempt {
  const [attempt] = attemptsIn(effects);
  if (attempt === undefined) throw new Error(`no attempt in ${JSON.stringify(effects)}`);
  return attempt;
}

export function decisionIn(effects: readonly GlobalEffect[]) {
  for (const effect of effects) {
    if (effect.kind === 'attempt' || effect.kind === 'queued' || effect.kind === 'refuse') {
      return effect.decision;
    }
  }
  return null;
}

export function refusalIn(effects: readonly GlobalEffect[]) {
  return effects.find((effect) => effect.kind === 'refuse') ?? null;
}

export const EU = regionOf('eu', { zone: 'eu' });
export const JP = regionOf('jp', { zone: 'asia' });
export const SG = regionOf('sg', { zone: 'asia' });

/** Three regions as seen from Japan. */
export function asia(options: RigOptions = {}): GlobalRig {
  const rig = new GlobalRig({ regions: [JP, SG, EU], ...options });
  rig.join('jp', 15);
  rig.join('sg', 60);
  rig.join('eu', 220);
  return rig;
}

/** Kind, reason and region of the decision. */
export function kindOf(effects: readonly GlobalEffect[]) {
  const decision = decisionIn(effects);
  return decision === null ? null : [decision.kind, decision.reason, decision.region];
}
