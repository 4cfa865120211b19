// What a global router shows of itself: regions as it sees them, and what its controllers do.

import type { PoolId, RegionId, RouterId } from '../../shared/model/ids.ts';
import type { BreakerState } from '../policy/breaker.ts';
import type { RolloutMode } from '../policy/region-filter.ts';
import type { SpillDirection } from '../policy/spill-gate.ts';
import type { RegionProbe } from './events.ts';
import { isInSight, isLeaving, isSeen, queueMs } from './core-regions.ts';
import type { GlobalState, RegionPool, RegionState } from './core-state.ts';

export interface GlobalStatus {
  readonly zone: string | null;
  readonly draining: boolean;
  readonly openRequests: number;
  readonly attempts: number;
  readonly queued: { readonly requests: number; readonly bytes: number };
  /** Conversations whose place is known. */
  readonly conversations: { readonly own: number; readonly away: number };
  readonly regions: readonly RegionStatus[];
}

export interface RegionStatus {
  readonly region: RegionId;
  readonly zone: string;
  readonly rollout: RolloutMode;
  /** Some report of it is young enough to be used. */
  readonly seen: boolean;
  /** Nothing comes from it, though its connections may be open. */
  readonly silent: boolean;
  readonly leaving: boolean;
  readonly links: readonly { readonly router: RouterId; readonly reportAgoMs: number | null }[];
  /** Most routers that one of them says there are. */
  readonly routers: number | null;
  readonly rttMs: number | null;
  readonly warm: boolean;
  readonly breaker: BreakerState;
  readonly probe: (RegionProbe & { readonly agoMs: number }) | null;
  /** Sends of this router that no report includes yet. */
  readonly unacknowledged: number;
  readonly pools: readonly RegionPoolStatus[];
}

export interface RegionPoolStatus {
  readonly pool: PoolId;
  readonly models: readonly string[];
  readonly reportAgoMs: number | null;
  readonly inSight: boolean;
  readonly readyReplicas: number | null;
  readonly queueMs: number | null;
  readonly unacknowledgedMs: number;
  readonly queuedRequests: number | null;
  readonly kvUsageRatio: number | null;
  readonly pausedForMs: number | null;
  /** It had asked for time, and is taken up again: so many at a time; null: it is not. */
  readonly resumes: number | null;
  /** Requests that wait for it here. */
  readonly held: number;
  readonly spill: {
    /** Share of its new conversations that goes abroad. */
    readonly share: number;
    readonly direction: SpillDirection;
    readonly turns: number;
    /** Credit to send there, ms. */
    readonly creditMs: number;
    readonly in: number;
    readonly out: number;
  };
}

export function statusOf(state: GlobalState): GlobalStatus {
  return {
    zone: state.config.zone,
    draining: state.draining,
    openRequests: state.requests.size,
    attempts: state.leases.size,
    queued: { requests: state.queue.size, bytes: state.queue.bytes },
    conversations: state.memory.sizes,
    regions: [...state.regions.values()].map((region) => regionOf(state, region)),
  };
}

function regionOf(state: GlobalState, region: RegionState): RegionStatus {
  const { nowMs } = state;
  const links = [...region.links.values()];
  const routers = links.flatMap(({ report }) => report?.routers ?? []);
  const { probe } = region;
  return {
    region: region.id,
    zone: region.config.zone,
    rollout: region.config.rollout,
    seen: isSeen(state, region),
    silent: region.silence.silent,
    leaving: isLeaving(region),
    links: links.map(({ routerId, report, receivedMs }) => ({
      router: routerId,
      reportAgoMs: report === null ? null : nowMs - receivedMs,
    })),
    routers: routers.length === 0 ? null : Math.max(...routers),
    rttMs: region.rtt.valueMs,
    warm: region.warm,
    breaker: region.breaker.state(nowMs),
    probe: probe === null ? null : { ...probe, agoMs: nowMs - probe.atMs },
    unacknowledged: [...region.pools.values()].reduce((sum, { own }) => sum + own.count, 0),
    pools: [...region.pools.values()].map((pool) => poolOf(state, pool)),
  };
}

function poolOf(state: GlobalState, pool: RegionPool): RegionPoolStatus {
  const { sight, gate, purse, pause } = pool;
  const { nowMs } = state;
  return {
    pool: pool.id,
    models: sight?.models.map(({ name }) => name) ?? [],
    reportAgoMs: sight === null ? null : nowMs - sight.receivedMs,
    inSight: isInSight(state, pool),
    readyReplicas: sight?.readyReplicas ?? null,
    queueMs: queueMs(state, pool),
    unacknowledgedMs: pool.own.backlogMs(nowMs, sight?.readyReplicas ?? 0),
    queuedRequests: sight?.queuedRequests ?? null,
    kvUsageRatio: sight?.kvUsageRatio ?? null,
    pausedForMs: pause === null || pause.untilMs <= nowMs ? null : pause.untilMs - nowMs,
    resumes: pause === null || pause.untilMs > nowMs ? null : (pool.ramp?.window ?? null),
    held: pool.held,
    spill: {
      ...{ share: gate.share, direction: gate.direction, turns: gate.turns },
      creditMs: purse.balanceMs(nowMs),
      ...{ in: pool.spilledIn, out: pool.spilledOut },
    },
  };
}
