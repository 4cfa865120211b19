import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { Unpackr } from 'msgpackr';
import { describe, expect, it } from 'vitest';

import type { KvEvent } from '../kv-events.ts';
import { vllmKvEncoding, type KvEventForm } from './kv-wire.ts';
import { MsgpackWriter } from './msgpack-writer.ts';

const unpackr = new Unpackr({ useRecords: false, mapsAsObjects: true, int64AsType: 'bigint' });

/** What a type is on the wire: msgpack's families, members of a map in order. */
function wireShape(value: unknown): unknown {
  if (Array.isArray(value)) {
    const shapes = value.map(wireShape);
    return [...new Set(shapes.map((shape) => JSON.stringify(shape)))].toSorted();
  }
  if (typeof value === 'object' && value !== null) {
    return Object.entries(value).map(([name, member]) => [name, wireShape(member)]);
  }
  if (typeof value === 'bigint' || Number.isInteger(value)) return 'integer';
  return value === null ? null : typeof value;
}

interface RecordedFrame {
  readonly payloadBase64: string;
}

function recordedEvents(name: string): { batch: unknown[]; bytes: Buffer }[] {
  const url = new URL(`../../../test/fixtures/vllm-0.32.0/${name}`, import.meta.url);
  return readFileSync(url, 'utf8')
    .trim()
    .split('\n')
    .map((line) => {
      const bytes = Buffer.from((JSON.parse(line) as RecordedFrame).payloadBase64, 'base64');
      return { batch: unpackr.unpack(bytes) as unknown[], bytes };
    });
}

function encoding(form: KvEventForm = 'map', seed = 7) {
  return vllmKvEncoding({ form, blockTokens: 32, seed, loraId: () => 1 });
}

function decoded(events: readonly KvEvent[], form: KvEventForm = 'map', seed = 7): unknown[] {
  return unpackr.unpack(encoding(form, seed).encode({ atSeconds: 1.5, events, rank: 0 })) as never;
}

const STORED: KvEvent = {
  kind: 'stored',
  keys: [11, 12],
  parentKey: 10,
  tokenIds: Uint32Array.from({ length: 64 }, (_, at) => at * 100),
  salt: null,
  lora: null,
};

const CASES: readonly (readonly [string, string, (event: never) => boolean, KvEvent])[] = [
  [
    'blocks at the start of a prompt',
    'kv-events.jsonl',
    (event: Stored) => event.type === 'BlockStored' && event.parent_block_hash === null,
    { ...STORED, parentKey: null },
  ],
  [
    'blocks after others',
    'kv-events.jsonl',
    (event: Stored) => event.type === 'BlockStored' && event.parent_block_hash !== null,
    STORED,
  ],
  [
    'blocks under a salt',
    'kv-events.jsonl',
    (event: Stored) => event.type === 'BlockStored' && event.extra_keys[0]?.[0] === 'tenant-a',
    { ...STORED, parentKey: null, salt: 'tenant-a' },
  ],
  [
    'blocks of an adapter',
    'kv-events-lora.jsonl',
    (event: Stored) => event.lora_name !== null && event.extra_keys[0]?.length === 1,
    { ...STORED, parentKey: null, lora: 'support-bot' },
  ],
  [
    'blocks of an adapter under a salt',
    'kv-events-lora.jsonl',
    (event: Stored) => event.extra_keys?.[0]?.length === 2,
    { ...STORED, parentKey: null, lora: 'support-bot', salt: 'tenant-a' },
  ],
  [
    'a removed block',
    'kv-events.jsonl',
    (event: Stored) => event.type === 'BlockRemoved',
    { kind: 'removed', keys: [11] },
  ],
];

interface Stored {
  readonly type: string;
  readonly parent_block_hash: bigint | null;
  readonly lora_name: string | null;
  readonly extra_keys: ((string | null)[] | null)[];
}

