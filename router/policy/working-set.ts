// Whether a replica's KV cache has room for one more conversation.
//
//   limit = bound · KV capacity
//   new   = less than half of the prompt is found, on every candidate
//   fits  = working set + others + own + needed ≤ limit              others, own: sent there and in no report yet, by
//                                                                    siblings as they tell it, and by this router
//           and, of several routers, claimed + own + needed ≤ (limit − working set − others + claimed) / routers, or it is
//           the first
//           claimed: sent there lately and in a report already. That one need not include what others have sent by then:
//           a share of what seems to be left would be room that they have taken
//
// A conversation that alone is larger than half of the limit counts as that half: it could never come in
// else. Without a capacity or a working set nothing is claimed and the rule does not act: unknown is
// neither zero nor full.
//
// Holding back is worth it where the cache serves more than prefill would: conversations that come back
// seldom fill it with what is hardly used, and the replica computes too little with it. There as many come
// in as it can compute anew (`servedAnew`), each while nothing waits.

import { prefillMs, type CostCurve } from '../../shared/model/cost-curve.ts';
import type { KvRoom } from '../../shared/model/decision.ts';

/** Less than this share of the prompt found is a conversation that the replica does not hold. */
const FOUND_RATIO = 0.5;
const LARGEST_SHARE = 0.5;
/** In so many ms what all routers have sent is in the reports of each. */
export const SETTLES_MS = 100;
/**
 * Holding back serves so much of what computing anew does, or it is given up. In truth it serves about two
 * thirds of `held` below: turns take time themselves, and who has ended keeps its place for a while.
 */
const HELD_RATIO = 0.75;
/** Of a replica's time, what computing anew may take: the rest is for decoding, and keeps waits short. */
const BUSY_RATIO = 0.8;

export interface RoomFigures {
  readonly capacityTokens: number | null;
  readonly workingSetTokens: number | null;
  /** Growth by what this router has sent there and no report includes. */
  readonly ownTokens: number;
  /** The same by what the region's other routers have sent, as far as they say. */
  readonly othersTokens: number;
  /** New conversations among that of this router and the claimed. */
  readonly ownNew: number;
  /** Growth by new conversations sent there within SETTLES_MS that a report includes already. */
  readonly claimedTokens: number;
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
  const { othersTokens } = figures;
  const sentTokens = ownTokens + othersTokens;
  const shown = {
    ...{ boundRatio, capacityTokens, workingSetTokens, neededTokens },
    ownTokens: sentTokens,
  };
  if (capacityTokens === null || workingSetTokens === null) return { state: 'unknown', ...shown };
  const limit = boundRatio * capacityTokens;
  const room = limit - workingSetTokens - othersTokens;
  const taken = ownTokens + Math.min(neededTokens, LARGEST_SHARE * limit);
  const { claimedTokens: claimed, ownNew, routers } = figures;
  const shared = ownNew === 0 || claimed + taken <= (room + claimed) / Math.max(1, routers);
  return { state: taken <= room && shared ? 'room' : 'full', ...shown };
}

export interface RecomputeFigures {
  readonly capacityTokens: number | null;
  /** Mean time between a conversation's turns, ms; null while unknown. */
  readonly gapMs: number | null;
  /** Of a mean prompt. */
  readonly promptTokens: number;
  readonly curve: CostCurve;
}

/**
 * How many conversations a replica can serve by computing every prompt anew, each coming back once a gap; 0 where its
 * KV cache serves about as many or more, or that is unknown:
 *
 *   held = KV capacity / gap             tokens of prompts per ms
 *   anew = prompt / prefill of it
 */
export function servedAnew(figures: RecomputeFigures): number {
  const { capacityTokens, gapMs, promptTokens, curve } = figures;
  if (capacityTokens === null || gapMs === null || !(gapMs > 0)) return 0;
  const anewMs = prefillMs(curve, promptTokens, 0);
  if (!(anewMs > 0)) return 0;
  const more = capacityTokens / gapMs < HELD_RATIO * (promptTokens / anewMs);
  return more ? (BUSY_RATIO * gapMs) / anewMs : 0;
}

/** Turns that were sent within about a gap: of each conversation that lives one. */
export class RecentTurns {
  #count = 0;
  #atMs = 0;

  sent(nowMs: number, gapMs: number): void {
    this.#count = this.count(nowMs, gapMs) + 1;
    this.#atMs = nowMs;
  }

  /** Fading with the gap. */
  count(nowMs: number, gapMs: number): number {
    return this.#count * Math.exp(-Math.max(0, nowMs - this.#atMs) / gapMs);
  }
}
