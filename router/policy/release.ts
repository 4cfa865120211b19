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
// does. A turn lasts a few ms of each interval, so it is waited for only where room is contested:
//
//   older than all that waits elsewhere   at once by a fresh report: one queue would release it next
//   more targets have room than requests wait elsewhere
//                                         at once: whoever waited would leave engines idle, and be one more that waits
//   comes for a prefix held there alone   at once: one router, too, sends it to its home before that has room
//   half of the others before it          its turn passes: the oldest go first
//   all that waits here younger than the oldest by MUCH_YOUNGER_MS
//                                         its turn passes, until the room has been told to everybody and is still there:
//                                         the oldest may fit somewhere else alone
//
// Where reports come late (policy/sight.ts) a turn or a share would be waited for longer than the room lasts: equally
// urgent work is then bound by the hold alone.
//
// A target that stays idle lets everybody in after a while, in the same order: what others hold may not fit it, or they
// may be gone. Less urgent work waits twice as long: the more urgent has first to be let in, and to pass.

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
  /** Age of the oldest of those `atTop` at the time of the report, its length allowed for, ms; null while unknown. */
  readonly oldestAgeMs: number | null;
}

const NO_OTHERS: OtherQueues = {
  ...{ topPriority: null, atTop: 0, before: 0, meanMs: 0 },
  ...{ turnMs: null, requests: null, oldestAgeMs: null },
};

/**
 * What the routers besides this one hold, as an agent reports it; `counted`: this one is in the sum, which matters
 * where the agent does not tell its place.
 */
export function otherQueues(reported: QueuedWork, counted: boolean): OtherQueues {
  const { place, routersQueueing, topPriority } = reported;
  const meanMs = reported.prefillMs / Math.max(1, reported.requests);
  if (place !== undefined) {
    const { othersTop: topPriority, othersAtTop: atTop, before, turnMs = null } = place;
    if (topPriority === null) return NO_OTHERS;
    const { othersRequests: requests = null, oldestAgeMs = null } = place;
    return { topPriority, atTop, before, meanMs, turnMs, requests, oldestAgeMs };
  }
  const others = routersQueueing - (counted ? 1 : 0);
  if (others <= 0 || topPriority === null) return NO_OTHERS;
  return { ...NO_OTHERS, topPriority, atTop: others, meanMs };
}

/**
 * By so much the order of age may be broken for a turn that comes sooner, ms: some times what a request waits in a pool
 * that is about as fast as its clients.
 */
const MUCH_YOUNGER_MS = 1_500;
/** Room that was told so many turns ago others have taken since: not even the oldest goes by it. */
const FRESH_TURNS = 5;

export interface ShareInput {
  readonly others: OtherQueues;
  readonly holdMs: number;
  /** Age of the target's last report, ms. */
  readonly reportAgeMs: number;
  /** Reports come too late to share its room by them. */
  readonly blind: boolean;
  /** More of the pool's targets have room than requests wait in other routers. */
  readonly roomForAll: () => boolean;
  /** Age of the request, its length allowed for, ms; null where it claims no place among those that wait elsewhere. */
  readonly ownAgeMs: number | null;
  /** The same of the oldest that waits in this router at its priority, where that is older. */
  readonly heldAgeMs: number | null;
  /** The target alone holds most of its prompt. */
  readonly isHome: boolean;
  /** Reports have told of room for so long, ms. */
  readonly roomForMs: number;
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

/** Whether others' queues bind work of the priority at all: less urgent ones do not, nor do reports that come too late. */
export function isBound(
  { topPriority }: OtherQueues,
  { priority, blind }: { readonly priority: number; readonly blind: boolean },
): boolean {
  if (topPriority === null || priority < topPriority) return false;
  return !blind || priority !== topPriority;
}

/**
 * ms until this router's share of the target allows one more request of the priority, if nothing else happens: 0 is
 * now, null where time alone does not bring it.
 */
export function shareOpensInMs(input: ShareInput, priority: number): number | null {
  const { others, holdMs, idleMs, patienceMs } = input;
  if (others.topPriority === null || !isBound(others, { priority, blind: input.blind })) return 0;
  if (others.turnMs !== null && priority === others.topPriority) {
    const isFresh = input.reportAgeMs < FRESH_TURNS * others.turnMs;
    if (isFresh && (youngerByMs(input, input.ownAgeMs) ?? Infinity) <= 0) return 0;
    if (input.isHome || input.roomForAll()) return 0;
    const isLast = others.before > others.atTop / 2;
    const isLate =
      (youngerByMs(input, input.heldAgeMs) ?? 0) > MUCH_YOUNGER_MS && input.roomForMs < patienceMs;
    if (input.reportAgeMs < others.turnMs && !isLast && !isLate) return 0;
    return idleMs === null ? null : Math.max(0, patienceMs - idleMs);
  }
  const roomMs = holdMs - input.waitMs;
  const shareMs = roomMs / (others.atTop + 1);
  if (input.ownMs > 0 && input.ownMs >= shareMs) return null;
  const behind = priority > others.topPriority;
  const before = behind ? others.atTop : others.before;
  const takenMs = before * Math.max(others.meanMs, shareMs);
  const noSlot = input.freeSlots !== null && before >= input.freeSlots;
  const givesWayMs = behind ? 2 * patienceMs : noSlot ? patienceMs : 0;
  const needMs = Math.max(before === 0 ? 0 : takenMs - roomMs, givesWayMs);
  if (roomMs > 0 && needMs <= 0) return 0;
  return idleMs === null ? null : Math.max(0, needMs - idleMs);
}

/** By how much what is so old is younger than the oldest that waits elsewhere, ms; null while unknown. */
function youngerByMs({ others, reportAgeMs }: ShareInput, ageMs: number | null): number | null {
  const { oldestAgeMs } = others;
  return oldestAgeMs === null || ageMs === null ? null : oldestAgeMs + reportAgeMs - ageMs;
}
