// Decodes the KV events that vLLM and SGLang publish over ZeroMQ.
//
// Live:   [topic, seq, payload]; seq is 8 bytes, big endian, from 0.
// Replay: ['', seq, payload] (vLLM to 0.24, SGLang) or ['', topic, seq, payload]; both end with seq −1 and an empty
//         payload. Counted from the end they are the same.
// Payload: msgpack [seconds, events, rank?]. An event is an array [tag, fields…] of any length (vLLM to 0.23,
// SGLang) or a map {type, fields…} (vLLM from 0.24). Unknown fields are ignored, unknown events are counted.
//
// Never throws: what is not such a message is a value that says why.

import { Unpackr } from 'msgpackr';
import type { BlockKey, KvBatch, KvEvent } from '../policy/kv-event.ts';
import { plainFault } from '../../shared/protocol/plain-msgpack.ts';

export type DecodedKvFrames =
  | {
      readonly kind: 'batch';
      /** Null where the frames carry none. */
      readonly topic: string | null;
      readonly batch: KvBatch;
      /** Unix seconds at the engine. */
      readonly publishedAtSeconds: number;
      /** Data-parallel rank; null where the engine does not tell. */
      readonly rank: number | null;
      /** Events of a kind or shape that is not known, left out of `batch`. */
      readonly unknownEvents: number;
    }
  /** Nothing more is replayed. */
  | { readonly kind: 'end' }
  | { readonly kind: 'malformed'; readonly detail: string };

/** Bytes of one payload: a prompt of two million tokens. */
const MAX_PAYLOAD_BYTES = 16 * 1024 * 1024;
const MAX_EVENTS = 65_536;
const MAX_BLOCKS = 262_144;
/** Bytes of a hash that is told as bytes. */
const MAX_HASH_BYTES = 64;
const MAX_TEXT = 512;
/** The place of a field that no array has. */
const NOWHERE = -1;

const unpackr = new Unpackr({ useRecords: false, mapsAsObjects: true, int64AsType: 'bigint' });

/**
 * Frames of one live or replayed message, ZeroMQ's identity frame not among them. `tokens: false` leaves the token
 * ids out: they are most of what a batch weighs.
 */
export function decodeKvFrames(
  frames: readonly Uint8Array[],
  options: { readonly tokens: boolean } = { tokens: true },
): DecodedKvFrames {
  const payload = frames.at(-1);
  const seqBytes = frames.at(-2);
  if (payload === undefined || seqBytes === undefined || frames.length > 4)
    return malformed(`${frames.length} frames`);
  if (seqBytes.length !== 8) return malformed(`a sequence of ${seqBytes.length} bytes`);
  const seq = seqOf(seqBytes);
  if (seq === 'end')
    return payload.length === 0 ? { kind: 'end' } : malformed('an end with payload');
  if (!Number.isSafeInteger(seq)) return malformed('a sequence past all counting');
  const decoded = decodePayload(payload, seq, options.tokens);
  return decoded.kind === 'batch' ? { ...decoded, topic: topicOf(frames) } : decoded;
}

/** The frame that asks for a replay from `seq` on. */
export function replayRequest(seq: number): Buffer[] {
  const start = Buffer.alloc(8);
  start.writeBigUInt64BE(BigInt(seq));
  return [Buffer.alloc(0), start];
}

function seqOf(bytes: Uint8Array): number | 'end' {
  const view = new DataView(bytes.buffer, bytes.byteOffset, 8);
  const value = view.getBigUint64(0);
  return value === 0xffff_ffff_ffff_ffffn ? 'end' : Number(value);
}

/** Of a live message the first frame; a replayed one begins with an empty frame. */
function topicOf(frames: readonly Uint8Array[]): string | null {
  const topic = frames.length >= 3 ? frames.at(-3) : undefined;
  if (topic === undefined) return null;
  return Buffer.from(topic).toString('utf8').slice(0, MAX_TEXT);
}

function decodePayload(payload: Uint8Array, seq: number, tokens: boolean): DecodedKvFrames {
  if (payload.length > MAX_PAYLOAD_BYTES) return malformed('payload too large');
  const fault = plainFault(payload);
  if (fault !== null) return malformed(fault);
  const raw = unpack(payload);
  if (!Array.isArray(raw)) return malformed('a batch that is no array');
  const [seconds, rawEvents, rank] = raw as unknown[];
  if (typeof seconds !== 'number' || !Array.isArray(rawEvents)) return malformed('no batch');
  if (rawEvents.length > MAX_EVENTS) return malformed('too many events');
  const events: KvEvent[] = [];
  let unknownEvents = 0;
  for (const each of rawEvents) {
    const event = eventOf(each, tokens);
    if (event === null) unknownEvents += 1;
    else events.push(event);
  }
  return {
    kind: 'batch',
    topic: null,
    batch: { seq, events },
    publishedAtSeconds: seconds,
    rank: count(rank),
    unknownEvents,
  };
}

