// Which prefixes a target's KV cache holds, learned from what its routers sent there.
//
// An LRU over chain chunks and the leaves of finished turns, bounded by the engine's own KV capacity:
//   occupancy = chunks × tokens per chunk + Σ leaves (tail + answer, until the conversation goes on)
// Chunks of a request are tentative until some request's first token vouches for them; those of a request
// that ended without one are removed again unless something else holds or confirms them. What an open request
// holds is never evicted: the engine cannot evict it either.
//
// Routers are told by deltas: what `drain` returns since the last time. Applying evictions, then runs, then
// leaves to a snapshot makes it equal to the index.

import { CHUNK_BYTES } from '../../shared/model/prompt.ts';
import type { HashWords } from '../../shared/model/prompt.ts';
import type { ChainFacts, PrefixLeaf, PrefixRun } from '../../shared/protocol/messages.ts';
import { FLAGS, NONE, PrefixNodes } from './prefix-nodes.ts';
import { allRuns, runsOf } from './prefix-runs.ts';

/** More are never kept, whatever the engine claims. */
const MAX_NODES = 262_144;
/** Untold changes beyond which a snapshot is due instead: nobody has asked for a long time. */
const MAX_UNTOLD = 65_536;

/** What one open chain keeps in the index. */
export interface PrefixHold {
  /** Deepest chunk, or -1 for a prompt shorter than a chunk. */
  readonly node: number;
  readonly generation: number;
  readonly chunks: number;
  readonly endLow: number;
  readonly endHigh: number;
}

export interface PrefixDelta {
  readonly runs: readonly PrefixRun[];
  readonly leaves: readonly PrefixLeaf[];
  readonly evicted: HashWords;
}

export class PrefixIndex {
  private nodes = new PrefixNodes();
  private pending: { node: number; birth: number }[] = [];
  private evicted: number[] = [];
  private leafWeight = 0;
  private epoch = 0;
  private clears = 0;
  private overflows = 0;

  /** Changes when a snapshot is due: the index was emptied, or too much has gone untold. */
  get life(): string {
    return `${this.clears}.${this.overflows}`;
  }

  get chunks(): number {
    return this.nodes.chunks;
  }

  get leaves(): number {
    return this.nodes.size - this.nodes.chunks;
  }

  /** Tokens held, open requests' own tails and answers not included. */
  occupancyTokens(bytesPerToken: number): number {
    return (this.nodes.chunks * CHUNK_BYTES) / bytesPerToken + this.leafWeight;
  }

  /** A request with this chain is in the engine. `gapsMs`: how long the turns that it continues had rested. */
  open(chain: ChainFacts, nowMs: number): { readonly hold: PrefixHold; readonly gapsMs: number[] } {
    const gapsMs = this.continueTurns(chain.turnEnds, nowMs);
    const node = this.insert(chain.hashes, nowMs);
    if (node !== NONE) this.nodes.pins[node] = (this.nodes.pins[node] ?? 0) + 1;
    const { endLow, endHigh } = chain;
    const chunks = chain.hashes.length >>> 1;
    return { hold: { node, generation: this.clears, chunks, endLow, endHigh }, gapsMs };
  }

  /** Its first token came: the engine has computed all of it. */
  confirm(hold: PrefixHold): void {
    if (hold.generation !== this.clears) return;
    for (let at = hold.node; at !== NONE; at = this.nodes.parent[at] ?? NONE) {
      if (this.nodes.has(at, FLAGS.confirmed)) return;
      this.nodes.put(at, FLAGS.confirmed);
    }
  }

  /** The turn is complete: its end becomes a leaf that the next turn may find. */
  complete(
    hold: PrefixHold,
    turn: {
      readonly promptTokens: number | null;
      readonly answerTokens: number;
      /** Tokens of the prompt after its last full chunk. */
      readonly tailTokens: number;
    },
    nowMs: number,
  ): void {
    if (hold.generation !== this.clears) return;
    const { nodes } = this;
    const key = { low: hold.endLow, high: hold.endHigh };
    let leaf = nodes.map.get(key.low, key.high);
    if (leaf !== NONE && !nodes.has(leaf, FLAGS.leaf)) return;
    if (leaf === NONE) {
      leaf = nodes.create(key, { parent: hold.node, leaf: true, young: true }, nowMs);
    }
    nodes.promptTokens[leaf] = turn.promptTokens ?? -1;
    nodes.answerTokens[leaf] = turn.answerTokens;
    nodes.unset(leaf, FLAGS.continued);
    nodes.put(leaf, FLAGS.confirmed);
    this.weigh(leaf, turn.tailTokens + turn.answerTokens);
    nodes.touch(leaf, nowMs);
    this.publish(leaf);
  }

