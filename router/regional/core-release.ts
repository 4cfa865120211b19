// Moves a pool's queue: gives up what has waited too long, releases what there is room for, in
// order and with fresh data.

import type { RequestId } from '../../shared/model/ids.ts';
import { decide, pendingEtaMs } from './core-decide.ts';
import { openAttempt } from './core-leases.ts';
import { predictedRoomWaitMs, waitsForRoom } from './core-admission.ts';
import { beginRound, endRound, givesWay, givesWayUntilMs } from './core-held-order.ts';
import { letGoOfHeld, noteHeld } from './core-working-set.ts';
import { poolOutlook, turnAway, waitOutlookMs } from './core-outlook.ts';
import { pressWithinMs } from './core-queued.ts';
import { finish } from './core-ends.ts';
import { carryOut } from './core-requests.ts';
import { Shares, type Asker } from './core-share.ts';
import type { PoolState, RegionalState, TargetState } from './core-state.ts';
import { roomNow, serves } from './core-room.ts';
import { noteTurnWaitsNoMore } from './core-waiting-turns.ts';
import { targetsOf } from './core-ready.ts';
import { bare } from './core-decide.ts';
import { ejected } from '../policy/breaker.ts';
import type { LookedPast, QueueItem } from '../policy/queue-item.ts';

/** Queued requests that cannot go now and are looked past, per round: of one kind, and of all. */
const LOOKED_PAST_OF_KIND = 8;
const LOOKED_PAST = 64;
/** Requests released in one event: more go in the next. */
const RELEASED_AT_ONCE = 256;
/**
 * A look at who waits for KV room weighs every target, and each report may be what it waits for: in a large pool the
 * looks have so much time between them, ms a target, that they take a few hundredths of a core.
 */
const LOOK_EVERY_MS = 0.02;
const LARGE_POOL = 64;

export function moveQueue(state: RegionalState, pool: PoolState): void {
  pool.heldLook.due = false;
  giveUp(state, pool);
  letGoOfHeld(state, pool);
  const past = new Past();
  for (let k = 0; k < RELEASED_AT_ONCE && past.ids.size < LOOKED_PAST; k += 1) {
    if (!canMove(state, pool)) return;
    const item = nextOf(state, pool, past);
    if (item === null) return moveHeld(state, pool);
    if (!tryRelease(state, pool, item)) past.note(item);
  }
  pool.dirty = past.ids.size < LOOKED_PAST;
}

/** Who cannot go now; after some of a kind, nor can the others of it. */
class Past implements LookedPast {
  readonly ids = new Set<string>();
  readonly kinds = new Set<string>();
  readonly #counts = new Map<string, number>();

