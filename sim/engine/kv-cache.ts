// Paged KV memory with prefix reuse: which blocks a request holds, which can be found again, which go first.
//
// As vLLM's block pool: blocks are handed out from the front of the free list. A request's blocks are freed last first:
// those without findable content go to the front, the others to the end, so the least recently used goes
// first and a prefix outlives what follows it. Equal content is not merged: each block that is published under a key is
// kept, the oldest is found, and each is evicted by itself.
//
// Invariants: free + held = usable blocks, always; a block is free exactly when nobody holds it; a free block that
// still has a key can be found and taken back.

import { KeyTable } from './key-table.ts';

const NONE = -1;

/** What listens to evictions. */
export interface EvictionListener {
  removed(key: number): void;
}

export class KvCache {
  readonly usableBlocks: number;
  readonly #references: Int32Array;
  readonly #keys: Float64Array;
  readonly #previous: Int32Array;
  readonly #next: Int32Array;
  /** Rings of the blocks with one key, oldest first. */
  readonly #sameBefore: Int32Array;
  readonly #sameAfter: Int32Array;
  /** The oldest block of each key. */
  readonly #byKey: KeyTable;
  readonly #listener: EvictionListener | null;
  readonly #head: number;
  #freeBlocks: number;

  /** `usableBlocks` leaves vLLM's null block out. */
  constructor(usableBlocks: number, listener: EvictionListener | null = null, from?: KvCache) {
    this.usableBlocks = usableBlocks;
    this.#listener = listener;
    // A ring through all free blocks; the extra last element is its start and end.
    this.#head = usableBlocks;
    if (from !== undefined) {
      this.#references = from.#references.slice();
      this.#keys = from.#keys.slice();
      this.#previous = from.#previous.slice();
      this.#next = from.#next.slice();
      this.#sameBefore = from.#sameBefore.slice();
      this.#sameAfter = from.#sameAfter.slice();
      this.#byKey = from.#byKey.fork();
      this.#freeBlocks = from.#freeBlocks;
      return;
    }
    this.#references = new Int32Array(usableBlocks);
    this.#keys = new Float64Array(usableBlocks).fill(NONE);
    this.#previous = new Int32Array(usableBlocks + 1);
    this.#next = new Int32Array(usableBlocks + 1);
    this.#sameBefore = new Int32Array(usableBlocks);
    this.#sameAfter = new Int32Array(usableBlocks);
    this.#byKey = new KeyTable(usableBlocks);
    this.#freeBlocks = usableBlocks;
    for (let block = 0; block <= usableBlocks; block += 1) {
      this.#previous[block] = block === 0 ? usableBlocks : block - 1;
      this.#next[block] = block === usableBlocks ? 0 : block + 1;
    }
  }

  get freeBlocks(): number {
    return this.#freeBlocks;
  }

  get heldBlocks(): number {
    return this.usableBlocks - this.#freeBlocks;
  }

  /** Keys that a look-up finds, their blocks held or free. */
  get cachedBlocks(): number {
    return this.#byKey.size;
  }

  /** 0..1; blocks that are only cached count as free. */
  get usageRatio(): number {
    return this.usableBlocks === 0 ? 0 : 1 - this.#freeBlocks / this.usableBlocks;
  }

  /** The oldest block with that key; −1 when there is none. */
  find(key: number): number {
    return key === NONE ? NONE : this.#byKey.get(key);
  }

  /** Every key that can be found, with the number of its blocks. Reads all blocks: for tests and states. */
  copies(): Map<number, number> {
    const copies = new Map<number, number>();
    for (const key of this.#keys) {
      if (key !== NONE) copies.set(key, (copies.get(key) ?? 0) + 1);
    }
    return copies;
  }

  isHeld(block: number): boolean {
    return (this.#references[block] ?? 0) > 0;
  }

  /** Takes one more reference on a block that was found. */
  hold(block: number): void {
    const references = this.#references[block] ?? 0;
    if (references === 0) this.#unlink(block);
    this.#references[block] = references + 1;
  }

  /** A block with no content, held once; −1 when all are held. Evicts what it had. */
  allocate(): number {
    const block = this.#next[this.#head] ?? this.#head;
    if (block === this.#head) return NONE;
    this.#unlink(block);
    this.#evict(block);
    this.#references[block] = 1;
    return block;
  }

  /** Makes a held, full block findable. */
  publish(block: number, key: number): void {
    if (key === NONE || this.#keys[block] !== NONE) return;
    this.#keys[block] = key;
    const first = this.#byKey.get(key);
    if (first === NONE) {
      this.#byKey.set(key, block);
      this.#sameBefore[block] = block;
      this.#sameAfter[block] = block;
      return;
    }
    const last = this.#sameBefore[first] ?? first;
    this.#sameAfter[last] = block;
    this.#sameBefore[block] = last;
    this.#sameAfter[block] = first;
    this.#sameBefore[first] = block;
  }

  /** Gives up a request's blocks. */
  release(blocks: readonly number[]): void {
    let front = this.#head;
    for (let at = blocks.length - 1; at >= 0; at -= 1) {
      const block = blocks[at];
      if (block === undefined) continue;
      const references = (this.#references[block] ?? 0) - 1;
      this.#references[block] = references;
      if (references > 0) continue;
      if (this.#keys[block] === NONE) {
        this.#insert(block, front);
        front = block;
      } else this.#insert(block, this.#previous[this.#head] ?? this.#head);
    }
  }

  /** Forgets all content. False, and nothing happens, while any block is held. */
  clear(): boolean {
    if (this.heldBlocks > 0) return false;
    this.#byKey.clear();
    this.#keys.fill(NONE);
    return true;
  }

  /** A copy that lives on by itself as long as this one is not changed. */
  fork(): KvCache {
    return new KvCache(this.usableBlocks, null, this);
  }

  #evict(block: number): void {
    const key = this.#keys[block];
    if (key === undefined || key === NONE) return;
    this.#keys[block] = NONE;
    const before = this.#sameBefore[block] ?? block;
    const after = this.#sameAfter[block] ?? block;
    if (after === block) this.#byKey.delete(key);
    else {
      this.#sameAfter[before] = after;
      this.#sameBefore[after] = before;
      if (this.#byKey.get(key) === block) this.#byKey.set(key, after);
    }
    this.#listener?.removed(key);
  }

  #unlink(block: number): void {
    const before = this.#previous[block] ?? this.#head;
    const after = this.#next[block] ?? this.#head;
    this.#next[before] = after;
    this.#previous[after] = before;
    this.#freeBlocks -= 1;
  }

  #insert(block: number, before: number): void {
    const after = this.#next[before] ?? this.#head;
    this.#next[before] = block;
    this.#previous[block] = before;
    this.#next[block] = after;
    this.#previous[after] = block;
    this.#freeBlocks += 1;
  }
}
