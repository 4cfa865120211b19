// What an engine's event stream says, found by bytes: each event is whole and judged before it goes on.
//
// An engine answers 200 at once and prefills afterwards; a dying one sends its error as an event of that
// stream and then a polite `[DONE]`, or a last chunk with `finish_reason: "abort"`. So no event is passed
// before it was searched for both. The search is for the quoted words, which cannot stand inside a JSON
// string (its quotes are escaped); only an event that has one is parsed, to see whether it is what it seems.
// What only opens a chat stream is held until something follows it (stream-opening.ts). Most pieces are whole events that
// bring a token each and nothing else: those are known by one walk over their bytes, without the searches.
// Comments and empty events are swallowed: a tier sends its own. An error is `{"error": {…}}` (vLLM, SGLang, llama.cpp),
// `{"error": "…", "error_type": …}` (TGI) or the error itself (`{"object": "error", …}`).

import { ERRORS, type ErrorCode } from '../../shared/errors.ts';
import type { Usage } from '../../shared/protocol/messages.ts';
import { isObject } from './canonical.ts';
import { EventTail } from './event-tail.ts';
import { StreamOpening } from './stream-opening.ts';
import { usageOf } from './usage.ts';

export type StreamFault =
  | {
      readonly kind: 'error_event';
      readonly detail: string;
      /** HTTP status that the event names; null where it names none. */
      readonly status: number | null;
      /** The event's data. */
      readonly body: Buffer;
    }
  | { readonly kind: 'abort' }
  | { readonly kind: 'too_large' };

/** What one piece of the stream brought. */
export interface ScanResult {
  /** Whole events to pass on, as they came; empty when there are none. */
  readonly forward: readonly Buffer[];
  /** Events with data among `forward`, `[DONE]` not counted. */
  readonly dataEvents: number;
  /** Ends the stream: nothing after it counts. `forward` holds what came before it. */
  readonly fault: StreamFault | null;
}

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;
const COLON = 0x3a;
const OPEN_BRACE = 0x7b;
const ERROR_WORD = Buffer.from('"error"');
const ABORT_WORD = Buffer.from('"abort"');
const USAGE_WORD = Buffer.from('"usage"');
/** In every chunk of some engines: none yet. */
const NO_USAGE = Buffer.from('"usage":null');
const NO_CHOICES = /"choices"\s*:\s*\[\s*\]/;
const DONE = '[DONE]';
/** A longer event is not kept for the usage that it names, bytes: it is read at once. */
const KEPT_EVENT_BYTES = 64 * 1024;
/** A longer piece is searched for words: for so many bytes that is quicker than to walk over each. */
const WALKED_BYTES = 4 * 1024;
/** What may stand before a stream's first event, and is no part of it. */
const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);

export class EventScan {
  /** `[DONE]` has come. */
  done = false;
  usage: Usage | null = null;
  private readonly tail = new EventTail();
  /** Of the event that is being looked for; it goes on where it stopped, however small the pieces are. */
  private cursor = startOfEvent(false);
  /** The stream's first bytes, while they may be a byte order mark; null when that is known. */
  private lead: Buffer | null = Buffer.alloc(0);
  /** Engines end lines with LF: until a CR has come, none is looked for line by line. */
  private returns = false;
  private ended = false;
  private readonly opening = new StreamOpening();
  /** The last event that named usage beside choices, parsed only when no usage chunk comes. */
  private lastUsage: Buffer | null = null;
  /** Of one that was too long to be kept. */
  private readUsage: Usage | null = null;
  private readonly dropUsage: boolean;
  private readonly maxEventBytes: number;

  /** `dropUsage`: the client did not ask for the usage chunk. */
  constructor(dropUsage: boolean, maxEventBytes: number) {
    this.dropUsage = dropUsage;
    this.maxEventBytes = maxEventBytes;
  }

  /** Memory of the event whose end has not come. */
  get heldBytes(): number {
    return this.tail.heldBytes;
  }

