// Requests that wait in a global router, each for the pool that it would go to. What is asked at every event takes no longer
// for there being many of them.
//
//   due   each is looked at again at a time of its own, at the latest when it may wait no longer
//   held  those that wait for one pool are let out one by one, in the order of a region's queue (`policy/queue.ts`): the
//         more urgent first, deadlines that are lost otherwise, then the tenant that has been let out the fewest tokens
//   full  who takes most gives way (`policy/waiting-shares.ts`)
//
// A request is in the room once, held by one pool or by none.

import { BinaryHeap } from '../../shared/lib/binary-heap.ts';
import type { RequestId } from '../../shared/model/ids.ts';
import { NOBODY_PAST } from '../policy/queue-item.ts';
import { ReleaseQueue } from '../policy/queue.ts';
import { WaitingShares, type Waiting, type WaitingLimits } from '../policy/waiting-shares.ts';
import type { RegionPool, RequestState } from './core-state.ts';

/** What has left may stay in a heap until its turn; so much more than is left, and the heap is made anew. */
const SLACK = 64;
/** Of its age, what a request of a tenant is ahead of a shorter one of the same. */
const AGE_CREDIT = 0.25;
/** A deadline is pressing that is lost unless the request goes within so long, ms: two looks at what waits. */
const PRESS_WITHIN_MS = 500;

interface Due {
  readonly request: RequestState;
  readonly atMs: number;
}

/** What a request waits for. */
export interface WaitsFor {
  readonly dueMs: number;
  /** Null: for its own time alone. */
  readonly pool: RegionPool | null;
  /** Prefill that it would take there, ms. */
  readonly workMs: number;
  /** Of those, uncached: what its tenant is charged. */
  readonly tokens: number;
}

export class WaitingRoom {
  /** In their order of arrival. */
  readonly #all = new Map<RequestId, RequestState>();
  readonly #dues = new BinaryHeap<Due>((a, b) => a.atMs < b.atMs);
  readonly #held = new Map<RegionPool, ReleaseQueue>();
  readonly #shares = new WaitingShares();

  get size(): number {
    return this.#all.size;
  }

  get bytes(): number {
    return this.#shares.bytes;
  }

  has(id: RequestId): boolean {
    return this.#all.has(id);
  }

  /** Those who would have to leave for it, none where there is room; null: it may not come in. Changes nothing. */
  givingWayTo(request: RequestState, limits: WaitingLimits): readonly RequestState[] | null {
    const going = this.#shares.givingWayTo(waitingOf(request), limits);
    return going === null ? null : going.flatMap(({ id }) => this.#all.get(id as RequestId) ?? []);
  }

  /** It comes in, or waits for something else from now on. */
  wait(request: RequestState, waitsFor: WaitsFor): void {
    const { dueMs, pool } = waitsFor;
    if (!this.#all.has(request.request.id)) {
      this.#all.set(request.request.id, request);
      this.#shares.add(waitingOf(request));
    }
    if (request.againMs !== dueMs) this.#dues.push({ request, atMs: dueMs });
    request.againMs = dueMs;
    this.#release(request, false);
    if (pool !== null) this.#hold(request, pool, waitsFor);
    if (this.#dues.size > 2 * this.#all.size + SLACK) this.#dues.prune(isStillDue);
  }

  /** No matter whether it is in the room. `served`: it goes where it wanted to, at its tenant's charge. */
  leave(request: RequestState, { served }: { readonly served: boolean }): void {
    if (!this.#all.delete(request.request.id)) return;
    this.#shares.remove(waitingOf(request));
    request.againMs = null;
    this.#release(request, served);
  }

  /** Everybody, the more urgent first, then who came first. They stay. */
  everybody(): RequestState[] {
    return [...this.#all.values()].sort(compared);
  }

  /** Those whose time has come, in their order. They stay, and come due once. */
  takeDue(nowMs: number): RequestState[] {
    const due: RequestState[] = [];
    for (let next = this.#dues.peek(); next !== undefined; next = this.#dues.peek()) {
      if (next.atMs > nowMs) break;
      this.#dues.pop();
      if (!isStillDue(next)) continue;
      next.request.againMs = null;
      due.push(next.request);
    }
    return due.sort(compared);
  }

  /** Pools that hold somebody back. */
  pools(): RegionPool[] {
    return [...this.#held.keys()];
  }

  /** The next that the pool lets out; null: nobody waits for it. */
  next(pool: RegionPool, nowMs: number): RequestState | null {
    const options = { nowMs, pressWithinMs: PRESS_WITHIN_MS, past: NOBODY_PAST };
    const item = this.#held.get(pool)?.next(options) ?? null;
    return item === null ? null : (this.#all.get(item.id as RequestId) ?? null);
  }

  /** Whom the pool holds back. They stay. */
  heldBy(pool: RegionPool): RequestState[] {
    const ids = [...(this.#held.get(pool)?.ids() ?? [])];
    return ids.flatMap((id) => this.#all.get(id as RequestId) ?? []);
  }

  #hold(request: RequestState, pool: RegionPool, { dueMs, workMs, tokens }: WaitsFor): void {
    const queue = this.#held.get(pool) ?? new ReleaseQueue();
    this.#held.set(pool, queue);
    const { clientDeadlineMs } = request.request;
    const deadlineMs = clientDeadlineMs === null ? null : request.arrivedMs + clientDeadlineMs;
    const { arrivedMs } = request;
    const times = { arrivedMs, prefillMs: workMs, deadlineMs, giveUpMs: dueMs };
    queue.push({ ...waitingOf(request), tokens, ...times }, AGE_CREDIT);
    request.heldBy = pool;
    noteHeld(pool, queue);
  }

  #release(request: RequestState, served: boolean): void {
    const pool = request.heldBy;
    const queue = pool === null ? undefined : this.#held.get(pool);
    if (pool === null || queue === undefined) return;
    request.heldBy = null;
    const { id } = request.request;
    if (served) queue.release(id);
    else queue.remove(id);
    noteHeld(pool, queue);
    if (queue.size === 0) this.#held.delete(pool);
  }
}

function noteHeld(pool: RegionPool, queue: ReleaseQueue): void {
  pool.held = queue.size;
  pool.heldMs = queue.prefillMs;
}

function waitingOf({ request }: RequestState): Waiting {
  const { id, tenant, priority, bodyBytes } = request;
  return { id, tenant, priority, bytes: bodyBytes };
}

function isStillDue({ request, atMs }: Due): boolean {
  return request.againMs === atMs;
}

function compared(a: RequestState, b: RequestState): number {
  return a.request.priority - b.request.priority || a.arrivedMs - b.arrivedMs;
}
