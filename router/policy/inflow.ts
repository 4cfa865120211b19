// How fast work comes to a pool, by priority, over the last seconds: what will come ahead of a request that waits.

/** Time constant, ms. */
const MEMORY_MS = 15_000;
/** A rate is not told from less. */
const SEEN_MIN_MS = 2_000;

interface Level {
  readonly priority: number;
  requests: number;
  workMs: number;
}

export interface InflowRate {
  readonly requestsPerMs: number;
  /** Prefill ms per ms. */
  readonly workPerMs: number;
}

/** Bounded by the number of priorities. */
export class Inflow {
  readonly #levels: Level[] = [];
  #startedMs: number | null = null;
  #atMs = 0;

  note(priority: number, workMs: number, nowMs: number): void {
    this.#startedMs ??= nowMs;
    this.#decay(nowMs);
    let level = this.#levels.find((each) => each.priority === priority);
    if (level === undefined) {
      level = { priority, requests: 0, workMs: 0 };
      this.#levels.push(level);
    }
    level.requests += 1;
    level.workMs += workMs;
  }

  /** Of what is more urgent than this priority. */
  before(priority: number, nowMs: number): InflowRate {
    const kept = this.#kept(nowMs);
    let requests = 0;
    let workMs = 0;
    for (const level of this.#levels) {
      if (level.priority >= priority) continue;
      requests += kept * level.requests;
      workMs += kept * level.workMs;
    }
    const seenMs = Math.max(SEEN_MIN_MS, nowMs - (this.#startedMs ?? nowMs));
    const overMs = MEMORY_MS * (1 - Math.exp(-seenMs / MEMORY_MS));
    return { requestsPerMs: requests / overMs, workPerMs: workMs / overMs };
  }

  #decay(nowMs: number): void {
    const kept = this.#kept(nowMs);
    this.#atMs = nowMs;
    for (const level of this.#levels) {
      level.requests *= kept;
      level.workMs *= kept;
    }
  }

  #kept(nowMs: number): number {
    return Math.exp(-Math.max(0, nowMs - this.#atMs) / MEMORY_MS);
  }
}
