// Working-set admission: a new conversation goes only where the KV cache has room for it.
//
// A retry has been admitted before. A conversation that returns after its cache was evicted needs room as a new one
// does, and more of it: what it takes is taken from others all the same. It goes ahead of new ones.

import type { KvRoom } from '../../shared/model/decision.ts';
import type { Usage } from '../../shared/protocol/messages.ts';
import { isUnfound, kvRoom } from '../policy/working-set.ts';
import type { LeaseState, RegionalState, RequestState, TargetState } from './core-state.ts';
import { COLUMN, type Scored, type Weighing } from './core-weighing.ts';

/** How the candidates of one request stand; `admits` is asked once a candidate, `shown` for explain. */
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
  const bound = request.pool.workingSet.control.bound(state.settings);
  if (bound === null || !isGeneration(request)) return null;
  const fresh = request.attempts === 0 && isFoundNowhere(weighing);
  const aged = state.nowMs >= entersByMs(state, request);
  const of = (candidate: Scored): KvRoom => {
    const room = roomAt(request, candidate, bound);
    if (!fresh) return { ...room, state: 'continues' };
    const enters = room.state === 'full' && aged && takesAged(state, candidate.target);
    return enters ? { ...room, state: 'aged' } : room;
  };
  return { acts: fresh, of };
}

/** What a request is that has to wait for room; its pool is counted as one that held somebody back. */
export function noteHeld(state: RegionalState, request: RequestState): 'returning' | 'new' {
  const { workingSet, heldPace } = request.pool;
  workingSet.control.heldBack();
  heldPace.started(state.nowMs);
  const goesOn = request.request.prompts.some(({ turnEnds }) => turnEnds.length > 0);
  return goesOn ? 'returning' : 'new';
}

export function noteAdmitted(state: RegionalState, scored: Scored, room: Room | null): void {
  if (room?.acts !== true || room.of(scored).state !== 'aged') return;
  scored.target.agedMs = state.nowMs;
  scored.target.replica.pool.workingSet.aged += 1;
}

/** A turn is complete: what it found of the one before moves the bound. */
export function noteTurn(state: RegionalState, lease: LeaseState, usage: Usage): void {
  const { request, moved } = lease;
  const { prompts, answers = 1 } = request.request;
  const [prompt] = prompts;
  if (prompt === undefined || prompts.length > 1 || answers > 1 || !isGeneration(request)) return;
  const { control, turns, gaps } = request.pool.workingSet;
  const before = prompt.turnEnds.at(-1);
  const earlier = before === undefined ? null : turns.take(before);
  const tokens = usage.promptTokens + usage.completionTokens;
  turns.remember(prompt.end, { tokens, endedMs: state.nowMs });
  if (earlier === null) return;
  const restedMs = request.arrivedMs - earlier.endedMs;
  gaps.observe(restedMs);
  const restMs = gaps.tauMs();
  const { cachedTokens } = usage;
  if (!moved && cachedTokens !== null && restedMs <= restMs) {
    control.observe({ found: cachedTokens, could: earlier.tokens });
  }
  if (request.pool.queue.held.requests > 0) control.heldBack();
  control.step(state.settings, { nowMs: state.nowMs, restMs });
}

function isFoundNowhere(weighing: Weighing): boolean {
  for (let k = 0; k < weighing.count; k += 1) {
    const matched = weighing.value(k, COLUMN.matchedTokens);
    if (!isUnfound(matched, weighing.value(k, COLUMN.promptTokens))) return false;
  }
  return true;
}

/** From then on it goes wherever there is a place, room or not. */
export function entersByMs(state: RegionalState, { arrivedMs }: RequestState): number {
  return arrivedMs + state.settings.newConversationWaitMs;
}

/** Growth of a target's working set by a request: what is not found, and the answer. */
export function growthTokens(request: RequestState, scored: Scored): number {
  const answer = Math.min(
    request.request.maxTokens ?? Number.POSITIVE_INFINITY,
    request.pool.meanOutputTokens,
  );
  return Math.max(0, scored.promptTokens - scored.matchedTokens) + answer;
}

/** One at a time: a crowd that enters by age would push out those who are inside. */
function takesAged(state: RegionalState, target: TargetState): boolean {
  const routers = target.report?.routers ?? 1;
  return state.nowMs - target.agedMs >= routers * state.settings.newConversationWaitMs;
}

/** Nothing else comes back for its prefix. */
function isGeneration({ request }: RequestState): boolean {
  return (request.work ?? 'generation') === 'generation';
}

function roomAt(request: RequestState, scored: Scored, bound: number): KvRoom {
  const { target } = scored;
  const { report } = target;
  const own = ownGrowth(target);
  const figures = {
    capacityTokens: report?.kvCapacityTokens ?? null,
    workingSetTokens: report?.workingSetTokens ?? null,
    ownTokens: own.tokens,
    ownNew: own.conversations,
    neededTokens: growthTokens(request, scored),
    routers: report?.routers ?? 1,
  };
  return kvRoom(figures, bound);
}

function ownGrowth(target: TargetState): { tokens: number; conversations: number } {
  const own = { tokens: 0, conversations: 0 };
  for (const lease of target.unacked) {
    own.tokens += lease.growthTokens;
    if (lease.unfound) own.conversations += 1;
  }
  return own;
}
