// Which bytes are plain msgpack: one value of nil, booleans, numbers, strings, binary, arrays and maps with text
// keys, nested at most MAX_DEPTH deep, nothing after it. Extensions are refused before a decoder sees them: records,
// shared structures and typed arrays are the decoder's own inventions, and no frame of ours has them.
//
// One pass over the structure; strings and binary are skipped, so it costs nanoseconds a field.

import { MAX_DEPTH } from './limits.ts';

interface Cursor {
  readonly bytes: Uint8Array;
  readonly view: DataView;
  at: number;
}

/** Null where `bytes` are plain, else what is not. Never throws. */
export function plainFault(bytes: Uint8Array): string | null {
  const cursor: Cursor = {
    bytes,
    view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength),
    at: 0,
  };
  const fault = skipValue(cursor, 0);
  if (fault !== null) return fault;
  return cursor.at === bytes.length ? null : 'bytes after the message';
}

function skipValue(cursor: Cursor, depth: number): string | null {
  if (depth > MAX_DEPTH) return 'nested too deep';
  const type = cursor.bytes[cursor.at];
  if (type === undefined) return 'truncated';
  cursor.at += 1;
  if (type <= 0x7f || type >= 0xe0) return null;
  if (type <= 0x8f) return skipMap(cursor, type & 0x0f, depth);
  if (type <= 0x9f) return skipArray(cursor, type & 0x0f, depth);
  if (type <= 0xbf) return skipBytes(cursor, type & 0x1f);
  if (isString(type) || isBinary(type)) return skipSized(cursor, lengthBytes(type));
  if (type === 0xdc || type === 0xdd) return skipCounted(cursor, type === 0xdc, depth, skipArray);
  if (type === 0xde || type === 0xdf) return skipCounted(cursor, type === 0xde, depth, skipMap);
  return skipScalar(cursor, type);
}

const isString = (type: number): boolean => type >= 0xd9 && type <= 0xdb;
const isBinary = (type: number): boolean => type >= 0xc4 && type <= 0xc6;
const lengthBytes = (type: number): number => 1 << (isString(type) ? type - 0xd9 : type - 0xc4);

function skipScalar(cursor: Cursor, type: number): string | null {
  if (type === 0xc0 || type === 0xc2 || type === 0xc3) return null;
  if (type === 0xca) return skipBytes(cursor, 4);
  if (type === 0xcb) return skipBytes(cursor, 8);
  if (type >= 0xcc && type <= 0xcf) return skipBytes(cursor, 1 << (type - 0xcc));
  if (type >= 0xd0 && type <= 0xd3) return skipBytes(cursor, 1 << (type - 0xd0));
  return 'an extension type';
}

function skipBytes(cursor: Cursor, count: number): string | null {
  if (count > cursor.bytes.length - cursor.at) return 'truncated';
  cursor.at += count;
  return null;
}

function readLength(cursor: Cursor, size: number): number | null {
  if (size > cursor.bytes.length - cursor.at) return null;
  const at = cursor.at;
  cursor.at += size;
  if (size === 1) return cursor.view.getUint8(at);
  return size === 2 ? cursor.view.getUint16(at) : cursor.view.getUint32(at);
}

function skipSized(cursor: Cursor, size: number): string | null {
  const length = readLength(cursor, size);
  return length === null ? 'truncated' : skipBytes(cursor, length);
}

function skipCounted(
  cursor: Cursor,
  short: boolean,
  depth: number,
  skip: (cursor: Cursor, count: number, depth: number) => string | null,
): string | null {
  const count = readLength(cursor, short ? 2 : 4);
  return count === null ? 'truncated' : skip(cursor, count, depth);
}

function skipArray(cursor: Cursor, count: number, depth: number): string | null {
  // Each element has one byte at least: a count beyond the rest is a lie that costs nothing to find.
  if (count > cursor.bytes.length - cursor.at) return 'truncated';
  for (let index = 0; index < count; index += 1) {
    const fault = skipValue(cursor, depth + 1);
    if (fault !== null) return fault;
  }
  return null;
}

function skipMap(cursor: Cursor, count: number, depth: number): string | null {
  if (count * 2 > cursor.bytes.length - cursor.at) return 'truncated';
  for (let index = 0; index < count; index += 1) {
    const key = cursor.bytes[cursor.at];
    if (key === undefined) return 'truncated';
    if (!isString(key) && (key < 0xa0 || key > 0xbf)) return 'a map key that is no text';
    const fault = skipValue(cursor, depth + 1) ?? skipValue(cursor, depth + 1);
    if (fault !== null) return fault;
  }
  return null;
}
