// Reads frames that are as a schema wants them in one walk over their bytes. The long way (`map-frame.ts`) looks at each
// four times: whether it is plain msgpack, what it holds, whether the schema accepts that, what the schema does not know.
// Of a report with its fifty fields that is most of what a router pays for hearing it.
//
// A reader is made from the schema and takes nothing that the schema would refuse, alter but for its `overwrite`s, or drop a
// field of: it gives up (null) at the first byte that it does not expect, and the long way says what the frame is. So text
// beyond ASCII, integers of 64 bits, unknown fields and values of newer peers all go the long way.
//
// Fields may come in any order; the order of the last frame is expected.

import type { z } from 'zod';

/** The message of a frame; null: ask the long way. */
type PlainReader<T> = (frame: Uint8Array) => T | null;

/** Throws where the schema has what no reader is made for: a transform, bytes. */
export function plainReader<T>(schema: z.ZodType<T>): PlainReader<T> {
  const read = readOf(schema);
  return (frame) => {
    const cursor = new Cursor(frame);
    const value = read(cursor);
    return value === MISFIT || cursor.at !== frame.length ? null : (value as T);
  };
}

/** What does not fit. */
const MISFIT = Symbol('misfit');

type Read = (cursor: Cursor) => unknown;
type Def = z.core.$ZodTypeDef & { readonly checks?: readonly z.core.$ZodCheck[] };

class Cursor {
  readonly bytes: Uint8Array;
  readonly view: DataView;
  at = 0;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  byte(): number {
    const byte = this.bytes[this.at];
    this.at += 1;
    return byte ?? RESERVED;
  }

  /** Length of what begins here; `fixed` are the bits of a short one in its first byte. -1: something else begins. */
  length(fixed: number, mask: number, wide: readonly [number | null, number]): number {
    const type = this.byte();
    if ((type & ~mask) === fixed) return type & mask;
    const bytes = type === wide[0] ? 1 : type === wide[1] ? 2 : 0;
    if (bytes === 0 || this.at + bytes > this.bytes.length) return -1;
    const length = bytes === 1 ? this.view.getUint8(this.at) : this.view.getUint16(this.at);
    this.at += bytes;
    return length;
  }

  mapLength(): number {
    return this.length(0x80, 0x0f, [null, 0xde]);
  }

  listLength(): number {
    return this.length(0x90, 0x0f, [null, 0xdc]);
  }

  textLength(): number {
    return this.length(0xa0, 0x1f, [0xd9, 0xda]);
  }

  /** Whether the text that stands here is this one. */
  isText(text: string, length: number): boolean {
    if (text.length !== length) return false;
    for (let k = 0; k < length; k += 1) {
      if (this.bytes[this.at + k] !== text.charCodeAt(k)) return false;
    }
    return true;
  }
}

/** No value begins with it. */
const RESERVED = 0xc1;
const NIL = 0xc0;
const FALSE = 0xc2;
const TRUE = 0xc3;

/** Those whose reader keeps to checks. */
const CHECKED: ReadonlySet<string> = new Set(['record', 'array', 'string', 'number']);

function readOf(schema: z.core.$ZodType): Read {
  const def = schema._zod.def as Def;
  if (!CHECKED.has(def.type)) refuseChecks(def);
  switch (def.type) {
    case 'object':
      return readObject(def as z.core.$ZodObjectDef);
    case 'record':
      return readRecord(def as z.core.$ZodRecordDef);
    case 'array':
      return readList(def as z.core.$ZodArrayDef);
    case 'string':
      return readText(def);
    case 'number':
      return readNumber(def);
    case 'boolean':
      return readBoolean;
    case 'enum':
      return readOneOf(Object.values((def as z.core.$ZodEnumDef).entries));
    case 'literal':
      return readOneOf((def as z.core.$ZodLiteralDef<string>).values);
    case 'nullable':
      return readNullable(readOf((def as z.core.$ZodNullableDef).innerType));
    case 'optional':
      return readOf(neverFilled((def as z.core.$ZodOptionalDef).innerType));
    case 'default':
    case 'catch':
      // What they stand in for goes the long way.
      return readOf((def as z.core.$ZodDefaultDef).innerType);
    case 'union':
      // The first that accepts decides; whether another would, the long way tells.
      return readOf((def as z.core.$ZodUnionDef).options[0] as z.core.$ZodType);
    default:
      throw new Error(`no reader for '${def.type}'`);
  }
}

/** What may be missing, and is then something. */
function neverFilled(schema: z.core.$ZodType): z.core.$ZodType {
  const { type } = schema._zod.def;
  if (type === 'default' || type === 'catch')
    throw new Error(`no reader for an optional '${type}'`);
  return schema;
}

