import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import {
  pack,
  unpack,
  withUnknownFields,
  type Decode,
} from '../../test/fixtures/frames/recorded.ts';
import {
  REGION_CHILD_SAMPLES,
  REGION_PARENT_SAMPLES,
} from '../../test/fixtures/frames/region-samples.ts';
import { AGENT_SAMPLES } from '../../test/fixtures/frames/samples.ts';
import { encodeAgentMessage } from './codec.ts';
import { MAX_PENDING, MAX_REGION_FRAME_BYTES, MAX_REGION_MODELS, MAX_TIERS } from './limits.ts';
import {
  decodeRegionChild,
  decodeRegionParent,
  encodeRegionChild,
  encodeRegionParent,
} from './region-codec.ts';
import {
  MAX_ARRIVED,
  MAX_AWAY,
  type RegionPoolReport,
  type RegionReportMessage,
} from './region-messages.ts';

const report = REGION_CHILD_SAMPLES.find(({ kind }) => kind === 'report') as RegionReportMessage;
const [pool] = report.pools as readonly [RegionPoolReport];

const frames: readonly [string, Uint8Array, Decode, object][] = [
  ...REGION_CHILD_SAMPLES.map(
    (sample) => [sample.kind, encodeRegionChild(sample), decodeRegionChild, sample] as const,
  ),
  ...REGION_PARENT_SAMPLES.map(
    (sample) => [sample.kind, encodeRegionParent(sample), decodeRegionParent, sample] as const,
  ),
].map(([kind, frame, decode, sample]) => [kind, frame, decode as Decode, sample]);

describe.each(frames)('%s', (kind, frame, decode, sample) => {
  it('is read as it was written', () => {
    expect(decode(frame)).toEqual({ ok: true, message: sample, unknownFields: 0 });
  });

  it('has fields added by a newer peer: they are left out and counted', () => {
    const newer = withUnknownFields(frame);
    expect(newer.added).toBeGreaterThan(0);
    expect(decode(newer.frame)).toEqual({
      ok: true,
      message: sample,
      unknownFields: newer.added,
    });
  });

  it('is refused, and nothing is thrown, cut at any point or with any byte changed', () => {
    for (let at = 0; at < frame.length; at += 1) {
      expect(decode(frame.subarray(0, at)).ok).toBe(false);
    }
    fc.assert(
      fc.property(fc.nat(frame.length - 1), fc.integer({ min: 1, max: 255 }), (at, by) => {
        const changed = Uint8Array.from(frame);
        changed[at] = (frame[at] ?? 0) ^ by;
        decode(changed);
      }),
      { numRuns: 300 },
    );
  });

  it('is refused without any one of its fields', () => {
    for (const field of Object.keys(sample)) {
      const { [field]: _, ...less } = unpack(frame);
      expect([field, decode(pack(less)).ok]).toEqual([field, false]);
    }
    expect(kind).toBeTypeOf('string');
  });
});

/** Frames that the encoder of protocol version 1 wrote, with all fields and with the fewest, and what they mean. */
const recorded = JSON.parse(
  readFileSync(new URL('fixtures/region-version-1.json', import.meta.url), 'utf8'),
) as Record<'child' | 'parent', { readonly hex: string; readonly message: { kind: string } }[]>;

describe('recorded frames of version 1', () => {
  const all = [
    ...recorded.child.map((each) => [each.message.kind, each, decodeRegionChild] as const),
    ...recorded.parent.map((each) => [each.message.kind, each, decodeRegionParent] as const),
  ];
  it.each(all)('%s is read to the recorded message', (_, { hex, message }, decode) => {
    const frame = Uint8Array.from(Buffer.from(hex, 'hex'));
    expect(decode(frame)).toEqual({ ok: true, message, unknownFields: 0 });
  });
});

test('random bytes are no message, and no reason to throw', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      decodeRegionChild(bytes);
      decodeRegionParent(bytes);
    }),
  );
});

