// When those who were turned away are told to come back, so that there is room for them then.
//
//   told = max(1 s, until there is room for one more) + SPREAD · work promised before / rate     1 to 60 s, plus jitter
//
// Promised work is prefill ms of those told and not yet due; it takes 1/SPREAD of what the pool can do, the rest is for
// who comes anew. Around an appointment its room is kept: who comes for the first time waits for that much less. An
// appointment that nobody keeps lapses.

import type { Random } from '../../shared/lib/random.ts';

export const RETRY_MIN_MS = 1_000;
export const RETRY_MAX_MS = 60_000;
const JITTER = 0.1;
const SPREAD = 1.5;
/** Room is kept from so long before an appointment until so long after it, ms. */
const AROUND_MS = 1_000;
const BUCKET_MS = 500;
const BUCKETS = 160;

interface Level {
  readonly priority: number;
  /** Work by when it is due, a ring over time. */
  readonly dueMs: Float64Array;
}

/** ms until a retry makes sense where nothing is promised. */
export function retryAfterMs(roomInMs: number, random: Random): number {
  const within = Math.min(RETRY_MAX_MS, Math.max(RETRY_MIN_MS, roomInMs));
  return Math.min(RETRY_MAX_MS, within * (1 + JITTER * random.next()));
}

/** Bounded by the number of priorities; time never goes back. */
export class Promises {
  readonly #levels: Level[] = [];
  /** Buckets before this one are empty. */
  #first = 0;

  /** Gives an appointment to `workMs` of prefill. `rate`: what is done of it per ms. */
  give(
    asked: { readonly priority: number; readonly workMs: number; readonly roomInMs: number },
    now: { readonly nowMs: number; readonly rate: number; readonly random: Random },
  ): number {
    const { nowMs, rate, random } = now;
    const before = this.#sum(asked.priority, nowMs, nowMs + 2 * RETRY_MAX_MS);
    const spreadMs = (SPREAD * before) / Math.max(rate, 1e-3);
    const afterMs = retryAfterMs(Math.max(RETRY_MIN_MS, asked.roomInMs) + spreadMs, random);
    const { dueMs } = this.#level(asked.priority);
    const at = Math.floor((nowMs + afterMs) / BUCKET_MS) % BUCKETS;
    dueMs[at] = (dueMs[at] as number) + asked.workMs;
    return afterMs;
  }

  /** Work of this priority or a more urgent one whose time is about now. */
  nearMs(priority: number, nowMs: number): number {
    return this.#sum(priority, nowMs - AROUND_MS, nowMs + AROUND_MS);
  }

  /** One that was turned away has come: its room is no longer kept. */
  kept(asked: { readonly priority: number; readonly workMs: number }, nowMs: number): void {
    this.#forget(nowMs);
    const { dueMs } = this.#level(asked.priority);
    let left = asked.workMs;
    for (let at = this.#first; left > 0 && at * BUCKET_MS < nowMs + AROUND_MS; at += 1) {
      const taken = Math.min(left, dueMs[at % BUCKETS] as number);
      dueMs[at % BUCKETS] = (dueMs[at % BUCKETS] as number) - taken;
      left -= taken;
    }
  }

  #sum(priority: number, fromMs: number, untilMs: number): number {
    this.#forget(fromMs);
    const first = Math.max(this.#first, Math.floor(fromMs / BUCKET_MS));
    const end = Math.min(first + BUCKETS, Math.ceil(untilMs / BUCKET_MS));
    let sum = 0;
    for (const level of this.#levels) {
      if (level.priority > priority) continue;
      for (let at = first; at < end; at += 1) sum += level.dueMs[at % BUCKETS] as number;
    }
    return sum;
  }

  /** What is long due has lapsed: its bucket is that of a time to come. */
  #forget(nowMs: number): void {
    const first = Math.floor((nowMs - AROUND_MS) / BUCKET_MS);
    if (first <= this.#first) return;
    for (const { dueMs } of this.#levels) {
      for (let at = Math.max(this.#first, first - BUCKETS); at < first; at += 1) {
        dueMs[at % BUCKETS] = 0;
      }
    }
    this.#first = first;
  }

  #level(priority: number): Level {
    const found = this.#levels.find((level) => level.priority === priority);
    if (found !== undefined) return found;
    const level = { priority, dueMs: new Float64Array(BUCKETS) };
    this.#levels.push(level);
    return level;
  }
}
