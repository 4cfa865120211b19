// Working-set admission: a new conversation goes only where the KV cache has room for it.
//
// A retry has been admitted before. A conversation that returns after its cache was evicted needs room as a new one
// does, and more of it: what it takes is taken from others all the same. It goes ahead of new ones. Where hardly any
// turn is gone on from there is nothing to keep, and engines queue for KV blocks by themselves: the rule rests.

import type { KvRoom } from '../../shared/model/decision.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import type { PrefixMessage, Usage } from '../../shared/protocol/messages.ts';
import { siblingsHold, untoldRouters } from './core-held-order.ts';
import { curveOf, othersUnacked, poolCurve } from './core-load.ts';
import { isUnfound, kvRoom, servedAnew, SETTLES_MS } from '../policy/working-set.ts';
import type { HeldPlace } from '../policy/queue-held.ts';
import { clampPriority, type QueueItem } from '../policy/queue-item.ts';
import type { EarlierTurn } from '../policy/turn-memory.ts';
import type {
  LeaseState,
  PoolState,
  RegionalState,
  RequestState,
  TargetState,
} from './core-state.ts';
import { settleWaiting, waitingTokens } from './core-waiting-turns.ts';
import { COLUMN, type Scored, type Weighing } from './core-weighing.ts';

/** Before agents tell a working set of turns that hardly anybody goes on from, ms. */
const WATCHED_MS = 25_000;

/** How the candidates of one request stand. */
export interface Room {
  /** It is held back where it does not fit. */
  readonly acts: boolean;
  readonly of: (scored: Scored) => KvRoom;
}

/** Null where the rule has nothing to say about the request. Changes nothing. */
export function roomForNew(
  state: RegionalState,
  request: RequestState,
  weighing: Weighing,
): Room | null {
  const bound = boundNow(state, request.pool);
  if (bound === null || !isGeneration(request)) return null;
  const fresh = request.attempts === 0 && isFoundNowhere(weighing);
  if (fresh) settleWaiting(state, request.pool);
  const aged = state.nowMs >= entersByMs(state, request);
  const of = (candidate: Scored): KvRoom => {
    const room = roomAt(state, request, { scored: candidate, bound });
    if (!fresh) return { ...room, state: 'continues' };
    if (room.state !== 'full') return room;
    if (candidate.load.waitMs <= 0 && hasSpare(state, candidate.target))
      return { ...room, state: 'spare' };
    return aged && takesAged(state, candidate.target) ? { ...room, state: 'aged' } : room;
  };
  return { acts: fresh, of };
}

/** Null while the rule is off or rests. */
function boundNow(state: RegionalState, pool: PoolState): number | null {
  return pool.workingSet.gaps.isRare(state.nowMs, WATCHED_MS) ? null : boundRatio(state, pool);
}

/** What live conversations may take of a KV cache, room for a burst included; null while the rule is off. */
export function boundRatio({ settings }: RegionalState, { workingSet }: PoolState): number | null {
  const bound = workingSet.control.bound(settings);
  return bound === null ? null : workingSet.burst.beyond(bound, settings);
}

/** Tokens by which new conversations would be let in now; null where nothing holds them back, or that is unknown. */
export function roomTokens(
  state: RegionalState,
  pool: PoolState,
  ready: readonly TargetState[],
): number | null {
  const bound = boundNow(state, pool);
  if (bound === null) return null;
  // Those who wait for it already come first.
  if (pool.queue.held.requests > 0) return 0;
  let room: number | null = null;
  for (const target of ready) {
    const { kvCapacityTokens: capacity, workingSetTokens: live } = target.report ?? {};
    if (typeof capacity !== 'number' || typeof live !== 'number') continue;
    if (hasSpare(state, target)) return null;
    const waiting = waitingTokens(target);
    const sent = ownGrowth(target).tokens + othersGrowth(target);
    room = (room ?? 0) + Math.max(0, bound * capacity - live - waiting - sent);
  }
  return room;
}

/** Where the rule no longer holds anybody back, those that it has held wait as all others do, as old as they are. */
export function letGoOfHeld(state: RegionalState, pool: PoolState): void {
  const { queue, pace, heldPace } = pool;
  if (queue.held.requests === 0 || boundNow(state, pool) !== null) return;
  for (const id of [...queue.ids()]) {
    const { held, entersMs: _, ...item } = queue.get(id) as QueueItem;
    if (held !== undefined) queue.push(item, state.settings.ageCredit);
  }
  heldPace.emptied();
  pace.started(state.nowMs);
}

/** The place of a request that has to wait for room. */
export function noteHeld(
  state: RegionalState,
  request: RequestState,
): Required<Pick<QueueItem, 'held' | 'entersMs'>> {
  request.pool.heldPace.started(state.nowMs);
  const held = goesOn(request) ? 'returning' : 'new';
  return { held, entersMs: entersByMs(state, request) };
}

