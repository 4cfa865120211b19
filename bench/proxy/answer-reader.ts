// Reads one HTTP/1.1 answer as a client sees it, at any cut of its bytes: status, framing, events, the last it said. It trusts no proxy:
// an answer is whole only when its framing says so, and a byte behind the end, a chunk that is not as long as it says or a
// body without a length is a fault.
//
//   head → sized (content-length) → whole
//   head → size ⇄ data → data-end (chunked) → trailer → whole
//
// Events end with an empty line (LF LF, as the replica writes them); they are counted in the body, whatever chunks it came in.

/** Of the body's end, for who judges it; a refusal is told in as many. */
const TAIL_CHARS = 200;
const HEAD_MAX = 16_384;
const SIZE_LINE_MAX = 32;
const LF = 10;
const CR = 13;

type Part = 'head' | 'sized' | 'size' | 'data' | 'data-end' | 'trailer' | 'whole';

export class AnswerReader {
  status = 0;
  events = 0;
  /** The last characters of the body. */
  tail = '';
  /** Whether a byte of the body has come. */
  begun = false;
  /** Whether the connection may carry another request. */
  kept = true;
  #part: Part = 'head';
  /** Of a head, size line or trailer that a cut left. */
  #carry = '';
  #left = 0;
  #newline = false;

  get whole(): boolean {
    return this.#part === 'whole';
  }

  reset(): void {
    this.status = 0;
    this.events = 0;
    this.tail = '';
    this.begun = false;
    this.kept = true;
    this.#part = 'head';
    this.#carry = '';
    this.#left = 0;
    this.#newline = false;
  }

  /** The fault that it finds; null while all is as it must be. */
  take(bytes: Buffer): string | null {
    let at = 0;
    while (at < bytes.length) {
      const next = this.#step(bytes, at);
      if (typeof next === 'string') return next;
      at = next;
    }
    return null;
  }

  #step(bytes: Buffer, at: number): number | string {
    switch (this.#part) {
      case 'head':
        return this.#head(bytes, at);
      case 'sized':
        return this.#data(bytes, at, 'whole');
      case 'size':
        return this.#size(bytes, at);
      case 'data':
        return this.#data(bytes, at, 'data-end');
      case 'data-end':
        return this.#dataEnd(bytes, at);
      case 'trailer':
        return this.#trailer(bytes, at);
      case 'whole':
        return `${bytes.length - at} bytes behind the end`;
    }
  }

  #head(bytes: Buffer, at: number): number | string {
    const text = this.#carry + bytes.toString('latin1', at);
    const end = text.indexOf('\r\n\r\n');
    if (end < 0) {
      this.#carry = text;
      return text.length > HEAD_MAX ? 'a head without an end' : bytes.length;
    }
    const next = at + end + 4 - this.#carry.length;
    this.#carry = '';
    return this.#headOf(text.slice(0, end + 2)) ?? next;
  }

  /** Its lines, each with its end. */
  #headOf(head: string): string | null {
    this.status = Number(/^HTTP\/1\.1 (\d{3})[ \r]/.exec(head)?.[1] ?? 0);
    if (this.status === 0) return `no status line: ${head.slice(0, TAIL_CHARS)}`;
    this.kept = !/\r\nconnection: *close\r\n/i.test(head);
    const length = /\r\ncontent-length: *(\d+)\r\n/i.exec(head)?.[1];
    const chunked = /\r\ntransfer-encoding: *chunked\r\n/i.test(head);
    if (chunked === (length !== undefined)) return 'a body whose length is told twice or never';
    if (chunked) this.#part = 'size';
    else this.#ofLength(Number(length), 'sized', 'whole');
    return null;
  }

  #size(bytes: Buffer, at: number): number | string {
    const end = bytes.indexOf(LF, at);
    const line = this.#carry + bytes.toString('latin1', at, end < 0 ? bytes.length : end + 1);
    if (line.length > SIZE_LINE_MAX) return 'a chunk without a size';
    this.#carry = end < 0 ? line : '';
    if (end < 0) return bytes.length;
    const hex = /^([0-9a-f]{1,8})\r\n$/i.exec(line)?.[1];
    if (hex === undefined) return `no size of a chunk: ${JSON.stringify(line)}`;
    this.#ofLength(Number.parseInt(hex, 16), 'data', 'trailer');
    return end + 1;
  }

  #ofLength(length: number, part: Part, none: Part): void {
    this.#left = length;
    this.#part = length === 0 ? none : part;
  }

  #data(bytes: Buffer, at: number, then: Part): number {
    const end = Math.min(bytes.length, at + this.#left);
    this.begun = true;
    for (let each = at; each < end; each += 1) {
      const newline = bytes[each] === LF;
      if (newline && this.#newline) this.events += 1;
      // Two pairs do not share a line feed.
      this.#newline = newline && !this.#newline;
    }
    const from = Math.max(at, end - TAIL_CHARS);
    const said = bytes.toString('latin1', from, end);
    this.tail = said.length === TAIL_CHARS ? said : (this.tail + said).slice(-TAIL_CHARS);
    this.#left -= end - at;
    if (this.#left === 0) this.#part = then;
    return end;
  }

  /** CR LF behind each chunk. */
  #dataEnd(bytes: Buffer, at: number): number | string {
    const wanted = this.#carry === '' ? CR : LF;
    if (bytes[at] !== wanted) return 'a chunk that is not as long as it says';
    this.#carry = wanted === CR ? '\r' : '';
    if (wanted === LF) this.#part = 'size';
    return at + 1;
  }

  /** No field is looked for in it: an empty line ends it, and the answer. */
  #trailer(bytes: Buffer, at: number): number | string {
    const end = bytes.indexOf(LF, at);
    const line = this.#carry + bytes.toString('latin1', at, end < 0 ? bytes.length : end + 1);
    if (line.length > HEAD_MAX) return 'a trailer without an end';
    this.#carry = end < 0 ? line : '';
    if (line === '\r\n') this.#part = 'whole';
    return end < 0 ? bytes.length : end + 1;
  }
}
