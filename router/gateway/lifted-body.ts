// A large JSON body, read as it comes: long strings of its prompt are left where they are, and what is parsed is the
// body without them, each replaced by a short name. So nothing of a megabyte becomes a string or an object, and the time
// that reading takes is spread over the pieces.
//
//   {"model":"m","messages":[{"role":"user","content":"…1 MB…"}]}
//   {"model":"m","messages":[{"role":"user","content":"‹mark›00000000"}]}      skeleton, and text 0 = its bytes
//
// A string is checked as JSON.parse would check it, so that a skeleton is valid JSON just where its body is and every
// other rule is applied to the skeleton by the code for small bodies. Only values are lifted, of members that are read
// as a prompt: keys, and members with a meaning of their own, stand in the skeleton as they are. The mark is random, so that no
// client can write it.

import { isUtf8 } from 'node:buffer';
import type { MemberSpan } from './json-spans.ts';
import type { Scanned } from './splice.ts';

/** Where a lifted string's content stands in its body, and whether anything in it is written with an escape. */
export interface LiftedText {
  /** The first byte behind the opening quote. */
  readonly from: number;
  /** The closing quote. */
  readonly to: number;
  readonly escaped: boolean;
}

export interface LiftedBody {
  readonly bytes: Buffer;
  readonly skeleton: Buffer;
  readonly texts: LiftedTexts;
  readonly isUtf8: boolean;
  /** A string in it is none by the rules of JSON. */
  readonly broken: boolean;
}

/** A shorter string costs less in the skeleton than by itself, bytes. */
const LIFTED_FROM_BYTES = 512;
/** Members that are read as a prompt, or pass as they are. */
const LIFTED_MEMBERS: ReadonlySet<string> = new Set(['messages', 'prompt', 'tools', 'documents']);
const LONGEST_MEMBER = 9;
const INDEX_DIGITS = 8;
/** An escape is no longer: `\uXXXX`. */
const ESCAPE_BYTES = 6;
/** Room that is made at first, and how often what has come, as long as no more is announced. */
const FIRST_ROOM_BYTES = 2 * 1024 * 1024;
const ROOM_GROWTH = 4;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const COMMA = 0x2c;
const LETTER_U = 0x75;
const SPACE = 0x20;

/** `"\/bfnrt`: what may stand behind a backslash, but for `u`. */
const ESCAPABLE = new Uint8Array(256);
for (const byte of Buffer.from('"\\/bfnrt')) ESCAPABLE[byte] = 1;
const HEX = new Uint8Array(256);
for (const byte of Buffer.from('0123456789abcdefABCDEF')) HEX[byte] = 1;

/** The lifted strings of a body, by the names that the skeleton has for them. */
export class LiftedTexts {
  readonly body: Buffer;
  readonly #mark: string;
  readonly #texts: readonly LiftedText[];

  constructor(body: Buffer, mark: string, texts: readonly LiftedText[]) {
    this.body = body;
    this.#mark = mark;
    this.#texts = texts;
  }

