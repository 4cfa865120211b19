// Requests that wait in a global router, each for the pool that it would go to. What is asked at every event takes no longer
// for there being many of them.
//
//   due   each is looked at again at a time of its own, at the latest when it may wait no longer
//   held  those that wait for one pool are let out one by one, in their order: the more urgent first, then who came first
//
// A request is in the room once, held by one pool or by none.

import { BinaryHeap } from '../../shared/lib/binary-heap.ts';
import type { RequestId } from '../../shared/model/ids.ts';
import type { RegionPool, RequestState } from './core-state.ts';

/** What has left may stay in a heap until its turn; so much more than is left, and the heap is made anew. */
const SLACK = 64;

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
}

export class WaitingRoom {
  /** In their order of arrival. */
  readonly #all = new Map<RequestId, RequestState>();
  readonly #dues = new BinaryHeap<Due>((a, b) => a.atMs < b.atMs);
  readonly #held = new Map<RegionPool, BinaryHeap<RequestState>>();
  bytes = 0;

  get size(): number {
    return this.#all.size;
  }

  has(id: RequestId): boolean {
    return this.#all.has(id);
  }

  /** It comes in, or waits for something else from now on. */
  wait(request: RequestState, { dueMs, pool, workMs }: WaitsFor): void {
    if (!this.#all.has(request.request.id)) {
      this.#all.set(request.request.id, request);
      this.bytes += request.request.bodyBytes;
    }
    if (request.againMs !== dueMs) this.#dues.push({ request, atMs: dueMs });
    request.againMs = dueMs;
    this.#release(request);
    request.heldBy = pool;
    request.heldMs = workMs;
    if (pool !== null) this.#hold(request, pool);
    if (this.#dues.size > 2 * this.#all.size + SLACK) this.#dues.prune(isStillDue);
  }

  /** No matter whether it is in the room. */
  leave(request: RequestState): void {
    if (!this.#all.delete(request.request.id)) return;
    this.bytes -= request.request.bodyBytes;
    request.againMs = null;
    this.#release(request);
  }

  /** Everybody, in the order in which they are looked at. They stay. */
  everybody(): RequestState[] {
    return [...this.#all.values()].sort(compared);
  }

  /** Those whose time has come, in their order. They stay, and come due once. */
  takeDue(nowMs: number): RequestState[] {
    const due: RequestState[] = [];
    for (let next = this.#dues.peek(); next !== undefined; next = this.#dues.peek()) {
      if (next.atMs > nowMs) break;
      this.#dues.pop();
      if (isStillDue(next)) due.push(next.request);
    }
    return due.sort(compared);
  }

  /** Pools that hold somebody back. */
  pools(): RegionPool[] {
    return [...this.#held.keys()];
  }

  /** The next that the pool holds back; null: nobody is left. */
  firstHeld(pool: RegionPool): RequestState | null {
    const heap = this.#held.get(pool);
    for (let next = heap?.peek(); next !== undefined; next = heap?.peek()) {
      if (next.heldBy === pool) return next;
      heap?.pop();
    }
    this.#held.delete(pool);
    return null;
  }

  /** Lets the next out of what the pool holds back. It stays in the room, and has to be placed. */
  takeHeld(pool: RegionPool): void {
    const first = this.firstHeld(pool);
    if (first === null) return;
    this.#held.get(pool)?.pop();
    this.#release(first);
  }

  /** Whom the pool holds back. They stay. */
  heldBy(pool: RegionPool): RequestState[] {
    const all = [...(this.#held.get(pool)?.values() ?? [])];
    return [...new Set(all)].filter(({ heldBy }) => heldBy === pool);
  }

  #hold(request: RequestState, pool: RegionPool): void {
    const heap = this.#held.get(pool) ?? new BinaryHeap<RequestState>((a, b) => compared(a, b) < 0);
    this.#held.set(pool, heap);
    heap.push(request);
    pool.held += 1;
    pool.heldMs += request.heldMs;
    if (heap.size > 2 * pool.held + SLACK) this.#pack(pool, heap);
  }

  /** Of a request that left and came again the heap has two entries. */
  #pack(pool: RegionPool, heap: BinaryHeap<RequestState>): void {
    const seen = new Set<RequestState>();
    heap.prune((request) => {
      if (request.heldBy !== pool || seen.has(request)) return false;
      seen.add(request);
      return true;
    });
  }

  #release(request: RequestState): void {
    const pool = request.heldBy;
    if (pool === null) return;
    request.heldBy = null;
    pool.held -= 1;
    pool.heldMs = pool.held === 0 ? 0 : pool.heldMs - request.heldMs;
    if (pool.held === 0) this.#held.delete(pool);
  }
}

function isStillDue({ request, atMs }: Due): boolean {
  return request.againMs === atMs;
}

function compared(a: RequestState, b: RequestState): number {
  return a.request.priority - b.request.priority || a.arrivedMs - b.arrivedMs;
}
