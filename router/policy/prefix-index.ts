// Which targets hold which prefix, as far as their agents have said, and how much of a prompt each
// would find.
//
// A row per chunk: chain hash → parent, depth, and two bit sets over targets: `held`, what an agent
// reported, and `hoped`, what this router has sent there since and no agent has confirmed yet. A
// match walks the chain once for all targets and costs nothing that grows with the index. A row's
// parent is always more recent than the row, so that the byte budget takes leaves first.
//
// Prefix messages of a target are numbered: 0 replaces all, then one more each; a gap asks for a
// snapshot.

import { PrefixTable } from '../../shared/lib/prefix-table.ts';
import type { Incarnation } from '../../shared/model/ids.ts';
import type { HashWords, PromptChain } from '../../shared/model/prompt.ts';
import type { PrefixLeaf, PrefixMessage, PrefixRun } from '../../shared/protocol/messages.ts';
import { LeafTable, type Leaf } from './prefix-leaves.ts';

/** Share of the byte budget for leaves. */
const LEAF_SHARE = 1 / 8;
/** Turn ends before the deepest matched chunk that are looked up as leaves. */
const TURN_ENDS_TRIED = 4;

const PARENT_LOW = 0;
const PARENT_HIGH = 1;
const DEPTH = 2;
const FIXED_COLUMNS = 3;

/** What a target holds of a prompt. */
export interface PrefixMatch {
  /** Full chunks from the start. */
  readonly chunks: number;
  /** The deepest earlier turn within or at the end of these chunks whose end it holds. */
  readonly leaf: Leaf | null;
  /** Canonical bytes up to that leaf's end; 0 without one. */
  readonly leafOffset: number;
}

export type ApplyOutcome = 'applied' | 'resync' | 'ignored';

interface Slot {
  used: boolean;
  incarnation: Incarnation | null;
  /** Of the last message applied; -1 before a snapshot. */
  seq: number;
  /** A snapshot was asked for and has not come. */
  asked: boolean;
  chunks: number;
}

export class PrefixIndex {
  readonly #table: PrefixTable;
  readonly #leaves: LeafTable;
  readonly #slots: Slot[] = [];
  #planes = 1;
  #depths = new Int32Array(32);
  #active = new Uint32Array(1);

