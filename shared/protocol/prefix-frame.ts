// The binary frame of a prefix snapshot or delta: the only message that can be large and frequent at once.
//
// All integers little endian; offsets in bytes.
//
//    0  u8   0xc1, which no msgpack value begins with
//    1  u8   frame type, 1 = prefix
//    2  u16  bytes of this header (28); a later version may lengthen it, and the rest is skipped
//    4  u32  seq
//    8  u16  rank
//   10  u16  bytes of the replica id (UTF-8)
//   12  u16  bytes of the incarnation (UTF-8)
//   14  u16  flags: 1 = goes on with a snapshot; the rest 0
//   16  u32  runs
//   20  u32  leaves
//   24  u32  words of evicted hashes, even
//   28       replica id, incarnation, then
//            each run:  u32 parentLow, u32 parentHigh, u32 depth, u32 words (even), the words
//            each leaf: u32 hashLow, u32 hashHigh, u32 promptTokens (0xffffffff = unknown), u32 answerTokens
//            the evicted words
//   Bytes after that belong to a later version and are skipped.

import type { Incarnation, ReplicaId } from '../model/ids.ts';
import { MAX_CHAIN_CHUNKS, MAX_LEAVES, MAX_RANKS, MAX_RUNS, MAX_TEXT } from './limits.ts';
import type { PrefixLeaf, PrefixMessage, PrefixRun } from './messages.ts';
import { bytesToWords, wordsToBytes } from './words.ts';

/** First byte of every binary frame. */
export const BINARY_MARK = 0xc1;
export const FRAME_PREFIX = 1;

const HEADER_BYTES = 28;
const CONTINUES = 1;
const RUN_BYTES = 16;
const LEAF_BYTES = 16;
const UNKNOWN_TOKENS = 0xffff_ffff;

export interface PrefixDecoded {
  readonly message: PrefixMessage | null;
  /** Why there is no message. */
  readonly fault: string;
  /** Bytes that this version has no meaning for. */
  readonly skippedBytes: number;
}

export function encodePrefix(message: PrefixMessage): Uint8Array {
  const replica = Buffer.from(message.replica, 'utf8');
  const incarnation = Buffer.from(message.incarnation, 'utf8');
  const bytes = Buffer.allocUnsafe(sizeOf(message, replica.length + incarnation.length));
  writeHeader(bytes, message, [replica.length, incarnation.length]);
  let at = HEADER_BYTES;
  at += replica.copy(bytes, at);
  at += incarnation.copy(bytes, at);
  for (const run of message.runs) at = writeRun(bytes, at, run);
  for (const leaf of message.leaves) at = writeLeaf(bytes, at, leaf);
  bytes.set(wordsToBytes(message.evicted), at);
  return bytes;
}

/** Reads a frame that begins with BINARY_MARK and FRAME_PREFIX. Never throws. */
export function decodePrefix(frame: Uint8Array): PrefixDecoded {
  const bytes = Buffer.from(frame.buffer, frame.byteOffset, frame.byteLength);
  if (bytes.length < HEADER_BYTES) return failed('truncated header');
  const headerBytes = bytes.readUInt16LE(2);
  const header = readHeader(bytes);
  if (headerBytes < HEADER_BYTES) return failed('short header');
  const bad = headerFault(header);
  if (bad !== null) return failed(bad);
  const reader = new Reader(bytes, headerBytes);
  const replica = reader.text(header.replicaBytes);
  const incarnation = reader.text(header.incarnationBytes);
  const runs = readRuns(reader, header.runs);
  const leaves = readLeaves(reader, header.leaves);
  const evicted = reader.words(header.evictedWords);
  if (reader.fault !== null) return failed(reader.fault);
  if (replica === '' || incarnation === '') return failed('empty id');
  return {
    message: {
      kind: 'prefix',
      replica: replica as ReplicaId,
      rank: header.rank,
      incarnation: incarnation as Incarnation,
      seq: header.seq,
      runs,
      leaves,
      evicted,
      ...(header.continues ? { continues: true } : {}),
    },
    fault: '',
    skippedBytes: headerBytes - HEADER_BYTES + reader.left(),
  };
}

interface Header {
  readonly seq: number;
  readonly rank: number;
  readonly replicaBytes: number;
  readonly incarnationBytes: number;
  readonly runs: number;
  readonly leaves: number;
  readonly evictedWords: number;
  readonly continues: boolean;
}

function failed(fault: string): PrefixDecoded {
  return { message: null, fault, skippedBytes: 0 };
}

function sizeOf(message: PrefixMessage, idBytes: number): number {
  let size = HEADER_BYTES + idBytes + message.leaves.length * LEAF_BYTES;
  for (const run of message.runs) size += RUN_BYTES + run.hashes.byteLength;
  return size + message.evicted.byteLength;
}

