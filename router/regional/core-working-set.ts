// Working-set admission: a new conversation goes only where the KV cache has room for it.
//
// Only generations count: nothing else comes back for its prefix. A retry has been admitted before.

import type { KvRoom } from '../../shared/model/decision.ts';
import { isUnfound, kvRoom } from '../policy/working-set.ts';
import type { RegionalState, RequestState, TargetState } from './core-state.ts';
import type { Scored } from './core-weigh.ts';

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
  scored: readonly Scored[],
): Room | null {
  const { workingSetBound: bound } = state.settings;
  if (bound === null || (request.request.work ?? 'generation') !== 'generation') return null;
  const fresh =
    request.attempts === 0 &&
    scored.every(({ matchedTokens, promptTokens }) => isUnfound(matchedTokens, promptTokens));
  const aged = state.nowMs >= entersByMs(state, request);
  const of = (candidate: Scored): KvRoom => {
    const room = roomAt(request, candidate, bound);
    if (!fresh) return { ...room, state: 'continues' };
    return aged && room.state === 'full' && takesAged(state, candidate.target)
      ? { ...room, state: 'aged' }
      : room;
  };
  return { acts: fresh, of };
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
