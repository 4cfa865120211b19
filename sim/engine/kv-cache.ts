// Paged KV memory with prefix reuse: which blocks a request holds, which can be found again, which go first.
//
// Invariants: free + held = usable blocks, always; a block is free exactly when nobody holds it; a free block that
// still has a key can be found and taken back; blocks are handed out least recently freed first, and a request's
// blocks are freed last first, so a prefix outlives what follows it.

const NONE = -1;

export class KvCache {
  readonly usableBlocks: number;
  readonly #references: Int32Array;
  readonly #keys: Float64Array;
  readonly #previous: Int32Array;
  readonly #next: Int32Array;
  readonly #byKey = new Map<number, number>();
  readonly #head: number;
  #freeBlocks: number;

  /** `usableBlocks` leaves vLLM's null block out. */
  constructor(usableBlocks: number) {
    this.usableBlocks = usableBlocks;
    this.#references = new Int32Array(usableBlocks);
    this.#keys = new Float64Array(usableBlocks).fill(NONE);
    // A ring through all free blocks; the extra last element is its start and end.
    this.#head = usableBlocks;
    this.#previous = new Int32Array(usableBlocks + 1);
    this.#next = new Int32Array(usableBlocks + 1);
    for (let block = 0; block <= usableBlocks; block += 1) {
      this.#previous[block] = block === 0 ? usableBlocks : block - 1;
      this.#next[block] = block === usableBlocks ? 0 : block + 1;
    }
    this.#freeBlocks = usableBlocks;
  }

  get freeBlocks(): number {
    return this.#freeBlocks;
  }

  get heldBlocks(): number {
    return this.usableBlocks - this.#freeBlocks;
  }

  /** Blocks that a look-up can find, held or free. */
  get cachedBlocks(): number {
    return this.#byKey.size;
  }

  /** 0..1; blocks that are only cached count as free. */
  get usageRatio(): number {
    return this.usableBlocks === 0 ? 0 : 1 - this.#freeBlocks / this.usableBlocks;
  }

  /** The block with that key; −1 when there is none. */
  find(key: number): number {
    return key === NONE ? NONE : (this.#byKey.get(key) ?? NONE);
  }

  isHeld(block: number): boolean {
    return (this.#references[block] ?? 0) > 0;
  }

  referencesOf(block: number): number {
    return this.#references[block] ?? 0;
  }

  /** Takes one more reference on a block that was found. */
  hold(block: number): void {
    const references = this.#references[block] ?? 0;
    if (references === 0) this.#unlink(block);
    this.#references[block] = references + 1;
  }

  /** A block with no content, held once; −1 when all are held. Evicts the content that was freed first. */
  allocate(): number {
    const block = this.#next[this.#head] ?? this.#head;
    if (block === this.#head) return NONE;
    this.#unlink(block);
    this.#forget(block);
    this.#references[block] = 1;
    return block;
  }

  /** Makes a held, full block findable. A second block with the same content stays unfindable. */
  publish(block: number, key: number): void {
    if (key === NONE || this.#byKey.has(key) || this.#keys[block] !== NONE) return;
    this.#keys[block] = key;
    this.#byKey.set(key, block);
  }

  /** Gives up a request's blocks, last first. */
  release(blocks: readonly number[]): void {
    for (let at = blocks.length - 1; at >= 0; at -= 1) {
      const block = blocks[at];
      if (block === undefined) continue;
      const references = (this.#references[block] ?? 0) - 1;
      this.#references[block] = references;
      if (references === 0) this.#append(block);
    }
  }

  #forget(block: number): void {
    const key = this.#keys[block];
    if (key === undefined || key === NONE) return;
    this.#byKey.delete(key);
    this.#keys[block] = NONE;
  }

  #unlink(block: number): void {
    const before = this.#previous[block] ?? this.#head;
    const after = this.#next[block] ?? this.#head;
    this.#next[before] = after;
    this.#previous[after] = before;
    this.#freeBlocks -= 1;
  }

  #append(block: number): void {
    const last = this.#previous[this.#head] ?? this.#head;
    this.#next[last] = block;
    this.#previous[block] = last;
    this.#next[block] = this.#head;
    this.#previous[this.#head] = block;
    this.#freeBlocks += 1;
  }
}