  note({ id, kind = '' }: QueueItem): void {
    this.ids.add(id);
    const count = (this.#counts.get(kind) ?? 0) + 1;
    this.#counts.set(kind, count);
    if (count >= LOOKED_PAST_OF_KIND) this.kinds.add(kind);
  }
}

/**
 * New conversations go after all others of the pool, in their order: one that finds no KV room ends the round for its
 * kind. Others may go to replicas that it may not.
 */
function moveHeld(state: RegionalState, pool: PoolState): void {
  const { heldLook } = pool;
  heldLook.due = pool.queue.held.requests > 0 && state.nowMs < heldLook.atMs;
  if (heldLook.due) return;
  const targets = pool.roster.targets.length;
  heldLook.atMs = state.nowMs + (targets > LARGE_POOL ? LOOK_EVERY_MS * targets : 0);
  beginRound(pool);
  moveHeldRound(state, pool);
  endRound(pool);
}

function moveHeldRound(state: RegionalState, pool: PoolState): void {
  const past = new Past();
  for (let k = 0; k < RELEASED_AT_ONCE && past.kinds.size < LOOKED_PAST; k += 1) {
    if (pool.queue.held.requests === 0 || !canMove(state, pool)) return;
    const item = nextOf(state, pool, past, true);
    if (item === null) return;
    if (!tryRelease(state, pool, item)) past.kinds.add(item.kind ?? '');
  }
  pool.dirty = past.kinds.size < LOOKED_PAST;
}

function nextOf(
  state: RegionalState,
  pool: PoolState,
  past: LookedPast,
  held = false,
): QueueItem | null {
  const { nowMs } = state;
  return pool.queue.next({ nowMs, pressWithinMs: pressWithinMs(state), past, held });
}

/** When the queue has to be looked at again without any event; null when only events move it. */
export function queueWakeMs(state: RegionalState, pool: PoolState): number | null {
  if (pool.queue.size === 0) return null;
  if (pool.dirty) return state.nowMs + 1;
  let wake = Math.min(
    pool.queue.nextGiveUpMs ?? Number.POSITIVE_INFINITY,
    heldWakeMs(state, pool) ?? Number.POSITIVE_INFINITY,
    givesWayUntilMs(state, pool) ?? Number.POSITIVE_INFINITY,
    pool.heldLook.due ? pool.heldLook.atMs : Number.POSITIVE_INFINITY,
  );
  const { roster } = pool;
  roster.sync();
  const tripped = roster.breakers.tripped > 0;
  const seen = { pool, shares: new Shares(state, pool), first: firstAsker(pool) };
  for (let place = 0; place < roster.targets.length; place += 1) {
    if (!serves(pool, place)) continue;
    const target = roster.targets[place] as TargetState;
    if (target.pausedUntilMs > state.nowMs) wake = Math.min(wake, target.pausedUntilMs);
    else wake = Math.min(wake, roomWakeMs(state, place, seen) ?? wake);
    if (tripped) wake = Math.min(wake, target.breaker.opensAgainMs(state.nowMs) ?? wake);
  }
  return Number.isFinite(wake) ? Math.max(wake, state.nowMs + 1) : null;
}

/** When the first of those that wait for KV room has waited long enough; null where that is past or nobody does. */
function heldWakeMs(state: RegionalState, pool: PoolState): number | null {
  const entersMs = pool.queue.held.requests === 0 ? null : pool.queue.leastEntersMs;
  return entersMs !== null && entersMs > state.nowMs ? entersMs : null;
}

/** False where it stays as it is; true where it has left, or waits for KV room from now on. */
function tryRelease(state: RegionalState, pool: PoolState, item: QueueItem): boolean {
  const request = state.requests.get(item.id as RequestId);
  if (request === undefined) {
    pool.queue.remove(item.id);
    return true;
  }
  const verdict = decide(state, request, { draw: true });
  if (item.held === undefined && waitsForRoom(state, request, verdict)) {
    const held = noteHeld(state, request);
    pool.queue.push({ ...item, ...held }, state.settings.ageCredit);
    noteTurnWaitsNoMore(request);
    if (pool.queue.size === pool.queue.held.requests) pool.pace.emptied();
    return true;
  }
  if (verdict.decision.kind === 'queue') return false;
  if (verdict.chosen === null) {
    carryOut(state, request, verdict);
    return true;
  }
  if (item.held !== undefined && givesWay(state, pool, item)) return false;
  pool.queue.release(item.id);
  noteTurnWaitsNoMore(request);
  const { held } = pool.queue;
  if (item.held !== undefined) pool.heldPace.released(held.requests, state.nowMs);
  else pool.pace.released(pool.queue.size - held.requests, state.nowMs);
  openAttempt(state, request, {
    scored: verdict.chosen,
    decision: verdict.decision,
    room: verdict.room,
  });
  return true;
}

function giveUp(state: RegionalState, pool: PoolState): void {
  for (let item = pool.queue.overdue(state.nowMs); item !== null;) {
    const request = state.requests.get(item.id as RequestId);
    if (request === undefined) {
      pool.queue.remove(item.id);
    } else {
      const late = state.nowMs - request.arrivedMs >= state.settings.queueMaxWaitMs;
      const { priority, prefillMs: workMs } = item;
      const waitMs =
        item.held === undefined
          ? waitOutlookMs(state, pool, { ...poolOutlook(state, pool), priority })
          : predictedRoomWaitMs(state, request);
      const patienceMs = request.request.clientDeadlineMs ?? Number.POSITIVE_INFINITY;
      const roomInMs = waitMs - Math.min(state.settings.queueMaxWaitMs, patienceMs - workMs);
      finish(state, request, {
        decision: bare('shed', late ? 'queue_timeout' : 'deadline_unreachable'),
        failure: {
          code: late ? 'queue_timeout' : 'saturated',
          message: late
            ? 'The request waited as long as it may for a replica.'
            : "No replica can answer within the client's deadline.",
          retryAfterMs: turnAway(state, pool, { priority, workMs, roomInMs }),
        },
      });
    }
    item = pool.queue.overdue(state.nowMs);
  }
}

/** Cheap: whether any request at all could leave the queue now, be it into a refusal. */
function canMove(state: RegionalState, pool: PoolState): boolean {
  if (pool.queue.size === 0) return false;
  const { roster } = pool;
  roster.sync();
  const broken = brokenNow(state, pool);
  const shares = new Shares(state, pool);
  const first = firstAsker(pool);
  let ready = false;
  for (let place = 0; place < roster.targets.length; place += 1) {
    if (!serves(pool, place)) continue;
    ready = true;
    const target = roster.targets[place] as TargetState;
    if (target.pausedUntilMs > state.nowMs || broken?.has(target) === true) continue;
    if (roomNow(state, pool, place).full) continue;
    if (first !== null && shares.opensInMs(target, first, true) === 0) return true;
  }
  return !ready && pendingEtaMs(pool) === null;
}

/** Targets whose breaker counts; null where none is open. */
function brokenNow(state: RegionalState, pool: PoolState): ReadonlySet<TargetState> | null {
  if (pool.roster.breakers.tripped === 0) return null;
  const ready = targetsOf(pool).filter((_, place) => serves(pool, place));
  return ejected(ready, state.nowMs);
}

/** When time alone makes room in the target at that place for what waits; null where it does not, or has. */
function roomWakeMs(state: RegionalState, place: number, seen: Seen): number | null {
  const { pool, shares, first } = seen;
  const room = roomNow(state, pool, place);
  if (room.full) return room.roomAtMs;
  const target = pool.roster.targets[place] as TargetState;
  const inMs = first === null ? null : shares.opensInMs(target, first, true);
  return inMs === null || inMs === 0 ? null : state.nowMs + inMs;
}

interface Seen {
  readonly pool: PoolState;
  readonly shares: Shares;
  readonly first: Asker | null;
}

/**
 * The most urgent that waits, the oldest of them, who asks as if at home everywhere: what is not open to that is open to
 * nothing.
 */
function firstAsker({ queue }: PoolState): Asker | null {
  const { topPriority: priority, leastKey: key } = queue;
  return priority === null ? null : { priority, key, heldKey: key };
}
