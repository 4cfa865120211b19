// 64-bit keys, given as two 32-bit words, to small non-negative integers: open addressing in typed arrays,
// no bigint and no object per entry. Grows by doubling at three quarters; removal closes the gap, so that
// look-ups never meet tombstones. The owner bounds the number of entries.

const EMPTY = -1;
const LEAST_SLOTS = 64;

export class WordPairMap {
  private lows = new Uint32Array(LEAST_SLOTS);
  private highs = new Uint32Array(LEAST_SLOTS);
  private values = new Int32Array(LEAST_SLOTS).fill(EMPTY);
  private count = 0;

  get size(): number {
    return this.count;
  }

  /** The value, or -1. */
  get(low: number, high: number): number {
    return this.values[this.slotOf(low, high)] ?? EMPTY;
  }

  set(low: number, high: number, value: number): void {
    if ((this.count + 1) * 4 > this.values.length * 3) this.grow();
    const slot = this.slotOf(low, high);
    if (this.values[slot] === EMPTY) this.count += 1;
    this.lows[slot] = low;
    this.highs[slot] = high;
    this.values[slot] = value;
  }

  delete(low: number, high: number): boolean {
    let hole = this.slotOf(low, high);
    if (this.values[hole] === EMPTY) return false;
    this.count -= 1;
    const mask = this.values.length - 1;
    for (let at = (hole + 1) & mask; this.values[at] !== EMPTY; at = (at + 1) & mask) {
      const home = homeOf(this.lows[at] ?? 0, this.highs[at] ?? 0) & mask;
      // The entry may move back into the hole only if its home does not lie between the two.
      if (((at - home) & mask) < ((at - hole) & mask)) continue;
      this.lows[hole] = this.lows[at] ?? 0;
      this.highs[hole] = this.highs[at] ?? 0;
      this.values[hole] = this.values[at] ?? EMPTY;
      hole = at;
    }
    this.values[hole] = EMPTY;
    return true;
  }

  clear(): void {
    this.lows = new Uint32Array(LEAST_SLOTS);
    this.highs = new Uint32Array(LEAST_SLOTS);
    this.values = new Int32Array(LEAST_SLOTS).fill(EMPTY);
    this.count = 0;
  }

  /** The key's slot, or the free one where it would go. */
  private slotOf(low: number, high: number): number {
    const mask = this.values.length - 1;
    let at = homeOf(low, high) & mask;
    while (this.values[at] !== EMPTY && !(this.lows[at] === low && this.highs[at] === high)) {
      at = (at + 1) & mask;
    }
    return at;
  }

  private grow(): void {
    const { lows, highs, values } = this;
    const slots = values.length * 2;
    this.lows = new Uint32Array(slots);
    this.highs = new Uint32Array(slots);
    this.values = new Int32Array(slots).fill(EMPTY);
    this.count = 0;
    for (let i = 0; i < values.length; i += 1) {
      const value = values[i] ?? EMPTY;
      if (value !== EMPTY) this.set(lows[i] ?? 0, highs[i] ?? 0, value);
    }
  }
}

/** The words are hashes already; keys that are not (tests, turn ends of nothing) are mixed a little. */
function homeOf(low: number, high: number): number {
  return (low ^ Math.imul(high, 0x9e3779b1)) >>> 0;
}