  constructor(bytesMax: number) {
    this.#table = new PrefixTable({
      bytesMax: bytesMax * (1 - LEAF_SHARE),
      columns: FIXED_COLUMNS + 2,
      onEvict: (row) => this.#forget(row),
    });
    this.#leaves = new LeafTable(bytesMax * LEAF_SHARE);
  }

  get bytes(): number {
    return this.#table.bytes + this.#leaves.bytes;
  }

  get rows(): number {
    return this.#table.size;
  }

  /** Rows that the byte budget has taken, ever. */
  get evictions(): number {
    return this.#table.evictions + this.#leaves.evictions;
  }

  setBudget(bytesMax: number): void {
    this.#table.resize({ bytesMax: bytesMax * (1 - LEAF_SHARE), columns: this.#columns() });
    this.#leaves.setBudget(bytesMax * LEAF_SHARE);
  }

  /** A slot for a new target; it holds nothing. */
  addTarget(): number {
    const fresh: Slot = { used: true, incarnation: null, seq: -1, asked: false, chunks: 0 };
    const free = this.#slots.findIndex((slot) => !slot.used);
    if (free >= 0) {
      this.#slots[free] = fresh;
      return free;
    }
    this.#slots.push(fresh);
    if (this.#slots.length > this.#planes * 32) this.#addPlane();
    return this.#slots.length - 1;
  }

  removeTarget(slot: number): void {
    this.reset(slot);
    this.#slot(slot).used = false;
  }

  /** Empties a target: its engine process is another one now. */
  reset(slot: number): void {
    const at = this.#slot(slot);
    at.incarnation = null;
    at.seq = -1;
    at.asked = false;
    this.#clear(slot);
  }

  incarnation(slot: number): Incarnation | null {
    return this.#slot(slot).incarnation;
  }

  /** Chunks that the agent says the target holds. */
  chunks(slot: number): number {
    return this.#slot(slot).chunks;
  }

  apply(slot: number, message: PrefixMessage): ApplyOutcome {
    const at = this.#slot(slot);
    if (message.seq === 0) {
      this.#clear(slot);
      at.incarnation = message.incarnation;
    } else if (message.incarnation !== at.incarnation || message.seq !== at.seq + 1) {
      const asked = at.asked;
      at.seq = -1;
      at.incarnation = null;
      at.asked = true;
      return asked ? 'ignored' : 'resync';
    }
    at.seq = message.seq;
    at.asked = false;
    this.#evict(slot, message.evicted);
    for (const run of message.runs) this.#insertRun(slot, run);
    for (const leaf of message.leaves) this.#leaves.put(slot, leaf);
    return 'applied';
  }

  /** Expects that the target will hold this prompt: it has just been sent there. */
  hope(slot: number, chain: PromptChain): void {
    const { hashes } = chain;
    for (let k = hashes.length / 2 - 1; k >= 0; k -= 1) {
      const row = this.#insertChunk(hashes, k, 0);
      this.#set(this.#hopedPlane(slot), row, slot);
    }
  }

  /** Takes back `hope`: the request showed no first token there. What the agent confirmed stays. */
  unhope(slot: number, hashes: HashWords): void {
    for (let k = hashes.length / 2 - 1; k >= 0; k -= 1) {
      const row = this.#table.find(hashes[2 * k] as number, hashes[2 * k + 1] as number);
      if (row < 0) continue;
      this.#unset(this.#hopedPlane(slot), row, slot);
      this.#dropIfEmpty(row);
    }
  }

  /** Fills in how many chunks of the prompt each target holds; valid until the next call. */
  walk(chain: PromptChain): Int32Array {
    const depths = this.#depths.fill(0);
    const active = this.#active.fill(0xffffffff);
    const { hashes } = chain;
    const chunks = hashes.length / 2;
    let depth = 0;
    for (; depth < chunks; depth += 1) {
      const row = this.#table.find(hashes[2 * depth] as number, hashes[2 * depth + 1] as number);
      if (row < 0 || !this.#narrow(row, depth)) break;
    }
    for (let plane = 0; plane < this.#planes; plane += 1) {
      record(depths, plane * 32, { bits: active[plane] as number, depth });
    }
    return depths;
  }

  /** What a target holds of a prompt, given its depth of `walk`. */
  matchAt(slot: number, chain: PromptChain, chunks: number): PrefixMatch {
    const { turnEnds } = chain;
    let tried = 0;
    for (let k = turnEnds.length - 1; k >= 0 && tried < TURN_ENDS_TRIED; k -= 1) {
      const end = turnEnds[k];
      if (end === undefined || end.chunks > chunks) continue;
      tried += 1;
      const leaf = this.#leaves.get(slot, end.hashLow, end.hashHigh);
      if (leaf !== null) return { chunks, leaf, leafOffset: end.offset };
    }
    return { chunks, leaf: null, leafOffset: 0 };
  }

  match(slot: number, chain: PromptChain): PrefixMatch {
    return this.matchAt(slot, chain, this.walk(chain)[slot] ?? 0);
  }

  /** All that the agent has said the target holds, for an agent that starts anew. */
  snapshot(slot: number): { runs: PrefixRun[]; leaves: PrefixLeaf[] } {
    return { runs: this.#runs(slot), leaves: this.#leaves.of(slot) };
  }

  #columns(): number {
    return FIXED_COLUMNS + 2 * this.#planes;
  }

  #heldPlane(slot: number): number {
    return FIXED_COLUMNS + 2 * (slot >> 5);
  }

  #hopedPlane(slot: number): number {
    return FIXED_COLUMNS + 2 * (slot >> 5) + 1;
  }

  #addPlane(): void {
    this.#planes += 1;
    this.#depths = new Int32Array(this.#planes * 32);
    this.#active = new Uint32Array(this.#planes);
    this.#table.resize({ bytesMax: this.#table.bytesMax, columns: this.#columns() });
  }

  /** Keeps the targets that hold this row too; false when none is left. */
  #narrow(row: number, depth: number): boolean {
    const { columns } = this.#table;
    let left = 0;
    for (let plane = 0; plane < this.#planes; plane += 1) {
      const before = this.#active[plane] as number;
      if (before === 0) continue;
      const at = FIXED_COLUMNS + 2 * plane;
      const mine = (columns[at]?.[row] as number) | (columns[at + 1]?.[row] as number);
      const after = before & mine;
      if (after !== before && depth > 0) {
        record(this.#depths, plane * 32, { bits: before & ~after, depth });
      }
      this.#active[plane] = after;
      left |= after;
    }
    return left !== 0;
  }

  #insertRun(slot: number, run: PrefixRun): void {
    const chunks = run.hashes.length / 2;
    for (let k = chunks - 1; k >= 0; k -= 1) {
      const row = this.#insertChunk(run.hashes, k, run.depth);
      if (k === 0) this.#setParent(row, run.parentLow, run.parentHigh);
      if (this.#set(this.#heldPlane(slot), row, slot)) this.#slot(slot).chunks += 1;
    }
    this.#touchUp(run.parentLow, run.parentHigh, run.depth);
  }

  #insertChunk(hashes: HashWords, k: number, depth: number): number {
    const row = this.#table.insert(hashes[2 * k] as number, hashes[2 * k + 1] as number);
    (this.#table.columns[DEPTH] as Uint32Array)[row] = depth + k;
    if (k > 0) this.#setParent(row, hashes[2 * k - 2] as number, hashes[2 * k - 1] as number);
    return row;
  }

  #setParent(row: number, low: number, high: number): void {
    (this.#table.columns[PARENT_LOW] as Uint32Array)[row] = low;
    (this.#table.columns[PARENT_HIGH] as Uint32Array)[row] = high;
  }

  /** Ancestors stay more recent than what hangs on them. */
  #touchUp(low: number, high: number, depth: number): void {
    let row = depth > 0 ? this.#table.find(low, high) : -1;
    for (let left = depth; row >= 0 && left > 0; left -= 1) {
      this.#table.touch(row);
      if (left === 1) return;
      const { columns } = this.#table;
      row = this.#table.find(
        columns[PARENT_LOW]?.[row] as number,
        columns[PARENT_HIGH]?.[row] as number,
      );
    }
  }

  #evict(slot: number, words: HashWords): void {
    for (let k = 0; k + 1 < words.length; k += 2) {
      const low = words[k] as number;
      const high = words[k + 1] as number;
      const row = this.#table.find(low, high);
      if (row >= 0) this.#take(slot, row);
      this.#leaves.remove(slot, low, high);
    }
  }

  #take(slot: number, row: number): void {
    if (this.#unset(this.#heldPlane(slot), row, slot)) this.#slot(slot).chunks -= 1;
    this.#unset(this.#hopedPlane(slot), row, slot);
    this.#dropIfEmpty(row);
  }

  #clear(slot: number): void {
    for (let row = 0; row < this.#table.rows; row += 1) {
      if (this.#table.isUsed(row)) this.#take(slot, row);
    }
    this.#slot(slot).chunks = 0;
    this.#leaves.clear(slot);
  }

  /** A row makes room: its holders have a chunk less here. */
  #forget(row: number): void {
    for (let slot = 0; slot < this.#slots.length; slot += 1) {
      const plane = this.#table.columns[this.#heldPlane(slot)]?.[row] ?? 0;
      if (((plane >>> (slot & 31)) & 1) === 1) this.#slot(slot).chunks -= 1;
    }
  }

  #set(plane: number, row: number, slot: number): boolean {
    const column = this.#table.columns[plane] as Uint32Array;
    const before = column[row] as number;
    column[row] = before | (1 << (slot & 31));
    return column[row] !== before;
  }

  #unset(plane: number, row: number, slot: number): boolean {
    const column = this.#table.columns[plane] as Uint32Array;
    const before = column[row] as number;
    column[row] = before & ~(1 << (slot & 31));
    return column[row] !== before;
  }

  #dropIfEmpty(row: number): void {
    const { columns } = this.#table;
    for (let k = FIXED_COLUMNS; k < columns.length; k += 1) if (columns[k]?.[row] !== 0) return;
    this.#table.remove(row);
  }

  #runs(slot: number): PrefixRun[] {
    const rows = this.#rowsOf(slot);
    const { columns } = this.#table;
    const depth = columns[DEPTH] as Uint32Array;
    rows.sort((a, b) => (depth[a] as number) - (depth[b] as number));
    const runs: number[][] = [];
    const endingAt = new Map<number, number[]>();
    for (const row of rows) {
      const parent =
        depth[row] === 0
          ? -1
          : this.#table.find(
              columns[PARENT_LOW]?.[row] as number,
              columns[PARENT_HIGH]?.[row] as number,
            );
      let run = endingAt.get(parent);
      if (run === undefined) runs.push((run = []));
      else endingAt.delete(parent);
      run.push(row);
      endingAt.set(row, run);
    }
    return runs.map((run) => this.#runOf(run));
  }

  #rowsOf(slot: number): number[] {
    const held = this.#table.columns[this.#heldPlane(slot)] as Uint32Array;
    const bit = 1 << (slot & 31);
    const rows: number[] = [];
    for (let row = 0; row < this.#table.rows; row += 1) {
      if (this.#table.isUsed(row) && ((held[row] as number) & bit) !== 0) rows.push(row);
    }
    return rows;
  }

  #runOf(rows: readonly number[]): PrefixRun {
    const hashes = new Uint32Array(2 * rows.length);
    for (let k = 0; k < rows.length; k += 1) {
      hashes[2 * k] = this.#table.low(rows[k] as number);
      hashes[2 * k + 1] = this.#table.high(rows[k] as number);
    }
    const { columns } = this.#table;
    const first = rows[0] as number;
    const depth = columns[DEPTH]?.[first] as number;
    return {
      parentLow: depth === 0 ? 0 : (columns[PARENT_LOW]?.[first] as number),
      parentHigh: depth === 0 ? 0 : (columns[PARENT_HIGH]?.[first] as number),
      depth,
      hashes,
    };
  }

  #slot(slot: number): Slot {
    const at = this.#slots[slot];
    if (at === undefined) throw new RangeError(`no target in slot ${slot}`);
    return at;
  }
}

/** Notes the depth for every target in a plane's bits. */
function record(depths: Int32Array, base: number, found: { bits: number; depth: number }): void {
  for (let bits = found.bits; bits !== 0; bits &= bits - 1) {
    depths[base + 31 - Math.clz32(bits & -bits)] = found.depth;
  }
}
