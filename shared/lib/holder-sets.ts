// Sets of small integers, each named by one word, for rows that mostly have one or two members.
//
//   word 0                 nobody
//   bit 31 clear           one or two members: bits 0–15 and 16–30 hold member + 1, 0 is no member
//   bit 31 set             the rest is the place of a bit set: its size, then a bit a member
//
// A bit set is made at the third member and given up when two are left, so that memory follows what
// rows have and not how many members there could be. All bit sets together have a byte budget: one
// that does not fit is not made, and the member is refused.

/** Members are below this; others are refused. */
export const HOLDERS_MAX = 0x7ffe;
const SET = 0x80000000;
const START_SETS = 64;

export class HolderSets {
  #bytesMax: number;
  /** Words of a bit set, its size included. */
  #stride = 2;
  #data = new Uint32Array(0);
  /** Places given up, each the word at which it begins. */
  readonly #free: number[] = [];
  #end = 0;
  #refused = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** Bytes of storage, used or not. */
  get bytes(): number {
    return this.#data.byteLength;
  }

  /** Members that found no room, ever. */
  get refused(): number {
    return this.#refused;
  }

  /** Bit sets that would fit, with members below `count`. */
  placesWithin(count: number, bytesMax: number): number {
    return Math.floor(bytesMax / 4 / strideFor(count));
  }

  /** Two members at most, in the word itself. */
  isInline(word: number): boolean {
    return word < SET;
  }

  /** The member is one that a word can name, and all that this one does. */
  isOnly(word: number, member: number): boolean {
    return word === member + 1 || (word >>> 16 === member + 1 && (word & 0xffff) === 0);
  }

  /** Number of the word's bit set; -1 for a word that needs none. */
  placeOf(word: number): number {
    return word < SET ? -1 : word & 0x7fffffff;
  }

