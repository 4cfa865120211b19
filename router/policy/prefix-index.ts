// Which targets hold which prefix, as far as their agents have said, and how much of a prompt each
// would find.
//
// A row per chunk: chain hash → two sets of targets: `held`, what an agent reported, and `hoped`, what
// this router has sent there since and no agent has confirmed yet. Most rows have one or two holders,
// so a row's size does not grow with the number of targets (`holder-sets.ts`). A match walks the chain
// once for all targets and costs nothing that grows with the index. A row's parent is always more
// recent than the row, so that the byte budget takes leaves first.
//
// Chunks that come together lie in rows one after the other, each before its parent: a parent is
// written down (`row-notes.ts`) only where it lies elsewhere, and hopes beside holders only.
//
// Prefix messages of a target are numbered: 0 replaces all, then one more each; a gap asks for a
// snapshot.

import { HolderSets } from '../../shared/lib/holder-sets.ts';
import { PrefixTable } from '../../shared/lib/prefix-table.ts';
import { RowNotes } from '../../shared/lib/row-notes.ts';
import type { Incarnation } from '../../shared/model/ids.ts';
import type { HashWords, PromptChain } from '../../shared/model/prompt.ts';
import type { PrefixLeaf, PrefixMessage, PrefixRun } from '../../shared/protocol/messages.ts';
import { LeafTable, type Leaf } from './prefix-leaves.ts';
import { PrefixWalk } from './prefix-walk.ts';

/** Share of the byte budget for leaves. */
const LEAF_SHARE = 1 / 8;
/** Share of the byte budget for the holders of chunks that more than two targets hold. */
const SET_SHARE = 1 / 8;
/** Shares for parents that lie elsewhere, and for hopes. */
const PARENT_SHARE = 1 / 8;
const HOPE_SHARE = 1 / 16;
const ROW_SHARE = 1 - LEAF_SHARE - SET_SHARE - PARENT_SHARE - HOPE_SHARE;
/** Turn ends before the deepest matched chunk that are looked up as leaves. */
const TURN_ENDS_TRIED = 4;
/** Ancestors that one message may make recent: many times what an honest index has. */
const STEPS_MAX = 1_000_000;

/** Holders; of a row that nobody is said to hold, those that are expected to. */
const TARGETS = 0;
const COLUMNS = 1;

