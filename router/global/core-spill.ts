// The controllers of all pools: shares move with time and with what is seen, and receivers are asked for the credit that
// they will need. Both happen at most every STEP_MS.

import type { LinkId } from '../../shared/model/ids.ts';
import type { DemandMessage } from '../../shared/protocol/region-messages.ts';
import { isInSight, isLeaving, isSeen, queueMs } from './core-regions.ts';
import type { GlobalState, RegionLink, RegionPool } from './core-state.ts';

/** Least time between two steps of the controllers, ms. */
export const STEP_MS = 100;
/** Least time between two demands on one link and pool, ms. */
const TELL_MS = 250;
/** A demand that is not 0 is said again after so long, ms. */
const REPEAT_MS = 2_000;
/** Of `spillStartMs`: a receiver with a longer queue gets no larger share than it has (300 ms of 400). */
const GROWTH_RATIO = 0.75;
/** A demand that differs by less is not worth a message. */
const TELL_RATIO = 0.2;

export function stepGates(state: GlobalState): void {
  const { settings, nowMs } = state;
  for (const pool of poolsOf(state)) {
    const queue = isInSight(state, pool) ? demandedMs(state, pool) : null;
    const isHot = queue !== null && queue >= settings.spillStartMs;
    const roomAbroad = isHot && receiversOf(state, pool).some((other) => takesMore(state, other));
    pool.gate.step({ queueMs: queue, roomAbroad }, settings, nowMs);
  }
}

/** Whether new conversations of the pool go abroad, or will soon. */
export function isHot(state: GlobalState, pool: RegionPool): boolean {
  if (pool.gate.share > 0) return true;
  const queue = isInSight(state, pool) ? demandedMs(state, pool) : null;
  return queue !== null && queue >= state.settings.spillStartMs;
}

/** What waits here for a pool that asked for time counts as what its own routers hold back. */
function demandedMs(state: GlobalState, pool: RegionPool): number | null {
  const queue = queueMs(state, pool);
  const ready = pool.sight?.readyReplicas ?? 0;
  return queue === null || pool.heldMs === 0 ? queue : queue + pool.heldMs / Math.max(1, ready);
}

/** Asks for credit, and tells what has been spent of it. */
export function tellDemand(state: GlobalState): void {
  const wanted = wantedOf(state);
  for (const pool of poolsOf(state)) {
    const { links } = pool.region;
    if (links.size === 0) continue;
    const want = wanted.get(pool);
    const balanceMs = pool.purse.balanceMs(state.nowMs);
    const lacksMs = want === undefined ? 0 : Math.max(0, want.wantsMs - Math.max(0, balanceMs));
    for (const link of links.values()) {
      tell(state, link, {
        kind: 'demand',
        pool: pool.id,
        wantsMs: lacksMs / links.size,
        requestMs: want?.requestMs ?? link.told.get(pool.id)?.requestMs ?? 1,
        spentMs: pool.purse.spentMs(link.id as LinkId),
      });
    }
  }
}

/** Some controller or account moves with time alone. */
export function spillMoves(state: GlobalState): boolean {
  for (const pool of poolsOf(state)) if (isHot(state, pool)) return true;
  for (const link of state.links.values()) {
    for (const { wantsMs } of link.told.values()) if (wantsMs > 0) return true;
  }
  return false;
}

export function* poolsOf(state: GlobalState): Iterable<RegionPool> {
  for (const region of state.regions.values()) yield* region.pools.values();
}

interface Wanted {
  wantsMs: number;
  requestMs: number;
}

function wantedOf(state: GlobalState): Map<RegionPool, Wanted> {
  const wanted = new Map<RegionPool, Wanted>();
  const { settings, nowMs } = state;
  for (const pool of poolsOf(state)) {
    if (!isHot(state, pool)) continue;
    const requestMs = pool.flow.requestMs(nowMs);
    if (requestMs === null) continue;
    const abroadMs = pool.flow.abroadMs(pool.gate.share, settings, nowMs);
    for (const other of receiversOf(state, pool)) {
      const want = wanted.get(other) ?? { wantsMs: 0, requestMs: 0 };
      want.wantsMs += abroadMs;
      want.requestMs = Math.max(want.requestMs, requestMs);
      wanted.set(other, want);
    }
  }
  return wanted;
}

/** Pools elsewhere that serve a model of this one and could take some of it. */
function receiversOf(state: GlobalState, pool: RegionPool): RegionPool[] {
  const names = new Set(pool.sight?.models.map(({ name }) => name));
  const receivers: RegionPool[] = [];
  for (const region of state.regions.values()) {
    if (region === pool.region || region.config.rollout !== 'active') continue;
    if (!isSeen(state, region) || isLeaving(region) || region.breaker.blocks(state.nowMs)) continue;
    if (region.silence.silent) continue;
    for (const other of region.pools.values()) {
      if (other.sight?.models.some(({ name }) => names.has(name)) !== true) continue;
      if (isInSight(state, other) && other.sight.readyReplicas > 0) receivers.push(other);
    }
  }
  return receivers;
}

/** It has given credit that is left, and is not near its own threshold: there the share stays as it is. */
function takesMore(state: GlobalState, pool: RegionPool): boolean {
  if (pool.purse.balanceMs(state.nowMs) <= 0) return false;
  const queue = queueMs(state, pool);
  return queue !== null && queue < GROWTH_RATIO * state.settings.spillStartMs;
}

function tell(state: GlobalState, link: RegionLink, message: DemandMessage): void {
  const { nowMs } = state;
  const told = link.told.get(message.pool) ?? null;
  if (told === null && message.wantsMs === 0 && message.spentMs === 0) return;
  if (told !== null) {
    const sinceMs = nowMs - told.atMs;
    const isDue = sinceMs >= TELL_MS && differs(told, message);
    const isRepeated = sinceMs >= REPEAT_MS && message.wantsMs > 0;
    if (!isDue && !isRepeated) return;
  }
  link.told.set(message.pool, { ...message, atMs: nowMs });
  state.emit({ kind: 'send', link: link.id, message });
}

function differs(told: DemandMessage, next: DemandMessage): boolean {
  if (told.spentMs !== next.spentMs || told.wantsMs > 0 !== next.wantsMs > 0) return true;
  return Math.abs(told.wantsMs - next.wantsMs) > TELL_RATIO * Math.max(told.wantsMs, 1);
}
