// block key → block, for as many keys as there are blocks: open addressing over typed arrays, at most half full.
//
// Keys are 52-bit integers that are mixed already, so their low bits serve as the hash. A deleted entry's followers
// move up, so a look-up ends at the first empty slot. A fork copies both arrays.

const EMPTY = -1;

export class KeyTable {
  readonly #keys: Float64Array;
  readonly #blocks: Int32Array;
  readonly #mask: number;
  #size = 0;

  /** `maxKeys` are there at most at a time. */
  constructor(maxKeys: number, from?: KeyTable) {
    if (from !== undefined) {
      this.#keys = from.#keys.slice();
      this.#blocks = from.#blocks.slice();
      this.#mask = from.#mask;
      this.#size = from.#size;
      return;
    }
    const slots = 2 ** Math.ceil(Math.log2(Math.max(2, 2 * maxKeys)));
    this.#keys = new Float64Array(slots).fill(EMPTY);
    this.#blocks = new Int32Array(slots);
    this.#mask = slots - 1;
  }

  get size(): number {
    return this.#size;
  }

  /** −1 when there is none. */
  get(key: number): number {
    const slot = this.#slotOf(key);
    return this.#keys[slot] === EMPTY ? EMPTY : (this.#blocks[slot] ?? EMPTY);
  }

  set(key: number, block: number): void {
    const slot = this.#slotOf(key);
    if (this.#keys[slot] === EMPTY) {
      this.#keys[slot] = key;
      this.#size += 1;
    }
    this.#blocks[slot] = block;
  }

  delete(key: number): void {
    let hole = this.#slotOf(key);
    if (this.#keys[hole] === EMPTY) return;
    this.#size -= 1;
    const mask = this.#mask;
    for (let slot = (hole + 1) & mask; ; slot = (slot + 1) & mask) {
      const other = this.#keys[slot] ?? EMPTY;
      if (other === EMPTY) break;
      // It may move up unless its own place lies behind the hole.
      if (((slot - (other >>> 0)) & mask) < ((slot - hole) & mask)) continue;
      this.#keys[hole] = other;
      this.#blocks[hole] = this.#blocks[slot] ?? 0;
      hole = slot;
    }
    this.#keys[hole] = EMPTY;
  }

  clear(): void {
    this.#keys.fill(EMPTY);
    this.#size = 0;
  }

  fork(): KeyTable {
    return new KeyTable(0, this);
  }

  /** Where the key is, or where it would go. */
  #slotOf(key: number): number {
    let slot = (key >>> 0) & this.#mask;
    for (let at = this.#keys[slot]; at !== EMPTY && at !== key; at = this.#keys[slot]) {
      slot = (slot + 1) & this.#mask;
    }
    return slot;
  }
}
