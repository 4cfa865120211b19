// What this router is to the global tier: a link to each global router, over which it tells how its pools stand, gives
// credit for what may be spilled here, and says which conversations live here though others are nearer.
//
//   report   as often as the global routers ask; sooner where a queue has doubled or halved, replicas have become ready or
//            left, or it drains, but never two within LOOK_MS
//   grants   at every look, on the figures of then: given once a second, all of it came at once and the rest of the
//            second went unused
//   away     all of them to a new link, then what changed
//   arrived  a global router's own sends, by its numbers, on its own link: it need not count them itself any more

import type { LinkId, RouterId } from '../../shared/model/ids.ts';
import { UPLINK_DEFAULTS } from '../../shared/model/global-settings.ts';
import {
  MAX_ARRIVED,
  MAX_AWAY,
  REGION_PROTOCOL_VERSION,
  type RegionChildMessage,
  type RegionParentMessage,
  type RegionPoolReport,
  type RegionWelcome,
} from '../../shared/protocol/region-messages.ts';
import { LIFE_MAX_MS } from '../policy/kv-fill.ts';
import { regionQueueMs } from '../policy/region-estimate.ts';
import type { TierFacts } from '../policy/request-events.ts';
import { CreditGiver } from '../policy/spill-credit.ts';
import { routersOf } from './core-outlook.ts';
import { configuredModels, headroomMs, modelsOf, poolReport } from './core-region-report.ts';
import type { GlobalLink, RegionTier, Told } from './core-region-state.ts';
import type { LeaseState, PoolState, RegionalState } from './core-state.ts';

/** Least time between two reports, ms. */
const LOOK_MS = 250;
const INTERVAL_MAX_MS = 5_000;
/** Names and revisions are looked at anew after so long, ms. */
const MODELS_MS = 5_000;
/** Queues below this are alike, ms. */
const QUEUE_FLOOR_MS = 50;
/** What is idle for so many KV lifetimes has left the caches. */
const AWAY_LIVES = 3;
const AWAY_LIFE_MIN_MS = 60_000;
/** Sends of one router that wait to be acknowledged. */
const ARRIVED_MAX = 65_536;
const CLOCK_OFFSET_ALARM_MS = 5_000;

export function globalUp(state: RegionalState, id: LinkId): void {
  const { uplink } = state.config;
  if (uplink === undefined) {
    state.emit({ kind: 'closeGlobal', link: id, reason: 'shutting_down' });
    return;
  }
  state.tier.links.set(id, { id, welcome: null, seq: 0, arrived: [], awayTold: null });
  send(state, id, {
    kind: 'hello',
    protocol: [REGION_PROTOCOL_VERSION, REGION_PROTOCOL_VERSION],
    features: [],
    routerId: state.deps.routerId,
    software: state.deps.software,
    region: uplink.region,
    wallMs: state.deps.wallMs(),
  });
}

export function globalDown(state: RegionalState, id: LinkId, reason: string | null): void {
  const link = state.tier.links.get(id);
  if (link === undefined) return;
  state.tier.links.delete(id);
  for (const giver of state.tier.givers.values()) giver.closed(id);
  const router = link.welcome?.routerId ?? null;
  state.log('info', 'global_link_down', { router, reason });
}

export function globalHeard(state: RegionalState, id: LinkId, message: RegionParentMessage): void {
  const link = state.tier.links.get(id);
  if (link === undefined) return;
  if (message.kind === 'welcome') return welcomed(state, link, message);
  if (!state.pools.has(message.pool)) return;
  const { pool, wantsMs, requestMs, spentMs } = message;
  const giver = state.tier.givers.get(pool) ?? new CreditGiver<LinkId>();
  state.tier.givers.set(pool, giver);
  if (!giver.demand(id, { wantsMs, requestMs, spentMs }, state.nowMs))
    state.limit('credit_accounts');
}

/** A request of a global router is here: with the next report it knows. */
export function noteArrived({ tier }: RegionalState, { from, seq }: TierFacts): void {
  const link = linkOf(tier, from);
  if (link !== null && link.arrived.length < ARRIVED_MAX) link.arrived.push(seq);
}

/** A turn is over. What it left in a KV cache is worth coming back to. */
export function noteAway(state: RegionalState, lease: LeaseState, tokens: number): void {
  const { request, arrivedMs } = lease.request;
  const { tier: facts, work } = request;
  if (facts === undefined || !facts.away || (work ?? 'generation') !== 'generation') return;
  const { conversation, byId = null, awayForMs, zones } = facts;
  const { awayMax } = state.config.uplink?.settings ?? UPLINK_DEFAULTS;
  const sinceMs = arrivedMs - awayForMs;
  for (const key of [conversation, byId]) {
    if (key === null) continue;
    const isFull = state.tier.away.note({ key, tokens, sinceMs, zones }, state.nowMs, awayMax);
    if (isFull) state.limit('away_conversations');
  }
}

/** After every event: what is due. */
export function tellGlobal(state: RegionalState): void {
  const { tier, nowMs } = state;
  if (nowMs < (tellGlobalWakeMs(state) ?? Number.POSITIVE_INFINITY)) return;
  tier.lookedMs = nowMs;
  const reports = [...state.pools.values()].map((pool) => look(state, pool));
  const due = nowMs - tier.reportedMs >= intervalMs(tier);
  grant(state, reports);
  if (!due && !hasChanged(state, reports)) return;
  broadcast(state, reports);
  tier.reportedMs = nowMs;
}

export function tellGlobalWakeMs({ tier }: RegionalState): number | null {
  for (const { welcome } of tier.links.values())
    if (welcome !== null) return tier.lookedMs + LOOK_MS;
  return null;
}