/** Flags of a row. Its parent is the next row, or is written down, or there is none, or nobody knows: none of the three. */
const NEXT = 1;
const KEPT = 2;
const ROOT = 4;
/** Nobody is said to hold it yet: its targets are hopes. */
const WISHED = 8;
/** Some are said to hold it, and hopes for others are written down. */
const HOPED = 16;
const HOPES = WISHED | HOPED;
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
  /** Rows that the target is said to hold, and expected to without that. */
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
  /** Hashes of parents that do not lie in the next row. */
  readonly #parents: RowNotes;
  /** Words of `#sets`: targets that are expected to hold a row that others hold. */
  readonly #hopes: RowNotes;
  readonly #slots: Slot[] = [];
  readonly #free: number[] = [];
  readonly #ends: Ends = { chain: null, chunks: 0, count: 0, rows: [], offsets: [] };
  #bytesMax: number;
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
      onMove: (before) => this.#moved(before),
    });
    this.#bytesMax = bytesMax;
    this.#parents = new RowNotes(bytesMax * PARENT_SHARE);
    this.#hopes = new RowNotes(bytesMax * HOPE_SHARE);
    this.#setBytes = bytesMax * SET_SHARE;
    this.#sets = new HolderSets(this.#setBytes);
    this.#walk = new PrefixWalk(this.#sets, this.#room);
    this.#leaves = new LeafTable(bytesMax * LEAF_SHARE);
  }

  get bytes(): number {
    const notes = this.#parents.bytes + this.#hopes.bytes;
    return this.#table.bytes + this.#sets.bytes + this.#leaves.bytes + notes;
  }

  get rows(): number {
    return this.#table.size;
  }

  /** Rows and holders that the byte budget has taken, ever. */
  get evictions(): number {
    const refused = this.#sets.refused + this.#parents.refused + this.#hopes.refused;
    return this.#table.evictions + this.#dropped + refused + this.#leaves.evictions;
  }

  setBudget(bytesMax: number): void {
    this.#bytesMax = bytesMax;
    this.#table.resize({ bytesMax: bytesMax * ROW_SHARE, columns: COLUMNS });
    this.#rebuildNotes((row) => row);
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
      row = this.#insertChunk(hashes, k, row);
      if (k === 0) this.#setRoot(row);
      this.#addHope(row, slot);
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
      this.#takeHope(row, slot);
      this.#dropIfEmpty(row);
    }
  }

  /** Fills in how many chunks of the prompt each target holds; valid until the next call. */
  walk(chain: PromptChain): Int32Array {
    const { hashes } = chain;
    const chunks = hashes.length / 2;
    const { columns, flags } = this.#table;
    const targets = columns[TARGETS] as Uint32Array;
    const walk = this.#walk;
    walk.begin();
    let depth = 0;
    let row = NO_ROW;
    for (; depth < chunks; depth += 1) {
      row = this.#table.findNth(hashes, depth, row - 1);
      if (row < 0) break;
      const hoped = ((flags[row] as number) & HOPED) === 0 ? 0 : this.#hopes.first(row);
      if (!walk.keep(targets[row] as number, hoped, depth)) return walk.depths;
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

  /** Whether any target at all has a leaf within so many chunks of the prompt. */
  hasLeaf(chain: PromptChain, chunks: number): boolean {
    if (this.#ends.chain !== chain || this.#ends.chunks !== chunks) this.#lookUpEnds(chain, chunks);
    return this.#ends.count > 0;
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
    const words = this.#table.columns[TARGETS] as Uint32Array;
    for (let row = 0; row < this.#table.rows; row += 1) {
      if (fits(words[row] as number) && fits(this.#notedHopes(row))) continue;
      this.#remove(row);
      this.#dropped += 1;
    }
    this.#sets.reshape(targets, this.#setBytes);
  }

  #insertRun(slot: number, run: PrefixRun): void {
    const chunks = run.hashes.length / 2;
    let row = NO_ROW;
    for (let k = chunks - 1; k >= 0; k -= 1) {
      row = this.#insertChunk(run.hashes, k, row);
      if (k === 0) this.#setTop(row, run);
      this.#addHolder(row, slot);
    }
    this.#touchUp(run.parentLow, run.parentHigh, run.depth);
  }

  /** Chunks are inserted from the last on, so each lies one row after `child`, the one that follows it. */
  #insertChunk(hashes: HashWords, k: number, child: number): number {
    const row = this.#table.insert(hashes[2 * k] as number, hashes[2 * k + 1] as number, child + 1);
    // Where no room was found, the child has gone again, or its row is this one now.
    if (child >= 0 && child !== row && this.#table.isUsed(child)) this.#setParent(child, row);
    return row;
  }

  #setTop(row: number, { depth, parentLow, parentHigh }: PrefixRun): void {
    if (depth === 0) {
      this.#setRoot(row);
      return;
    }
    const parent = this.#table.find(parentLow, parentHigh);
    if (parent === row + 1) this.#setParent(row, parent);
    else this.#keepParent(row, parentLow, parentHigh);
  }

  #setParent(row: number, parent: number): void {
    if (parent === row + 1) this.#noteNothing(row, NEXT);
    else this.#keepParent(row, this.#table.low(parent), this.#table.high(parent));
  }

  #setRoot(row: number): void {
    this.#noteNothing(row, ROOT);
  }

  #noteNothing(row: number, flag: typeof NEXT | typeof ROOT): void {
    const { flags } = this.#table;
    const before = flags[row] as number;
    if ((before & KEPT) !== 0) this.#parents.delete(row);
    flags[row] = (before & HOPES) | flag;
  }

  #keepParent(row: number, low: number, high: number): void {
    const { flags } = this.#table;
    const kept = this.#parents.set(row, low, high) ? KEPT : 0;
    flags[row] = ((flags[row] as number) & HOPES) | kept;
  }

  /** The row of a row's parent; -1 where there is none, or it has gone. */
  #parentOf(row: number): number {
    const flags = this.#table.flags[row] as number;
    if ((flags & NEXT) !== 0) return row + 1;
    if ((flags & KEPT) === 0) return -1;
    return this.#table.find(this.#parents.first(row), this.#parents.second(row));
  }

  /**
   * Ancestors stay more recent than what hangs on them, no further up than they are said to be: parents that an agent
   * makes up may form a ring.
   */
  #touchUp(low: number, high: number, depth: number): void {
    let row = depth > 0 ? this.#table.find(low, high) : -1;
    for (let left = depth; row >= 0 && left > 0 && this.#steps > 0; left -= 1) {
      this.#steps -= 1;
      this.#table.touch(row);
      row = this.#parentOf(row);
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
    this.#takeHolder(row, slot);
    this.#takeHope(row, slot);
    this.#dropIfEmpty(row);
  }

  #clear(slot: number): void {
    this.#ends.chain = null;
    const at = this.#slot(slot);
    if (at.chunks > 0 || at.hopes > 0) {
      for (const row of this.#rowsOf(slot, true)) this.#take(slot, row);
    }
    this.#leaves.clear(slot);
  }

  #remove(row: number): void {
    this.#forget(row);
    this.#table.remove(row);
  }

  /** A row goes: its holders have a chunk less here, and a row whose parent it was has it written down. */
  #forget(row: number): void {
    const { flags } = this.#table;
    const words = this.#table.columns[TARGETS] as Uint32Array;
    const held = this.#heldOf(row);
    const hoped = this.#hopedOf(row);
    this.#sets.forEach(held, (slot) => (this.#slot(slot).chunks -= 1));
    this.#sets.forEach(hoped, (slot) => (this.#slot(slot).hopes -= 1));
    this.#sets.release(held);
    this.#sets.release(hoped);
    words[row] = 0;
    const before = flags[row] as number;
    if ((before & KEPT) !== 0) this.#parents.delete(row);
    if ((before & HOPED) !== 0) this.#hopes.delete(row);
    flags[row] = 0;
    const child = row - 1;
    if (child < 0 || ((flags[child] as number) & NEXT) === 0) return;
    this.#keepParent(child, this.#table.low(row), this.#table.high(row));
  }

  #heldOf(row: number): number {
    const wished = ((this.#table.flags[row] as number) & WISHED) !== 0;
    return wished ? 0 : (this.#table.columns[TARGETS]?.[row] as number);
  }

  #hopedOf(row: number): number {
    const wished = ((this.#table.flags[row] as number) & WISHED) !== 0;
    return wished ? (this.#table.columns[TARGETS]?.[row] as number) : this.#notedHopes(row);
  }

  #notedHopes(row: number): number {
    return ((this.#table.flags[row] as number) & HOPED) === 0 ? 0 : this.#hopes.first(row);
  }

  #addHolder(row: number, slot: number): void {
    const before = this.#heldOf(row);
    if (this.#sets.has(before, slot)) return;
    const after = this.#sets.add(before, slot);
    if (this.#sets.has(after, slot)) {
      this.#takeHope(row, slot);
      this.#setTargets(row, after, this.#hopedOf(row));
      this.#slot(slot).chunks += 1;
    } else this.#dropIfEmpty(row);
  }

  #takeHolder(row: number, slot: number): void {
    const before = this.#heldOf(row);
    if (!this.#sets.has(before, slot)) return;
    this.#setTargets(row, this.#sets.remove(before, slot), this.#hopedOf(row));
    this.#slot(slot).chunks -= 1;
  }

  /** What a target is said to hold needs no hope. */
  #addHope(row: number, slot: number): void {
    const held = this.#heldOf(row);
    const before = this.#hopedOf(row);
    if (this.#sets.has(held, slot) || this.#sets.has(before, slot)) return;
    const after = this.#sets.add(before, slot);
    if (this.#sets.has(after, slot)) {
      this.#slot(slot).hopes += 1;
      this.#setTargets(row, held, after);
    } else this.#dropIfEmpty(row);
  }

  #takeHope(row: number, slot: number): void {
    const before = this.#hopedOf(row);
    if (!this.#sets.has(before, slot)) return;
    this.#setTargets(row, this.#heldOf(row), this.#sets.remove(before, slot));
    this.#slot(slot).hopes -= 1;
  }

  /** Hopes that would have to be written down and find no room are given up. */
  #setTargets(row: number, held: number, hoped: number): void {
    const { flags, columns } = this.#table;
    const before = flags[row] as number;
    const wished = held === 0 && hoped !== 0;
    (columns[TARGETS] as Uint32Array)[row] = wished ? hoped : held;
    let noted = false;
    if (held !== 0 && hoped !== 0) {
      noted = this.#hopes.set(row, hoped, 0);
      if (!noted) this.#giveUp(hoped);
    } else if ((before & HOPED) !== 0) this.#hopes.delete(row);
    flags[row] = (before & ~HOPES) | (wished ? WISHED : 0) | (noted ? HOPED : 0);
  }

  #giveUp(hoped: number): void {
    this.#sets.forEach(hoped, (slot) => (this.#slot(slot).hopes -= 1));
    this.#sets.release(hoped);
  }

  #dropIfEmpty(row: number): void {
    if (this.#table.columns[TARGETS]?.[row] === 0) this.#remove(row);
  }

  /** Rows have other places, and so may their parents. */
  #moved(before: readonly number[]): void {
    const places = new Map(before.map((old, row) => [old, row]));
    this.#rebuildNotes((old) => places.get(old) ?? -1);
    const { flags } = this.#table;
    for (let row = 0; row < before.length; row += 1) {
      if (((flags[row] as number) & NEXT) === 0) continue;
      this.#setParent(row, places.get((before[row] as number) + 1) ?? row);
    }
  }

  /** Notes within the budget; those that find no room in it any more go. */
  #rebuildNotes(placeOf: (row: number) => number): void {
    const { flags } = this.#table;
    this.#parents.rebuild(this.#bytesMax * PARENT_SHARE, placeOf, (row) => {
      flags[row] = (flags[row] as number) & ~KEPT;
    });
    this.#hopes.rebuild(this.#bytesMax * HOPE_SHARE, placeOf, (row, hoped) => {
      flags[row] = (flags[row] as number) & ~HOPED;
      this.#giveUp(hoped);
    });
  }

  #runs(slot: number): PrefixRun[] {
    const depths = this.#depthsOf(this.#rowsOf(slot));
    const runs: { depth: number; rows: number[] }[] = [];
    const endingAt = new Map<number, (typeof runs)[number]>();
    for (const [row, depth] of depths) {
      const parent = this.#parentOf(row);
      let run = endingAt.get(parent);
      if (run === undefined) runs.push((run = { depth, rows: [] }));
      else endingAt.delete(parent);
      run.rows.push(row);
      endingAt.set(row, run);
    }
    return runs.map(({ depth, rows }) => this.#runOf(rows, depth));
  }

  /** By depth, those that lead up to a root: nothing else could be found, or placed by its holder. */
  #depthsOf(rows: readonly number[]): [row: number, depth: number][] {
    const depths = new Map<number, number>();
    const path: number[] = [];
    for (const from of rows) {
      path.length = 0;
      let row = from;
      for (; row >= 0 && !depths.has(row); row = this.#parentOf(row)) {
        // Of a root's parent, and of what leads back to itself or nowhere.
        depths.set(row, Number.NaN);
        path.push(row);
      }
      const top = path.at(-1) ?? from;
      const isRoot = ((this.#table.flags[top] as number) & ROOT) !== 0;
      let depth = row >= 0 ? (depths.get(row) as number) : isRoot ? -1 : Number.NaN;
      for (const below of path.toReversed()) depths.set(below, (depth += 1));
    }
    return rows
      .map((row): [number, number] => [row, depths.get(row) as number])
      .filter(([, depth]) => !Number.isNaN(depth))
      .toSorted(([, a], [, b]) => a - b);
  }

  /** Rows that the target is said to hold, and with hopes those too. Rows that are not in use name nobody. */
  #rowsOf(slot: number, hopes = false): number[] {
    const rows: number[] = [];
    const { flags, columns } = this.#table;
    const words = columns[TARGETS] as Uint32Array;
    for (let row = 0; row < this.#table.rows; row += 1) {
      const word = words[row] as number;
      const flag = flags[row] as number;
      const named = word !== 0 && this.#sets.has(word, slot) && (hopes || (flag & WISHED) === 0);
      const noted = hopes && (flag & HOPED) !== 0 && this.#sets.has(this.#hopes.first(row), slot);
      if (named || noted) rows.push(row);
    }
    return rows;
  }

  #runOf(rows: readonly number[], depth: number): PrefixRun {
    const hashes = new Uint32Array(2 * rows.length);
    for (let k = 0; k < rows.length; k += 1) {
      hashes[2 * k] = this.#table.low(rows[k] as number);
      hashes[2 * k + 1] = this.#table.high(rows[k] as number);
    }
    const parent = this.#parentOf(rows[0] as number);
    return {
      parentLow: parent < 0 ? 0 : this.#table.low(parent),
      parentHigh: parent < 0 ? 0 : this.#table.high(parent),
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
