// One step's KV events as an SGLang publishes them: `[seconds, events, rank]` in msgpack, every event an array
// (`reference: disaggregation/kv_events.py`, `mem_cache/events.py`).
//
// Hashes are signed 64-bit integers that depend on nothing but the content: they are equal between replicas. A salted
// prompt's first blocks have an eighth element that says so. Replays lack the topic.

import type { KvEvent } from '../../kv-events.ts';
import { mixKey } from '../../sequence.ts';
import { batchEncoder, type KvEncoding } from '../kv-wire.ts';
import type { MsgpackWriter } from '../msgpack-writer.ts';

export function sglangKvEncoding(pageTokens: number): KvEncoding {
  return {
    replaysTopic: false,
    encode: batchEncoder((writer, event) => write(writer, event, pageTokens)),
  };
}

function write(writer: MsgpackWriter, event: KvEvent, pageTokens: number): void {
  if (event.kind === 'cleared') {
    writer.array(1);
    writer.text('AllBlocksCleared');
  } else if (event.kind === 'removed') {
    writer.array(3);
    writer.text('BlockRemoved');
    writeHashes(writer, event.keys);
    writer.text('GPU');
  } else {
    writer.array(event.salt === null ? 7 : 8);
    writer.text('BlockStored');
    writeHashes(writer, event.keys);
    if (event.parentKey === null) writer.nil();
    else writeHash(writer, event.parentKey);
    writer.array(event.tokenIds?.length ?? 0);
    for (const id of event.tokenIds ?? []) writer.unsigned(id);
    writer.unsigned(pageTokens);
    writer.nil();
    writer.text('GPU');
    if (event.salt === null) return;
    writer.map(1);
    writer.text('cache_salt');
    writer.text(event.salt);
  }
}

function writeHashes(writer: MsgpackWriter, keys: readonly number[]): void {
  writer.array(keys.length);
  for (const key of keys) writeHash(writer, key);
}

function writeHash(writer: MsgpackWriter, key: number): void {
  writer.signed64(mixKey(key, 0x5367) >>> 0, mixKey(key, 0x4c61) >>> 0);
}
