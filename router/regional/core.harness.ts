// A regional core with scripted agents, for tests: short words for links, reports, requests and
// ends.

import { CHUNK_BYTES, type PromptChain, type TurnEnd } from '../../shared/model/prompt.ts';
import type { CostCurve } from '../../shared/model/cost-curve.ts';
import type {
  AgentId,
  Incarnation,
  LeaseId,
  LinkId,
  PoolId,
  ReplicaId,
  RequestId,
  RouterId,
} from '../../shared/model/ids.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import { REGIONAL_DEFAULTS, type RegionalSettings } from '../../shared/model/settings.ts';
import {
  AGENT_FEATURES,
  type PrefixRun,
  type RouterMessage,
} from '../../shared/protocol/messages.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import { RegionalCore } from './core.ts';
import type { TargetStatus } from './core-status.ts';
import type {
  Attempt,
  PoolConfig,
  RegionalCoreConfig,
  RouterEffect,
  RouterEvent,
  UplinkConfig,
} from './events.ts';
import type { RouteRequest } from '../policy/request-events.ts';

export const MODEL = 'm';
export const COMPLETE: AttemptResult = {
  kind: 'complete',
  usage: { promptTokens: 100, cachedTokens: 0, completionTokens: 10 },
};

/** 1 ms per uncached token and nothing else: costs can be read off. */
export const PLAIN_CURVE: CostCurve = {
  baseMs: 0,
  frontMsPerToken: 0,
  linearMsPerToken: 1,
  contextMsPerToken2: 0,
  stepTokens: 1_000_000,
};

/** Chunk hashes of a text that is `ids` in turn; equal beginnings have equal hashes. */
export function chainOf(ids: readonly number[], more: Partial<PromptChain> = {}): PromptChain {
  const hashes = new Uint32Array(2 * ids.length);
  let mixed = 17;
  for (const [k, id] of ids.entries()) {
    mixed = (Math.imul(mixed, 0x01000193) ^ id) >>> 0;
    hashes[2 * k] = mixed;
    hashes[2 * k + 1] = Math.imul(mixed, 0x9e3779b1) >>> 0;
  }
  const end: TurnEnd = {
    offset: ids.length * CHUNK_BYTES,
    chunks: ids.length,
    hashLow: (mixed ^ 0x5bd1e995) >>> 0,
    hashHigh: Math.imul(mixed, 0x85ebca6b) >>> 0,
  };
  return {
    keySpace: 'text/1',
    bytes: ids.length * CHUNK_BYTES,
    hashes,
    turnEnds: [],
    end,
    parts: {},
    tokenIds: null,
    ...more,
  };
}

export function reportOf(replica: string, more: Partial<ReplicaReport> = {}): ReplicaReport {
  return {
    replica: replica as ReplicaId,
    rank: 0,
    incarnation: `${replica}/1` as Incarnation,
    seq: 0,
    phase: 'ready',
    phaseForMs: 1_000,
    degradedFor: null,
    slowRatio: null,
    progress: null,
    gpus: null,
    etaMs: null,
    prefillCost: PLAIN_CURVE,
    costError: null,
    waitingPrefillMs: 0,
    waitingPrefillTokens: 0,
    unattributedTokens: 0,
    largestPrefillMs: null,
    prefillTps: 1_000,
    slotWaitMs: null,
    workingSetTokens: null,
    itlMs: 10,
    running: 0,
    runningMax: null,
    kvUsageRatio: 0,
    kvCapacityTokens: 100_000,
    kvCachedTokens: null,
    blockTokens: 16,
    preemptionsTotal: 0,
    preemptionsPerMin: 0,
    bytesPerToken: { mean: 4, p5: 3, p95: 5 },
    partTokens: {},
    kappa: 1,
    probe: null,
    models: [{ id: MODEL, maxModelLen: 32_768, loras: [] }],
    revision: 'unknown',
    engine: { kind: 'vllm', version: null },
    routers: 1,
    queued: { prefillMs: 0, requests: 0, topPriority: null, routersQueueing: 0 },
    ackedSeq: -1,
    scrapeAgoMs: 0,
    counters: { promptTokens: null, generationTokens: null },
    derived: [],
    absent: [],
    ...more,
  };
}

export class CoreRig {
  readonly core: RegionalCore;
  nowMs = 1_000;
  /** All effects so far. */
  readonly seen: RouterEffect[] = [];
  #requests = 0;
  /** Of the last ledger event of each target over each link: what its agent has seen. */
  readonly #seqs = new Map<string, number>();

  constructor(
    options: {
      settings?: Partial<RegionalSettings>;
      pools?: readonly PoolConfig[];
      uplink?: UplinkConfig;
      seed?: number;
    } = {},
  ) {
    this.core = new RegionalCore({
      routerId: 'router-1' as RouterId,
      software: 'test',
      config: configOf(options),
      random: seededRandom(options.seed ?? 1),
      wallMs: () => 1_700_000_000_000,
    });
  }

  handle(event: RouterEvent): RouterEffect[] {
    const effects = this.core.handle(event, this.nowMs);
    this.seen.push(...effects);
    for (const effect of effects) {
      if (effect.kind !== 'send' || !('seq' in effect.message)) continue;
      const { replica, rank, seq } = effect.message;
      this.#seqs.set(`${effect.link} ${replica} ${rank}`, seq);
    }
    return effects;
  }

  /** Time passes; every tick that is due comes when it is due. */
  pass(ms: number): RouterEffect[] {
    const until = this.nowMs + ms;
    const effects: RouterEffect[] = [];
    for (let wake = this.core.nextWakeMs(); wake !== null && wake <= until;) {
      this.nowMs = Math.max(this.nowMs, wake);
      effects.push(...this.handle({ kind: 'tick' }));
      wake = this.core.nextWakeMs();
    }
    this.nowMs = until;
    return effects;
  }

