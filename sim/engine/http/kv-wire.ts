// One step's KV events as the payload that a vLLM publishes: `[seconds, events, rank]` in msgpack.
//
// From 0.24 on an event is a map whose members stand in the order of vLLM's struct, those without a value left out;
// up to 0.23 it is an array of all fields, null where there is none, and replays lack the topic
// (test/fixtures/vllm-0.32.0/kv-events*.jsonl; reference: vllm/distributed/kv_events.py).
//
// Hashes are 64 bits of the block's key and a seed of the process: they tell nothing beyond it.

import type { KvEvent } from '../kv-events.ts';
import { mixKey } from '../sequence.ts';
import { MsgpackWriter } from './msgpack-writer.ts';

export interface KvBatchOut {
  /** Unix seconds. */
  readonly atSeconds: number;
  readonly events: readonly KvEvent[];
  readonly rank: number;
}

export interface KvEncoding {
  readonly encode: (batch: KvBatchOut) => Buffer;
  /** A replayed batch is `["", topic, seq, payload]`; without, `["", seq, payload]`. */
  readonly replaysTopic: boolean;
}

export const KV_EVENT_FORMS = ['map', 'array'] as const;
export type KvEventForm = (typeof KV_EVENT_FORMS)[number];

export interface VllmKvOptions {
  readonly form: KvEventForm;
  readonly blockTokens: number;
  /** 32 random bits of the process. */
  readonly seed: number;
  /** Number of an adapter; 0 is none. */
  readonly loraId: (name: string) => number;
}

export function vllmKvEncoding(options: VllmKvOptions): KvEncoding {
  const write = options.form === 'map' ? writeMap : writeArray;
  return {
    replaysTopic: options.form === 'map',
    encode: batchEncoder((writer, event) => write(writer, event, options)),
  };
}

/** The batch around the events, which every form of them has alike. */
export function batchEncoder(
  write: (writer: MsgpackWriter, event: KvEvent) => void,
): KvEncoding['encode'] {
  const writer = new MsgpackWriter();
  return ({ atSeconds, events, rank }) => {
    writer.array(3);
    writer.float(atSeconds);
    writer.array(events.length);
    for (const event of events) write(writer, event);
    writer.unsigned(rank);
    return writer.take();
  };
}

type Stored = Extract<KvEvent, { kind: 'stored' }>;

function writeMap(writer: MsgpackWriter, event: KvEvent, options: VllmKvOptions): void {
  if (event.kind === 'cleared') {
    writer.map(1);
    writeTag(writer, 'AllBlocksCleared');
  } else if (event.kind === 'removed') {
    writer.map(4);
    writeTag(writer, 'BlockRemoved');
    writer.text('block_hashes');
    writeHashes(writer, event.keys, options.seed);
    writer.text('medium');
    writer.text('GPU');
    writer.text('group_idx');
    writer.unsigned(0);
  } else {
    writer.map(11);
    writeTag(writer, 'BlockStored');
    writer.text('block_hashes');
    writeHashes(writer, event.keys, options.seed);
    writer.text('parent_block_hash');
    writeParent(writer, event.parentKey, options.seed);
    writer.text('token_ids');
    writeTokens(writer, event.tokenIds);
    writer.text('block_size');
    writer.unsigned(options.blockTokens);
    writer.text('lora_id');
    writeLoraId(writer, event, options);
    writer.text('medium');
    writer.text('GPU');
    writer.text('lora_name');
    writer.textOrNil(event.lora);
    writer.text('extra_keys');
    writeExtraKeys(writer, event);
    writer.text('group_idx');
    writer.unsigned(0);
    writer.text('kv_cache_spec_kind');
    writer.text('full_attention');
  }
}

function writeArray(writer: MsgpackWriter, event: KvEvent, options: VllmKvOptions): void {
  if (event.kind === 'cleared') {
    writer.array(1);
    writer.text('AllBlocksCleared');
  } else if (event.kind === 'removed') {
    writer.array(4);
    writer.text('BlockRemoved');
    writeHashes(writer, event.keys, options.seed);
    writer.text('GPU');
    writer.unsigned(0);
  } else {
    writer.array(12);
    writer.text('BlockStored');
    writeHashes(writer, event.keys, options.seed);
    writeParent(writer, event.parentKey, options.seed);
    writeTokens(writer, event.tokenIds);
    writer.unsigned(options.blockTokens);
    writeLoraId(writer, event, options);
    writer.text('GPU');
    writer.textOrNil(event.lora);
    writeExtraKeys(writer, event);
    writer.unsigned(0);
    writer.text('full_attention');
    writer.nil();
  }
}

function writeTag(writer: MsgpackWriter, tag: string): void {
  writer.text('type');
  writer.text(tag);
}

function writeHashes(writer: MsgpackWriter, keys: readonly number[], seed: number): void {
  writer.array(keys.length);
  for (const key of keys) writeHash(writer, key, seed);
}

function writeHash(writer: MsgpackWriter, key: number, seed: number): void {
  const high = mixKey(mixKey(key, seed), 0x4b56) >>> 0;
  const low = mixKey(mixKey(key, seed ^ 0x5bd1e995), 0x6576) >>> 0;
  writer.unsigned64(high, low);
}

function writeParent(writer: MsgpackWriter, key: number | null, seed: number): void {
  if (key === null) writer.nil();
  else writeHash(writer, key, seed);
}

function writeTokens(writer: MsgpackWriter, tokenIds: Uint32Array | null): void {
  writer.array(tokenIds?.length ?? 0);
  for (const id of tokenIds ?? []) writer.unsigned(id);
}

function writeLoraId(writer: MsgpackWriter, { lora }: Stored, options: VllmKvOptions): void {
  if (lora === null) writer.nil();
  else writer.unsigned(options.loraId(lora));
}

/** One entry a block: the adapter in each, the salt in the first of a prompt. */
function writeExtraKeys(writer: MsgpackWriter, { keys, lora, salt }: Stored): void {
  writer.array(keys.length);
  for (let at = 0; at < keys.length; at += 1) {
    const extra = [lora, at === 0 ? salt : null].filter((each) => each !== null);
    if (extra.length === 0) {
      writer.nil();
      continue;
    }
    writer.array(extra.length);
    for (const each of extra) writer.text(each);
  }
}
