// A region as the global tier meets it, in virtual time: replicas that work off prefill one request after the other, and
// routers that hold back what the replicas cannot begin soon. Small, so that sixty replicas run for hours and many seeds;
// what it tells and grants is made by the very code that regions use (region-router.ts).
//
//   a request  waits in its router while every replica has `holdMs` of work; then it goes to the one with least
//   its work   uncached tokens of its prompt / tokensPerMs: what the region has kept of its conversation is not computed
//   first token  when its work is done

import type { Timeline } from '../world/timeline.ts';

export interface RegionShape {
  readonly replicas: number;
  readonly routers: number;
  /** Prefill of one replica. */
  readonly tokensPerMs: number;
  readonly holdMs: number;
  /** From so much of a queue on it asks for `retryMs`, ms; absent: it never does. */
  readonly refusesAtMs?: number;
  readonly retryMs?: number;
}

export interface RegionWork {
  /** Names its conversation here, and how many tokens of it are to be in the cache afterwards. */
  readonly conversation: number;
  readonly promptTokens: number;
  readonly answerTokens: number;
  firstToken(cachedTokens: number): void;
  failed(): void;
  refused(retryAfterMs: number): void;
}

interface Waiting {
  readonly work: RegionWork;
  readonly cachedTokens: number;
  readonly workMs: number;
  readonly sinceMs: number;
}

export class RegionModel {
  readonly shape: RegionShape;
  readonly #timeline: Timeline;
  readonly #busyUntilMs: Float64Array;
  /** One queue a router. */
  readonly #queues: Waiting[][];
  readonly #kept = new Map<number, number>();
  readonly #open = new Set<RegionWork>();
  readonly #watchers = new Map<number, (workMs: number) => void>();
  #turn = 0;
  #woken = false;
  #alive = true;
  /** What has become due while it stood still; null: it does not. */
  #due: (() => void)[] | null = null;
  /** Served so far. */
  firstTokens = 0;

  constructor(timeline: Timeline, shape: RegionShape) {
    this.shape = shape;
    this.#timeline = timeline;
    this.#busyUntilMs = new Float64Array(shape.replicas);
    this.#queues = Array.from({ length: shape.routers }, () => []);
  }

  /** `sees`: the work of each request that comes to a router. */
  watch(router: number, sees: (workMs: number) => void): void {
    this.#watchers.set(router, sees);
  }

  get alive(): boolean {
    return this.#alive;
  }

  get still(): boolean {
    return this.#due !== null;
  }

  /** Nothing comes from it any more, and nothing goes on in it, until it is thawed. */
  freeze(): void {
    this.#due ??= [];
  }

  thaw(): void {
    const due = this.#due ?? [];
    this.#due = null;
    for (const task of due) task();
    this.#move();
  }

  /** Everything under way fails, and nothing more is taken, until it is revived with empty caches. */
  kill(): void {
    this.#alive = false;
    const open = [...this.#open];
    this.#open.clear();
    for (const queue of this.#queues) queue.length = 0;
    this.#busyUntilMs.fill(0);
    this.#kept.clear();
    for (const work of open) work.failed();
  }

  revive(): void {
    this.#alive = true;
  }

  take(router: number, work: RegionWork): void {
    if (!this.#alive) {
      work.failed();
      return;
    }
    const { refusesAtMs = Number.POSITIVE_INFINITY, retryMs = 1_000 } = this.shape;
    if (!this.still && this.queueMs() >= refusesAtMs) {
      work.refused(retryMs);
      return;
    }
    this.#open.add(work);
    const kept = this.#kept.get(work.conversation) ?? 0;
    const cachedTokens = Math.min(kept, work.promptTokens - 1);
    const workMs = (work.promptTokens - cachedTokens) / this.shape.tokensPerMs;
    this.#watchers.get(router)?.(workMs);
    this.#queues[router]?.push({ work, cachedTokens, workMs, sinceMs: this.#timeline.nowMs });
    this.#move();
  }

  abandon(work: RegionWork): void {
    if (!this.#open.delete(work)) return;
    for (const queue of this.#queues) {
      const at = queue.findIndex((each) => each.work === work);
      if (at >= 0) queue.splice(at, 1);
    }
  }

  /** Of all replicas, ms. */
  waitingMs(): number {
    const { nowMs } = this.#timeline;
    let sum = 0;
    for (const until of this.#busyUntilMs) sum += Math.max(0, until - nowMs);
    return sum;
  }

  queuedMs(router: number): number {
    return (this.#queues[router] ?? []).reduce((sum, { workMs }) => sum + workMs, 0);
  }

  queuedRequests(router: number): number {
    return this.#queues[router]?.length ?? 0;
  }

  /** The truth: ms until work that comes now is begun. */
  queueMs(): number {
    let sum = this.waitingMs();
    for (let router = 0; router < this.#queues.length; router += 1) sum += this.queuedMs(router);
    return sum / this.shape.replicas;
  }

  #move(): void {
    while (!this.still) {
      const next = this.#nextQueue();
      if (next === null) return;
      const place = this.#idlest();
      const untilMs = this.#busyUntilMs[place] ?? 0;
      const { nowMs } = this.#timeline;
      if (untilMs - nowMs >= this.shape.holdMs) {
        this.#wakeAt(untilMs - this.shape.holdMs);
        return;
      }
      this.#begin(place, next.shift() as Waiting);
    }
  }

  #begin(place: number, { work, cachedTokens, workMs }: Waiting): void {
    const { nowMs } = this.#timeline;
    const doneMs = Math.max(nowMs, this.#busyUntilMs[place] ?? 0) + workMs;
    this.#busyUntilMs[place] = doneMs;
    const done = (): void => {
      if (!this.#open.delete(work)) return;
      this.#kept.set(work.conversation, work.promptTokens + work.answerTokens);
      this.firstTokens += 1;
      work.firstToken(cachedTokens);
    };
    this.#timeline.at(doneMs, () => {
      if (this.#due === null) done();
      else this.#due.push(done);
    });
  }

  /** Routers take turns. */
  #nextQueue(): Waiting[] | null {
    for (let k = 0; k < this.#queues.length; k += 1) {
      this.#turn = (this.#turn + 1) % this.#queues.length;
      const queue = this.#queues[this.#turn];
      if (queue !== undefined && queue.length > 0) return queue;
    }
    return null;
  }

  #idlest(): number {
    let best = 0;
    for (let k = 1; k < this.#busyUntilMs.length; k += 1) {
      if ((this.#busyUntilMs[k] ?? 0) < (this.#busyUntilMs[best] ?? 0)) best = k;
    }
    return best;
  }

  #wakeAt(atMs: number): void {
    if (this.#woken) return;
    this.#woken = true;
    // A little after: rounding would wake it before there is room.
    this.#timeline.at(atMs + 1e-3, () => {
      this.#woken = false;
      this.#move();
    });
  }
}