function welcomed(state: RegionalState, link: GlobalLink, welcome: RegionWelcome): void {
  const { routerId, software, region, zone } = welcome;
  if (region !== state.config.uplink?.region) {
    state.log('error', 'region_mismatch', { router: routerId, region });
    state.emit({ kind: 'closeGlobal', link: link.id, reason: 'unauthorized' });
    return;
  }
  const offsetMs = welcome.wallMs - state.deps.wallMs();
  if (Math.abs(offsetMs) > CLOCK_OFFSET_ALARM_MS) {
    state.log('warn', 'clock_offset', { router: routerId, offsetMs });
  }
  const isNew = link.welcome === null;
  link.welcome = welcome;
  // It has other settings now, and knows all else.
  if (!isNew) return;
  state.log('info', 'global_link_up', { router: routerId, software, zone });
  // It has nothing yet: all are told a little early.
  state.tier.reportedMs = Number.NEGATIVE_INFINITY;
}

function linkOf(tier: RegionTier, router: RouterId): GlobalLink | null {
  for (const link of tier.links.values()) if (link.welcome?.routerId === router) return link;
  return null;
}

function look(state: RegionalState, pool: PoolState): RegionPoolReport {
  const { tier, nowMs } = state;
  let models = tier.models.get(pool.id);
  // None is no answer to keep: the first agents are about to say theirs.
  const kept = models !== undefined && models.rows.length > 0;
  if (models === undefined || !kept || nowMs - models.atMs >= MODELS_MS) {
    models = { atMs: nowMs, rows: modelsOf(pool) };
    tier.models.set(pool.id, models);
  }
  return poolReport(state, pool, models.rows.length > 0 ? models.rows : configuredModels(pool));
}

/** As the least patient of them asks. */
function intervalMs({ links }: RegionTier): number {
  let least = INTERVAL_MAX_MS;
  for (const { welcome } of links.values()) {
    if (welcome !== null) least = Math.min(least, welcome.reportIntervalMs);
  }
  return Math.max(LOOK_MS, least);
}

function hasChanged(
  { tier, draining }: RegionalState,
  reports: readonly RegionPoolReport[],
): boolean {
  if (draining !== tier.toldDraining || reports.length !== tier.told.size) return true;
  return reports.some((report) => {
    const told = tier.told.get(report.pool);
    return told === undefined || isOther(told, toldOf(report));
  });
}

function isOther(told: Told, now: Told): boolean {
  if (told.ready !== now.ready) return true;
  if (told.queueMs === null || now.queueMs === null) return told.queueMs !== now.queueMs;
  const before = Math.max(QUEUE_FLOOR_MS, told.queueMs);
  const after = Math.max(QUEUE_FLOOR_MS, now.queueMs);
  return after >= 2 * before || before >= 2 * after;
}

function toldOf(report: RegionPoolReport): Told {
  const queuedPrefillMs = [report.queuedPrefillMs];
  const { unacknowledgedMs } = report;
  return {
    ready: report.readyReplicas,
    queueMs: regionQueueMs({ ...report, queuedPrefillMs, unacknowledgedMs }),
  };
}

function grant(state: RegionalState, reports: readonly RegionPoolReport[]): void {
  const { tier, nowMs } = state;
  const settings = state.config.uplink?.settings ?? UPLINK_DEFAULTS;
  for (const report of reports) {
    const giver = tier.givers.get(report.pool);
    const pool = state.pools.get(report.pool);
    if (giver === undefined || pool === undefined) continue;
    const sight = { headroomMs: headroomMs(state, pool, report), routers: routersOf(pool) };
    for (const [link, { prefillMs, lifeMs }] of giver.grant(sight, settings, nowMs)) {
      send(state, link, { kind: 'grant', pool: report.pool, prefillMs, lifeMs });
    }
  }
}

function broadcast(state: RegionalState, pools: readonly RegionPoolReport[]): void {
  const { tier, draining } = state;
  tier.told.clear();
  for (const report of pools) tier.told.set(report.pool, toldOf(report));
  tier.toldDraining = draining;
  tier.away.expire(state.nowMs, awayLifeMs(pools));
  const routers = Math.max(1, ...[...state.pools.values()].map(routersOf));
  for (const link of tier.links.values()) {
    if (link.welcome === null) continue;
    const arrived = link.arrived.splice(0, MAX_ARRIVED);
    const { seq } = link;
    send(state, link.id, { kind: 'report', seq, pools, routers, draining, arrived });
    link.seq += 1;
    tellAway(state, link, link.welcome.zone);
  }
}

function tellAway(state: RegionalState, link: GlobalLink, zone: string | null): void {
  const told = state.tier.away.tell(zone, link.awayTold, state.nowMs);
  link.awayTold = told.cursor;
  const { here, gone } = told;
  let { snapshot } = told;
  for (let at = 0; snapshot || at < Math.max(here.length, gone.length); at += MAX_AWAY) {
    const part = { here: here.slice(at, at + MAX_AWAY), gone: gone.slice(at, at + MAX_AWAY) };
    send(state, link.id, { kind: 'away', snapshot, ...part });
    snapshot = false;
  }
}

/** Of the pool that keeps longest; where none says, a conversation's tokens are worth little for long. */
function awayLifeMs(pools: readonly RegionPoolReport[]): number {
  const longest = Math.max(0, ...pools.map(({ kvLifetimeMs }) => kvLifetimeMs ?? 0));
  return Math.min(LIFE_MAX_MS, Math.max(AWAY_LIFE_MIN_MS, AWAY_LIVES * longest));
}

function send(state: RegionalState, link: LinkId, message: RegionChildMessage): void {
  state.emit({ kind: 'sendGlobal', link, message });
}
