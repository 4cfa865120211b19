// What the other routers' queues leave of a target to this one, from the last report and what was sent since.

import type { ReplicaReport } from '../../shared/model/report.ts';
import { backlogNowMs, type View } from '../policy/sight.ts';
import {
  isBound,
  otherQueues,
  shareOpensInMs,
  type OtherQueues,
  type ShareInput,
} from '../policy/release.ts';
import { reportIntervalMs } from '../policy/report-interval.ts';
import { agedMs } from './core-queued.ts';
import { curveOf, poolCurve, reportedWaitMs, runningNow, unackedMs, viewOf } from './core-load.ts';
import { RoomCount } from './core-room.ts';
import type { PoolState, RegionalState, TargetState } from './core-state.ts';

/** Two reports' way there and back. */
const TRAVEL_MS = 20;

/** For whom a share is asked. */
export interface Asker {
  readonly priority: number;
  /** Its key in the queue's order (policy/queue.ts); null where it stands behind all that other routers tell of. */
  readonly key: number | null;
  /** The same of the oldest that waits here at that priority, where it goes before. */
  readonly heldKey: number | null;
}

/**
 * The shares of a pool's targets at one moment: what is the same for all of them is looked at once, and only where
 * somebody else queues. The pool's roster has been brought up to date, and nothing is sent meanwhile.
 */
export class Shares {
  readonly #state: RegionalState;
  readonly #pool: PoolState;
  readonly #view: View;
  readonly #isCounted: boolean;
  readonly #room: RoomCount;

  constructor(state: RegionalState, pool: PoolState) {
    this.#state = state;
    this.#pool = pool;
    this.#view = viewOf(state, pool);
    this.#isCounted = isCounted(state, pool);
    this.#room = new RoomCount(state, pool);
  }

  /**
   * ms until this router may release the request into the target, as far as other routers go: 0 is now, null where
   * only a report can tell. `isHome`: the target alone holds most of its prompt.
   */
  opensInMs(target: TargetState, asker: Asker, isHome: boolean): number | null {
    const { report } = target;
    if (report === null || !othersQueue(target)) return 0;
    const { priority } = asker;
    const { blind } = this.#view;
    const others = otherQueues(report.queued, this.#isCounted);
    if (!isBound(others, { priority, blind })) return 0;
    return shareOpensInMs(this.#inputOf(target, report, { others, asker, isHome }), priority);
  }

  #inputOf(
    target: TargetState,
    report: ReplicaReport,
    asked: { others: OtherQueues; asker: Asker; isHome: boolean },
  ): ShareInput {
    const state = this.#state;
    const view = this.#view;
    const { nowMs } = state;
    const { others, asker, isHome } = asked;
    const { curve } = curveOf(target, () => poolCurve(this.#pool));
    const ageMs = nowMs - target.receivedMs;
    const leftMs = backlogNowMs(view, reportedWaitMs(target, curve) ?? 0, ageMs);
    const { idleSinceMs, roomSinceMs, released } = target;
    const { requests } = others;
    return {
      others,
      holdMs: view.holdMs,
      reportAgeMs: ageMs,
      blind: view.blind,
      roomForAll: () => requests !== null && this.#room.isMoreThan(requests),
      ownAgeMs: asker.key === null ? null : agedMs(state, asker.key),
      heldAgeMs: asker.heldKey === null ? null : agedMs(state, asker.heldKey),
      isHome,
      roomForMs: roomSinceMs === null ? 0 : nowMs - roomSinceMs,
      waitMs: Math.max(leftMs, report.slotWaitMs ?? 0),
      ownMs: Math.max(released.prefillMs, unackedMs(target, curve)),
      freeSlots: freeSlots(target),
      idleMs: idleSinceMs === null ? null : nowMs - idleSinceMs,
      patienceMs: patienceMs(state),
    };
  }
}

/** Some router holds work back, as its agent tells. */
export function othersQueue({ report, replica }: TargetState): boolean {
  return report !== null && replica.lostMs === null && report.queued.routersQueueing > 0;
}

/** For a request in another router's queue to be sent, and to be seen in reports. */
export function patienceMs({ settings, links }: RegionalState): number {
  return 2 * reportIntervalMs(settings.minReportIntervalMs, links.size) + TRAVEL_MS;
}

/** A report has come: since when the target has nothing to do, and since when it has room. */
export function noteIdle({ nowMs, settings }: RegionalState, target: TargetState): void {
  const { report } = target;
  const slots = freeSlots(target);
  const open = report !== null && (slots === null || slots > 0);
  const waiting = report?.waitingPrefillMs ?? report?.waitingPrefillTokens ?? 0;
  const idle = open && waiting <= 0;
  const room = open && (idle || (report.waitingPrefillMs ?? Infinity) < settings.holdMs);
  target.idleSinceMs = idle ? (target.idleSinceMs ?? nowMs) : null;
  target.roomSinceMs = room ? (target.roomSinceMs ?? nowMs) : null;
}

/** Reports may count this router among those that queue. */
function isCounted(state: RegionalState, { told, countedUntilMs }: PoolState): boolean {
  return told.requests > 0 || state.nowMs < countedUntilMs;
}

function freeSlots(target: TargetState): number | null {
  const max = target.report?.runningMax ?? null;
  const running = runningNow(target);
  return max === null || running === null ? null : Math.max(0, max - running);
}
