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

  test.each([
    ['a transform', z.string().transform(Number)],
    ['a bound that it does not know', z.number().multipleOf(2)],
    ['a text that is changed', z.string().trim()],
    ['a text of a format', z.uuid()],
    ['checks of an object', z.object({ b: z.int() }).refine(() => true)],
    ['checks of a boolean', z.boolean().refine((on) => on)],
    ['checks of a member of a set', z.enum(['x', 'y']).refine((each) => each === 'x')],
    [
      'checks of what may be nothing',
      z
        .int()
        .nullable()
        .refine(() => false),
    ],
    ['what is something where it is missing', z.int().default(1).optional()],
    ['names of a closed set, none of which may be missing', z.record(z.enum(['x', 'y']), z.int())],
  ])('is not made of a schema that it would read otherwise: %s', (_name, schema) => {
    expect(() => plainReader(z.object({ a: schema }))).toThrow('no reader');
  });

  test('takes nothing else for a literal nothing', () => {
    const nothing = plainReader(z.object({ a: z.literal([null, 'x']) }));
    expect(nothing(plain.pack({ a: 'x' }))).toEqual({ a: 'x' });
    for (const a of [5, true, 'é']) expect(nothing(plain.pack({ a }))).toBeNull();
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

  test('with other members, in another order, is what the long way says, or goes that way', () => {
    const odd = fc.constantFrom<unknown>(
      ...[null, true, 0, -0, -1, 255, -129, 65_536, 2 ** 32, 2 ** 53, -1e-7, -1e-5, 0.5, 1e300],
      ...[Number.NaN, Number.POSITIVE_INFINITY, '', 'x', 'é', 'x'.repeat(65), 'x'.repeat(300)],
      ...['ready', 'newer', [], {}, [''], { a: 1 }, { constructor: 1 }],
    );
    const change = fc.record({ at: fc.nat(), value: fc.option(odd, { nil: undefined }) });
    const changes = fc.array(change, { minLength: 1, maxLength: 3 });
    let short = 0;
    fc.assert(
      fc.property(fc.constantFrom(...samples), changes, fc.nat(), (sample, all, turn) => {
        const message = structuredClone(sample) as object;
        for (const { at, value } of all) changeAt(message, at, value);
        const frame = plain.pack(turned(message, turn));
        const seen = reader(frame);
        if (seen === null) return;
        short += 1;
        expect(seen).toEqual(longWay(frame, AGENT_SCHEMAS.report));
      }),
      { numRuns: 3_000 },
    );
    expect(short).toBeGreaterThan(100);
  });
});

/** Every object in it, itself included. */
function objectsIn(value: object): object[] {
  const within = Object.values(value).filter((each) => typeof each === 'object' && each !== null);
  return [value, ...within.flatMap((each: object) => objectsIn(each))];
}

/** Some member of some object becomes another; undefined: it goes. */
function changeAt(message: object, at: number, value: unknown): void {
  const objects = objectsIn(message).filter((each) => Object.keys(each).length > 0);
  const object = objects[at % objects.length] as Record<string, unknown>;
  const names = Object.keys(object);
  const name = names[Math.floor(at / objects.length) % names.length] as string;
  if (value === undefined && !Array.isArray(object)) delete object[name];
  else object[name] = structuredClone(value ?? null);
}

/** Its members in another order: so many of them last that were first. */
function turned(message: object, by: number): object {
  const all = Object.entries(message);
  const from = by % Math.max(1, all.length);
  return Object.fromEntries([...all.slice(from), ...all.slice(0, from)]);
}
