// What the core knows, for people and metrics. Ages and durations in ms; null is unknown.

import type { LinkState } from '../policy/filter.ts';
import type { BreakerState } from '../policy/breaker.ts';
import type { Phase } from '../../shared/model/phase.ts';
import type { Incarnation, PoolId, ReplicaId } from '../../shared/model/ids.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import { curveOf, loadOf, poolCurve, unackedMs, viewOf } from './core-load.ts';
import { boundRatio } from './core-working-set.ts';
import { pendingEtaMs } from './core-decide.ts';
import { poolOutlook, waitOutlookMs } from './core-outlook.ts';
import { namesOf } from './core-requests.ts';
import type { PoolState, RegionalState, ReplicaState, TargetState } from './core-state.ts';
import { isReady, slowOut, type SlowOut } from './core-ready.ts';

export interface TargetStatus {
  readonly rank: number;
  readonly incarnation: Incarnation | null;
  readonly phase: Phase | null;
  /** Fit for users: ready, or slow and not among the third of its pool that stays out. */
  readonly used: boolean;
  readonly report: ReplicaReport | null;
  readonly reportAgeMs: number | null;
  /** Age of the engine's own figures. */
  readonly scrapeAgeMs: number | null;
  readonly leases: number;
  /** Attempts that this router has ever sent there. */
  readonly attempts: number;
  /** Sent since the last report, on top of its figures. */
  readonly unacked: {
    readonly requests: number;
    readonly uncachedTokens: number;
    readonly prefillMs: number;
  };
  readonly waitMs: number;
  readonly full: boolean;
  readonly breaker: BreakerState;
  readonly pausedForMs: number | null;
  /** Chunks of 512 bytes that the agent says its KV cache holds. */
  readonly indexChunks: number;
}

export interface ReplicaStatus {
  readonly id: ReplicaId;
  readonly url: string;
  readonly link: LinkState;
  readonly connected: boolean;
  readonly lostForMs: number | null;
  /** It failed us while no agent vouched for it. */
  readonly down: boolean;
  readonly targets: readonly TargetStatus[];
}

export interface PoolStatus {
  readonly id: PoolId;
  /** Public names. */
  readonly models: readonly string[];
  readonly replicas: readonly ReplicaStatus[];
  readonly ready: number;
  readonly queue: {
    readonly requests: number;
    readonly bytes: number;
    readonly prefillMs: number;
    readonly oldestMs: number | null;
    /**
     * What a request of priority 0 that has to wait for prefill would wait now; null where nothing is ready or on its way.
     */
    readonly predictedWaitMs: number | null;
  };
  readonly workingSet: {
    /** Share of the KV capacity that live conversations may take; null while the rule is off. */
    readonly boundRatio: number | null;
    /** Requests that wait for KV room. */
    readonly held: number;
    /** New conversations that have entered without room because they had waited long enough, ever. */
    readonly aged: number;
    /** Share of the tokens of the turns before that continuing ones lately found; null before any were judged. */
    readonly hitRatio: number | null;
  };
  readonly meanPromptTokens: number;
  readonly meanOutputTokens: number;
}

/** What it is to the global tier. */
export interface GlobalSight {
  /** Global routers that have welcomed this one. */
  readonly links: number;
  /** Conversations that live here though another region is nearer to them. */
  readonly away: number;
}

/** The region's other routers. */
export interface SiblingSight {
  /** Those that tell this one what they send. */
  readonly heard: number;
  /** Those that are told what this one sends. */
  readonly told: number;
  /** Their sends that are not past their prefill. */
  readonly sends: number;
}

export interface RegionalStatus {
  readonly pools: readonly PoolStatus[];
  readonly links: number;
  readonly openRequests: number;
  readonly leases: number;
  readonly draining: boolean;
  readonly siblings: SiblingSight;
  /** Null: it reports to no global router. */
  readonly global: GlobalSight | null;
  readonly index: { readonly bytes: number; readonly chunks: number; readonly evictions: number };
}