/** Where it stands, or would stand, among those that wait for room. */
export function heldPlace(state: RegionalState, request: RequestState): HeldPlace {
  const { tenant, priority } = request.request;
  return {
    tenant,
    priority: clampPriority(priority),
    returning: goesOn(request),
    arrivedMs: request.arrivedMs,
    entersMs: entersByMs(state, request),
  };
}

/** A conversation whose cache was evicted: it waits for room behind others that go on, and ahead of new ones. */
export function goesOn({ request }: RequestState): boolean {
  return request.prompts.some(({ turnEnds }) => turnEnds.length > 0);
}

/** It enters without room, for its age. */
export function entersAged(scored: Scored, room: Room | null): boolean {
  return room?.acts === true && room.of(scored).state === 'aged';
}

export function noteAdmitted(state: RegionalState, lease: LeaseState, room: Room | null): void {
  if (room === null) return;
  const { target } = lease;
  const { workingSet } = target.replica.pool;
  target.recentTurns.sent(state.nowMs, workingSet.gaps.meanMs ?? Number.POSITIVE_INFINITY);
  if (!lease.aged) return;
  state.limit('new_conversation_wait');
  target.agedMs = state.nowMs;
  workingSet.aged += 1;
}

/** Turns have ended there, whichever router sent them. */
export function noteTurnEnds(
  state: RegionalState,
  target: TargetState,
  { leaves }: PrefixMessage,
): void {
  const { turns, gaps } = target.replica.pool.workingSet;
  // Those who go on from it come to any of the routers.
  const share = 1 / Math.max(1, target.report?.routers ?? 1);
  for (const leaf of leaves) {
    if (leaf.promptTokens === null) continue;
    gaps.ended(state.nowMs, share);
    turns.ended(leaf, { tokens: leaf.promptTokens + leaf.answerTokens, endedMs: state.nowMs });
  }
}

/**
 * How long its conversation had rested when it came, at its first attempt; null where that is unknown. Its agent can not
 * tell: it knows nothing of turns that ended elsewhere or that its engine has evicted, and would count the wait here.
 */
export function restedMs(request: RequestState): number | null {
  const [prompt, ...others] = request.request.prompts;
  const before = prompt?.turnEnds.at(-1);
  if (request.attempts > 1 || before === undefined || others.length > 0) return null;
  const earlier = request.pool.workingSet.turns.take(before);
  request.earlier = earlier;
  return earlier === null ? null : restBefore(request, earlier);
}

function restBefore({ arrivedMs }: RequestState, { endedMs }: EarlierTurn): number {
  return Math.max(0, arrivedMs - endedMs);
}

/** A turn is complete: what it found of the one before moves the bound, where it came back in time. */
export function noteTurn(state: RegionalState, lease: LeaseState, usage: Usage): void {
  const { request, moved } = lease;
  const { earlier } = request;
  if (earlier === null) return;
  const { control, gaps } = request.pool.workingSet;
  const rested = restBefore(request, earlier);
  gaps.observe(rested);
  const { cachedTokens } = usage;
  const tauMs = gaps.tauMs(state.nowMs);
  if (moved || cachedTokens === null || tauMs === null || rested > tauMs) return;
  // What is computed anew by intent says nothing of the bound.
  if (anewOf(lease.target) > 0) return;
  control.observe({ found: cachedTokens, could: earlier.tokens });
}

/** Each report is a look at who waits for room, and the time to move the bound. */
export function lookForRoom(
  state: RegionalState,
  { replica }: TargetState,
  report: ReplicaReport,
): void {
  const { queue, workingSet } = replica.pool;
  const held = queue.held.requests > 0;
  const waiting = held || siblingsHold(state, replica.pool);
  const seen = { waiting, routers: untoldRouters(state, report.routers) };
  workingSet.control.look(seen);
  const crowd = held && isCrowd(state, replica.pool);
  workingSet.burst.look({ ...seen, crowd }, state.nowMs);
  workingSet.control.step(state.settings, state.nowMs);
}

/** ms from one that finds room to the next: as it has come lately, or as conversations end, whose room comes once they have rested. */
export function roomPaceMs({ nowMs }: RegionalState, { heldPace, workingSet }: PoolState): number {
  const ending = workingSet.gaps.endingPerMs(nowMs);
  const endingMs = ending === null ? Number.POSITIVE_INFINITY : 1 / ending;
  return Math.min(heldPace.msPerRelease(nowMs) ?? 0, endingMs);
}

/** More than find room in half of the time that anybody may wait. */
function isCrowd(state: RegionalState, pool: PoolState): boolean {
  const waits = pool.queue.held.requests * roomPaceMs(state, pool);
  return waits > state.settings.queueMaxWaitMs / 2;
}

