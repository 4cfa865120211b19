import fc from 'fast-check';
import { Packr } from 'msgpackr';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { AGENT_SAMPLES } from '../../test/fixtures/frames/samples.ts';
import { encodeAgentMessage } from './codec.ts';
import { decodeMap } from './map-frame.ts';
import { plainReader } from './plain-reader.ts';
import { AGENT_SCHEMAS } from './schemas.ts';

const plain = new Packr({ useRecords: false, variableMapSize: true });

const SCHEMA = z.object({
  kind: z.literal('a'),
  name: z.string().min(1).max(8),
  phase: z.union([z.enum(['up', 'down']), z.string().transform(() => 'down')]),
  count: z.int().min(0),
  ratio: z.number().min(-1).max(1).nullable(),
  amount: z
    .number()
    .min(-1e-6)
    .overwrite((value) => Math.max(0, value)),
  list: z.array(z.object({ id: z.string(), on: z.boolean() })).max(2),
  parts: z
    .record(z.string().max(4), z.number())
    .refine((parts) => Object.keys(parts).length <= 2, 'too many'),
  later: z.int().optional(),
  since: z.string().nullable().default(null).catch(null),
});
const read = plainReader(SCHEMA);
const VALUE = {
  kind: 'a',
  name: 'x',
  phase: 'up',
  count: 3,
  ratio: 0.5,
  amount: 1,
  list: [{ id: 'i', on: true }],
  parts: { im: 1.5 },
  since: null,
};

/** What the long way reads; undefined where it refuses or drops something. */
function longWay(frame: Uint8Array, schema: z.ZodType): unknown {
  const decoded = decodeMap(frame, { a: schema, report: schema, bye: schema, hello: schema });
  return decoded.ok && decoded.unknownFields === 0 ? decoded.message : undefined;
}

describe('the short way', () => {
  test.each([
    ['as it is', {}],
    ['with a field that may be missing', { later: 7 }],
    ['a figure a hair below 0', { amount: -1e-7 }],
    ['-0', { amount: -0, ratio: -0 }],
    ['integers of every width', { list: [], count: 70_000, later: -70_000, ratio: -1 }],
    ['nothing where nothing may be', { ratio: null, list: [], parts: {} }],
  ])('reads a frame that fits as the long way does: %s', (_name, more) => {
    const frame = plain.pack({ ...VALUE, ...more });
    const seen = read(frame);
    expect(seen).not.toBeNull();
    expect(seen).toEqual(longWay(frame, SCHEMA));
  });

  test('takes fields in any order, this time and the next', () => {
    const orders = [Object.entries(VALUE), Object.entries(VALUE).toReversed()];
    for (const order of [...orders, ...orders]) {
      expect(read(plain.pack(Object.fromEntries(order)))).toEqual(VALUE);
    }
  });

  test.each([
    ['an unknown field', { newer: 1 }],
    ['an unknown field within', { list: [{ id: 'i', on: true, newer: 1 }] }],
    ['a missing field', { count: undefined }],
    ['a value out of bounds', { ratio: 1.5 }],
    ['no whole number', { count: 0.5 }],
    ['no number', { ratio: Number.NaN }],
    ['a text too long', { name: 'x'.repeat(9) }],
    ['a text beyond ASCII', { name: 'é' }],
    ['a list too long', { list: Array.from({ length: 3 }, () => ({ id: 'i', on: true })) }],
    ['a record that a check refuses', { parts: { a: 1, b: 2, c: 3 } }],
    ['a name that objects have', { parts: { constructor: 1 } }],
    ['a value that only newer peers know', { phase: 'sideways' }],
    ['what a default stands in for', { since: 5 }],
    ['another kind', { kind: 'b' }],
    ['no boolean', { list: [{ id: 'i', on: 1 }] }],
  ])('gives up on %s', (_name, more) => {
    const value = Object.entries({ ...VALUE, ...more }).filter(([, each]) => each !== undefined);
    expect(read(plain.pack(Object.fromEntries(value)))).toBeNull();
  });

  test('gives up on a field that comes twice, on bytes behind the message, and on a cut one', () => {
    const frame = Buffer.from(plain.pack({ kind: 'a', kinc: 'a' }));
    const twice = Buffer.from(frame.toString('latin1').replace('kinc', 'kind'), 'latin1');
    const pair = plainReader(z.object({ kind: z.literal('a'), other: z.int().optional() }));
    expect(pair(plain.pack({ kind: 'a' }))).toEqual({ kind: 'a' });
    expect(pair(twice)).toBeNull();
    const whole = Buffer.from(plain.pack(VALUE));
    expect(read(Buffer.concat([whole, Buffer.from([0])]))).toBeNull();
    for (let at = 0; at < whole.length; at += 1) expect(read(whole.subarray(0, at))).toBeNull();
  });

  test('is made of no schema that it could read otherwise', () => {
    expect(() => plainReader(z.object({ a: z.string().transform(Number) }))).toThrow('no reader');
    expect(() => plainReader(z.object({ a: z.number().multipleOf(2) }))).toThrow('no reader');
    expect(() => plainReader(z.object({ a: z.string().trim() }))).toThrow('no reader');
    expect(() => plainReader(z.object({ a: z.int() }).refine(() => true))).toThrow('no reader');
  });
});

describe('a report', () => {
  const reader = plainReader(AGENT_SCHEMAS.report);
  const samples = AGENT_SAMPLES.filter(({ kind }) => kind === 'report');
  const frames = samples.map((message) => encodeAgentMessage(message));

  test('of this version goes the short way', () => {
    expect(frames.length).toBeGreaterThan(0);
    expect(frames.map(reader)).toEqual(samples);
  });

  test('with changed bytes is what the long way says, or goes that way', () => {
    const edits = fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 4 });
    let short = 0;
    fc.assert(
      fc.property(fc.constantFrom(...frames), edits, (original, changes) => {
        const frame = Uint8Array.from(original);
        for (const [at, value] of changes) frame[at % frame.length] = value;
        const seen = reader(frame);
        if (seen === null) return;
        short += 1;
        expect(seen).toEqual(longWay(frame, AGENT_SCHEMAS.report));
      }),
      { numRuns: 3_000 },
    );
    // Figures that change into others still fit.
    expect(short).toBeGreaterThan(100);
  });
});
