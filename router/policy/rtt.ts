// The round trip to a region, on its links and on connections that requests take.
//
//   least    of each kind the least that was measured lately: every disturbance makes one longer, so the least tells the
//            distance, and which region is home does not change with the load
//   greater  of the two kinds: whatever accepts connections on the way (a balancer, a sidecar) makes the region seem as near
//            as itself, and nothing makes both kinds shorter
//   distance what it was when it last changed by more than a fifth and two ms: of two regions that are as near, one stays
//            home

const WINDOW_MS = 30_000;
const CHANGED_RATIO = 0.2;
const CHANGED_MS = 2;

/** On what a round trip was measured: a ping on a link, or the opening of a connection for requests. */
export type RttOver = 'link' | 'connection';

export class RegionRtt {
  readonly #least = { link: new LeastRtt(), connection: new LeastRtt() };

  #distanceMs: number | null = null;

  note(rttMs: number, over: RttOver, nowMs: number): void {
    this.#least[over].note(rttMs, nowMs);
    const now = this.valueMs;
    const before = this.#distanceMs;
    if (now === null) return;
    const least = Math.max(CHANGED_MS, CHANGED_RATIO * (before ?? 0));
    if (before === null || Math.abs(now - before) > least) this.#distanceMs = now;
  }

  /** ms, by which regions are told apart; null where none was measured. */
  get distanceMs(): number | null {
    return this.#distanceMs;
  }

  /** ms; null where none was measured. */
  get valueMs(): number | null {
    const known = [this.#least.link.valueMs, this.#least.connection.valueMs].filter(
      (each) => each !== null,
    );
    return known.length === 0 ? null : Math.max(...known);
  }
}

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
