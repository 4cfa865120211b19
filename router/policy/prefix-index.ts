// Which targets hold which prefix, as far as their agents have said, and how much of a prompt each
// would find.
//
// A row per chunk: chain hash → parent, depth, and two sets of targets: `held`, what an agent
// reported, and `hoped`, what this router has sent there since and no agent has confirmed yet. Most
// rows have one or two holders, so a row's size does not grow with the number of targets
// (`holder-sets.ts`). A match walks the chain once for all targets and costs nothing that grows with
// the index. A row's parent is always more recent than the row, so that the byte budget takes leaves
// first.
//
// Prefix messages of a target are numbered: 0 replaces all, then one more each; a gap asks for a
// snapshot.

import { HolderSets } from '../../shared/lib/holder-sets.ts';
import { PrefixTable } from '../../shared/lib/prefix-table.ts';
import type { Incarnation } from '../../shared/model/ids.ts';
import type { HashWords, PromptChain } from '../../shared/model/prompt.ts';
import type { PrefixLeaf, PrefixMessage, PrefixRun } from '../../shared/protocol/messages.ts';
import { LeafTable, type Leaf } from './prefix-leaves.ts';
import { PrefixWalk } from './prefix-walk.ts';

/** Share of the byte budget for leaves. */
const LEAF_SHARE = 1 / 8;
/** Share of the byte budget for the holders of chunks that more than two targets hold. */
const SET_SHARE = 1 / 8;
const ROW_SHARE = 1 - LEAF_SHARE - SET_SHARE;
/** Turn ends before the deepest matched chunk that are looked up as leaves. */
const TURN_ENDS_TRIED = 4;
/** Ancestors that one message may make recent: many times what an honest index has. */
const STEPS_MAX = 1_000_000;

const PARENT_LOW = 0;
const PARENT_HIGH = 1;
const DEPTH = 2;
const HELD = 3;
const HOPED = 4;
const COLUMNS = 5;
const NO_ROW = -2;

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
  /** Rows that the target is said to hold, and expected to. */
  chunks: number;
  hopes: number;
}

/** First rows of the ends that were looked up last; of no chain once leaves have changed. */
interface Ends {
  chain: PromptChain | null;
  chunks: number;
  count: number;
  readonly rows: number[];
  readonly offsets: number[];
}

export class PrefixIndex {
  readonly #table: PrefixTable;
  readonly #leaves: LeafTable;
  readonly #sets: HolderSets;
  readonly #slots: Slot[] = [];
  readonly #free: number[] = [];
  readonly #ends: Ends = { chain: null, chunks: 0, count: 0, rows: [], offsets: [] };
  #setBytes: number;
  /** Left of `STEPS_MAX` for the message at hand. */
  #steps = 0;
  /** Rows that went because their holders no longer fit. */
  #dropped = 0;
  /** Targets that there is room for; a multiple of 32. */
  #room = 32;
  readonly #walk: PrefixWalk;