  /**
   * Members are below `count` from now on, and the budget is another one. Words stay what they are,
   * but for those of bit sets from `placesWithin` on: nothing may refer to them any more.
   */
  reshape(count: number, bytesMax: number): void {
    const stride = Math.max(strideFor(count), this.#stride);
    const places = Math.min(this.placesWithin(count, bytesMax), this.#end / this.#stride);
    const wider = new Uint32Array(places * stride);
    for (let k = 0; k < places; k += 1) {
      wider.set(this.#data.subarray(k * this.#stride, (k + 1) * this.#stride), k * stride);
    }
    const free = this.#free.map((at) => at / this.#stride).filter((place) => place < places);
    this.#free.splice(0, Number.POSITIVE_INFINITY, ...free.map((place) => place * stride));
    this.#data = wider;
    this.#end = places * stride;
    this.#stride = stride;
    this.#bytesMax = bytesMax;
  }

  /** The word with the member too; the same word where it was a member, or was refused. */
  add(word: number, member: number): number {
    if (member >= HOLDERS_MAX || member >= 32 * (this.#stride - 1)) return this.#refuse(word);
    const id = member + 1;
    if (word >= SET) {
      this.#put(startOf(word, this.#stride), member);
      return word;
    }
    const first = word & 0xffff;
    const second = word >>> 16;
    if (first === id || second === id) return word;
    if (first === 0) return ((second << 16) | id) >>> 0;
    if (second === 0) return ((id << 16) | first) >>> 0;
    const place = this.#claim();
    if (place === null) return this.#refuse(word);
    this.#put(place, first - 1);
    this.#put(place, second - 1);
    this.#put(place, member);
    return (SET | (place / this.#stride)) >>> 0;
  }

  remove(word: number, member: number): number {
    if (word < SET) {
      const id = member + 1;
      if ((word & 0xffff) === id) return (word & 0x7fff0000) >>> 0;
      return word >>> 16 === id ? word & 0xffff : word;
    }
    const place = startOf(word, this.#stride);
    const at = place + 1 + (member >>> 5);
    const bit = 1 << (member & 31);
    if (member >= 32 * (this.#stride - 1) || ((this.#data[at] as number) & bit) === 0) return word;
    this.#data[at] = (this.#data[at] as number) & ~bit;
    this.#data[place] = (this.#data[place] as number) - 1;
    return (this.#data[place] as number) > 2 ? word : this.#inline(place);
  }

  has(word: number, member: number): boolean {
    if (word < SET) return (word & 0xffff) === member + 1 || word >>> 16 === member + 1;
    if (member >= 32 * (this.#stride - 1)) return false;
    const at = startOf(word, this.#stride) + 1 + (member >>> 5);
    return (((this.#data[at] as number) >>> (member & 31)) & 1) === 1;
  }

  /** The word names nothing afterwards. */
  release(word: number): void {
    if (word >= SET) this.#free.push(startOf(word, this.#stride));
  }

  /** Whether all of a bit set of the caller's, a bit a member, are members; of a bit set's word, false of others. */
  covers(word: number, asked: Uint32Array): boolean {
    if (word < SET || asked.length >= this.#stride) return false;
    const data = this.#data;
    const from = startOf(word, this.#stride) + 1;
    let others = 0;
    for (let k = 0; k < asked.length; k += 1) {
      others |= (asked[k] as number) & ~(data[from + k] as number);
    }
    return others === 0;
  }

  /** Adds the members to a bit set of the caller's, a bit a member. */
  unite(word: number, into: Uint32Array): void {
    if (word < SET) {
      mark(into, (word & 0xffff) - 1);
      mark(into, (word >>> 16) - 1);
      return;
    }
    const place = startOf(word, this.#stride) + 1;
    const words = Math.min(into.length, this.#stride - 1);
    for (let k = 0; k < words; k += 1) {
      into[k] = (into[k] as number) | (this.#data[place + k] as number);
    }
  }

  forEach(word: number, visit: (member: number) => void): void {
    if (word < SET) {
      if ((word & 0xffff) !== 0) visit((word & 0xffff) - 1);
      if (word >>> 16 !== 0) visit((word >>> 16) - 1);
      return;
    }
    const place = startOf(word, this.#stride) + 1;
    for (let k = 0; k < this.#stride - 1; k += 1) {
      for (let bits = this.#data[place + k] as number; bits !== 0; bits &= bits - 1) {
        visit(32 * k + 31 - Math.clz32(bits & -bits));
      }
    }
  }

  #refuse(word: number): number {
    this.#refused += 1;
    return word;
  }

  #put(place: number, member: number): void {
    const at = place + 1 + (member >>> 5);
    const before = this.#data[at] as number;
    const after = (before | (1 << (member & 31))) >>> 0;
    if (after === before) return;
    this.#data[at] = after;
    this.#data[place] = (this.#data[place] as number) + 1;
  }

  /** An empty bit set; null at the budget. */
  #claim(): number | null {
    const free = this.#free.pop();
    if (free !== undefined) {
      this.#data.fill(0, free, free + this.#stride);
      return free;
    }
    if (this.#end + this.#stride > this.#data.length && !this.#grow()) return null;
    const place = this.#end;
    this.#end += this.#stride;
    return place;
  }

  #grow(): boolean {
    const most = Math.floor(this.#bytesMax / 4 / this.#stride);
    const places = Math.min(most, Math.max(START_SETS, (2 * this.#data.length) / this.#stride));
    if (places * this.#stride <= this.#data.length) return false;
    const wider = new Uint32Array(places * this.#stride);
    wider.set(this.#data);
    this.#data = wider;
    return true;
  }

  /** Two members are left of a bit set: they need none. */
  #inline(place: number): number {
    let word = 0;
    this.forEach((SET | (place / this.#stride)) >>> 0, (member) => {
      word = word === 0 ? member + 1 : (((member + 1) << 16) | word) >>> 0;
    });
    this.#free.push(place);
    return word;
  }
}

/** Words of a bit set with members below `count`, its size included. */
function strideFor(count: number): number {
  return 1 + Math.max(1, Math.ceil(Math.min(count, HOLDERS_MAX) / 32));
}

function startOf(word: number, stride: number): number {
  return (word & 0x7fffffff) * stride;
}

function mark(into: Uint32Array, member: number): void {
  if (member < 0) return;
  into[member >>> 5] = (into[member >>> 5] as number) | (1 << (member & 31));
}
