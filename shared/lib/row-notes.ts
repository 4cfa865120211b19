// Two words about some of many rows: for what most rows do without, or can be told from their place.
//
// Rows are in pages of 256. A page has a bit for each of its rows, then the notes of those that have one, packed, in the
// order of rows: a note costs 8 bytes and its share of up to a quarter that is not in use yet, a page without notes nothing.
// All pages together have a byte budget: where one may not grow any more, a row's note is refused.

const PAGE_SHIFT = 8;
const PAGE_ROWS = 1 << PAGE_SHIFT;
/** Words of a page before its notes. */
const BITS = PAGE_ROWS / 32;
const START_NOTES = 2;

interface Page {
  words: Uint32Array;
  count: number;
}

export class RowNotes {
  #bytesMax: number;
  #pages: (Page | undefined)[] = [];
  #bytes = 0;
  #size = 0;
  #refused = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** Bytes of storage, used or not. */
  get bytes(): number {
    return this.#bytes;
  }

  get size(): number {
    return this.#size;
  }

  /** Notes that found no room, ever. */
  get refused(): number {
    return this.#refused;
  }

  /** The first word of the row's note; 0 without one. */
  first(row: number): number {
    return this.#word(row, 0);
  }

  second(row: number): number {
    return this.#word(row, 1);
  }

  /** False where there is no room for another one. */
  set(row: number, first: number, second: number): boolean {
    const number = row >>> PAGE_SHIFT;
    const page = (this.#pages[number] ??= { words: new Uint32Array(0), count: 0 });
    if (!has(page, row)) {
      if (!this.#makeRoom(page)) {
        this.#refused += 1;
        return false;
      }
      open(page, row);
      this.#size += 1;
    }
    const at = placeOf(page.words, row);
    page.words[at] = first;
    page.words[at + 1] = second;
    return true;
  }

  delete(row: number): void {
    const page = this.#pages[row >>> PAGE_SHIFT];
    if (page === undefined || !has(page, row)) return;
    this.#size -= 1;
    close(page, row);
    if (page.count > 0) return;
    this.#bytes -= page.words.byteLength;
    this.#pages[row >>> PAGE_SHIFT] = undefined;
  }

  /** Another budget, and each row has that place from now on; -1 for one that has gone. */
  rebuild(
    bytesMax: number,
    placeOfRow: (row: number) => number,
    onLost: (row: number, first: number) => void,
  ): void {
    const before = this.#pages;
    this.#bytesMax = bytesMax;
    this.#pages = [];
    this.#bytes = 0;
    this.#size = 0;
    for (const [number, page] of before.entries()) {
      if (page === undefined) continue;
      for (let k = 0; k < PAGE_ROWS; k += 1) {
        if (!has(page, k)) continue;
        const row = placeOfRow(number * PAGE_ROWS + k);
        if (row < 0) continue;
        const at = placeOf(page.words, k);
        const first = page.words[at] as number;
        if (!this.set(row, first, page.words[at + 1] as number)) onLost(row, first);
      }
    }
  }

  #word(row: number, which: 0 | 1): number {
    const page = this.#pages[row >>> PAGE_SHIFT];
    if (page === undefined || !has(page, row)) return 0;
    return page.words[placeOf(page.words, row) + which] as number;
  }

  /** Room for one more note. */
  #makeRoom(page: Page): boolean {
    const { words, count } = page;
    if (BITS + 2 * count < words.length) return true;
    const notes = Math.min(PAGE_ROWS, Math.max(START_NOTES, count + 1 + (count >>> 2)));
    const wider = BITS + 2 * notes;
    const more = 4 * (wider - words.length);
    if (this.#bytes + more > this.#bytesMax) return false;
    this.#bytes += more;
    page.words = new Uint32Array(wider);
    page.words.set(words);
    return true;
  }
}

function has({ words }: Page, row: number): boolean {
  return (((words[bitsOf(row)] ?? 0) >>> (row & 31)) & 1) === 1;
}

/** Which word has the row's bit. */
function bitsOf(row: number): number {
  return (row & (PAGE_ROWS - 1)) >>> 5;
}

/** Where the row's note is, or would be: behind those of the rows before it. */
function placeOf(words: Uint32Array, row: number): number {
  const own = bitsOf(row);
  let before = ones((words[own] as number) & ((1 << (row & 31)) - 1));
  for (let k = 0; k < own; k += 1) before += ones(words[k] as number);
  return BITS + 2 * before;
}

function open(page: Page, row: number): void {
  const { words } = page;
  const at = placeOf(words, row);
  words.copyWithin(at + 2, at, BITS + 2 * page.count);
  words[bitsOf(row)] = ((words[bitsOf(row)] as number) | (1 << (row & 31))) >>> 0;
  page.count += 1;
}

function close(page: Page, row: number): void {
  const { words } = page;
  const at = placeOf(words, row);
  words.copyWithin(at, at + 2, BITS + 2 * page.count);
  words[bitsOf(row)] = ((words[bitsOf(row)] as number) & ~(1 << (row & 31))) >>> 0;
  page.count -= 1;
}

function ones(word: number): number {
  let sum = word - ((word >>> 1) & 0x55555555);
  sum = (sum & 0x33333333) + ((sum >>> 2) & 0x33333333);
  return Math.imul((sum + (sum >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
}
