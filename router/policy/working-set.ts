// Whether a replica's KV cache has room for one more conversation.
//
//   limit = bound · KV capacity
//   new   = less than half of the prompt is found, on every candidate
//   fits  = working set + own + needed ≤ limit                       own: sent there and in no report yet
//           and, of several routers, own + needed ≤ (limit − working set) / routers, or it is the first
//
// A conversation that alone is larger than half of the limit counts as that half: it could never come in
// else. Without a capacity or a working set nothing is claimed and the rule does not act: unknown is
// neither zero nor full.

import type { KvRoom } from '../../shared/model/decision.ts';

/** Less than this share of the prompt found is a conversation that the replica does not hold. */
const FOUND_RATIO = 0.5;
const LARGEST_SHARE = 0.5;

export interface RoomFigures {
  readonly capacityTokens: number | null;
  readonly workingSetTokens: number | null;
  /** Growth by what this router has sent there and no report includes. */
  readonly ownTokens: number;
  /** New conversations among that. */
  readonly ownNew: number;
  /** Growth by the request itself: what is not found of its prompt, and its answer. */
  readonly neededTokens: number;
  /** Routers that may send there. */
  readonly routers: number;
}

/** Whether a target holds so little of a prompt that it would have to make room for it. */
export function isUnfound(matchedTokens: number, promptTokens: number): boolean {
  return matchedTokens < FOUND_RATIO * promptTokens;
}

export function kvRoom(figures: RoomFigures, boundRatio: number): KvRoom {
  const { capacityTokens, workingSetTokens, ownTokens, neededTokens } = figures;
  const shown = { boundRatio, capacityTokens, workingSetTokens, ownTokens, neededTokens };
  if (capacityTokens === null || workingSetTokens === null) return { state: 'unknown', ...shown };
  const limit = boundRatio * capacityTokens;
  const room = limit - workingSetTokens;
  const taken = ownTokens + Math.min(neededTokens, LARGEST_SHARE * limit);
  const shared = figures.ownNew === 0 || taken <= room / Math.max(1, figures.routers);
  return { state: taken <= room && shared ? 'room' : 'full', ...shown };
}