  link(
    name: string,
    options: {
      replicas?: string[];
      pool?: string;
      agent?: string;
      ranks?: number;
      protocol?: [number, number];
      features?: readonly string[];
      siblings?: string[];
    } = {},
  ): RouterEffect[] {
    return this.handle({
      kind: 'linkUp',
      link: name as LinkId,
      ...(options.siblings === undefined ? {} : { siblings: options.siblings }),
      hello: {
        kind: 'hello',
        protocol: options.protocol ?? [1, 1],
        features: options.features ?? AGENT_FEATURES,
        agentId: (options.agent ?? `agent-${name}`) as AgentId,
        software: 'test',
        pool: (options.pool ?? 'pool') as PoolId,
        engines: (options.replicas ?? [name]).map((replica) => ({
          replica: replica as ReplicaId,
          advertiseUrl: `http://${replica}`,
          ranks: options.ranks ?? 1,
        })),
        proofPort: null,
        wallMs: 1_700_000_000_000,
      },
    });
  }

  unlink(name: string): RouterEffect[] {
    return this.handle({ kind: 'linkDown', link: name as LinkId });
  }

  report(name: string, more: Partial<ReplicaReport> = {}, link = name): RouterEffect[] {
    const seen = this.#seqs.get(`${link} ${name} ${more.rank ?? 0}`) ?? -1;
    const report = reportOf(name, { ackedSeq: seen, ...more });
    return this.handle({
      kind: 'message',
      link: link as LinkId,
      message: { kind: 'report', report },
    });
  }

  /** A replica that is linked and ready. */
  ready(name: string, more: Partial<ReplicaReport> = {}): void {
    this.link(name);
    this.report(name, more);
  }

  /** Says that the target holds a prompt. */
  holds(name: string, chain: PromptChain, seq = 0): RouterEffect[] {
    return this.prefixes(name, seq, [
      { parentLow: 0, parentHigh: 0, depth: 0, hashes: chain.hashes },
    ]);
  }

  prefixes(name: string, seq: number, runs: readonly PrefixRun[]): RouterEffect[] {
    return this.handle({
      kind: 'message',
      link: name as LinkId,
      message: {
        kind: 'prefix',
        replica: name as ReplicaId,
        rank: 0,
        incarnation: `${name}/1` as Incarnation,
        seq,
        runs,
        leaves: [],
        evicted: new Uint32Array(0),
      },
    });
  }

  request(more: Partial<RouteRequest> = {}): RouteRequest {
    this.#requests += 1;
    return {
      id: `r${this.#requests}` as RequestId,
      tenant: 't',
      model: MODEL,
      stream: true,
      priority: 0,
      maxTokens: null,
      clientDeadlineMs: null,
      bodyBytes: 1_000,
      explain: true,
      prompts: [chainOf([this.#requests])],
      ...more,
    };
  }

  arrive(more: Partial<RouteRequest> = {}): RouterEffect[] {
    return this.handle({ kind: 'arrived', request: this.request(more) });
  }

  firstToken(lease: string): RouterEffect[] {
    return this.handle({ kind: 'firstToken', lease: lease as LeaseId });
  }

  end(lease: string, result: AttemptResult = COMPLETE, committed = false): RouterEffect[] {
    return this.handle({ kind: 'attemptEnded', lease: lease as LeaseId, result, committed });
  }
}

export function configOf(
  options: {
    settings?: Partial<RegionalSettings>;
    pools?: readonly PoolConfig[];
    uplink?: UplinkConfig;
  } = {},
): RegionalCoreConfig {
  return {
    settings: { ...REGIONAL_DEFAULTS, ...options.settings },
    pools: options.pools ?? [{ id: 'pool' as PoolId, models: [MODEL], aliases: {} }],
    siblings: [],
    ...(options.uplink === undefined ? {} : { uplink: options.uplink }),
  };
}

export function attemptsIn(effects: readonly RouterEffect[]): Attempt[] {
  return effects.flatMap((effect) => (effect.kind === 'attempt' ? [effect.attempt] : []));
}

export function sentTo(effects: readonly RouterEffect[], link: string): RouterMessage[] {
  return effects.flatMap((effect) =>
    effect.kind === 'send' && effect.link === link ? [effect.message] : [],
  );
}

export function refusalIn(
  effects: readonly RouterEffect[],
): Extract<RouterEffect, { kind: 'refuse' }> | null {
  const found = effects.find((effect) => effect.kind === 'refuse');
  return found?.kind === 'refuse' ? found : null;
}

/** The one attempt among the effects. */
export function attemptIn(effects: readonly RouterEffect[]): { lease: string; replica: string } {
  const [one] = attemptsIn(effects);
  if (one === undefined) throw new Error(`no attempt in ${JSON.stringify(effects)}`);
  return { lease: one.lease, replica: one.target.replica };
}

export function decisionIn(effects: readonly RouterEffect[]): string {
  for (const effect of effects) {
    if ('decision' in effect && effect.decision !== null) {
      return `${effect.decision.kind}/${effect.decision.reason}`;
    }
  }
  return 'none';
}

export function targetStatus(
  rig: CoreRig,
  name: string,
): TargetStatus & { link: string; down: boolean } {
  const replica = rig.core.status(rig.nowMs).pools[0]?.replicas.find(({ id }) => id === name);
  const found = replica?.targets[0];
  if (replica === undefined || found === undefined) throw new Error(`no replica ${name}`);
  return { ...found, link: replica.link, down: replica.down };
}