function readBoolean(cursor: Cursor): unknown {
  const type = cursor.byte();
  return type === TRUE ? true : type === FALSE ? false : MISFIT;
}

function readNullable(read: Read): Read {
  return (cursor) => {
    if (cursor.bytes[cursor.at] !== NIL) return read(cursor);
    cursor.at += 1;
    return null;
  };
}

interface Field {
  readonly name: string;
  readonly read: Read;
  readonly optional: boolean;
  /** The map in which it stood last, by number. */
  seenIn: number;
  /** The field that stood behind it there. */
  next: number;
}

function readObject(def: z.core.$ZodObjectDef): Read {
  const fields = Object.entries(def.shape).map(([name, schema], index): Field => ({
    name,
    read: readOf(schema),
    optional: schema._zod.def.type === 'optional',
    seenIn: 0,
    next: index + 1,
  }));
  const required = fields.filter(({ optional }) => !optional);
  const empty = Object.fromEntries(required.map(({ name }) => [name, null]));
  let maps = 0;
  return (cursor) => {
    const count = cursor.mapLength();
    if (count < required.length) return MISFIT;
    const map = (maps += 1);
    // Of one shape: whoever reads its fields finds them where they were in the last one.
    const object: Record<string, unknown> = { ...empty };
    let missing = required.length;
    let before: Field | null = null;
    for (let k = 0; k < count; k += 1) {
      const index = fieldAt(cursor, fields, before?.next ?? 0);
      const field = fields[index];
      if (field === undefined || field.seenIn === map) return MISFIT;
      if (before !== null) before.next = index;
      before = field;
      field.seenIn = map;
      const value = field.read(cursor);
      if (value === MISFIT) return MISFIT;
      object[field.name] = value;
      if (!field.optional) missing -= 1;
    }
    return missing === 0 ? object : MISFIT;
  };
}

/** Which field's name stands here, and behind it; -1 for none. */
function fieldAt(cursor: Cursor, fields: readonly Field[], expected: number): number {
  const length = cursor.textLength();
  const index = cursor.isText(fields[expected]?.name ?? '', length)
    ? expected
    : fields.findIndex(({ name }) => cursor.isText(name, length));
  cursor.at += length;
  return index;
}

function readRecord(def: z.core.$ZodRecordDef): Read {
  // Of a closed set of names none may be missing.
  const names = def.keyType._zod.def.type;
  if (names !== 'string') throw new Error(`no reader for names by '${names}'`);
  const readName = readOf(def.keyType);
  const readValue = readOf(def.valueType);
  const fits = checksOf(def);
  return (cursor) => {
    const count = cursor.mapLength();
    if (count < 0) return MISFIT;
    const record: Record<string, unknown> = {};
    for (let k = 0; k < count; k += 1) {
      const name = readName(cursor);
      const value = name === MISFIT ? MISFIT : readValue(cursor);
      // Names that an object has by itself, or twice, are the long way's to judge.
      if (value === MISFIT || (name as string) in record) return MISFIT;
      record[name as string] = value;
    }
    return fits(record) ? record : MISFIT;
  };
}

function readList(def: z.core.$ZodArrayDef): Read {
  const read = readOf(def.element);
  const fits = checksOf(def);
  return (cursor) => {
    const count = cursor.listLength();
    if (count < 0) return MISFIT;
    const list: unknown[] = [];
    for (let k = 0; k < count; k += 1) {
      const value = read(cursor);
      if (value === MISFIT) return MISFIT;
      list.push(value);
    }
    return fits(list) ? list : MISFIT;
  };
}

function readText(def: Def): Read {
  if ('check' in def) throw new Error('no reader for a text of a format');
  const fits = checksOf(def);
  const read = plainText();
  return (cursor) => {
    const text = read(cursor);
    return text !== null && fits(text) ? text : MISFIT;
  };
}

function readOneOf(values: readonly unknown[]): Read {
  const known = new Set(values);
  const read = plainText();
  return (cursor) => {
    const text = read(cursor);
    return text !== null && known.has(text) ? text : MISFIT;
  };
}

/** ASCII alone. Most texts are those of the frame before: then no new one is made. */
function plainText(): (cursor: Cursor) => string | null {
  let last = '';
  return (cursor) => {
    const length = cursor.textLength();
    const { at, bytes } = cursor;
    if (length < 0 || at + length > bytes.length) return null;
    if (!cursor.isText(last, length)) {
      let text = '';
      for (let k = 0; k < length; k += 1) {
        const byte = bytes[at + k] as number;
        if (byte > 0x7f) return null;
        text += String.fromCharCode(byte);
      }
      last = text;
    }
    cursor.at += length;
    return last;
  };
}

