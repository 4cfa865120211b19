// An array of references to rows: three bytes each, since tables have millions of rows and several references to
// each. -1 is none, as every element is at first, and -2 is a second kind of none.

/** References are below this. */
export const ROW_REFS_MAX = 0xff_fffe;

const NONES = 2;

export class RowRefs {
  readonly length: number;
  /** The reference plus two's lower and upper bits, so that zeros are -1: -1 → 0, -2 → 1. */
  readonly #low: Uint16Array;
  readonly #high: Uint8Array;

  constructor(length: number) {
    this.length = length;
    this.#low = new Uint16Array(length);
    this.#high = new Uint8Array(length);
  }

  get(at: number): number {
    const word = (this.#low[at] as number) | ((this.#high[at] as number) << 16);
    return word >= NONES ? word - NONES : -1 - word;
  }

  set(at: number, row: number): void {
    const word = row >= 0 ? row + NONES : -1 - row;
    this.#low[at] = word;
    this.#high[at] = word >>> 16;
  }

  /** The same references in a longer array; itself where it is as long. */
  widened(length: number): RowRefs {
    if (this.length >= length) return this;
    const to = new RowRefs(length);
    to.#low.set(this.#low);
    to.#high.set(this.#high);
    return to;
  }
}
