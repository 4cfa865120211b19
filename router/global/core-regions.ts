// Regions as their routers report them: links, merged figures, sends that no report includes, health.
//
// A region is seen while one of its routers has reported within `staleGraceMs`, unless no link stands and it refuses
// connections: then it is dead until a link or a probe says otherwise; what it may be sent on credit needs a
// report within `spillSightMs`. Link loss alone changes nothing else: requests take another way than reports.

import type { LinkId, PoolId, RegionId } from '../../shared/model/ids.ts';
import {
  REGION_PROTOCOL_VERSION,
  type AwayMessage,
  type GrantMessage,
  type RegionHello,
  type RegionReportMessage,
} from '../../shared/protocol/region-messages.ts';
import { mergePool } from '../policy/region-merge.ts';
import { regionQueueMs } from '../policy/region-estimate.ts';
import { ReportGaps } from '../policy/region-silence.ts';
import type { RegionProbe } from './events.ts';
import { heard } from './core-silence.ts';
import {
  newRegionPool,
  type GlobalState,
  type RegionLink,
  type RegionPool,
  type RegionState,
} from './core-state.ts';

const CLOCK_OFFSET_ALARM_MS = 5_000;
/** Pools of one region: one that nobody reports any more makes room for another. */
const POOLS_MAX = 256;
/** A queue that is said to be longer is so long: a slip or a lie is forgotten soon after. */
const QUEUE_MAX_MS = 600_000;
const LINKS_MAX = 256;
/** Names a synthetic generation to a breaker. */
const PROBE = 'probe';

export function regionUp(
  state: GlobalState,
  up: { readonly link: LinkId; readonly region: RegionId; readonly hello: RegionHello },
): void {
  const { hello } = up;
  const region = state.regions.get(up.region);
  if (region === undefined || hello.region !== up.region) {
    state.log('warn', 'region_refused', { region: hello.region, speaksFor: up.region });
    state.emit({ kind: 'close', link: up.link, reason: 'unauthorized' });
    return;
  }
  const [least, greatest] = hello.protocol;
  if (greatest < REGION_PROTOCOL_VERSION || least > REGION_PROTOCOL_VERSION) {
    state.emit({ kind: 'close', link: up.link, reason: 'protocol_too_old' });
    return;
  }
  if (region.links.size >= LINKS_MAX) {
    state.emit({ kind: 'close', link: up.link, reason: 'flooded' });
    return;
  }
  const offsetMs = hello.wallMs - state.deps.wallMs();
  if (Math.abs(offsetMs) > CLOCK_OFFSET_ALARM_MS) {
    state.log('warn', 'clock_offset', { agent: hello.routerId, offsetMs });
  }
  adopt(state, region, { link: up.link, hello });
  greet(state, region, up.link);
}

function adopt(
  state: GlobalState,
  region: RegionState,
  { link: id, hello }: { link: LinkId; hello: RegionHello },
): void {
  const link: RegionLink = {
    ...{ id, region, routerId: hello.routerId, report: null, receivedMs: state.nowMs },
    ...{ gaps: new ReportGaps(), upMs: state.nowMs, told: new Map() },
  };
  // It was away: nobody has to wait for a time that was set before.
  if (region.links.size === 0) region.breaker.mayTryFrom(state.nowMs);
  region.probeIsNews ||= region.links.size === 0;
  state.links.set(id, link);
  region.links.set(id, link);
  region.dead = false;
  heard(state, region);
  state.log('info', 'region_up', {
    ...{ region: region.id, router: hello.routerId, software: hello.software },
    links: region.links.size,
  });
}

/** A region that has been greeted takes it for what has changed: how often it is to report. */
export function greet(state: GlobalState, region: RegionState, link: LinkId): void {
  const { routerId, software, wallMs } = state.deps;
  state.emit({
    kind: 'send',
    link,
    message: {
      ...{ kind: 'welcome', protocol: REGION_PROTOCOL_VERSION, features: [], routerId, software },
      ...{ region: region.id, zone: state.config.zone, wallMs: wallMs() },
      reportIntervalMs: state.settings.reportIntervalMs,
    },
  });
}