  /** The request has left the engine. What nothing vouches for goes. */
  release(hold: PrefixHold): void {
    const { nodes } = this;
    if (hold.generation !== this.clears || hold.node === NONE) return;
    nodes.pins[hold.node] = (nodes.pins[hold.node] ?? 1) - 1;
    let at = hold.node;
    while (at !== NONE && this.idle(at) && !nodes.has(at, FLAGS.confirmed)) {
      const parent = nodes.parent[at] ?? NONE;
      this.drop(at);
      at = parent;
    }
  }

  /** Evicts the least recently used until the index holds at most `capacityTokens`. */
  evict(capacityTokens: number, bytesPerToken: number): void {
    const { nodes } = this;
    let spared = 0;
    while (this.occupancyTokens(bytesPerToken) > capacityTokens || nodes.size > MAX_NODES) {
      const node = nodes.oldestNode;
      if (node === NONE || spared > nodes.size) return;
      if (this.idle(node)) {
        this.drop(node);
        continue;
      }
      nodes.touch(node, nodes.touchMs[nodes.newestNode] ?? 0);
      spared += 1;
    }
  }

  /** Evicts what was last used before this instant, open requests' prefixes excepted. */
  evictBefore(instantMs: number): void {
    const { nodes } = this;
    for (let at = nodes.oldestNode; at !== NONE; at = nodes.oldestNode) {
      if ((nodes.touchMs[at] ?? 0) >= instantMs) return;
      if (this.idle(at)) this.drop(at);
      else nodes.touch(at, Math.max(instantMs, nodes.touchMs[nodes.newestNode] ?? 0));
    }
  }

  /**
   * Distinct tokens touched since `sinceMs` or held by open requests.
   */
  workingSetTokens(sinceMs: number, holds: Iterable<PrefixHold>, bytesPerToken: number): number {
    const { nodes } = this;
    this.epoch += 1;
    let chunks = 0;
    let leafTokens = 0;
    const count = (node: number): boolean => {
      if (nodes.mark[node] === this.epoch) return false;
      nodes.mark[node] = this.epoch;
      if (nodes.has(node, FLAGS.leaf)) leafTokens += nodes.weight[node] ?? 0;
      else chunks += 1;
      return true;
    };
    for (let at = nodes.newestNode; at !== NONE; at = nodes.olderThan(at)) {
      if ((nodes.touchMs[at] ?? 0) < sinceMs) break;
      count(at);
    }
    for (const hold of holds) {
      if (hold.generation !== this.clears) continue;
      for (let at = hold.node; at !== NONE && count(at); at = nodes.parent[at] ?? NONE);
    }
    return (chunks * CHUNK_BYTES) / bytesPerToken + leafTokens;
  }

  /** What has changed since the last drain; null when nothing has. */
  drain(): PrefixDelta | null {
    const { nodes } = this;
    const fresh: number[] = [];
    for (const { node, birth } of this.pending) {
      if (nodes.birth[node] !== birth) continue;
      nodes.unset(node, FLAGS.pending);
      nodes.put(node, FLAGS.published);
      fresh.push(node);
    }
    const gone: number[] = [];
    for (let i = 0; i < this.evicted.length; i += 2) {
      const low = this.evicted[i] ?? 0;
      const high = this.evicted[i + 1] ?? 0;
      if (nodes.map.get(low, high) === NONE) gone.push(low, high);
    }
    this.pending = [];
    this.evicted = [];
    if (fresh.length === 0 && gone.length === 0) return null;
    return {
      runs: runsOf(nodes, fresh),
      leaves: fresh.filter((node) => nodes.has(node, FLAGS.leaf)).map((node) => this.leafOf(node)),
      evicted: Uint32Array.from(gone),
    };
  }

  get changed(): boolean {
    return this.pending.length > 0 || this.evicted.length > 0;
  }

  /** Everything, for a router that knows nothing. */
  snapshot(): PrefixDelta {
    const { nodes } = this;
    const leaves: PrefixLeaf[] = [];
    for (let at = nodes.newestNode; at !== NONE; at = nodes.olderThan(at)) {
      if (nodes.has(at, FLAGS.leaf)) leaves.push(this.leafOf(at));
    }
    return { runs: allRuns(nodes), leaves, evicted: new Uint32Array(0) };
  }

