// A configuration file as text, or why it is none. Never waits: a pipe is refused instead of read. Never half a file:
// one that changes while it is read is read again. Bytes that are no UTF-8 are an error with their place.

import { closeSync, constants, fstatSync, openSync, readSync, type BigIntStats } from 'node:fs';

/** A larger file is no configuration. */
const FILE_BYTES_MAX = 1_048_576;
/** Readings of a file that somebody is writing. */
const READINGS_MAX = 5;

export type ReadResult =
  | { readonly ok: true; readonly text: string }
  /** One line. */
  | { readonly ok: false; readonly error: string };

export function readBounded(file: string): ReadResult {
  let handle: number | null = null;
  try {
    // Without O_NONBLOCK opening a pipe waits for whoever writes to it.
    handle = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
    return contentOf(file, handle);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    return { ok: false, error: `${file}: cannot be read: ${reason}` };
  } finally {
    if (handle !== null) closeSync(handle);
  }
}

function contentOf(file: string, handle: number): ReadResult {
  for (let reading = 0; reading < READINGS_MAX; reading += 1) {
    const before = fstatSync(handle, { bigint: true });
    if (!before.isFile()) return { ok: false, error: `${file}: is ${kindOf(before)}, not a file` };
    if (before.size > FILE_BYTES_MAX) return tooLarge(file);
    const bytes = bytesOf(handle);
    if (bytes.length > FILE_BYTES_MAX) return tooLarge(file);
    const after = fstatSync(handle, { bigint: true });
    const whole = before.mtimeNs === after.mtimeNs && after.size === BigInt(bytes.length);
    if (whole) return textOf(file, bytes);
  }
  return { ok: false, error: `${file}: changes while it is read: somebody is writing it` };
}

function bytesOf(handle: number): Buffer {
  const buffer = Buffer.alloc(FILE_BYTES_MAX + 1);
  let length = 0;
  while (length < buffer.length) {
    const read = readSync(handle, buffer, length, buffer.length - length, length);
    if (read === 0) break;
    length += read;
  }
  return buffer.subarray(0, length);
}

function textOf(file: string, bytes: Buffer): ReadResult {
  try {
    return { ok: true, text: new TextDecoder('utf-8', { fatal: true }).decode(bytes) };
  } catch {
    const [line, column] = placeOfFault(bytes);
    return { ok: false, error: `${file}:${line}:${column}: is no UTF-8 text` };
  }
}

/** Line and column of the first byte that belongs to no character. */
function placeOfFault(bytes: Buffer): [number, number] {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  for (let line = 1, start = 0; start < bytes.length; line += 1) {
    const newline = bytes.indexOf(0x0a, start);
    const end = newline < 0 ? bytes.length : newline;
    const piece = bytes.subarray(start, end);
    try {
      decoder.decode(piece);
    } catch {
      return [line, piece.toString('utf8').indexOf('\uFFFD') + 1];
    }
    start = end + 1;
  }
  return [1, 1];
}

function tooLarge(file: string): ReadResult {
  return { ok: false, error: `${file}: is larger than ${FILE_BYTES_MAX} bytes` };
}

function kindOf(stats: BigIntStats): string {
  if (stats.isDirectory()) return 'a directory';
  if (stats.isFIFO()) return 'a pipe';
  return stats.isSocket() ? 'a socket' : 'a device';
}