export function regionDown(state: GlobalState, id: LinkId, reason: string | null): void {
  const link = state.links.get(id);
  if (link === undefined) return;
  const { region } = link;
  state.links.delete(id);
  region.links.delete(id);
  for (const pool of region.pools.values()) {
    pool.purse.closed(id);
    // With the last link the last figures stay until they are too old.
    if (region.links.size > 0) see(state, pool, false);
  }
  state.log('info', 'region_down', { region: region.id, reason, links: region.links.size });
}

export function reported(state: GlobalState, link: RegionLink, report: RegionReportMessage): void {
  if (link.report !== null && report.seq <= link.report.seq) {
    state.limit('report_order');
    return;
  }
  const { region } = link;
  link.report = report;
  link.receivedMs = state.nowMs;
  link.gaps.note(state.nowMs);
  heard(state, region);
  mayBeBack(state, region, report);
  for (const pool of region.pools.values()) {
    if (pool.own.count > 0) for (const seq of report.arrived) pool.own.seen(seq);
  }
  const named = new Set(report.pools.map(({ pool }) => pool));
  for (const pool of region.pools.values()) if (!named.has(pool.id)) see(state, pool, false);
  for (const id of named) {
    const pool = poolOf(state, region, id);
    if (pool !== null) see(state, pool, true);
  }
}

/**
 * Reports of a region whose breaker has opened again and again, with replicas that are ready: it is tried as often as after the
 * first time, by one request. Without them the time between two tries doubles.
 */
function mayBeBack(
  { nowMs, settings }: GlobalState,
  { breaker }: RegionState,
  { pools }: RegionReportMessage,
): void {
  if (breaker.state(nowMs) !== 'open') return;
  if (!pools.some(({ readyReplicas }) => readyReplicas > 0)) return;
  breaker.mayTryFrom(breaker.openedAtMs + settings.breakerOpenMs);
}

/** Of a pool that was never reported nothing was asked. */
export function granted(state: GlobalState, link: RegionLink, grant: GrantMessage): void {
  link.region.pools.get(grant.pool)?.purse.granted(link.id, grant, state.nowMs);
}

export function awayTold(state: GlobalState, link: RegionLink, message: AwayMessage): void {
  // What a router calls itself is its own word: it takes back nothing that another region has said.
  const by = { reporter: `${link.region.id} ${link.routerId}`, region: link.region.id };
  const at = { limits: state.settings, nowMs: state.nowMs };
  state.memory.reported(by, message, at);
}

/**
 * A good one brings a region back that was away: behind a failed one, or where a link has come anew. Otherwise it is no
 * news: a region may answer what is small and let its users starve, and then it is theirs to say when they are served.
 */
export function probed(state: GlobalState, region: RegionState, result: RegionProbe): void {
  region.probe = { ...result, atMs: state.nowMs };
  if (result.kind === 'failed') {
    region.probeIsNews = true;
    failedAt(state, region, PROBE);
    return;
  }
  region.dead = false;
  heard(state, region);
  if (result.kind === 'busy') return;
  if (region.probeIsNews) region.breaker.succeeded(PROBE);
  region.probeIsNews = false;
}

/** It refuses connections. With no link either, nobody has to wait for its last report to be too old. */
export function unreachable(state: GlobalState, region: RegionState): void {
  if (region.links.size > 0 || region.dead) return;
  region.dead = true;
  state.log('warn', 'region_dead', { region: region.id });
}

/** A fault of the region, or of the way there. */
export function failedAt(state: GlobalState, region: RegionState, attempt: string): void {
  const { nowMs, settings } = state;
  const wasClosed = region.breaker.state(nowMs) === 'closed';
  region.breaker.failed(attempt, nowMs, settings);
  if (wasClosed && region.breaker.state(nowMs) === 'open') {
    state.log('warn', 'region_breaker_open', { region: region.id });
  }
}

// ── sends that no report includes ─────────────────────────────────────────────────────────────────────

/** Returns the number that the region's reports will know it by. */
export function noteSend(state: GlobalState, pool: RegionPool, prefillMs: number): number {
  const { region } = pool;
  region.seq += 1;
  pool.own.sent(region.seq, prefillMs, { nowMs: state.nowMs, ready: readyOf(pool) });
  return region.seq;
}

