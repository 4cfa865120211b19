// What this router has sent to a pool and no report includes yet, as waiting work.
//
//   backlog(t) = max(0, backlog − ready · passed) + work of each send, in their order
//              = max(0, max over k of (work of k and all later sends − ready · (t − when k was sent)))
//
// Reports come once a second: of what was sent since, most has been served, and counting it in full would take every
// second's flow for a queue (0.8 of capacity would look like half a second of waiting). What the ready replicas have had
// time to serve does not count, so that a steady flow below capacity adds nothing and a burst all of itself.
//
// Sends leave in any order (a report, a first token), and every arrival asks: the second form is kept in a tree over the
// sends in their order, whose nodes hold the work below them and its greatest `work + ready · sent`. A send, an end and
// a question take log₂(sends) steps at most; a pool whose replicas have become more or fewer, one pass.

/** Sends that are kept: the oldest go first. */
const SENDS_MAX = 100_000;
const FIRST_LEAVES = 64;
const NONE = Number.NEGATIVE_INFINITY;

export class OwnSends {
  /** Leaf of each send, oldest first. */
  readonly #leafOf = new Map<number, number>();
  #leaves = 0;
  /** Leaves in use or left; the next send takes the one after. */
  #used = 0;
  #servedPerMs = 1;
  /** Times are kept from here on: small figures add up exactly. */
  #baseMs = 0;
  /** By node: the root is 1, the children of k are 2k and 2k + 1, leaves come last. */
  #workMs = new Float64Array(0);
  #greatest = new Float64Array(0);
  /** By leaf. */
  #atMs = new Float64Array(0);

  get count(): number {
    return this.#leafOf.size;
  }

  /** `ready`: replicas that serve it side by side. */
  sent(seq: number, workMs: number, at: { readonly nowMs: number; readonly ready: number }): void {
    this.seen(seq);
    if (this.#leafOf.size >= SENDS_MAX) this.#dropOldest();
    this.#serve(Math.max(1, at.ready));
    if (this.#used === this.#leaves) this.#pack(at.nowMs);
    const leaf = this.#used;
    this.#used += 1;
    this.#leafOf.set(seq, leaf);
    this.#atMs[leaf] = at.nowMs - this.#baseMs;
    this.#set(leaf, workMs);
  }

  /** It is in a report, or over. */
  seen(seq: number): void {
    const leaf = this.#leafOf.get(seq);
    if (leaf === undefined) return;
    this.#leafOf.delete(seq);
    this.#set(leaf, null);
  }

  /** Nobody will tell of these any more. */
  lapse(beforeMs: number): void {
    for (const [seq, leaf] of this.#leafOf) {
      if ((this.#atMs[leaf] as number) + this.#baseMs > beforeMs) return;
      this.seen(seq);
    }
  }

  /** Work of all replicas together, ms. */
  backlogMs(nowMs: number, ready: number): number {
    if (this.#leafOf.size === 0) return 0;
    this.#serve(Math.max(1, ready));
    return Math.max(0, (this.#greatest[1] as number) - this.#servedPerMs * (nowMs - this.#baseMs));
  }

  #dropOldest(): void {
    const [oldest] = this.#leafOf.keys();
    if (oldest !== undefined) this.seen(oldest);
  }

  /** Null: it is gone. */
  #set(leaf: number, workMs: number | null): void {
    let node = this.#leaves + leaf;
    this.#workMs[node] = workMs ?? 0;
    this.#greatest[node] =
      workMs === null ? NONE : workMs + this.#servedPerMs * (this.#atMs[leaf] as number);
    for (node >>= 1; node > 0; node >>= 1) this.#join(node);
  }

  #join(node: number): void {
    const [early, late] = [2 * node, 2 * node + 1];
    const lateMs = this.#workMs[late] as number;
    this.#workMs[node] = (this.#workMs[early] as number) + lateMs;
    this.#greatest[node] = Math.max(
      this.#greatest[late] as number,
      (this.#greatest[early] as number) + lateMs,
    );
  }

  #serve(servedPerMs: number): void {
    if (servedPerMs === this.#servedPerMs) return;
    this.#servedPerMs = servedPerMs;
    for (const leaf of this.#leafOf.values()) {
      const node = this.#leaves + leaf;
      this.#greatest[node] =
        (this.#workMs[node] as number) + servedPerMs * (this.#atMs[leaf] as number);
    }
    this.#joinAll();
  }

  #joinAll(): void {
    for (let node = this.#leaves - 1; node > 0; node -= 1) this.#join(node);
  }

  /** Every leaf is taken: sends that have left make room, and where half of the leaves are still in use, there are twice as many. */
  #pack(nowMs: number): void {
    const kept = [...this.#leafOf].map(([seq, leaf]) => ({
      seq,
      workMs: this.#workMs[this.#leaves + leaf] as number,
      atMs: (this.#atMs[leaf] as number) + this.#baseMs,
    }));
    const before = this.#leaves;
    if (2 * kept.length >= before) this.#leaves = Math.max(FIRST_LEAVES, 2 * before);
    this.#baseMs = kept[0]?.atMs ?? nowMs;
    this.#workMs = new Float64Array(2 * this.#leaves);
    this.#greatest = new Float64Array(2 * this.#leaves).fill(NONE);
    this.#atMs = new Float64Array(this.#leaves);
    for (const [leaf, { seq, workMs, atMs }] of kept.entries()) {
      this.#leafOf.set(seq, leaf);
      this.#atMs[leaf] = atMs - this.#baseMs;
      this.#workMs[this.#leaves + leaf] = workMs;
      this.#greatest[this.#leaves + leaf] =
        workMs + this.#servedPerMs * (this.#atMs[leaf] as number);
    }
    this.#used = kept.length;
    this.#joinAll();
  }
}
