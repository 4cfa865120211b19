// Which targets hold which prefix, as far as their agents have said, and how much of a prompt each
// would find.
//
// A row per chunk: chain hash → who holds it (`prefix-holders.ts`) and what it hangs on (`prefix-parents.ts`). A match
// walks the chain once for all targets and costs nothing that grows with the index. A row's parent is always more
// recent than the row, so that the byte budget takes leaves first.
//
// Prefix messages of a target are numbered: 0 replaces all, then one more each; a gap asks for a
// snapshot. A target that begins anew gets another slot, and the old one is emptied beside the messages after.

import { PrefixTable } from '../../shared/lib/prefix-table.ts';
import type { Incarnation } from '../../shared/model/ids.ts';
import type { HashWords, PromptChain } from '../../shared/model/prompt.ts';
import type { PrefixLeaf, PrefixMessage, PrefixRun } from '../../shared/protocol/messages.ts';
import { PrefixEnds } from './prefix-ends.ts';
import { HOPED } from './prefix-flags.ts';
import { COLUMNS, PrefixHolders, TARGETS } from './prefix-holders.ts';
import { LeafTable } from './prefix-leaves.ts';
import type { PrefixMatch } from './prefix-match.ts';
import { PrefixParents } from './prefix-parents.ts';
import { runsOf } from './prefix-runs.ts';
import { PrefixSweep } from './prefix-sweep.ts';
import { PrefixWalk } from './prefix-walk.ts';

/** Share of the byte budget for leaves. */
const LEAF_SHARE = 1 / 8;
/** Share of the byte budget for the holders of chunks that more than two targets hold. */
const SET_SHARE = 1 / 8;
/** Shares for parents that lie elsewhere, and for hopes. */
const PARENT_SHARE = 1 / 8;
const HOPE_SHARE = 1 / 16;
const ROW_SHARE = 1 - LEAF_SHARE - SET_SHARE - PARENT_SHARE - HOPE_SHARE;
const NO_ROW = -2;

export type ApplyOutcome = 'applied' | 'resync' | 'ignored';

interface Slot {
  used: boolean;
  incarnation: Incarnation | null;
  /** Of the last message applied; -1 before a snapshot. */
  seq: number;
  /** A snapshot was asked for and has not come. */
  asked: boolean;
}

function newSlot(): Slot {
  return { used: true, incarnation: null, seq: -1, asked: false };
}

export class PrefixIndex {
  readonly #table: PrefixTable;
  readonly #leaves: LeafTable;
  readonly #ends: PrefixEnds;
  readonly #parents: PrefixParents;
  readonly #holders: PrefixHolders;
  readonly #walk: PrefixWalk;
  readonly #sweep: PrefixSweep;
  readonly #slots: Slot[] = [];
  readonly #free: number[] = [];
  #bytesMax: number;
  /** Rows that went because their holders no longer fit. */
  #dropped = 0;
  /** Targets that there is room for; a multiple of 32. */
  #room = 32;