  /** Takes over what a router remembers. It counts as older than anything seen since. */
  restore(runs: readonly PrefixRun[], leaves: readonly PrefixLeaf[]): void {
    const { nodes } = this;
    for (const run of [...runs].sort((a, b) => a.depth - b.depth)) this.restoreRun(run);
    for (const leaf of leaves) {
      if (nodes.map.get(leaf.hashLow, leaf.hashHigh) !== NONE) continue;
      const key = { low: leaf.hashLow, high: leaf.hashHigh };
      const place = { parent: NONE, leaf: true, young: false };
      const node = nodes.create(key, place, -Infinity);
      nodes.promptTokens[node] = leaf.promptTokens ?? -1;
      nodes.answerTokens[node] = leaf.answerTokens;
      nodes.put(node, FLAGS.confirmed);
      this.weigh(node, leaf.answerTokens);
      this.publish(node);
    }
  }

  /** The engine's cache is empty, or the index is not to be trusted. */
  clear(): void {
    this.nodes = new PrefixNodes();
    this.pending = [];
    this.evicted = [];
    this.leafWeight = 0;
    this.epoch = 0;
    this.clears += 1;
  }

  private restoreRun(run: PrefixRun): void {
    const { nodes } = this;
    let parent = run.depth === 0 ? NONE : nodes.map.get(run.parentLow, run.parentHigh);
    if (run.depth > 0 && parent === NONE) return;
    for (let i = 0; i + 1 < run.hashes.length; i += 2) {
      const key = { low: run.hashes[i] ?? 0, high: run.hashes[i + 1] ?? 0 };
      let node = nodes.map.get(key.low, key.high);
      if (node === NONE) {
        node = nodes.create(key, { parent, leaf: false, young: false }, -Infinity);
        nodes.put(node, FLAGS.confirmed);
        this.publish(node);
      }
      parent = node;
    }
  }

  /** The deepest chunk of the chain, all of it in the index now; -1 for an empty chain. */
  private insert(hashes: HashWords, nowMs: number): number {
    const { nodes } = this;
    let parent = NONE;
    for (let i = 0; i + 1 < hashes.length; i += 2) {
      const low = hashes[i] ?? 0;
      const high = hashes[i + 1] ?? 0;
      let node = nodes.map.get(low, high);
      if (node === NONE) {
        node = nodes.create({ low, high }, { parent, leaf: false, young: true }, nowMs);
        this.publish(node);
      }
      parent = node;
    }
    if (parent !== NONE) nodes.touch(parent, nowMs);
    return parent;
  }

  private continueTurns(turnEnds: HashWords, nowMs: number): number[] {
    const { nodes } = this;
    const gapsMs: number[] = [];
    for (let i = 0; i + 1 < turnEnds.length; i += 2) {
      const leaf = nodes.map.get(turnEnds[i] ?? 0, turnEnds[i + 1] ?? 0);
      if (leaf === NONE || !nodes.has(leaf, FLAGS.leaf)) continue;
      const restedMs = nowMs - (nodes.touchMs[leaf] ?? nowMs);
      const first = !nodes.has(leaf, FLAGS.continued);
      if (first && Number.isFinite(restedMs)) gapsMs.push(restedMs);
      nodes.put(leaf, FLAGS.continued);
      this.weigh(leaf, 0);
      nodes.touch(leaf, nowMs);
    }
    return gapsMs;
  }

  private idle(node: number): boolean {
    return this.nodes.pins[node] === 0 && this.nodes.children[node] === 0;
  }

  private weigh(leaf: number, tokens: number): void {
    this.leafWeight += tokens - (this.nodes.weight[leaf] ?? 0);
    this.nodes.weight[leaf] = tokens;
  }

  private drop(node: number): void {
    const { nodes } = this;
    if (nodes.has(node, FLAGS.published)) {
      this.evicted.push(nodes.low[node] ?? 0, nodes.high[node] ?? 0);
    }
    this.weigh(node, 0);
    nodes.remove(node);
    if (this.evicted.length > 2 * MAX_UNTOLD) this.forgetUntold();
  }

  private publish(node: number): void {
    if (this.nodes.has(node, FLAGS.pending)) return;
    this.nodes.put(node, FLAGS.pending);
    this.pending.push({ node, birth: this.nodes.birth[node] ?? 0 });
    if (this.pending.length > this.nodes.size + MAX_UNTOLD) this.forgetUntold();
  }

  private forgetUntold(): void {
    this.drain();
    this.overflows += 1;
  }

  private leafOf(node: number): PrefixLeaf {
    const prompt = this.nodes.promptTokens[node] ?? -1;
    return {
      hashLow: this.nodes.low[node] ?? 0,
      hashHigh: this.nodes.high[node] ?? 0,
      promptTokens: prompt < 0 ? null : prompt,
      answerTokens: this.nodes.answerTokens[node] ?? 0,
    };
  }
}