  /** Takes one piece as it came from the socket, cut anywhere. */
  push(piece: Buffer): ScanResult {
    const forward: Buffer[] = [];
    let dataEvents = 0;
    if (this.ended) return { forward, dataEvents, fault: null };
    const plain = this.isBetweenEvents ? plainEvents(piece) : 0;
    if (plain > 0) return { forward: [piece], dataEvents: plain, fault: null };
    this.returns ||= piece.includes(CR);
    const bytes = this.tail.with(this.unmarked(piece));
    this.cursor.returns = this.returns;
    let start = 0;
    for (;;) {
      const end = eventEnd(bytes, start, this.cursor);
      if (end < 0) break;
      this.cursor = startOfEvent(this.returns);
      const event = bytes.subarray(start, end);
      start = end;
      const verdict = this.judge(event);
      if (verdict === 'data' && this.opening.holds(event, parseEvent)) continue;
      if (verdict === 'data' || verdict === 'done') dataEvents += this.release(forward);
      if (verdict === 'data') dataEvents += 1;
      if (verdict === 'data' || verdict === 'done') append(forward, event);
      if (typeof verdict === 'object') return this.fail(forward, dataEvents, verdict);
    }
    this.tail.keep(bytes, start);
    if (this.tail.length > this.maxEventBytes) {
      return this.fail(forward, dataEvents, { kind: 'too_large' });
    }
    return { forward, dataEvents, fault: null };
  }

  /**
   * The stream's end: usage from where it stood. An unfinished event is never passed on, but for a
   * `[DONE]` that lacks only its blank line: that one is returned, completed.
   */
  finish(): Buffer | null {
    const last = this.tail.with(Buffer.alloc(0));
    this.tail.clear();
    if (!this.done && last.length < 32 && dataOf(last) === DONE) {
      this.done = true;
      this.readLastUsage();
      return Buffer.from(`data: ${DONE}\n\n`);
    }
    this.readLastUsage();
    return null;
  }

  /** Nothing that came before has any part in what comes now. */
  private get isBetweenEvents(): boolean {
    return this.opening.over && this.tail.length === 0 && !this.returns && !this.done;
  }

  private unmarked(piece: Buffer): Buffer {
    if (this.lead === null) return piece;
    const first = this.lead.length === 0 ? piece : Buffer.concat([this.lead, piece]);
    const seen = Math.min(first.length, BYTE_ORDER_MARK.length);
    const marked = first.compare(BYTE_ORDER_MARK, 0, seen, 0, seen) === 0;
    this.lead = marked && seen < BYTE_ORDER_MARK.length ? first : null;
    if (this.lead !== null) return Buffer.alloc(0);
    return marked ? first.subarray(seen) : first;
  }

  /** The number of events that were held until now. */
  private release(forward: Buffer[]): number {
    const held = this.opening.release();
    for (const event of held) append(forward, event);
    return held.length;
  }

  private readLastUsage(): void {
    if (this.lastUsage !== null) this.readUsage = usageIn(this.lastUsage);
    this.usage ??= this.readUsage;
  }

  private fail(forward: Buffer[], dataEvents: number, fault: StreamFault): ScanResult {
    this.ended = true;
    this.tail.clear();
    return { forward, dataEvents, fault };
  }

  private judge(event: Buffer): 'data' | 'done' | 'drop' | StreamFault {
    if (this.done || !hasData(event)) return 'drop';
    if (event.length < 32 && dataOf(event) === DONE) {
      this.done = true;
      return 'done';
    }
    if (event.includes(ERROR_WORD) || event.includes(ABORT_WORD)) {
      const fault = faultOf(event);
      if (fault !== null) return fault;
    }
    if (namesUsage(event)) return this.judgeUsage(event);
    return 'data';
  }

  private judgeUsage(event: Buffer): 'data' | 'drop' {
    if (!NO_CHOICES.test(event.toString('latin1'))) {
      const kept = event.length <= KEPT_EVENT_BYTES;
      this.lastUsage = kept ? event : null;
      if (!kept) this.readUsage = usageIn(event);
      return 'data';
    }
    const value = parseEvent(event);
    const choices = isObject(value) ? value['choices'] : null;
    if (!isObject(value) || !Array.isArray(choices) || choices.length > 0) return 'data';
    this.usage = usageOf(value['usage']) ?? this.usage;
    return this.dropUsage ? 'drop' : 'data';
  }
}