test('a kind that nobody knows is told from a broken message', () => {
  const newer = pack({ kind: 'zzNewer', pool: 'llama' });
  expect(decodeRegionChild(newer)).toMatchObject({ ok: false, reason: 'unknown_kind' });
  expect(decodeRegionParent(newer)).toMatchObject({ ok: false, reason: 'unknown_kind' });
  expect(decodeRegionChild(pack({ pool: 'llama' }))).toMatchObject({ reason: 'malformed' });
});

test('what an agent says is no word of a region: neither its hello nor its reports', () => {
  for (const sample of AGENT_SAMPLES) {
    if (sample.kind === 'prefix') continue;
    expect(decodeRegionChild(encodeAgentMessage(sample)).ok).toBe(false);
  }
});

describe('a report is refused with', () => {
  const bad: readonly [string, Partial<RegionPoolReport>][] = [
    ['a negative queue', { queuedPrefillMs: -1 }],
    ['a figure that is none', { waitingPrefillMs: Number.NaN }],
    ['infinity', { prefillTps: Number.POSITIVE_INFINITY }],
    ['half a replica', { readyReplicas: 0.5 }],
    ['a pool without a name', { pool: '' as RegionPoolReport['pool'] }],
    ['more than is ever summed', { unacknowledgedMs: 1e300 }],
  ];
  it.each(bad)('%s', (_, change) => {
    const frame = pack({ ...report, pools: [{ ...pool, ...change }] });
    expect(decodeRegionChild(frame)).toMatchObject({ ok: false, reason: 'malformed' });
  });

  it('rounding below nothing as nothing', () => {
    const frame = pack({ ...report, pools: [{ ...pool, unacknowledgedMs: -1e-9 }] });
    const read = decodeRegionChild(frame);
    expect(read).toMatchObject({ ok: true, message: { pools: [{ unacknowledgedMs: 0 }] } });
  });
});

test('a demand whose requests cost nothing is refused: it would be given without end', () => {
  const demand = REGION_PARENT_SAMPLES.find(({ kind }) => kind === 'demand')!;
  for (const requestMs of [0, -1, Number.POSITIVE_INFINITY, 1e12]) {
    expect(decodeRegionParent(pack({ ...demand, requestMs })).ok).toBe(false);
  }
});

describe('what is too much', () => {
  const many = <T>(count: number, make: (k: number) => T): T[] =>
    Array.from({ length: count }, (_, k) => make(k));

  it('is left out of a report by its writer, so that nobody closes the link for it', () => {
    const models = many(MAX_REGION_MODELS, (k) => ({
      name: `model-${k}`,
      revision: 'r',
      maxModelLen: null,
    }));
    const large: RegionPoolReport = {
      ...pool,
      models,
      pending: many(MAX_PENDING + 5, (k) => ({ replicas: 1, etaMs: k })),
      tiers: many(MAX_TIERS + 5, (k) => `tier-${k}`),
    };
    const frame = encodeRegionChild({
      ...report,
      pools: many(300, () => large),
      arrived: many(MAX_ARRIVED + 5, (k) => k),
    });
    expect(frame.length).toBeLessThan(MAX_REGION_FRAME_BYTES);
    const read = decodeRegionChild(frame);
    if (!read.ok || read.message.kind !== 'report') throw new Error('refused');
    const rows = read.message.pools.reduce((sum, each) => sum + each.models.length, 0);
    expect(rows).toBe(MAX_REGION_MODELS);
    expect(read.message.arrived).toHaveLength(MAX_ARRIVED);
  });

  it('is refused by its reader', () => {
    const here = many(MAX_AWAY + 1, (k) => ({ key: `k${k}`, tokens: 1, idleMs: 0, awayForMs: 0 }));
    const away = { kind: 'away', snapshot: true, here, gone: [] } as const;
    expect(decodeRegionChild(pack(away)).ok).toBe(false);
    expect(decodeRegionChild(encodeRegionChild(away)).ok).toBe(true);
    const long = { ...away, here: [{ ...here[0], key: 'k'.repeat(200) }] };
    expect(decodeRegionChild(pack(long)).ok).toBe(false);
    const padded = pack({ ...report, software: 'x'.repeat(MAX_REGION_FRAME_BYTES) });
    expect(decodeRegionChild(padded)).toMatchObject({ reason: 'malformed' });
  });
});
