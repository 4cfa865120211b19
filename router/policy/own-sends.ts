// What this router has sent to a pool and no report includes yet, as waiting work.
//
//   backlog(t) = max(0, backlog − ready · passed) + work of each send, in their order
//
// Reports come once a second: of what was sent since, most has been served, and counting it in full would take every
// second's flow for a queue (0.8 of capacity would look like half a second of waiting). What the ready replicas have had
// time to serve does not count, so that a steady flow below capacity adds nothing and a burst all of itself.

interface OwnSend {
  readonly workMs: number;
  readonly atMs: number;
}

/** Sends that are kept: the oldest go first. */
const SENDS_MAX = 100_000;

export class OwnSends {
  readonly #sends = new Map<number, OwnSend>();
  #backlogMs = 0;
  #countedMs = 0;
  #stale = false;

  get count(): number {
    return this.#sends.size;
  }

  /** `ready`: replicas that serve it side by side. */
  sent(seq: number, workMs: number, at: { readonly nowMs: number; readonly ready: number }): void {
    this.#backlogMs = this.backlogMs(at.nowMs, at.ready) + workMs;
    this.#countedMs = at.nowMs;
    this.#sends.set(seq, { workMs, atMs: at.nowMs });
    if (this.#sends.size <= SENDS_MAX) return;
    const [oldest] = this.#sends.keys();
    if (oldest !== undefined) this.#sends.delete(oldest);
  }

  /** It is in a report, or over. */
  seen(seq: number): void {
    if (this.#sends.delete(seq)) this.#stale = true;
  }

  /** Nobody will tell of these any more. */
  lapse(beforeMs: number): void {
    for (const [seq, { atMs }] of this.#sends) {
      if (atMs > beforeMs) return;
      this.seen(seq);
    }
  }

  /** Work of all replicas together, ms. */
  backlogMs(nowMs: number, ready: number): number {
    const servedPerMs = Math.max(1, ready);
    if (this.#stale) this.#recount(servedPerMs);
    return Math.max(0, this.#backlogMs - servedPerMs * Math.max(0, nowMs - this.#countedMs));
  }

  #recount(servedPerMs: number): void {
    this.#stale = false;
    let backlogMs = 0;
    let countedMs = 0;
    for (const { workMs, atMs } of this.#sends.values()) {
      backlogMs = Math.max(0, backlogMs - servedPerMs * (atMs - countedMs)) + workMs;
      countedMs = atMs;
    }
    this.#backlogMs = backlogMs;
    this.#countedMs = countedMs;
  }
}