/**
 * Events in a piece that is nothing but whole ones of one line `data: {…}` each, without a word that is searched for; 0
 * where it is anything else, or may be.
 */
function plainEvents(piece: Buffer): number {
  const { length } = piece;
  if (length > WALKED_BYTES) return 0;
  let events = 0;
  for (let at = 0; at < length; at += 2) {
    if (!isDataLine(piece, at) || piece[at + 5] !== SPACE || piece[at + 6] !== OPEN_BRACE) return 0;
    for (at += 7; piece[at] !== LF; at += 1) {
      const byte = piece[at];
      if (byte === QUOTE && mayBeginWord(piece, at)) return 0;
      if (byte === CR || byte === undefined) return 0;
    }
    if (piece[at + 1] !== LF) return 0;
    events += 1;
  }
  return events;
}

/** Whether what stands behind a quote may be `error`, `abort`, or `usage` with anything but null. */
function mayBeginWord(bytes: Buffer, quote: number): boolean {
  const first = bytes[quote + 1];
  const second = bytes[quote + 2];
  if (first === 0x65) return second === 0x72;
  if (first === 0x61) return second === 0x62;
  return first === 0x75 && second === 0x73 && !bytesAt(bytes, quote, NO_USAGE);
}

function namesUsage(event: Buffer): boolean {
  for (let at = event.indexOf(USAGE_WORD); at >= 0; at = event.indexOf(USAGE_WORD, at + 1)) {
    if (!bytesAt(event, at, NO_USAGE)) return true;
  }
  return false;
}

function bytesAt(bytes: Buffer, at: number, wanted: Buffer): boolean {
  for (let k = 0; k < wanted.length; k += 1) if (bytes[at + k] !== wanted[k]) return false;
  return true;
}

function usageIn(event: Buffer): Usage | null {
  const value = parseEvent(event);
  return isObject(value) ? usageOf(value['usage']) : null;
}

/** Where the search for an event's end stands, from the event's first byte. */
interface Cursor {
  lineStart: number;
  from: number;
  /** Lines may end with CR. */
  returns: boolean;
}

function startOfEvent(returns: boolean): Cursor {
  return { lineStart: 0, from: 0, returns };
}

/**
 * One past the blank line that ends the event beginning at `start`; -1 while it has not come, and then `cursor` says
 * where to go on when there is more.
 */
function eventEnd(bytes: Buffer, start: number, cursor: Cursor): number {
  for (;;) {
    const lineEnd = nextLineEnd(bytes, start + cursor.from, cursor.returns);
    const next = lineEnd < 0 ? -1 : afterLineEnd(bytes, lineEnd);
    if (next < 0) {
      cursor.from = (lineEnd < 0 ? bytes.length : lineEnd) - start;
      return -1;
    }
    if (lineEnd === start + cursor.lineStart) return next;
    cursor.lineStart = next - start;
    cursor.from = cursor.lineStart;
  }
}

function nextLineEnd(bytes: Buffer, from: number, returns = true): number {
  const lf = bytes.indexOf(LF, from);
  if (!returns) return lf;
  // A lone CR ends a line too, so the nearer of the two counts.
  const end = lf < 0 ? bytes.length : lf;
  const cr = bytes.subarray(from, end).indexOf(CR);
  return cr >= 0 ? from + cr : lf;
}

/** -1 when a CR is the last byte so far: whether an LF belongs to it is not known yet. */
function afterLineEnd(bytes: Buffer, lineEnd: number): number {
  if (bytes[lineEnd] === LF) return lineEnd + 1;
  if (lineEnd + 1 >= bytes.length) return -1;
  return bytes[lineEnd + 1] === LF ? lineEnd + 2 : lineEnd + 1;
}

