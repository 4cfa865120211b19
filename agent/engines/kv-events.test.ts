import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { Packr } from 'msgpackr';
import { describe, expect, test } from 'vitest';
import { decodeKvFrames, replayRequest, type DecodedKvFrames } from './kv-events.ts';

const FIXTURES = new URL('../../test/fixtures/vllm-0.32.0/', import.meta.url);
const packr = new Packr({ useRecords: false, int64AsType: 'bigint' });

interface Recorded {
  readonly topic: string;
  readonly seq: number;
  readonly payloadBase64: string;
}

function recorded(name: string): Buffer[][] {
  const lines = readFileSync(new URL(name, FIXTURES), 'utf8').trim().split('\n');
  return lines.map((line) => {
    const { topic, seq, payloadBase64 } = JSON.parse(line) as Recorded;
    return [Buffer.from(topic), seqFrame(seq), Buffer.from(payloadBase64, 'base64')];
  });
}

function seqFrame(seq: number): Buffer {
  return replayRequest(seq)[1]!;
}

function decoded(frames: readonly Uint8Array[]): Extract<DecodedKvFrames, { kind: 'batch' }> {
  const message = decodeKvFrames(frames);
  if (message.kind !== 'batch') throw new Error(JSON.stringify(message));
  return message;
}

function liveEvents(events: readonly unknown[]): ReturnType<typeof decoded> {
  return decoded([Buffer.from('t'), seqFrame(7), packr.pack([1.5, events, 3])]);
}

describe('recorded frames of a real vLLM (maps)', () => {
  test('every frame is a batch, in sequence (two were kept of much later), and every event is known', () => {
    const all = recorded('kv-events.jsonl').map(decoded);
    const seqs = all.map((each) => each.batch.seq);
    expect(seqs).toEqual([...seqs.slice(0, -2).map((_, at) => at), 532, 533]);
    expect(all.every((each) => each.topic === 'kv@pod' && each.rank === 0)).toBe(true);
    expect(all.reduce((sum, each) => sum + each.unknownEvents, 0)).toBe(0);
  });

  test('blocks, parents and tokens fit together', () => {
    const known = new Set<string>();
    for (const { batch } of recorded('kv-events.jsonl').slice(0, -2).map(decoded)) {
      for (const event of batch.events) {
        if (event.kind !== 'stored') continue;
        expect(event.tokenIds?.length).toBe(event.keys.length * event.blockTokens);
        if (event.parentKey !== null) expect(known).toContain(event.parentKey);
        for (const key of event.keys) known.add(key);
      }
    }
    expect(known.size).toBeGreaterThan(100);
  });

  test('the first prompt has its hashes whole, past 2^53', () => {
    const [first] = recorded('kv-events.jsonl').map(decoded)[0]!.batch.events;
    expect(first).toMatchObject({
      kind: 'stored',
      parentKey: null,
      blockTokens: 32,
      lora: null,
      salt: null,
      medium: 'GPU',
      group: 0,
      groupKind: 'full_attention',
    });
    expect(first?.kind === 'stored' && first.keys.slice(0, 2)).toEqual([
      5_737_758_334_174_865_110n.toString(16),
      '4ebc500eff7e61af',
    ]);
  });

  test('a salt stands on the first block of a salted prompt only', () => {
    const salts = recorded('kv-events.jsonl').flatMap((frames) =>
      decoded(frames).batch.events.flatMap((each) => (each.kind === 'stored' ? [each.salt] : [])),
    );
    expect(salts.filter((each) => each !== null)).toEqual(['tenant-a']);
    expect(salts[5]).toBe('tenant-a');
  });

  test('an adapter is named, with and without salt', () => {
    const rows = recorded('kv-events-lora.jsonl').flatMap((frames) =>
      decoded(frames).batch.events.map((each) =>
        each.kind === 'stored' ? [each.lora, each.salt] : [],
      ),
    );
    expect(rows.slice(0, 4)).toEqual([
      [null, null],
      ['support-bot', null],
      ['support-bot', 'tenant-a'],
      ['support-bot', null],
    ]);
  });
});