  constructor(bytesMax: number) {
    this.#table = new PrefixTable({
      bytesMax: bytesMax * ROW_SHARE,
      columns: COLUMNS,
      onEvict: (row) => this.#forget(row),
      onMove: (before) => this.#moved(before),
    });
    this.#bytesMax = bytesMax;
    this.#parents = new PrefixParents(this.#table, bytesMax * PARENT_SHARE);
    this.#holders = new PrefixHolders(this.#table, {
      setBytes: bytesMax * SET_SHARE,
      hopeBytes: bytesMax * HOPE_SHARE,
    });
    this.#walk = new PrefixWalk(this.#holders.sets, this.#room);
    this.#leaves = new LeafTable(bytesMax * LEAF_SHARE);
    this.#ends = new PrefixEnds(this.#leaves);
    this.#sweep = new PrefixSweep({
      table: this.#table,
      holders: this.#holders,
      leaves: this.#leaves,
      take: (slot, row) => this.#take(slot, row),
    });
  }

  get bytes(): number {
    return this.#table.bytes + this.#holders.bytes + this.#parents.bytes + this.#leaves.bytes;
  }

  get rows(): number {
    return this.#table.size;
  }

  /** Rows and holders that the byte budget has taken, ever. */
  get evictions(): number {
    const refused = this.#holders.refused + this.#parents.refused;
    return this.#table.evictions + this.#dropped + refused + this.#leaves.evictions;
  }

  setBudget(bytesMax: number): void {
    this.#bytesMax = bytesMax;
    this.#table.resize({ bytesMax: bytesMax * ROW_SHARE, columns: COLUMNS });
    this.#rebuild((row) => row);
    this.#holders.reshape(this.#room, (row) => this.#drop(row), bytesMax * SET_SHARE);
    this.#leaves.setBudget(bytesMax * LEAF_SHARE);
    this.#ends.forget();
  }

  /** A slot for a new target; it holds nothing. */
  addTarget(): number {
    const fresh = newSlot();
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
    at.used = false;
    this.#ends.forget();
    this.#free.push(...this.#sweep.add(slot));
  }

  /** A slot that holds nothing in place of the target's own, which is emptied. */
  renew(slot: number): number {
    if (this.#holders.hasRows(slot) || this.#leaves.count(slot) > 0) {
      this.removeTarget(slot);
      return this.addTarget();
    }
    this.#slots[slot] = newSlot();
    return slot;
  }

  incarnation(slot: number): Incarnation | null {
    return this.#slot(slot).incarnation;
  }

  /** Chunks that the agent says the target holds. */
  chunks(slot: number): number {
    return this.#holders.rowsHeld(slot);
  }

  /** A snapshot comes to a slot that holds nothing, or no more than hopes. */
  apply(slot: number, message: PrefixMessage): ApplyOutcome {
    const at = this.#slot(slot);
    this.#ends.forget();
    if (message.seq === 0) {
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
    this.#parents.beginMessage();
    for (const run of message.runs) this.#insertRun(slot, run);
    for (const leaf of message.leaves) this.#leaves.put(slot, leaf);
    this.#free.push(...this.#sweep.step());
    return 'applied';
  }

  /** Expects that the target will hold this prompt: it has just been sent there. */
  hope(slot: number, chain: PromptChain): void {
    const { hashes } = chain;
    this.#table.fetch(hashes);
    let row = NO_ROW;
    for (let k = hashes.length / 2 - 1; k >= 0; k -= 1) {
      row = this.#insertChunk(hashes, k, row);
      if (k === 0) this.#parents.setRoot(row);
      if (!this.#holders.hope(row, slot)) this.#dropIfEmpty(row);
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
      this.#holders.unhope(row, slot);
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
      const hoped = ((flags[row] as number) & HOPED) === 0 ? 0 : this.#holders.noted(row);
      if (!walk.keep(targets[row] as number, hoped, depth)) return walk.depths;
    }
    walk.end(depth);
    return walk.depths;
  }

  /** What a target holds of a prompt, given its depth of `walk`. */
  matchAt(slot: number, chain: PromptChain, chunks: number): PrefixMatch {
    return this.leafAt(slot, chain, chunks) ?? { chunks, leaf: null, leafOffset: 0 };
  }

  /** The same, and null where there are chunks alone. */
  leafAt(slot: number, chain: PromptChain, chunks: number): PrefixMatch | null {
    return this.#ends.at(slot, chain, chunks);
  }

  /** Whether any target at all has a leaf within so many chunks of the prompt. */
  hasLeaf(chain: PromptChain, chunks: number): boolean {
    return this.#ends.some(chain, chunks);
  }

  match(slot: number, chain: PromptChain): PrefixMatch {
    return this.matchAt(slot, chain, this.walk(chain)[slot] ?? 0);
  }

  /** All that the agent has said the target holds, for an agent that starts anew. */
  snapshot(slot: number): { runs: PrefixRun[]; leaves: PrefixLeaf[] } {
    const rows = this.#holders.rowsOf(slot);
    const runs = runsOf(rows, { table: this.#table, parents: this.#parents });
    return { runs, leaves: this.#leaves.of(slot) };
  }

  #widen(): void {
    if (this.#slots.length <= this.#room) return;
    this.#room *= 2;
    this.#walk.widen(this.#room);
    this.#holders.reshape(this.#room, (row) => this.#drop(row));
  }

  #insertRun(slot: number, run: PrefixRun): void {
    const chunks = run.hashes.length / 2;
    let row = NO_ROW;
    for (let k = chunks - 1; k >= 0; k -= 1) {
      row = this.#insertChunk(run.hashes, k, row);
      if (k === 0) this.#parents.setTop(row, run);
      if (!this.#holders.hold(row, slot)) this.#dropIfEmpty(row);
    }
    this.#parents.touchUp(run);
  }

  /** Chunks are inserted from the last on, so each lies one row after `child`, the one that follows it. */
  #insertChunk(hashes: HashWords, k: number, child: number): number {
    const row = this.#table.insert(hashes[2 * k] as number, hashes[2 * k + 1] as number, child + 1);
    // Where no room was found, the child has gone again, or its row is this one now.
    if (child >= 0 && child !== row && this.#table.isUsed(child)) this.#parents.set(child, row);
    return row;
  }

  /** What hangs on a chunk goes before it, so that chunks which came together lie in rows one after the other here, too. */
  #evict(slot: number, words: HashWords): void {
    this.#table.fetch(words);
    let row = NO_ROW;
    for (let k = 0; k + 1 < words.length; k += 2) {
      const low = words[k] as number;
      const high = words[k + 1] as number;
      const at = this.#table.findNear(low, high, row + 1);
      if (at >= 0) row = at;
      // No hash is a chunk's and an end's.
      if (at >= 0 && this.#holders.names(at, slot)) this.#take(slot, at);
      else this.#leaves.remove(slot, low, high);
    }
  }

  #take(slot: number, row: number): void {
    this.#holders.unhold(row, slot);
    this.#holders.unhope(row, slot);
    this.#dropIfEmpty(row);
  }

  #dropIfEmpty(row: number): void {
    if (this.#holders.isEmpty(row)) this.#remove(row);
  }

  /** Its holders no longer fit. */
  #drop(row: number): void {
    this.#remove(row);
    this.#dropped += 1;
  }

  #remove(row: number): void {
    this.#forget(row);
    this.#table.remove(row);
  }

  #forget(row: number): void {
    this.#holders.forget(row);
    this.#parents.forget(row);
  }

  /** Rows have other places. */
  #moved(before: readonly number[]): void {
    const places = new Map(before.map((old, row) => [old, row]));
    this.#rebuild((old) => places.get(old) ?? -1);
    this.#parents.moved(before, places);
  }

  /** Notes within the budget; those that find no room in it any more go. */
  #rebuild(placeOf: (row: number) => number): void {
    this.#parents.rebuild(this.#bytesMax * PARENT_SHARE, placeOf);
    this.#holders.rebuild(this.#bytesMax * HOPE_SHARE, placeOf);
  }

  #slot(slot: number): Slot {
    const at = this.#slots[slot];
    if (at === undefined) throw new RangeError(`no target in slot ${slot}`);
    return at;
  }
}