function hasData(event: Buffer): boolean {
  if (isDataLine(event, 0)) return true;
  for (let at = nextLineEnd(event, 0); at >= 0 && at + 1 < event.length;) {
    if (isDataLine(event, at + 1)) return true;
    at = nextLineEnd(event, at + 1);
  }
  return false;
}

/** By single bytes: a call for five of them costs more than the rest of the look at an event. */
function isDataLine(event: Buffer, at: number): boolean {
  return (
    event[at] === 0x64 &&
    event[at + 1] === 0x61 &&
    event[at + 2] === 0x74 &&
    event[at + 3] === 0x61 &&
    event[at + 4] === COLON
  );
}

/** The event's data lines, joined as the format says. */
function dataOf(event: Buffer): string {
  // One line, as nearly all events are.
  if (isDataLine(event, 0) && event.indexOf(LF) === event.length - 2 && !event.includes(CR)) {
    return event.toString('utf8', event[5] === SPACE ? 6 : 5, event.length - 2).trimEnd();
  }
  const data: string[] = [];
  for (const line of event.toString('utf8').split(/\r\n|\n|\r/)) {
    if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
  }
  return data.join('\n').trimEnd();
}

function parseEvent(event: Buffer): unknown {
  try {
    return JSON.parse(dataOf(event)) as unknown;
  } catch {
    // Not JSON: nothing of ours to read in it, and the client gets it as it came.
    return null;
  }
}

function faultOf(event: Buffer): StreamFault | null {
  const value = parseEvent(event);
  if (!isObject(value)) return null;
  if (isFault(value)) {
    const body = Buffer.from(dataOf(event));
    return { kind: 'error_event', detail: faultText(value), status: faultStatus(value), body };
  }
  const choices = value['choices'];
  if (!Array.isArray(choices)) return null;
  const aborted = choices.some((choice) => isObject(choice) && choice['finish_reason'] === 'abort');
  return aborted ? { kind: 'abort' } : null;
}

/** An error in any of the shapes that engines use: a member `error`, or the error as the event itself. */
export function isFault(value: Readonly<Record<string, unknown>>): boolean {
  const error = value['error'];
  return (error !== undefined && error !== null && error !== false) || value['object'] === 'error';
}

/** Of TGI's `error_type`s those that are not the engine's own fault: its events name no status. */
const TGI_STATUS: Readonly<Record<string, number>> = {
  overloaded: 429,
  validation: 422,
  template_error: 422,
  missing_template_variable: 422,
  tool_error: 422,
};

/** The HTTP status that an error names, by whatever name; null where it names none. Another tier names a code of ours. */
function faultStatus(value: Readonly<Record<string, unknown>>): number | null {
  const error = isObject(value['error']) ? value['error'] : value;
  const { code, error_type: type } = error;
  if (typeof code === 'number') return code;
  if (typeof code === 'string' && Object.hasOwn(ERRORS, code))
    return ERRORS[code as ErrorCode].status;
  return typeof type === 'string' && Object.hasOwn(TGI_STATUS, type)
    ? (TGI_STATUS[type] ?? null)
    : null;
}

/** Type and code of an engine's fault, for the log. Its message may quote the prompt, so it stays out. */
export function faultText(value: Readonly<Record<string, unknown>>): string {
  const error = isObject(value['error']) ? value['error'] : value;
  const words = [error['type'], error['error_type'], error['code']].filter(
    (word) => typeof word === 'string' || typeof word === 'number',
  );
  return words.length === 0 ? 'error' : words.join(' ').slice(0, 100);
}

/** Neighbouring events of one piece go on as one: no copying, one write. */
function append(forward: Buffer[], event: Buffer): void {
  const last = forward.at(-1);
  if (last !== undefined && last.buffer === event.buffer) {
    const end = last.byteOffset + last.length;
    if (end === event.byteOffset) {
      forward[forward.length - 1] = Buffer.from(
        last.buffer,
        last.byteOffset,
        last.length + event.length,
      );
      return;
    }
  }
  forward.push(event);
}
