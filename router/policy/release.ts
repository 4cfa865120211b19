// When one of several routers may release a request of its queue into a target.
//
//   alone, or with the most urgent work       the hold alone binds
//   as urgent as others                       its share = (holdMs − wait) / routers at that priority, one request
//                                             at least, once those before it have had theirs:
//                                             wait + before · max(mean prefill, share) < holdMs, before < free slots
//   less urgent                               not before those
//
// Who is before whom is told by the agent (`place`): the order is then that of one queue, and together the routers
// exceed the hold by one request, however many they are. An older agent tells the sum alone: then each takes its share.
//
// Where the agent's reports come in turn (`turnMs`), equally urgent work needs no share: for that long after its report
// a router has the target for itself, and what it sends is in the next router's report. It then decides as one router
// does. Those behind more than half of the others let their turns pass: the oldest go first. Where more targets have room
// than requests wait in other routers, room is not what is scarce: whoever waited for a turn would leave engines idle, and
// be one more that waits.
//
// Where reports come late (policy/sight.ts) a turn or a share would be waited for longer than the room lasts: equally
// urgent work is then bound by the hold alone.
//
// A target that stays idle lets everybody in after a while, in the same order: what others hold may not fit it, or they
// may be gone.

import type { QueuedWork } from '../../shared/model/report.ts';

export interface OtherQueues {
  /** Most urgent priority that another holds or may hold; null when nobody else queues. */
  readonly topPriority: number | null;
  /** Other routers that hold it. */
  readonly atTop: number;
  /** Of these, those whose next request goes before this router's. */
  readonly before: number;
  /** Predicted prefill of a queued request, ms. */
  readonly meanMs: number;
  /** For so long after a report its room is this router's alone, ms; null where agents do not give turns. */
  readonly turnMs: number | null;
  /** Requests that wait there, of whatever priority; null where agents do not say. */
  readonly requests: number | null;
}

const NO_OTHERS: OtherQueues = {
  ...{ topPriority: null, atTop: 0, before: 0, meanMs: 0 },
  ...{ turnMs: null, requests: null },
};

/**
 * What the routers besides this one hold, as an agent reports it; `counted`: this one is in the sum, which matters
 * where the agent does not tell its place.
 */
export function otherQueues(reported: QueuedWork, counted: boolean): OtherQueues {
  const { place, routersQueueing, topPriority } = reported;
  const meanMs = reported.prefillMs / Math.max(1, reported.requests);
  if (place !== undefined) {
    const { othersTop, othersAtTop, before, turnMs = null, othersRequests = null } = place;
    if (othersTop === null) return NO_OTHERS;
    const requests = othersRequests;
    return { topPriority: othersTop, atTop: othersAtTop, before, meanMs, turnMs, requests };
  }
  const others = routersQueueing - (counted ? 1 : 0);
  if (others <= 0 || topPriority === null) return NO_OTHERS;
  return { topPriority, atTop: others, before: 0, meanMs, turnMs: null, requests: null };
}

export interface ShareInput {
  readonly others: OtherQueues;
  readonly holdMs: number;
  /** Age of the target's last report, ms. */
  readonly reportAgeMs: number;
  /** Reports come too late to share its room by them. */
  readonly blind: boolean;
  /** More of the pool's targets have room than requests wait in other routers. */
  readonly roomForAll: boolean;
  /** Wait of the target without what this router has sent since its last report, ms. */
  readonly waitMs: number;
  /** What this router has sent into it since. */
  readonly ownMs: number;
  /** Free slots; null while unknown or unbounded. */
  readonly freeSlots: number | null;
  /** How long it has had nothing to do; null while it has. */
  readonly idleMs: number | null;
  /** So long a target may be idle before the order gives way, ms. */
  readonly patienceMs: number;
}

/**
 * ms until this router's share of the target allows one more request of the priority, if nothing else happens: 0 is
 * now, null where time alone does not bring it.
 */
export function shareOpensInMs(input: ShareInput, priority: number): number | null {
  const { others, holdMs, idleMs, patienceMs } = input;
  if (others.topPriority === null || priority < others.topPriority) return 0;
  if (input.blind && priority === others.topPriority) return 0;
  if (others.turnMs !== null && priority === others.topPriority) {
    if (input.roomForAll) return 0;
    const isLast = others.before > others.atTop / 2;
    if (input.reportAgeMs < others.turnMs && !isLast) return 0;
    return idleMs === null ? null : Math.max(0, patienceMs - idleMs);
  }
  const roomMs = holdMs - input.waitMs;
  const shareMs = roomMs / (others.atTop + 1);
  if (input.ownMs > 0 && input.ownMs >= shareMs) return null;
  const behind = priority > others.topPriority;
  const before = behind ? others.atTop : others.before;
  const takenMs = before * Math.max(others.meanMs, shareMs);
  const noSlot = input.freeSlots !== null && before >= input.freeSlots;
  const needMs = Math.max(before === 0 ? 0 : takenMs - roomMs, behind || noSlot ? patienceMs : 0);
  if (roomMs > 0 && needMs <= 0) return 0;
  return idleMs === null ? null : Math.max(0, needMs - idleMs);
}
