// The round trip to a region: the least that was measured lately. Every disturbance makes one longer and none makes it
// shorter, so the least tells the distance, and which region is home does not change with the load.

const WINDOW_MS = 30_000;

export class LeastRtt {
  #current = Number.POSITIVE_INFINITY;
  #previous = Number.POSITIVE_INFINITY;
  #turnedMs = Number.NEGATIVE_INFINITY;

  note(rttMs: number, nowMs: number): void {
    if (nowMs - this.#turnedMs >= WINDOW_MS) {
      this.#previous = this.#current;
      this.#current = Number.POSITIVE_INFINITY;
      this.#turnedMs = nowMs;
    }
    this.#current = Math.min(this.#current, Math.max(0, rttMs));
  }

  /** ms; null where none was measured. What is old stays: a region does not come nearer by silence. */
  get valueMs(): number | null {
    const least = Math.min(this.#current, this.#previous);
    return Number.isFinite(least) ? least : null;
  }
}
