// Which targets hold all of a prompt's chunks so far: everybody at the start, fewer with each chunk.
//
// A system prompt is held by most of a pool, and its chunks have bit sets; a conversation is held by
// one target or two, which are followed by name from the first such chunk on.

import type { HolderSets } from '../../shared/lib/holder-sets.ts';

export class PrefixWalk {
  readonly #sets: HolderSets;
  #depths: Int32Array;
  /** Targets that are left, a bit each; of use until they are named. */
  #left: Uint32Array;
  #mine: Uint32Array;
  #named = false;
  /** Holders of the chunk before, once targets are named: equal words name the same two. */
  #held = 0;
  #hoped = 0;
  readonly #names: number[] = [];

  constructor(sets: HolderSets, targets: number) {
    this.#sets = sets;
    this.#depths = new Int32Array(targets);
    this.#left = new Uint32Array(targets / 32);
    this.#mine = new Uint32Array(targets / 32);
  }

  /** Chunks of each target: complete once the walk has ended. */
  get depths(): Int32Array {
    return this.#depths;
  }

  /** For so many targets from now on, a multiple of 32. */
  widen(targets: number): void {
    this.#depths = new Int32Array(targets);
    this.#left = new Uint32Array(targets / 32);
    this.#mine = new Uint32Array(targets / 32);
  }

  begin(): void {
    this.#depths.fill(0);
    this.#named = false;
    this.#left.fill(0xffffffff);
  }

  /** The chunk at `depth` has these holders; false when none is left. */
  keep(held: number, hoped: number, depth: number): boolean {
    if (this.#named) {
      if (held === this.#held && hoped === this.#hoped) return true;
      return this.#keepNamed(held, hoped, depth);
    }
    return this.#sets.isInline(held) && this.#sets.isInline(hoped)
      ? this.#nameThem(held, hoped, depth)
      : this.#keepBits(held, hoped, depth);
  }

  /** Whoever is left holds `depth` chunks, and the walk ends. */
  end(depth: number): void {
    if (depth === 0) return;
    if (this.#named) {
      for (const target of this.#names) this.#depths[target] = depth;
      return;
    }
    for (let k = 0; k < this.#left.length; k += 1) {
      this.#record(k, this.#left[k] as number, depth);
    }
  }

  #keepNamed(held: number, hoped: number, depth: number): boolean {
    this.#held = held;
    this.#hoped = hoped;
    const names = this.#names;
    let count = 0;
    for (let k = 0; k < names.length; k += 1) {
      const target = names[k] as number;
      if (this.#sets.has(held, target) || this.#sets.has(hoped, target)) names[count++] = target;
      else this.#depths[target] = depth;
    }
    names.length = count;
    return count > 0;
  }

  #nameThem(held: number, hoped: number, depth: number): boolean {
    this.#held = held;
    this.#hoped = hoped;
    this.#names.length = 0;
    this.#sets.forEach(held, (target) => this.#nameIt(target));
    this.#sets.forEach(hoped, (target) => this.#nameIt(target));
    this.#named = true;
    if (depth > 0) {
      for (let k = 0; k < this.#left.length; k += 1) {
        this.#record(k, this.#left[k] as number, depth);
      }
    }
    return this.#names.length > 0;
  }

  /** Takes it from the bits, so that it is named once. */
  #nameIt(target: number): void {
    const bits = this.#left[target >>> 5] as number;
    const bit = 1 << (target & 31);
    if ((bits & bit) === 0) return;
    this.#left[target >>> 5] = bits & ~bit;
    this.#names.push(target);
  }

  #keepBits(held: number, hoped: number, depth: number): boolean {
    // All of a pool hold the next chunk of its system prompt too.
    if (depth > 0 && this.#sets.covers(held, this.#left)) return true;
    const left = this.#left;
    const mine = this.#mine.fill(0);
    this.#sets.unite(held, mine);
    if (hoped !== 0) this.#sets.unite(hoped, mine);
    let some = 0;
    for (let k = 0; k < left.length; k += 1) {
      const before = left[k] as number;
      const after = before & (mine[k] as number);
      if (after !== before) {
        if (depth > 0) this.#record(k, before & ~after, depth);
        left[k] = after;
      }
      some |= after;
    }
    return some !== 0;
  }

  #record(word: number, targets: number, depth: number): void {
    if ((targets | 0) === -1) {
      this.#depths.fill(depth, 32 * word, 32 * word + 32);
      return;
    }
    for (let bits = targets; bits !== 0; bits &= bits - 1) {
      this.#depths[32 * word + 31 - Math.clz32(bits & -bits)] = depth;
    }
  }
}