describe('arrays', () => {
  test('vLLM up to 0.23, in all lengths that its versions had', () => {
    const full = [
      'BlockStored',
      [1n, 0xffff_ffff_ffff_ffffn],
      2n,
      [10, 11, 12, 13],
      2,
      4,
      'CPU',
      'bot',
      [['bot', 'salt'], null],
      1,
      'sliding_window',
      4_096,
    ];
    const all = [6, 7, 8, 9, 10, 11, 12].map((length) => full.slice(0, length));
    const { batch, unknownEvents } = liveEvents(all);
    expect(unknownEvents).toBe(0);
    expect(batch.events[0]).toEqual({
      kind: 'stored',
      keys: ['0000000000000001', 'ffffffffffffffff'],
      parentKey: '0000000000000002',
      tokenIds: Uint32Array.of(10, 11, 12, 13),
      blockTokens: 2,
      lora: '4',
      salt: null,
      medium: null,
      group: null,
      groupKind: null,
    });
    const last = { medium: 'CPU', lora: 'bot', salt: 'salt', group: 1 };
    expect(batch.events.at(-1)).toMatchObject({ ...last, groupKind: 'sliding_window' });
  });

  test('SGLang: signed hashes, and a map where vLLM has the name', () => {
    const { batch } = liveEvents([
      ['BlockStored', [-1n], -9n, [5], 1, null, 'GPU', { cache_salt: 'tenant-a', new: 1 }],
      ['BlockRemoved', [-1n], 'CPU_PINNED'],
      ['AllBlocksCleared'],
    ]);
    expect(batch.events).toMatchObject([
      {
        kind: 'stored',
        keys: ['ffffffffffffffff'],
        parentKey: 'fffffffffffffff7',
        lora: null,
        salt: 'tenant-a',
      },
      { kind: 'removed', keys: ['ffffffffffffffff'], medium: 'CPU_PINNED', group: null },
      { kind: 'cleared' },
    ]);
  });

  test('pairs of tokens (speculative decoding) are no plain ids', () => {
    const { batch } = liveEvents([
      [
        'BlockStored',
        [1n],
        null,
        [
          [1, 2],
          [2, 3],
        ],
        2,
      ],
    ]);
    expect(batch.events).toMatchObject([{ kind: 'stored', tokenIds: null, blockTokens: 2 }]);
  });
});

test('hashes as bytes are their hexadecimal digits', () => {
  const { batch } = liveEvents([
    { type: 'BlockRemoved', block_hashes: [Buffer.from('00ff'.repeat(16), 'hex')] },
  ]);
  expect(batch.events).toEqual([
    { kind: 'removed', keys: ['00ff'.repeat(16)], medium: null, group: null },
  ]);
});

test('an event of an unknown kind or shape is counted and left out; the others stand', () => {
  const { batch, unknownEvents } = liveEvents([
    { type: 'BlockMoved', block_hashes: [1n] },
    { type: 'BlockStored', block_hashes: [1.5], token_ids: [], block_size: 16 },
    { type: 'BlockStored', block_hashes: [1n], parent_block_hash: 'x', block_size: 16 },
    { type: 'BlockRemoved', block_hashes: [2n] },
    null,
  ]);
  expect(unknownEvents).toBe(4);
  expect(batch.events).toMatchObject([{ kind: 'removed', keys: ['0000000000000002'] }]);
});

test('replayed messages, with and without the topic, and their ends', () => {
  const payload = packr.pack([1, [], null]);
  const empty = Buffer.alloc(0);
  expect(decoded([empty, seqFrame(4), payload])).toMatchObject({ rank: null, batch: { seq: 4 } });
  expect(decoded([empty, Buffer.from('t'), seqFrame(4), payload])).toMatchObject({ topic: 't' });
  const end = Buffer.alloc(8, 0xff);
  expect(decodeKvFrames([empty, end, empty])).toEqual({ kind: 'end' });
  expect(decodeKvFrames([empty, empty, end, empty])).toEqual({ kind: 'end' });
});

test.each([
  ['no frames', []],
  ['one frame', [Buffer.from('t')]],
  ['five frames', Array.from({ length: 5 }, () => seqFrame(1))],
  ['a short sequence', [Buffer.from('t'), Buffer.from([1]), packr.pack([1, []])]],
  ['a sequence past 2^53', [Buffer.from('t'), Buffer.alloc(8, 0xfe), packr.pack([1, []])]],
  ['an empty payload', [Buffer.from('t'), seqFrame(1), Buffer.alloc(0)]],
  ['a payload that is no array', [Buffer.from('t'), seqFrame(1), packr.pack({ a: 1 })]],
  ['a batch without events', [Buffer.from('t'), seqFrame(1), packr.pack([1])]],
  [
    'an array that claims four billion elements',
    [Buffer.from('t'), seqFrame(1), Buffer.from('ddffffffff', 'hex')],
  ],
])('%s: malformed, with a reason', (_, frames) => {
  expect(decodeKvFrames(frames)).toMatchObject({ kind: 'malformed' });
});

test('no frames whatever, and no damage to real ones, make it throw', () => {
  const real = recorded('kv-events-lora.jsonl');
  const anything = fc.array(fc.uint8Array({ maxLength: 64 }), { maxLength: 6 });
  fc.assert(fc.property(anything, (frames) => void decodeKvFrames(frames)));
  const damage = fc.tuple(fc.nat(real.length - 1), fc.nat(4_000), fc.nat(255));
  fc.assert(
    fc.property(damage, ([which, at, value]) => {
      const [topic, seq, payload] = real[which]!;
      const changed = Buffer.from(payload!);
      changed[at % changed.length] = value;
      decodeKvFrames([topic!, seq!, changed]);
      decodeKvFrames([topic!, seq!, changed.subarray(0, at % changed.length)]);
    }),
    { numRuns: 500 },
  );
});