describe('the map form', () => {
  it.each(CASES)('has the members of recorded events: %s', (_, file, matches, event) => {
    const all = recordedEvents(file).flatMap(({ batch }) => batch[1] as never[]);
    const like = all.filter(matches);
    expect(like.length).toBeGreaterThan(0);
    const [ours] = decoded([event])[1] as unknown[];
    const shapes = new Set(like.map((each) => JSON.stringify(wireShape(each))));
    expect(shapes).toContain(JSON.stringify(wireShape(ours)));
  });

  it('begins a batch byte for byte as a recorded one', () => {
    const [first] = recordedEvents('kv-events.jsonl');
    const bytes = encoding().encode({
      atSeconds: first!.batch[0] as number,
      events: [{ ...STORED, keys: Array.from({ length: 29 }, (_, at) => at), parentKey: null }],
      rank: 0,
    });
    const upToFirstHash = first!.bytes.indexOf('block_hashes') + 'block_hashes'.length + 3;
    expect(bytes.subarray(0, upToFirstHash)).toEqual(first!.bytes.subarray(0, upToFirstHash));
    expect(bytes.at(-1)).toBe(first!.bytes.at(-1));
  });

  it('tells of a cleared cache and of a step without a change', () => {
    expect(decoded([{ kind: 'cleared' }])).toEqual([1.5, [{ type: 'AllBlocksCleared' }], 0]);
    expect(decoded([])).toEqual([1.5, [], 0]);
  });
});

describe('the array form', () => {
  it('has every field in its place, null where there is none', () => {
    const [event] = decoded([{ ...STORED, salt: 'tenant-a' }], 'array')[1] as unknown[][];
    const [tag, hashes, parent, tokens, ...rest] = event!;
    expect([tag, (hashes as unknown[]).length, typeof parent]).toEqual([
      'BlockStored',
      2,
      'bigint',
    ]);
    expect((tokens as number[]).length).toBe(64);
    expect(rest).toEqual([32, null, 'GPU', null, [['tenant-a'], null], 0, 'full_attention', null]);
    const others = decoded([{ kind: 'removed', keys: [1] }, { kind: 'cleared' }], 'array');
    expect(others[1]).toMatchObject([
      ['BlockRemoved', [expect.anything()], 'GPU', 0],
      ['AllBlocksCleared'],
    ]);
  });
});

describe('hashes', () => {
  const hashOf = (key: number, seed: number): unknown =>
    (
      decoded([{ kind: 'removed', keys: [key] }], 'map', seed)[1] as { block_hashes: unknown[] }[]
    )[0]!.block_hashes[0];

  it('are equal for equal keys of one process and for nothing else', () => {
    fc.assert(
      fc.property(fc.nat(2 ** 31), fc.nat(2 ** 31), fc.nat(), (a, b, seed) => {
        expect(hashOf(a, seed) === hashOf(b, seed)).toBe(a === b);
        expect(hashOf(a, seed)).not.toEqual(hashOf(a, seed + 1));
      }),
      { numRuns: 100 },
    );
  });
});

describe('the writer', () => {
  it('writes whole numbers, signed and unsigned, so that any decoder reads them back', () => {
    const word = fc.integer({ min: 0, max: 2 ** 32 - 1 });
    fc.assert(
      fc.property(word, fc.oneof(word, fc.constantFrom(0, 0xffffffff)), (low, high) => {
        const writer = new MsgpackWriter();
        const unsigned = (BigInt(high) << 32n) | BigInt(low);
        writer.array(2);
        writer.unsigned64(high, low);
        writer.signed64(high, low);
        const read = (unpackr.unpack(writer.take()) as (number | bigint)[]).map(BigInt);
        expect(read).toEqual([unsigned, BigInt.asIntN(64, unsigned)]);
      }),
    );
  });

  it('writes texts and lists of any length', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme', maxLength: 400 }),
        fc.nat(70_000),
        (text, count) => {
          const writer = new MsgpackWriter();
          writer.array(count + 1);
          writer.text(text);
          for (let at = 0; at < count; at += 1) writer.nil();
          const read = unpackr.unpack(writer.take()) as unknown[];
          expect([read.length, read[0]]).toEqual([count + 1, text]);
        },
      ),
      { numRuns: 20 },
    );
  });
});