export function statusOf(state: RegionalState, nowMs: number): RegionalStatus {
  const { index } = state;
  return {
    pools: [...state.pools.values()].map((pool) => poolStatus(state, pool, nowMs)),
    links: state.links.size,
    openRequests: state.requests.size,
    leases: state.leases.size,
    draining: state.draining,
    siblings: siblingSight(state),
    global: globalSight(state),
    index: { bytes: index.bytes, chunks: index.rows, evictions: index.evictions },
  };
}

function siblingSight({ siblings: { heard, told } }: RegionalState): SiblingSight {
  let sends = 0;
  for (const sibling of heard.values()) sends += sibling.sends.size;
  return { heard: heard.size, told: told.size, sends };
}

function globalSight({ config, tier }: RegionalState): GlobalSight | null {
  if (config.uplink === undefined) return null;
  let links = 0;
  for (const { welcome } of tier.links.values()) if (welcome !== null) links += 1;
  return { links, away: tier.away.size };
}

function poolStatus(state: RegionalState, pool: PoolState, nowMs: number): PoolStatus {
  const members = [...pool.replicas].filter((replica) => !replica.gone);
  const slow = slowOut(pool);
  const replicas = members.map((replica) => replicaStatus(state, replica, { slow, nowMs }));
  const ready = members.filter(({ targets }) => targets.some((target) => isReady(target, slow)));
  const { queue } = pool;
  return {
    id: pool.id,
    models: pool.config.models.length > 0 ? pool.config.models : [...namesOf(pool)],
    replicas,
    ready: ready.length,
    queue: {
      requests: queue.size,
      bytes: queue.bytes,
      prefillMs: queue.prefillMs,
      oldestMs: queue.oldestMs === null ? null : nowMs - queue.oldestMs,
      predictedWaitMs: predictedWaitMs(state, pool),
    },
    workingSet: {
      boundRatio: boundRatio(state, pool),
      held: queue.held.requests,
      aged: pool.workingSet.aged,
      hitRatio: pool.workingSet.control.hits,
    },
    meanPromptTokens: pool.meanPromptTokens,
    meanOutputTokens: pool.meanOutputTokens,
  };
}

function predictedWaitMs(state: RegionalState, pool: PoolState): number | null {
  const outlook = poolOutlook(state, pool);
  if (outlook.targets === 0 && pendingEtaMs(pool) === null) return null;
  return waitOutlookMs(state, pool, { ...outlook, priority: 0 });
}

interface Now {
  readonly slow: SlowOut;
  readonly nowMs: number;
}

function replicaStatus(state: RegionalState, replica: ReplicaState, now: Now): ReplicaStatus {
  const { nowMs } = now;
  return {
    id: replica.id,
    url: replica.url,
    link: replica.state,
    connected: replica.link !== null,
    lostForMs: replica.lostMs === null ? null : nowMs - replica.lostMs,
    down: replica.down,
    targets: replica.targets.map((target) => targetStatus(state, target, now)),
  };
}

function targetStatus(state: RegionalState, target: TargetState, now: Now): TargetStatus {
  const { slow, nowMs } = now;
  const { report } = target;
  const choice = curveOf(target, () => poolCurve(target.replica.pool));
  const { curve } = choice;
  const view = viewOf(state, target.replica.pool);
  const load = loadOf(target, { ...choice, settings: state.settings, view, nowMs });
  const reportAgeMs = report === null ? null : nowMs - target.receivedMs;
  const scrapeAgoMs = report?.scrapeAgoMs ?? null;
  return {
    rank: target.rank,
    incarnation: target.incarnation,
    phase: report?.phase ?? null,
    used: isReady(target, slow),
    report,
    reportAgeMs,
    scrapeAgeMs: scrapeAgoMs === null || reportAgeMs === null ? null : scrapeAgoMs + reportAgeMs,
    leases: target.leases.size,
    attempts: target.attempts,
    unacked: {
      requests: target.unacked.size,
      uncachedTokens: target.unackedSums.uncached,
      prefillMs: unackedMs(target, curve),
    },
    waitMs: load.waitMs,
    full: load.full,
    breaker: target.breaker.state(nowMs),
    pausedForMs: target.pausedUntilMs > nowMs ? target.pausedUntilMs - nowMs : null,
    indexChunks: state.index.chunks(target.slot),
  };
}