/** Those that nobody will tell of any more. */
export function sweepSends(state: GlobalState): void {
  const beforeMs = state.nowMs - state.settings.unacknowledgedMs;
  for (const region of state.regions.values()) {
    for (const pool of region.pools.values()) pool.own.lapse(beforeMs);
  }
}

// ── what is seen ──────────────────────────────────────────────────────────────────────────────────────

/** Some report of it is young enough to be used at all. */
export function isSeen(state: GlobalState, region: RegionState): boolean {
  return !region.dead && state.nowMs - lastReportMs(region) <= state.settings.staleGraceMs;
}

/** Some report of the pool is young enough to spill by. */
export function isInSight(state: GlobalState, pool: RegionPool): boolean {
  const { sight } = pool;
  return sight !== null && state.nowMs - sight.receivedMs <= state.settings.spillSightMs;
}

/** All its routers leave. */
export function isLeaving(region: RegionState): boolean {
  if (region.links.size === 0) return false;
  for (const { report } of region.links.values()) if (report?.draining !== true) return false;
  return true;
}

/** Estimated queue, own sends included, ms; null: unknown. */
export function queueMs(state: GlobalState, pool: RegionPool): number | null {
  const { value } = pool.smoothed;
  const ready = readyOf(pool);
  if (value === null || !(ready > 0)) return null;
  return value + pool.own.backlogMs(state.nowMs, ready) / ready;
}

function readyOf({ sight }: RegionPool): number {
  return sight?.readyReplicas ?? 0;
}

function lastReportMs(region: RegionState): number {
  let last = Number.NEGATIVE_INFINITY;
  for (const { sight } of region.pools.values()) {
    if (sight !== null) last = Math.max(last, sight.receivedMs);
  }
  return last;
}

function poolOf(state: GlobalState, region: RegionState, id: PoolId): RegionPool | null {
  const known = region.pools.get(id);
  if (known !== undefined) return known;
  if (region.pools.size >= POOLS_MAX && !makeRoom(region)) {
    state.limit('region_pools');
    return null;
  }
  const pool = newRegionPool(id, region, state.settings.smoothingHalfLifeMs);
  region.pools.set(id, pool);
  return pool;
}

/** Forgets a pool that nobody reports; false where there is none. */
function makeRoom({ pools, links }: RegionState): boolean {
  for (const [id, { sight, own }] of pools) {
    if (sight !== null || own.count > 0) continue;
    for (const { told } of links.values()) told.delete(id);
    return pools.delete(id);
  }
  return false;
}

/** Of each router one: what it says on a new link, before its old one is missed, is not another's. */
function linksOf(state: GlobalState, region: RegionState): readonly RegionLink[] {
  const oldestMs = state.nowMs - state.settings.staleGraceMs;
  const latest = new Map<string, RegionLink>();
  for (const link of region.links.values()) {
    if (link.report !== null && link.receivedMs >= oldestMs) latest.set(link.routerId, link);
  }
  return [...latest.values()];
}

/** Merges what its routers say. `fresh`: one of them has just said it. */
function see(state: GlobalState, pool: RegionPool, fresh: boolean): void {
  const received = linksOf(state, pool.region).flatMap(({ report, receivedMs }) => {
    const of = report?.pools.find((each) => each.pool === pool.id);
    return of === undefined ? [] : [{ report: of, receivedMs }];
  });
  const sight = mergePool(received);
  if (sight === null && pool.sight === null) return;
  pool.sight = sight;
  if (sight === null || !fresh) return;
  const queue = regionQueueMs({
    readyReplicas: sight.readyReplicas,
    waitingPrefillMs: sight.waitingPrefillMs,
    queuedPrefillMs: sight.routersMs,
    unacknowledgedMs: 0,
    kvRoomWaitMs: sight.kvRoomWaitMs,
  });
  const within = queue === null ? null : Math.min(queue, QUEUE_MAX_MS);
  pool.smoothed.note(within, state.nowMs);
  const [before, last] = pool.lastQueuesMs;
  if (state.nowMs - pool.lastQueueAtMs < state.settings.reportIntervalMs / 2) {
    pool.lastQueuesMs = [before, within];
    return;
  }
  pool.lastQueuesMs = [last, within];
  pool.lastQueueAtMs = state.nowMs;
}
