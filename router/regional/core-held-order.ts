// One order among all that wait for KV room in the routers of a region (`policy/queue-held.ts`): each router tells its
// siblings which one it would let in first, and its own first one gives way to theirs where one queue would do so.
//
// Room that nobody takes is not left empty: it may be too little for who is first, or nothing that other may use. Where
// one has given way for as long as the others take to hear of the room and send, it goes. So routers that both see the
// same room do not both fill it, and what a sibling does not say, or a link that is cut, holds nobody up.

import { NOBODY_PAST, type QueueItem } from '../policy/queue-item.ts';
import { heldFirst, heldPlaceOf, type HeldPlace } from '../policy/queue-held.ts';
import {
  MAX_HELD,
  type SiblingHeld,
  type SiblingSends,
} from '../../shared/protocol/sibling-messages.ts';
import { patienceMs } from './core-share.ts';
import type { Sibling } from './core-siblings.ts';
import type { PoolState, RegionalState } from './core-state.ts';

/** What a pool's siblings were told of it last, and since when its own first one gives way. */
export interface HeldTurn {
  /** Of `ReleaseQueue.heldChanges`. */
  toldChanges: number;
  /** Request; null: nothing waits. */
  toldFirst: string | null;
  /** It, or another one, could enter by age by then. */
  toldAged: boolean;
  givesWaySinceMs: number | null;
  /** In the round at hand. */
  gaveWay: boolean;
}

export function newHeldTurn(): HeldTurn {
  return {
    ...{ toldChanges: 0, toldFirst: null, toldAged: false },
    ...{ givesWaySinceMs: null, gaveWay: false },
  };
}

// ── told ───────────────────────────────────────────────────────────────────────────────────────────────

/** Another one may be first than siblings know. */
export function hasHeldNews(state: RegionalState): boolean {
  if (state.siblings.told.size === 0) return false;
  for (const pool of state.pools.values()) if (isNews(state, pool)) return true;
  return false;
}

/** Of pools where another one is first by now; told with that. */
export function takeHeldNews(state: RegionalState): SiblingHeld[] {
  const news: SiblingHeld[] = [];
  for (const pool of state.pools.values()) {
    if (news.length === MAX_HELD || !isNews(state, pool)) continue;
    const { heldTurn } = pool;
    const first = firstHeld(state, pool);
    const same = (first?.id ?? null) === heldTurn.toldFirst;
    heldTurn.toldChanges = pool.queue.heldChanges;
    heldTurn.toldFirst = first?.id ?? null;
    heldTurn.toldAged = first !== null && entersByAge(state, pool);
    if (!same) news.push(heldOf(state, pool, first));
  }
  return news;
}

/** For a sibling that begins to listen. */
export function allHeld(state: RegionalState): SiblingHeld[] {
  const held: SiblingHeld[] = [];
  for (const pool of state.pools.values()) {
    const first = firstHeld(state, pool);
    if (first !== null && held.length < MAX_HELD) held.push(heldOf(state, pool, first));
  }
  return held;
}

function isNews(state: RegionalState, pool: PoolState): boolean {
  const { queue, heldTurn } = pool;
  if (queue.heldChanges !== heldTurn.toldChanges) return true;
  // Who may enter by age goes before those who came after it.
  return heldTurn.toldFirst !== null && !heldTurn.toldAged && entersByAge(state, pool);
}

function entersByAge({ nowMs }: RegionalState, { queue }: PoolState): boolean {
  return (queue.leastEntersMs ?? Number.POSITIVE_INFINITY) <= nowMs;
}

function firstHeld({ nowMs }: RegionalState, { queue }: PoolState): QueueItem | null {
  return queue.next({ nowMs, pressWithinMs: 0, past: NOBODY_PAST, held: true });
}

function heldOf(
  { nowMs }: RegionalState,
  { id: pool }: PoolState,
  item: QueueItem | null,
): SiblingHeld {
  if (item === null) return { pool };
  const { tenant, priority, returning, arrivedMs, entersMs } = heldPlaceOf(item);
  const times = { ageMs: nowMs - arrivedMs, patienceMs: Math.max(0, entersMs - arrivedMs) };
  return { pool, first: { tenant, priority, returning, ...times } };
}

// ── heard ──────────────────────────────────────────────────────────────────────────────────────────────

export function hearHeld(
  state: RegionalState,
  sibling: Sibling,
  { anew, held }: Pick<SiblingSends, 'anew' | 'held'>,
): void {
  if (anew === true) {
    forgetHeld(state, sibling);
    sibling.tellsHeld = held !== undefined;
  }
  for (const { pool: id, first } of held ?? []) {
    const pool = state.pools.get(id);
    if (pool === undefined) continue;
    // What gave way to another one may be first now.
    pool.dirty = true;
    if (first === undefined) {
      sibling.held.delete(id);
      continue;
    }
    const { tenant, priority, returning, ageMs, patienceMs: waitsMs } = first;
    const arrivedMs = state.nowMs - ageMs;
    const times = { arrivedMs, entersMs: arrivedMs + waitsMs };
    sibling.held.set(id, { tenant, priority, returning, ...times });
  }
}

export function forgetHeld(state: RegionalState, sibling: Sibling): void {
  for (const id of sibling.held.keys()) {
    const pool = state.pools.get(id);
    if (pool !== undefined) pool.dirty = true;
  }
  sibling.held.clear();
}

/** In a sibling something waits for room that one queue would let in first. */
export function isBehindSiblings(state: RegionalState, pool: PoolState, place: HeldPlace): boolean {
  for (const { held } of state.siblings.heard.values()) {
    const first = held.get(pool.id);
    if (first !== undefined && heldFirst(first, place, state.nowMs)) return true;
  }
  return false;
}

/** Somebody in a sibling waits for room. */
export function siblingsHold({ siblings }: RegionalState, pool: PoolState): boolean {
  for (const { held } of siblings.heard.values()) if (held.has(pool.id)) return true;
  return false;
}

/** Of so many routers that may send to a target, those that do not say what they hold, and this one. */
export function untoldRouters({ siblings }: RegionalState, routers: number): number {
  let telling = 0;
  for (const { tellsHeld } of siblings.heard.values()) if (tellsHeld) telling += 1;
  return Math.max(1, routers - telling);
}

// ── giving way ─────────────────────────────────────────────────────────────────────────────────────────

/** It has found room, and leaves it to a sibling's first one for a while. */
export function givesWay(state: RegionalState, pool: PoolState, item: QueueItem): boolean {
  const { heldTurn } = pool;
  if (!isBehindSiblings(state, pool, heldPlaceOf(item))) return false;
  heldTurn.givesWaySinceMs ??= state.nowMs;
  heldTurn.gaveWay = state.nowMs < heldTurn.givesWaySinceMs + patienceMs(state);
  return heldTurn.gaveWay;
}

export function beginRound({ heldTurn }: PoolState): void {
  heldTurn.gaveWay = false;
}

/** Nobody has found room to give way in, or it has been taken. */
export function endRound({ heldTurn }: PoolState): void {
  if (!heldTurn.gaveWay) heldTurn.givesWaySinceMs = null;
}

/** When what gives way goes all the same; null where nothing does. */
export function givesWayUntilMs(state: RegionalState, { heldTurn }: PoolState): number | null {
  const { givesWaySinceMs } = heldTurn;
  return givesWaySinceMs === null ? null : givesWaySinceMs + patienceMs(state);
}
