// Where and how Python's JSON decoder gives up on a text that is no JSON: its words are part of vLLM's error body.

export interface JsonFault {
  /** Character. */
  readonly at: number;
  readonly words: string;
}

const VALUE = 'Expecting value';
const NAME = 'Expecting property name enclosed in double quotes';
const SPACES = /[ \t\n\r]*/y;
const LITERAL =
  /true|false|null|NaN|Infinity|-Infinity|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?/y;

/** The first fault; null when the text is JSON. */
export function jsonFault(text: string): JsonFault | null {
  const reader = new Reader(text);
  reader.skip();
  const fault = reader.value();
  if (fault !== null) return fault;
  reader.skip();
  return reader.at === text.length ? null : { at: reader.at, words: 'Extra data' };
}

class Reader {
  readonly #text: string;
  at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  skip(): void {
    SPACES.lastIndex = this.at;
    this.at += SPACES.exec(this.#text)?.[0].length ?? 0;
  }

  value(): JsonFault | null {
    const start = this.#text[this.at];
    if (start === '"') return this.#string();
    if (start === '{') return this.#object();
    if (start === '[') return this.#array();
    LITERAL.lastIndex = this.at;
    const literal = LITERAL.exec(this.#text)?.[0];
    if (literal === undefined) return { at: this.at, words: VALUE };
    this.at += literal.length;
    return null;
  }

  #string(): JsonFault | null {
    const start = this.at;
    for (let at = start + 1; at < this.#text.length; at += 1) {
      const code = this.#text.charCodeAt(at);
      if (code === 0x22) {
        this.at = at + 1;
        return null;
      }
      if (code < 0x20) return { at, words: 'Invalid control character at' };
      if (code !== 0x5c) continue;
      const escaped = this.#text[at + 1];
      if (escaped === undefined) break;
      if (!'"\\/bfnrtu'.includes(escaped)) return { at, words: 'Invalid \\\\escape' };
      if (escaped === 'u' && !/^[0-9a-f]{4}/i.test(this.#text.slice(at + 2, at + 6))) {
        return { at: at + 1, words: 'Invalid \\\\uXXXX escape' };
      }
      at += 1;
    }
    return { at: start, words: 'Unterminated string starting at' };
  }

  #object(): JsonFault | null {
    this.at += 1;
    this.skip();
    if (this.#take('}')) return null;
    for (;;) {
      if (this.#text[this.at] !== '"') return { at: this.at, words: NAME };
      const name = this.#string();
      if (name !== null) return name;
      this.skip();
      if (!this.#take(':')) return { at: this.at, words: "Expecting ':' delimiter" };
      this.skip();
      const value = this.value();
      if (value !== null) return value;
      this.skip();
      if (this.#take('}')) return null;
      if (!this.#take(',')) return { at: this.at, words: "Expecting ',' delimiter" };
      this.skip();
    }
  }

  #array(): JsonFault | null {
    this.at += 1;
    this.skip();
    if (this.#take(']')) return null;
    for (;;) {
      const value = this.value();
      if (value !== null) return value;
      this.skip();
      if (this.#take(']')) return null;
      if (!this.#take(',')) return { at: this.at, words: "Expecting ',' delimiter" };
      this.skip();
    }
  }

  #take(character: string): boolean {
    if (this.#text[this.at] !== character) return false;
    this.at += 1;
    return true;
  }
}
