// Where the top-level members of a JSON object stand in its bytes, so that a few can be exchanged and every
// other byte goes on as it came.
//
// The scan checks depth and finds positions; it is not a validator: `JSON.parse` runs after it, and the
// spans are used only when that succeeds. Keys are compared as they are after unescaping, because an
// engine's parser sees them so: an escaped spelling of a member that we read is reported, never missed.

/** One member: its key's first byte (the quote) to the end of its value. */
export interface MemberSpan {
  readonly name: string;
  /** The key was written with an escape. */
  readonly escaped: boolean;
  readonly keyStart: number;
  readonly valueStart: number;
  /** One past the value's last byte. */
  readonly valueEnd: number;
}

export type SpanScan =
  | {
      readonly ok: true;
      readonly members: readonly MemberSpan[];
      /** Index of the object's opening brace and of its closing one. */
      readonly open: number;
      readonly close: number;
    }
  | { readonly ok: false; readonly reason: 'too_deep' | 'not_an_object' | 'malformed' };

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

/** Scans one JSON object. `maxDepth` counts nested objects and arrays, the outermost included. */
export function scanMembers(bytes: Buffer, maxDepth: number): SpanScan {
  const open = skipSpace(bytes, 0);
  if (bytes[open] !== OPEN_BRACE) return { ok: false, reason: 'not_an_object' };
  const members: MemberSpan[] = [];
  let at = skipSpace(bytes, open + 1);
  if (bytes[at] === CLOSE_BRACE) return { ok: true, members, open, close: at };
  for (;;) {
    const member = scanMember(bytes, at, maxDepth);
    if (typeof member === 'string') return { ok: false, reason: member };
    members.push(member);
    at = skipSpace(bytes, member.valueEnd);
    if (bytes[at] === CLOSE_BRACE) return { ok: true, members, open, close: at };
    if (bytes[at] !== COMMA) return { ok: false, reason: 'malformed' };
    at = skipSpace(bytes, at + 1);
  }
}

function scanMember(
  bytes: Buffer,
  keyStart: number,
  maxDepth: number,
): MemberSpan | 'too_deep' | 'malformed' {
  if (bytes[keyStart] !== QUOTE) return 'malformed';
  const keyEnd = stringEnd(bytes, keyStart);
  if (keyEnd < 0) return 'malformed';
  const colon = skipSpace(bytes, keyEnd);
  if (bytes[colon] !== COLON) return 'malformed';
  const valueStart = skipSpace(bytes, colon + 1);
  const valueEnd = scanValue(bytes, valueStart, maxDepth);
  if (typeof valueEnd === 'string') return valueEnd;
  const raw = bytes.toString('utf8', keyStart, keyEnd);
  const escaped = raw.includes('\\');
  const name = escaped ? unescapeKey(raw) : raw.slice(1, -1);
  if (name === null) return 'malformed';
  return { name, escaped, keyStart, valueStart, valueEnd };
}

function scanValue(
  bytes: Buffer,
  start: number,
  maxDepth: number,
): number | 'too_deep' | 'malformed' {
  let depth = 1;
  let at = start;
  while (at < bytes.length) {
    const byte = bytes[at];
    if (byte === QUOTE) {
      at = stringEnd(bytes, at);
      if (at < 0) return 'malformed';
      if (depth === 1) return at;
      continue;
    }
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      depth += 1;
      if (depth > maxDepth) return 'too_deep';
    } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
      if (depth === 1) return at === start ? 'malformed' : trimEnd(bytes, start, at);
      depth -= 1;
      if (depth === 1) return at + 1;
    } else if (byte === COMMA && depth === 1) {
      return at === start ? 'malformed' : trimEnd(bytes, start, at);
    }
    at += 1;
  }
  return 'malformed';
}

/** One past the closing quote of the string that opens at `start`; -1 when it never closes. */
function stringEnd(bytes: Buffer, start: number): number {
  let quote = bytes.indexOf(QUOTE, start + 1);
  while (quote >= 0) {
    let backslashes = 0;
    while (bytes[quote - 1 - backslashes] === BACKSLASH) backslashes += 1;
    if (backslashes % 2 === 0) return quote + 1;
    quote = bytes.indexOf(QUOTE, quote + 1);
  }
  return -1;
}

function skipSpace(bytes: Buffer, start: number): number {
  let at = start;
  while (isSpace(bytes[at])) at += 1;
  return at;
}

function trimEnd(bytes: Buffer, start: number, end: number): number {
  let at = end;
  while (at > start && isSpace(bytes[at - 1])) at -= 1;
  return at;
}

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

function unescapeKey(raw: string): string | null {
  try {
    const name: unknown = JSON.parse(raw);
    return typeof name === 'string' ? name : null;
  } catch {
    return null;
  }
}