function writeHeader(bytes: Buffer, message: PrefixMessage, idBytes: [number, number]): void {
  bytes.writeUInt8(BINARY_MARK, 0);
  bytes.writeUInt8(FRAME_PREFIX, 1);
  bytes.writeUInt16LE(HEADER_BYTES, 2);
  bytes.writeUInt32LE(message.seq, 4);
  bytes.writeUInt16LE(message.rank, 8);
  bytes.writeUInt16LE(idBytes[0], 10);
  bytes.writeUInt16LE(idBytes[1], 12);
  bytes.writeUInt16LE(message.continues === true ? CONTINUES : 0, 14);
  bytes.writeUInt32LE(message.runs.length, 16);
  bytes.writeUInt32LE(message.leaves.length, 20);
  bytes.writeUInt32LE(message.evicted.length, 24);
}

function writeRun(bytes: Buffer, start: number, run: PrefixRun): number {
  let at = bytes.writeUInt32LE(run.parentLow, start);
  at = bytes.writeUInt32LE(run.parentHigh, at);
  at = bytes.writeUInt32LE(run.depth, at);
  at = bytes.writeUInt32LE(run.hashes.length, at);
  bytes.set(wordsToBytes(run.hashes), at);
  return at + run.hashes.byteLength;
}

function writeLeaf(bytes: Buffer, start: number, leaf: PrefixLeaf): number {
  let at = bytes.writeUInt32LE(leaf.hashLow, start);
  at = bytes.writeUInt32LE(leaf.hashHigh, at);
  const tokens = leaf.promptTokens;
  at = bytes.writeUInt32LE(tokens === null ? UNKNOWN_TOKENS : wholeTokens(tokens), at);
  return bytes.writeUInt32LE(wholeTokens(leaf.answerTokens), at);
}

function wholeTokens(tokens: number): number {
  return Math.min(UNKNOWN_TOKENS - 1, Math.max(0, Math.round(tokens)));
}

function readHeader(bytes: Buffer): Header {
  return {
    seq: bytes.readUInt32LE(4),
    rank: bytes.readUInt16LE(8),
    replicaBytes: bytes.readUInt16LE(10),
    incarnationBytes: bytes.readUInt16LE(12),
    runs: bytes.readUInt32LE(16),
    leaves: bytes.readUInt32LE(20),
    evictedWords: bytes.readUInt32LE(24),
    continues: (bytes.readUInt16LE(14) & CONTINUES) !== 0,
  };
}

function headerFault(header: Header): string | null {
  if (header.rank >= MAX_RANKS) return 'rank out of range';
  if (header.replicaBytes > MAX_TEXT || header.incarnationBytes > MAX_TEXT) return 'id too long';
  if (header.runs > MAX_RUNS) return 'too many runs';
  if (header.leaves > MAX_LEAVES) return 'too many leaves';
  return null;
}

/** Reads forward; the first fault sticks, and everything after it reads as empty. */
class Reader {
  readonly #bytes: Buffer;
  #at: number;
  fault: string | null = null;

  constructor(bytes: Buffer, at: number) {
    this.#bytes = bytes;
    this.#at = at;
    if (at > bytes.length) this.fault = 'truncated header';
  }

  left(): number {
    return this.#bytes.length - this.#at;
  }

  u32(): number {
    const at = this.#take(4);
    return at === null ? 0 : this.#bytes.readUInt32LE(at);
  }

  depth(): number {
    const depth = this.u32();
    if (depth > MAX_CHAIN_CHUNKS) this.fault ??= 'a run deeper than any chain';
    return depth;
  }

  text(length: number): string {
    const at = this.#take(length);
    return at === null ? '' : this.#bytes.toString('utf8', at, at + length);
  }

  words(count: number): Uint32Array {
    if (count % 2 !== 0) this.fault ??= 'half a hash';
    const at = this.#take(count * 4);
    if (at === null) return new Uint32Array(0);
    return bytesToWords(this.#bytes.subarray(at, at + count * 4));
  }

  #take(count: number): number | null {
    if (this.fault === null && count > this.left()) this.fault = 'truncated';
    if (this.fault !== null) return null;
    const at = this.#at;
    this.#at += count;
    return at;
  }
}

function readRuns(reader: Reader, count: number): PrefixRun[] {
  const runs: PrefixRun[] = [];
  for (let index = 0; index < count && reader.fault === null; index += 1) {
    const parentLow = reader.u32();
    const parentHigh = reader.u32();
    const depth = reader.depth();
    const hashes = reader.words(reader.u32());
    runs.push({ parentLow, parentHigh, depth, hashes });
  }
  return runs;
}

function readLeaves(reader: Reader, count: number): PrefixLeaf[] {
  const leaves: PrefixLeaf[] = [];
  for (let index = 0; index < count && reader.fault === null; index += 1) {
    const hashLow = reader.u32();
    const hashHigh = reader.u32();
    const tokens = reader.u32();
    const promptTokens = tokens === UNKNOWN_TOKENS ? null : tokens;
    leaves.push({ hashLow, hashHigh, promptTokens, answerTokens: reader.u32() });
  }
  return leaves;
}
