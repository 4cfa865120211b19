// The content of a JSON string, from its bytes as they were sent to UTF-8 of what they say, without a string in between
// and stretch by stretch.
//
//   text   what the string is                       \n → line feed, \u00e9 → é, half a surrogate pair → U+FFFD
//   json   what `JSON.stringify` writes of it       \/ → /, \u00e9 → é, \u000A → \n, half a surrogate pair → \ud800
//
// Neither form is ever longer than what was sent.

export type TextForm = 'text' | 'json';

/** Where a stretch ended. */
interface Stretch {
  /** First byte that was not read. */
  readonly at: number;
  /** Bytes written. */
  readonly written: number;
}

/** A stretch ends behind its limit by an escaped pair at most. */
export const OVER_LIMIT_BYTES = 16;

const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
const ESCAPE_BYTES = 6;
const REPLACEMENT = 0xfffd;

/** By the letter behind the backslash: what it stands for. */
const ESCAPED = new Uint8Array(256);
for (const [letter, byte] of Object.entries({
  ...{ '"': 0x22, '\\': BACKSLASH, '/': 0x2f },
  ...{ b: 0x08, f: 0x0c, n: 0x0a, r: 0x0d, t: 0x09 },
})) {
  ESCAPED[letter.charCodeAt(0)] = byte;
}
/** By a byte that JSON escapes with one letter: that letter. */
const SHORT = new Uint8Array(128);
for (const letter of '"\\bfnrt')
  SHORT[ESCAPED[letter.charCodeAt(0)] as number] = letter.charCodeAt(0);

/**
 * Writes content that is valid (`body` from `from` to `to`, the closing quote) to the beginning of `target`, which has room
 * for `limit` bytes and those over it. Whole characters only: what is read next begins one.
 */
export function writeStretch(
  { body, to, form }: { readonly body: Buffer; readonly to: number; readonly form: TextForm },
  from: number,
  { target, limit }: { readonly target: Buffer; readonly limit: number },
): Stretch {
  const end = wholeCharacters(body, Math.min(to, from + limit), to);
  let at = from;
  let written = 0;
  while (at < end) {
    const byte = body[at] as number;
    if (byte !== BACKSLASH) {
      target[written] = byte;
      written += 1;
      at += 1;
      continue;
    }
    const letter = body[at + 1] as number;
    if (letter !== LETTER_U) {
      written = writeUnit(target, written, { unit: ESCAPED[letter] as number, form });
      at += 2;
      continue;
    }
    const unit = hexUnit(body, at + 2);
    at += ESCAPE_BYTES;
    const low = isHigh(unit) ? lowBehind(body, at, to) : null;
    if (low === null) {
      written = writeUnit(target, written, { unit, form });
      continue;
    }
    at += ESCAPE_BYTES;
    written = writePair(target, written, 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00));
  }
  return { at, written };
}

/** `end`, or behind the character that it would divide. */
function wholeCharacters(body: Buffer, end: number, to: number): number {
  let at = end;
  while (at < to && ((body[at] as number) & 0xc0) === 0x80) at += 1;
  return at;
}

function isHigh(unit: number): boolean {
  return unit >= 0xd800 && unit < 0xdc00;
}

/** The second half of a pair, where its escape is what comes next. */
function lowBehind(body: Buffer, at: number, to: number): number | null {
  if (at + ESCAPE_BYTES > to || body[at] !== BACKSLASH || body[at + 1] !== LETTER_U) return null;
  const unit = hexUnit(body, at + 2);
  return unit >= 0xdc00 && unit < 0xe000 ? unit : null;
}

function hexUnit(body: Buffer, at: number): number {
  let unit = 0;
  for (let digit = 0; digit < 4; digit += 1) {
    const byte = body[at + digit] as number;
    unit = (unit << 4) | (byte <= 0x39 ? byte - 0x30 : (byte | 0x20) - 0x57);
  }
  return unit;
}

/** One UTF-16 unit that is no half of a pair; returns where the next one goes. */
function writeUnit(
  target: Buffer,
  at: number,
  { unit, form }: { readonly unit: number; readonly form: TextForm },
): number {
  const half = unit >= 0xd800 && unit < 0xe000;
  if (form === 'json') {
    const letter = unit < 0x80 ? (SHORT[unit] as number) : 0;
    if (letter !== 0) {
      target[at] = BACKSLASH;
      target[at + 1] = letter;
      return at + 2;
    }
    if (half || unit < 0x20) return at + target.write(escapeOf(unit), at, 'latin1');
  }
  const code = half ? REPLACEMENT : unit;
  if (code < 0x80) {
    target[at] = code;
    return at + 1;
  }
  if (code < 0x800) {
    target[at] = 0xc0 | (code >> 6);
    target[at + 1] = 0x80 | (code & 0x3f);
    return at + 2;
  }
  target[at] = 0xe0 | (code >> 12);
  target[at + 1] = 0x80 | ((code >> 6) & 0x3f);
  target[at + 2] = 0x80 | (code & 0x3f);
  return at + 3;
}

function escapeOf(unit: number): string {
  return `\\u${unit.toString(16).padStart(4, '0')}`;
}

function writePair(target: Buffer, at: number, code: number): number {
  target[at] = 0xf0 | (code >> 18);
  target[at + 1] = 0x80 | ((code >> 12) & 0x3f);
  target[at + 2] = 0x80 | ((code >> 6) & 0x3f);
  target[at + 3] = 0x80 | (code & 0x3f);
  return at + 4;
}