  constructor(bytesMax: number) {
    this.#table = new PrefixTable({
      bytesMax: bytesMax * ROW_SHARE,
      columns: COLUMNS,
      onEvict: (row) => this.#forget(row),
    });
    this.#setBytes = bytesMax * SET_SHARE;
    this.#sets = new HolderSets(this.#setBytes);
    this.#walk = new PrefixWalk(this.#sets, this.#room);
    this.#leaves = new LeafTable(bytesMax * LEAF_SHARE);
  }

  get bytes(): number {
    return this.#table.bytes + this.#sets.bytes + this.#leaves.bytes;
  }

  get rows(): number {
    return this.#table.size;
  }

  /** Rows and holders that the byte budget has taken, ever. */
  get evictions(): number {
    const { refused } = this.#sets;
    return this.#table.evictions + this.#dropped + refused + this.#leaves.evictions;
  }

  setBudget(bytesMax: number): void {
    this.#table.resize({ bytesMax: bytesMax * ROW_SHARE, columns: COLUMNS });
    this.#setBytes = bytesMax * SET_SHARE;
    this.#reshapeSets(this.#room);
    this.#leaves.setBudget(bytesMax * LEAF_SHARE);
    this.#ends.chain = null;
  }

  /** A slot for a new target; it holds nothing. */
  addTarget(): number {
    const fresh = { used: true, incarnation: null, seq: -1, asked: false, chunks: 0, hopes: 0 };
    const free = this.#free.pop();
    if (free !== undefined) {
      this.#slots[free] = fresh;
      return free;
    }
    this.#slots.push(fresh);
    this.#widen();
    return this.#slots.length - 1;
  }

  removeTarget(slot: number): void {
    const at = this.#slot(slot);
    if (!at.used) return;
    this.reset(slot);
    at.used = false;
    this.#free.push(slot);
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
    this.#ends.chain = null;
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
    this.#steps = STEPS_MAX;
    for (const run of message.runs) this.#insertRun(slot, run);
    for (const leaf of message.leaves) this.#leaves.put(slot, leaf);
    return 'applied';
  }

  /** Expects that the target will hold this prompt: it has just been sent there. */
  hope(slot: number, chain: PromptChain): void {
    const { hashes } = chain;
    let row = NO_ROW;
    for (let k = hashes.length / 2 - 1; k >= 0; k -= 1) {
      row = this.#insertChunk(hashes, k, { depth: 0, near: row + 1 });
      this.#set(HOPED, row, slot);
    }
  }

  /** Takes back `hope`: the request showed no first token there. What the agent confirmed stays. */
  unhope(slot: number, hashes: HashWords): void {
    let row = NO_ROW;
    for (let k = hashes.length / 2 - 1; k >= 0; k -= 1) {
      const at = this.#table.findNear(
        hashes[2 * k] as number,
        hashes[2 * k + 1] as number,
        row + 1,
      );
      if (at < 0) continue;
      row = at;
      this.#unset(HOPED, row, slot);
      this.#dropIfEmpty(row);
    }
  }

  /** Fills in how many chunks of the prompt each target holds; valid until the next call. */
  walk(chain: PromptChain): Int32Array {
    const { hashes } = chain;
    const chunks = hashes.length / 2;
    const { columns } = this.#table;
    const held = columns[HELD] as Uint32Array;
    const hoped = columns[HOPED] as Uint32Array;
    const walk = this.#walk;
    walk.begin();
    let depth = 0;
    let row = NO_ROW;
    for (; depth < chunks; depth += 1) {
      row = this.#table.findNth(hashes, depth, row - 1);
      if (row < 0) break;
      if (!walk.keep(held[row] as number, hoped[row] as number, depth)) return walk.depths;
    }
    walk.end(depth);
    return walk.depths;
  }

  /** What a target holds of a prompt, given its depth of `walk`. */
  matchAt(slot: number, chain: PromptChain, chunks: number): PrefixMatch {
    return this.leafAt(slot, chain, chunks) ?? { chunks, leaf: null, leafOffset: 0 };
  }

  /**
   * The same, and null where there are chunks alone. Ends are looked up once for all targets, and
   * most targets hold equally much of a prompt: asking for one more of those costs next to nothing.
   */
  leafAt(slot: number, chain: PromptChain, chunks: number): PrefixMatch | null {
    if (this.#ends.chain !== chain || this.#ends.chunks !== chunks) this.#lookUpEnds(chain, chunks);
    const { rows, offsets, count } = this.#ends;
    for (let k = 0; k < count; k += 1) {
      const leaf = this.#leaves.at(rows[k] as number, slot);
      if (leaf !== null) return { chunks, leaf, leafOffset: offsets[k] as number };
    }
    return null;
  }

  match(slot: number, chain: PromptChain): PrefixMatch {
    return this.matchAt(slot, chain, this.walk(chain)[slot] ?? 0);
  }

  /** All that the agent has said the target holds, for an agent that starts anew. */
  snapshot(slot: number): { runs: PrefixRun[]; leaves: PrefixLeaf[] } {
    return { runs: this.#runs(slot), leaves: this.#leaves.of(slot) };
  }

  /** The ends of earlier turns within so many chunks that any target at all holds, deepest first. */
  #lookUpEnds(chain: PromptChain, chunks: number): void {
    const { turnEnds } = chain;
    const ends = this.#ends;
    ends.chain = chain;
    ends.chunks = chunks;
    ends.count = 0;
    let tried = 0;
    for (let k = turnEnds.length - 1; k >= 0 && tried < TURN_ENDS_TRIED; k -= 1) {
      const end = turnEnds[k];
      if (end === undefined || end.chunks > chunks) continue;
      tried += 1;
      const row = this.#leaves.first(end.hashLow, end.hashHigh);
      if (row < 0) continue;
      ends.rows[ends.count] = row;
      ends.offsets[ends.count] = end.offset;
      ends.count += 1;
    }
  }

  #widen(): void {
    if (this.#slots.length <= this.#room) return;
    this.#room *= 2;
    this.#walk.widen(this.#room);
    this.#reshapeSets(this.#room);
  }

  /** Bit sets for so many targets, within the budget: rows whose set finds no room any more go. */
  #reshapeSets(targets: number): void {
    const most = this.#sets.placesWithin(targets, this.#setBytes);
    const fits = (word: number): boolean => this.#sets.placeOf(word) < most;
    const held = this.#table.columns[HELD] as Uint32Array;
    const hoped = this.#table.columns[HOPED] as Uint32Array;
    for (let row = 0; row < this.#table.rows; row += 1) {
      if (fits(held[row] as number) && fits(hoped[row] as number)) continue;
      this.#forget(row);
      this.#table.remove(row);
      this.#dropped += 1;
    }
    this.#sets.reshape(targets, this.#setBytes);
  }

  #insertRun(slot: number, run: PrefixRun): void {
    const chunks = run.hashes.length / 2;
    let row = NO_ROW;
    for (let k = chunks - 1; k >= 0; k -= 1) {
      row = this.#insertChunk(run.hashes, k, { depth: run.depth, near: row + 1 });
      if (k === 0) this.#setParent(row, run.parentLow, run.parentHigh);
      this.#set(HELD, row, slot);
    }
    this.#touchUp(run.parentLow, run.parentHigh, run.depth);
  }

  /** Chunks are inserted from the last on, so each lies one row after the one that follows it. */
  #insertChunk(hashes: HashWords, k: number, at: { depth: number; near: number }): number {
    const { depth, near } = at;
    const row = this.#table.insert(hashes[2 * k] as number, hashes[2 * k + 1] as number, near);
    (this.#table.columns[DEPTH] as Uint32Array)[row] = depth + k;
    if (k > 0) this.#setParent(row, hashes[2 * k - 2] as number, hashes[2 * k - 1] as number);
    return row;
  }

  #setParent(row: number, low: number, high: number): void {
    (this.#table.columns[PARENT_LOW] as Uint32Array)[row] = low;
    (this.#table.columns[PARENT_HIGH] as Uint32Array)[row] = high;
  }

  /**
   * Ancestors stay more recent than what hangs on them, as far as they say that they are: parents that an agent makes up
   * may form a ring.
   */
  #touchUp(low: number, high: number, depth: number): void {
    let row = depth > 0 ? this.#table.find(low, high) : -1;
    for (let left = depth; row >= 0 && left > 0; left -= 1) {
      const { columns } = this.#table;
      if (columns[DEPTH]?.[row] !== left - 1 || this.#steps <= 0) return;
      this.#steps -= 1;
      this.#table.touch(row);
      if (left === 1) return;
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
    this.#unset(HELD, row, slot);
    this.#unset(HOPED, row, slot);
    this.#dropIfEmpty(row);
  }

  #clear(slot: number): void {
    const at = this.#slot(slot);
    this.#ends.chain = null;
    if (at.chunks > 0 || at.hopes > 0) {
      for (const row of this.#rowsWith(slot, [HELD, HOPED])) this.#take(slot, row);
    }
    this.#leaves.clear(slot);
  }

  /** A row makes room: its holders have a chunk less here. */
  #forget(row: number): void {
    const { columns } = this.#table;
    const held = columns[HELD]?.[row] as number;
    const hoped = columns[HOPED]?.[row] as number;
    this.#sets.forEach(held, (slot) => (this.#slot(slot).chunks -= 1));
    this.#sets.forEach(hoped, (slot) => (this.#slot(slot).hopes -= 1));
    this.#sets.release(held);
    this.#sets.release(hoped);
    this.#blank(row);
  }

  #set(column: typeof HELD | typeof HOPED, row: number, slot: number): void {
    const words = this.#table.columns[column] as Uint32Array;
    const before = words[row] as number;
    if (this.#sets.has(before, slot)) return;
    const after = this.#sets.add(before, slot);
    if (!this.#sets.has(after, slot)) {
      this.#dropIfEmpty(row);
      return;
    }
    words[row] = after;
    if (column === HELD) this.#slot(slot).chunks += 1;
    else this.#slot(slot).hopes += 1;
  }

  #unset(column: typeof HELD | typeof HOPED, row: number, slot: number): void {
    const words = this.#table.columns[column] as Uint32Array;
    const before = words[row] as number;
    if (!this.#sets.has(before, slot)) return;
    words[row] = this.#sets.remove(before, slot);
    if (column === HELD) this.#slot(slot).chunks -= 1;
    else this.#slot(slot).hopes -= 1;
  }

  #dropIfEmpty(row: number): void {
    const { columns } = this.#table;
    if (columns[HELD]?.[row] === 0 && columns[HOPED]?.[row] === 0) this.#table.remove(row);
  }

  /** Rows without storage of their own name nobody, so that a scan may pass over them. */
  #blank(row: number): void {
    (this.#table.columns[HELD] as Uint32Array)[row] = 0;
    (this.#table.columns[HOPED] as Uint32Array)[row] = 0;
  }

  #runs(slot: number): PrefixRun[] {
    const rows = this.#rowsWith(slot, [HELD]);
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

  /** Rows of which one of these columns names the target. Rows that are not in use name nobody. */
  #rowsWith(slot: number, columns: readonly (typeof HELD | typeof HOPED)[]): number[] {
    const rows: number[] = [];
    const { rows: end } = this.#table;
    const words = columns.map((column) => this.#table.columns[column] as Uint32Array);
    for (let row = 0; row < end; row += 1) {
      for (const column of words) {
        const word = column[row] as number;
        if (word === 0 || !this.#sets.has(word, slot)) continue;
        rows.push(row);
        break;
      }
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