/** From then on it goes wherever there is a place, room or not: half of its client's patience at the latest. */
export function entersByMs(state: RegionalState, { arrivedMs, request }: RequestState): number {
  const patienceMs = (request.clientDeadlineMs ?? Number.POSITIVE_INFINITY) / 2;
  return arrivedMs + Math.min(state.settings.newConversationWaitMs, patienceMs);
}

/** Growth of a target's working set by a request: what is not found, and the answer. */
export function growthTokens(request: RequestState, scored: Scored): number {
  const answer = Math.min(
    request.request.maxTokens ?? Number.POSITIVE_INFINITY,
    request.pool.meanOutputTokens,
  );
  return Math.max(0, scored.promptTokens - scored.matchedTokens) + answer;
}

/** Its prefill can serve one conversation more without what its KV cache would hold. */
function hasSpare(state: RegionalState, target: TargetState): boolean {
  const { meanMs } = target.replica.pool.workingSet.gaps;
  if (meanMs === null) return false;
  const live = target.recentTurns.count(state.nowMs, meanMs) * (target.report?.routers ?? 1);
  return live + 1 <= anewOf(target);
}

/** Conversations that it can serve so; 0 where keeping them is worth more. */
function anewOf(target: TargetState): number {
  const { pool } = target.replica;
  return servedAnew({
    capacityTokens: target.report?.kvCapacityTokens ?? null,
    gapMs: pool.workingSet.gaps.meanMs,
    promptTokens: pool.meanPromptTokens,
    curve: curveOf(target, () => poolCurve(pool)).curve,
  });
}

/** One at a time: a crowd that enters by age would push out those who are inside. */
function takesAged(state: RegionalState, target: TargetState): boolean {
  const routers = untoldRouters(state, target.report?.routers ?? 1);
  return state.nowMs - target.agedMs >= routers * state.settings.newConversationWaitMs;
}

function isFoundNowhere(weighing: Weighing): boolean {
  const matched = weighing.columns[COLUMN.matchedTokens] as Float64Array;
  const prompts = weighing.columns[COLUMN.promptTokens] as Float64Array;
  for (let k = 0; k < weighing.count; k += 1) {
    if (!isUnfound(matched[k] as number, prompts[k] as number)) return false;
  }
  return true;
}

/** Nothing else comes back for its prefix. */
function isGeneration({ request }: RequestState): boolean {
  return (request.work ?? 'generation') === 'generation';
}

function roomAt(
  state: RegionalState,
  request: RequestState,
  { scored, bound }: { scored: Scored; bound: number },
): KvRoom {
  const { target } = scored;
  const { report, replica } = target;
  const own = ownGrowth(target);
  const claimed = claimedGrowth(state, target);
  // What was reported before the grace began says nothing any more.
  const known = replica.state === 'static' ? null : report;
  const figures = {
    capacityTokens: report?.kvCapacityTokens ?? null,
    workingSetTokens: liveTokens(target, known),
    ownTokens: own.tokens,
    othersTokens: othersGrowth(target),
    ownNew: own.conversations + claimed.conversations,
    claimedTokens: claimed.tokens,
    neededTokens: growthTokens(request, scored),
    routers: report?.routers ?? 1,
  };
  return kvRoom(figures, bound);
}

/** As told, and what no agent knows to live. */
function liveTokens(target: TargetState, told: ReplicaReport | null): number | null {
  const live = told?.workingSetTokens ?? null;
  return live === null ? null : live + waitingTokens(target);
}

/** By what siblings have sent there and no report includes. */
function othersGrowth(target: TargetState): number {
  return othersUnacked(target)?.growthTokens ?? 0;
}

function ownGrowth(target: TargetState): { tokens: number; conversations: number } {
  const own = { tokens: 0, conversations: 0 };
  for (const lease of target.unacked) {
    own.tokens += lease.growthTokens;
    if (lease.unfound) own.conversations += 1;
  }
  return own;
}

/** Of several routers: what a report includes already of new conversations that may stand beside others', not yet told. */
function claimedGrowth(
  { nowMs }: RegionalState,
  target: TargetState,
): { tokens: number; conversations: number } {
  const claimed = { tokens: 0, conversations: 0 };
  if ((target.report?.routers ?? 1) <= 1) return claimed;
  for (const lease of target.claims) {
    if (lease.sentMs <= nowMs - SETTLES_MS || target.unacked.has(lease)) continue;
    claimed.tokens += lease.growthTokens;
    claimed.conversations += 1;
  }
  return claimed;
}

/** A new conversation goes there. */
export function noteClaim({ nowMs }: RegionalState, lease: LeaseState): void {
  if (!lease.unfound) return;
  const { target } = lease;
  target.claims = target.claims.filter(({ sentMs }) => sentMs > nowMs - SETTLES_MS);
  target.claims.push(lease);
}
