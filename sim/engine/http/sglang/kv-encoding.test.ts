import { describe, expect, it } from 'vitest';

import { decodeKvFrames } from '../../../../agent/engines/kv-events.ts';
import type { KvEvent } from '../../kv-events.ts';
import { sglangKvEncoding } from './kv-encoding.ts';

const STORED: KvEvent = {
  kind: 'stored',
  keys: [4_503_599_627_370_000, 17],
  parentKey: 99,
  tokenIds: Uint32Array.from([1, 2, 3, 4_278_190_080]),
  salt: null,
  lora: null,
};

function payloadOf(events: readonly KvEvent[]): Buffer {
  return sglangKvEncoding(2).encode({ atSeconds: 1.5, events, rank: 3 });
}

function decoded(events: readonly KvEvent[]) {
  const frames = [Buffer.from('topic'), Buffer.alloc(8), payloadOf(events)];
  const result = decodeKvFrames(frames);
  if (result.kind !== 'batch') throw new Error(result.kind);
  return result;
}

describe("SGLang's KV events", () => {
  it('are arrays that a consumer of both engines reads', () => {
    const { batch, rank, publishedAtSeconds, unknownEvents } = decoded([
      STORED,
      { kind: 'removed', keys: [17] },
      { kind: 'cleared' },
    ]);
    expect([rank, publishedAtSeconds, unknownEvents]).toEqual([3, 1.5, 0]);
    expect(batch.events.map(({ kind }) => kind)).toEqual(['stored', 'removed', 'cleared']);
  });

  it('name the same content by the same hash on every server', () => {
    expect(payloadOf([STORED])).toEqual(payloadOf([STORED]));
    const other = { ...STORED, keys: [STORED.keys[0]!, 18] };
    expect(payloadOf([other])).not.toEqual(payloadOf([STORED]));
  });

  it('have signed hashes: some are negative', () => {
    const keys = Array.from({ length: 64 }, (_, at) => at + 1);
    const bytes = payloadOf([{ kind: 'removed', keys }]);
    const tags = [...bytes].filter((byte) => byte === 0xd3).length;
    expect(tags).toBeGreaterThan(16);
    expect(tags).toBeLessThan(56);
  });

  it('have an eighth element only where a prompt was salted', () => {
    const plain = payloadOf([STORED]).toString('latin1');
    const salted = payloadOf([{ ...STORED, salt: 'acme' }]).toString('latin1');
    expect(plain).not.toContain('cache_salt');
    expect(salted).toContain('cache_salt');
    expect(plain.charCodeAt(11)).toBe(0x97);
    expect(salted.charCodeAt(11)).toBe(0x98);
  });
});
