// The nodes of a prefix index: a tree of chunks in typed arrays, in one list by last touch.
//
// Touching goes from a node up to its root, so a parent is always younger than its children and the oldest
// node never has one: evicting from the old end is evicting leaves first.
//
// Invariants: a node's parent lives as long as it does; the list is ordered by `touchMs`.

import { WordPairMap } from '../../shared/lib/word-pair-map.ts';

export const NONE = -1;

export const FLAGS = {
  /** The end of a prompt with its answer, not a chunk. */
  leaf: 1,
  /** Some request's first token has vouched for it. */
  confirmed: 2,
  /** Routers have been told of it. */
  published: 4,
  /** It stands in the list of what routers have still to be told. */
  pending: 8,
  /** A leaf whose conversation went on: its answer is in later chunks. */
  continued: 16,
} as const;

export class PrefixNodes {
  readonly map = new WordPairMap();
  low = new Uint32Array(0);
  high = new Uint32Array(0);
  parent = new Int32Array(0);
  depth = new Uint32Array(0);
  children = new Uint32Array(0);
  pins = new Uint32Array(0);
  flags = new Uint8Array(0);
  /** Grows when a slot is used anew: tells a node from an earlier one in its slot. */
  birth = new Uint32Array(0);
  touchMs = new Float64Array(0);
  /** Of leaves: tokens of prompt (-1 unknown) and answer, and what they add to occupancy. */
  promptTokens = new Float64Array(0);
  answerTokens = new Float64Array(0);
  weight = new Float64Array(0);
  /** Scratch of the working set's walk. */
  mark = new Uint32Array(0);
  chunks = 0;
  private newer = new Int32Array(0);
  private older = new Int32Array(0);
  private newest = NONE;
  private oldest = NONE;
  private readonly free: number[] = [];
  private used = 0;

  get size(): number {
    return this.map.size;
  }

  get newestNode(): number {
    return this.newest;
  }

  get oldestNode(): number {
    return this.oldest;
  }

  olderThan(node: number): number {
    return this.older[node] ?? NONE;
  }

  has(node: number, flag: number): boolean {
    return ((this.flags[node] ?? 0) & flag) !== 0;
  }

  put(node: number, flag: number): void {
    this.flags[node] = (this.flags[node] ?? 0) | flag;
  }

  unset(node: number, flag: number): void {
    this.flags[node] = (this.flags[node] ?? 0) & ~flag;
  }

  /** A new node at the young end (or the old one), under `parent`. */
  create(
    key: { readonly low: number; readonly high: number },
    place: { readonly parent: number; readonly leaf: boolean; readonly young: boolean },
    nowMs: number,
  ): number {
    const node = this.free.pop() ?? this.take();
    const { parent, leaf } = place;
    this.low[node] = key.low;
    this.high[node] = key.high;
    this.parent[node] = parent;
    this.depth[node] = parent === NONE ? 0 : (this.depth[parent] ?? 0) + 1;
    this.children[node] = 0;
    this.pins[node] = 0;
    this.flags[node] = leaf ? FLAGS.leaf : 0;
    this.birth[node] = (this.birth[node] ?? 0) + 1;
    this.touchMs[node] = nowMs;
    this.promptTokens[node] = -1;
    this.answerTokens[node] = 0;
    this.weight[node] = 0;
    if (parent !== NONE) this.children[parent] = (this.children[parent] ?? 0) + 1;
    if (!leaf) this.chunks += 1;
    this.map.set(key.low, key.high, node);
    if (place.young) this.linkNewest(node);
    else this.linkOldest(node);
    return node;
  }

  /** Touches a node and all above it. */
  touch(node: number, nowMs: number): void {
    for (let at = node; at !== NONE; at = this.parent[at] ?? NONE) {
      this.unlink(at);
      this.linkNewest(at);
      this.touchMs[at] = nowMs;
    }
  }

  remove(node: number): void {
    const parent = this.parent[node] ?? NONE;
    if (parent !== NONE) this.children[parent] = (this.children[parent] ?? 1) - 1;
    if (!this.has(node, FLAGS.leaf)) this.chunks -= 1;
    this.map.delete(this.low[node] ?? 0, this.high[node] ?? 0);
    this.unlink(node);
    this.flags[node] = 0;
    this.birth[node] = (this.birth[node] ?? 0) + 1;
    this.free.push(node);
  }

  private unlink(node: number): void {
    const newer = this.newer[node] ?? NONE;
    const older = this.older[node] ?? NONE;
    if (newer === NONE) this.newest = older;
    else this.older[newer] = older;
    if (older === NONE) this.oldest = newer;
    else this.newer[older] = newer;
  }

  private linkNewest(node: number): void {
    this.newer[node] = NONE;
    this.older[node] = this.newest;
    if (this.newest === NONE) this.oldest = node;
    else this.newer[this.newest] = node;
    this.newest = node;
  }

  private linkOldest(node: number): void {
    this.older[node] = NONE;
    this.newer[node] = this.oldest;
    if (this.oldest === NONE) this.newest = node;
    else this.older[this.oldest] = node;
    this.oldest = node;
  }

  private take(): number {
    if (this.used === this.low.length) this.grow(Math.max(256, this.used * 2));
    this.used += 1;
    return this.used - 1;
  }

  private grow(size: number): void {
    const grown = <T extends Uint32Array | Int32Array | Uint8Array | Float64Array>(
      old: T,
      make: new (length: number) => T,
    ): T => {
      const next = new make(size);
      next.set(old);
      return next;
    };
    this.low = grown(this.low, Uint32Array);
    this.high = grown(this.high, Uint32Array);
    this.parent = grown(this.parent, Int32Array);
    this.depth = grown(this.depth, Uint32Array);
    this.children = grown(this.children, Uint32Array);
    this.pins = grown(this.pins, Uint32Array);
    this.flags = grown(this.flags, Uint8Array);
    this.birth = grown(this.birth, Uint32Array);
    this.touchMs = grown(this.touchMs, Float64Array);
    this.promptTokens = grown(this.promptTokens, Float64Array);
    this.answerTokens = grown(this.answerTokens, Float64Array);
    this.weight = grown(this.weight, Float64Array);
    this.mark = grown(this.mark, Uint32Array);
    this.newer = grown(this.newer, Int32Array);
    this.older = grown(this.older, Int32Array);
  }
}