interface NumberBounds {
  whole: boolean;
  least: number;
  most: number;
  readonly overwrite: ((value: number) => number)[];
}

function readNumber(def: Def): Read {
  const bounds = boundsOf(def);
  const { whole, least, most, overwrite } = bounds;
  return (cursor) => {
    let value = numberAt(cursor);
    if (!(value >= least && value <= most) || !Number.isFinite(value)) return MISFIT;
    if (whole && !Number.isSafeInteger(value)) return MISFIT;
    for (const change of overwrite) value = change(value);
    return value;
  };
}

function boundsOf(def: Def): NumberBounds {
  const bounds: NumberBounds = { whole: false, least: -Infinity, most: Infinity, overwrite: [] };
  const own = def as Def & { readonly check?: string; readonly format?: string };
  if (own.check !== undefined) noteBound(bounds, own as unknown as z.core.$ZodCheckDef);
  for (const check of def.checks ?? []) noteBound(bounds, check._zod.def);
  return bounds;
}

function noteBound(bounds: NumberBounds, def: z.core.$ZodCheckDef): void {
  const { check, value, inclusive, format, tx } = def as z.core.$ZodCheckDef & {
    readonly value: number;
    readonly inclusive: boolean;
    readonly format: string;
    readonly tx: (value: number) => number;
  };
  const after = bounds.overwrite.length > 0;
  if (check === 'overwrite') bounds.overwrite.push(tx);
  else if (after) throw new Error('no reader for a bound of what was overwritten');
  else if (check === 'number_format' && format === 'safeint') bounds.whole = true;
  else if (check === 'greater_than' && inclusive) bounds.least = Math.max(bounds.least, value);
  else if (check === 'less_than' && inclusive) bounds.most = Math.min(bounds.most, value);
  else throw new Error(`no reader for a number's '${check}'`);
}

/** Not a number where something else stands here, or one of 64 bits. */
function numberAt(cursor: Cursor): number {
  const type = cursor.byte();
  if (type <= 0x7f) return type;
  if (type >= 0xe0) return type - 0x100;
  const { view, at } = cursor;
  const bytes = NUMBER_BYTES[type] ?? 0;
  if (bytes === 0 || at + bytes > view.byteLength) return Number.NaN;
  cursor.at += bytes;
  switch (type) {
    case 0xcb:
      return view.getFloat64(at);
    case 0xcc:
      return view.getUint8(at);
    case 0xcd:
      return view.getUint16(at);
    case 0xce:
      return view.getUint32(at);
    case 0xd0:
      return view.getInt8(at);
    case 0xd1:
      return view.getInt16(at);
    default:
      return view.getInt32(at);
  }
}

/** By the first byte. */
const NUMBER_BYTES: Readonly<Record<number, number>> = {
  ...{ 0xcb: 8, 0xcc: 1, 0xcd: 2, 0xce: 4, 0xd0: 1, 0xd1: 2, 0xd2: 4 },
};

/** The schema's own checks of a text, list or record; none of them changes it. */
function checksOf({ checks = [] }: Def): (value: unknown) => boolean {
  for (const { _zod } of checks) {
    if (_zod.def.check === 'overwrite') throw new Error('no reader for what is overwritten');
  }
  if (checks.length === 0) return () => true;
  const [least, most] = lengthsOf(checks);
  const others = checks.filter(({ _zod }) => !LENGTHS.has(_zod.def.check));
  return (value) => {
    const { length } = value as { readonly length?: number };
    if (length !== undefined && (length < least || length > most)) return false;
    return others.every((check) => {
      const payload = { value: value as never, issues: [] };
      void check._zod.check(payload);
      return payload.issues.length === 0;
    });
  };
}

const LENGTHS: ReadonlySet<string> = new Set(['min_length', 'max_length']);

function lengthsOf(checks: readonly z.core.$ZodCheck[]): [number, number] {
  let [least, most] = [0, Infinity];
  for (const { _zod } of checks) {
    const { check, minimum, maximum } = _zod.def as z.core.$ZodCheckDef & {
      readonly minimum: number;
      readonly maximum: number;
    };
    if (check === 'min_length') least = Math.max(least, minimum);
    if (check === 'max_length') most = Math.min(most, maximum);
  }
  return [least, most];
}

function refuseChecks({ type, checks = [] }: Def): void {
  if (checks.length > 0) throw new Error(`no reader for checks of '${type}'`);
}