function unpack(payload: Uint8Array): unknown {
  try {
    return unpackr.unpack(payload);
  } catch {
    // Well-formed msgpack that the decoder will not take is no batch; the caller says so.
    return null;
  }
}

type Fields = (name: string, at: number) => unknown;

function eventOf(raw: unknown, tokens: boolean): KvEvent | null {
  if (Array.isArray(raw)) {
    const row: readonly unknown[] = raw;
    const extra = isRecord(row[7]) ? row[7] : null;
    // SGLang puts a map where vLLM has the adapter's name.
    const field: Fields = (name, at) =>
      extra === null || (at >= 0 && at < 7) ? row[at] : extra[name];
    return typed(row[0], field, tokens);
  }
  if (!isRecord(raw)) return null;
  return typed(raw['type'], (name) => raw[name], tokens);
}

function typed(tag: unknown, field: Fields, tokens: boolean): KvEvent | null {
  if (tag === 'AllBlocksCleared') return { kind: 'cleared' };
  if (tag === 'BlockStored') return stored(field, tokens);
  if (tag === 'BlockRemoved') return removed(field);
  return null;
}

function stored(field: Fields, tokens: boolean): KvEvent | null {
  const keys = keysOf(field('block_hashes', 1));
  const parent = field('parent_block_hash', 2) ?? null;
  const parentKey = parent === null ? null : keyOf(parent);
  const blockTokens = count(field('block_size', 4));
  const told = parent === null || parentKey !== null;
  if (keys === null || !told || blockTokens === null || blockTokens === 0) return null;
  const lora = text(field('lora_name', 7)) ?? count(field('lora_id', 5))?.toString() ?? null;
  return {
    kind: 'stored',
    keys,
    parentKey,
    tokenIds: tokens ? tokenIdsOf(field('token_ids', 3)) : null,
    blockTokens,
    lora,
    salt: text(field('cache_salt', NOWHERE)) ?? saltOf(field('extra_keys', 8), lora),
    medium: text(field('medium', 6)),
    group: count(field('group_idx', 9)),
    groupKind: text(field('kv_cache_spec_kind', 10)),
  };
}

function removed(field: Fields): KvEvent | null {
  const keys = keysOf(field('block_hashes', 1));
  if (keys === null) return null;
  const medium = text(field('medium', 2));
  return { kind: 'removed', keys, medium, group: count(field('group_idx', 3)) };
}

function keysOf(raw: unknown): BlockKey[] | null {
  if (!Array.isArray(raw) || raw.length > MAX_BLOCKS) return null;
  const keys: BlockKey[] = [];
  for (const each of raw) {
    const key = keyOf(each);
    if (key === null) return null;
    keys.push(key);
  }
  return keys;
}

function keyOf(raw: unknown): BlockKey | null {
  if (raw instanceof Uint8Array) {
    if (raw.length === 0 || raw.length > MAX_HASH_BYTES) return null;
    return Buffer.from(raw).toString('hex');
  }
  if (typeof raw === 'bigint') return hexOf(raw);
  return typeof raw === 'number' && Number.isSafeInteger(raw) ? hexOf(BigInt(raw)) : null;
}

/** SGLang's hashes are signed, vLLM's are not: the 64 bits are what counts. */
function hexOf(value: bigint): BlockKey {
  return BigInt.asUintN(64, value).toString(16).padStart(16, '0');
}

function tokenIdsOf(raw: unknown): Uint32Array | null {
  if (!Array.isArray(raw)) return null;
  const ids = new Uint32Array(raw.length);
  for (let at = 0; at < raw.length; at += 1) {
    const id = count(raw[at]);
    if (id === null || id > 0xffff_ffff) return null;
    ids[at] = id;
  }
  return ids;
}

/** Of the first block's extra keys: the adapter's name first, the salt last. */
function saltOf(raw: unknown, lora: string | null): string | null {
  const first: unknown = Array.isArray(raw) ? raw[0] : null;
  if (!Array.isArray(first)) return null;
  const rest = first[0] === lora ? first.slice(1) : first;
  return text(rest.at(-1));
}

function text(raw: unknown): string | null {
  return typeof raw === 'string' && raw.length <= MAX_TEXT ? raw : null;
}

/** A whole number from 0. */
function count(raw: unknown): number | null {
  const value = typeof raw === 'bigint' ? Number(raw) : raw;
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return (
    typeof value === 'object' &&
    value !== null &&
    !Array.isArray(value) &&
    !(value instanceof Uint8Array)
  );
}

function malformed(detail: string): DecodedKvFrames {
  return { kind: 'malformed', detail };
}