  /** Null for a string that stands for itself. */
  named(value: string): LiftedText | null {
    const { length } = this.#mark;
    if (value.length !== length + INDEX_DIGITS || !value.startsWith(this.#mark)) return null;
    return this.#texts[Number(value.slice(length))] ?? null;
  }

  /** What a skeleton's JSON stands for: itself, or what was lifted out of it, in order. */
  partsOf(json: string): (string | LiftedText)[] {
    const parts: (string | LiftedText)[] = [];
    const nameLength = this.#mark.length + INDEX_DIGITS;
    let from = 0;
    for (let at = json.indexOf(this.#mark); at >= 0; at = json.indexOf(this.#mark, from)) {
      const text = this.named(json.slice(at, at + nameLength));
      if (text === null) break;
      parts.push(json.slice(from, at), text);
      from = at + nameLength;
    }
    parts.push(json.slice(from));
    return parts;
  }

  /** The members of the body, from those of its skeleton. */
  place(scan: Scanned): Scanned {
    const name = this.#mark.length + INDEX_DIGITS;
    let passed = 0;
    let shift = 0;
    // Asked in ascending order, about places between strings.
    const placed = (at: number): number => {
      for (
        let text = this.#texts[passed];
        text !== undefined && text.from - shift < at;
        text = this.#texts[passed]
      ) {
        shift += text.to - text.from - name;
        passed += 1;
      }
      return at + shift;
    };
    const open = placed(scan.open);
    const members = scan.members.map((member): MemberSpan => {
      const keyStart = placed(member.keyStart);
      const valueStart = placed(member.valueStart);
      return { ...member, keyStart, valueStart, valueEnd: placed(member.valueEnd) };
    });
    return { ok: true, members, open, close: placed(scan.close) };
  }
}

export class BodyLift {
  readonly #mark: string;
  readonly #announced: number;
  readonly #texts: LiftedText[] = [];
  #bytes: Buffer;
  /** The same memory, four bytes each. */
  #words: Int32Array;
  #filled = 0;
  /** All before is read. */
  #at = 0;
  #depth = 0;
  /** Of the string in which `at` stands, the first byte behind its quote; -1 outside. */
  #opened = -1;
  #escaped = false;
  /** The last string, as long as it is not known whether it is a key. */
  #closed: LiftedText | null = null;
  #lifts = false;
  #broken = false;

  /** `announced`: bytes that will come, as far as somebody says. */
  constructor(mark: string, announced: number | null) {
    this.#mark = mark;
    this.#announced = announced ?? Number.POSITIVE_INFINITY;
    this.#bytes = Buffer.allocUnsafeSlow(Math.min(this.#announced, FIRST_ROOM_BYTES));
    this.#words = wordsOf(this.#bytes);
  }

  get length(): number {
    return this.#filled;
  }

  /** Copies the piece. */
  add(piece: Uint8Array): void {
    this.#makeRoom(piece.length);
    this.#bytes.set(piece, this.#filled);
    this.#filled += piece.length;
    this.#read();
  }

  /** The whole body; null where nothing was lifted: it is its own skeleton. Nothing is added behind. */
  end(): LiftedBody | Buffer {
    const bytes = this.#bytes.subarray(0, this.#filled);
    if (this.#texts.length === 0) return bytes;
    return {
      bytes,
      skeleton: this.#skeleton(),
      texts: new LiftedTexts(bytes, this.#mark, this.#texts),
      isUtf8: isUtf8(bytes),
      broken: this.#broken,
    };
  }

  /** Never more than four times of what came, and mostly at once as much as is announced. */
  #makeRoom(more: number): void {
    const needed = this.#filled + more;
    if (needed <= this.#bytes.length) return;
    const room = Math.max(needed, Math.min(this.#announced, ROOM_GROWTH * this.#filled));
    const grown = Buffer.allocUnsafeSlow(room);
    this.#bytes.copy(grown, 0, 0, this.#filled);
    this.#bytes = grown;
    this.#words = wordsOf(grown);
  }

  #read(): void {
    let before = -1;
    while (this.#at < this.#filled && this.#at !== before) {
      before = this.#at;
      if (this.#opened < 0) this.#readBetween();
      else this.#readString();
    }
  }

  /** Up to the next string. */
  #readBetween(): void {
    const bytes = this.#bytes;
    const end = this.#filled;
    for (let at = this.#at; at < end; at += 1) {
      const byte = bytes[at] as number;
      if (byte <= SPACE) continue;
      if (this.#closed !== null) this.#settle(this.#closed, byte);
      if (byte === QUOTE) {
        this.#opened = at + 1;
        this.#at = at + 1;
        return;
      }
      // `{` and `[`, `}` and `]`: they differ in one bit.
      const folded = byte | 0x20;
      if (folded === 0x7b) this.#depth += 1;
      else if (folded === 0x7d) this.#depth -= 1;
      else if (byte === COMMA && this.#depth === 1) this.#lifts = false;
    }
    this.#at = end;
  }

  /** Up to the end of a string, or of what has come; stays before an escape that is not whole. */
  #readString(): void {
    const bytes = this.#bytes;
    const end = this.#filled;
    let at = this.#at;
    for (; at < end; at += 1) {
      if ((at & 3) === 0) at = this.#plainFrom(at);
      if (at === end) break;
      const byte = bytes[at] as number;
      if (byte !== QUOTE && byte !== BACKSLASH && byte >= SPACE) continue;
      if (byte === QUOTE) {
        this.#closed = { from: this.#opened, to: at, escaped: this.#escaped };
        this.#opened = -1;
        this.#escaped = false;
        at += 1;
        break;
      }
      if (byte !== BACKSLASH) {
        this.#broken = true;
        continue;
      }
      if (at + ESCAPE_BYTES > end && !this.#isWhole(at)) break;
      this.#escaped = true;
      at += this.#escape(at) - 1;
    }
    this.#at = at;
  }

  /** Behind the words from `at` on, four bytes each, in which a string neither ends nor has what is not plain. */
  #plainFrom(at: number): number {
    const words = this.#words;
    const end = this.#filled >> 2;
    let word = at >> 2;
    for (; word < end; word += 1) {
      const four = words[word] as number;
      // A byte's highest bit is set where it borrows: below 0x20 or a quote (0x22 is 0x20 then), or a backslash.
      const low = (four ^ 0x02020202) - 0x21212121;
      const backslash = (four ^ 0x5c5c5c5c) - 0x01010101;
      if (((low | backslash) & ~four & 0x80808080) !== 0) break;
    }
    return word << 2;
  }

  #isWhole(at: number): boolean {
    return at + 1 < this.#filled && this.#bytes[at + 1] !== LETTER_U;
  }

  /** Length of the escape at `at`, which is there in full. */
  #escape(at: number): number {
    const bytes = this.#bytes;
    const kind = bytes[at + 1] as number;
    if (ESCAPABLE[kind] === 1) return 2;
    if (kind === LETTER_U) {
      let digits = 0;
      while (digits < 4 && HEX[bytes[at + 2 + digits] as number] === 1) digits += 1;
      if (digits === 4) return ESCAPE_BYTES;
    }
    this.#broken = true;
    return 2;
  }

  /** What the string before `next` was. */
  #settle(closed: LiftedText, next: number): void {
    this.#closed = null;
    const length = closed.to - closed.from;
    if (next === COLON) {
      if (this.#depth === 1) this.#lifts = length <= LONGEST_MEMBER && this.#isLifted(closed);
    } else if (this.#lifts && length >= LIFTED_FROM_BYTES) this.#texts.push(closed);
  }

  #isLifted({ from, to }: LiftedText): boolean {
    return LIFTED_MEMBERS.has(this.#bytes.toString('latin1', from, to));
  }

  #skeleton(): Buffer {
    const pieces: Uint8Array[] = [];
    let from = 0;
    for (const [index, text] of this.#texts.entries()) {
      pieces.push(this.#bytes.subarray(from, text.from));
      pieces.push(Buffer.from(this.#mark + String(index).padStart(INDEX_DIGITS, '0')));
      from = text.to;
    }
    pieces.push(this.#bytes.subarray(from, this.#filled));
    return Buffer.concat(pieces);
  }
}

/** Of a buffer that has its memory to itself; without the bytes behind its last whole word. */
function wordsOf({ buffer, length }: Buffer): Int32Array {
  return new Int32Array(buffer, 0, length >> 2);
}

/** `member`: a path, as it names a conversation. */
export function isLiftedMember(member: string): boolean {
  const dot = member.indexOf('.');
  return LIFTED_MEMBERS.has(dot < 0 ? member : member.slice(0, dot));
}

/** A mark for names, unlike anything that a client writes by accident or can know. `hex`: 32 random digits. */
export function markOf(hex: string): string {
  return `lifted-${hex}-`;
}
