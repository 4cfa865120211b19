import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { scanMembers } from './json-spans.ts';
import { spliceMembers, type Edits } from './splice.ts';

function scanned(text: string) {
  const bytes = Buffer.from(text);
  const scan = scanMembers(bytes, 64);
  if (!scan.ok) throw new Error(scan.reason);
  return { bytes, scan };
}

/** JSON text of a value with random white space between tokens and random escapes inside strings. */
const space = fc.stringMatching(/^[ \n\r\t]{0,3}$/);
function jsonText(value: unknown, draw: () => string, escape: () => boolean): string {
  if (typeof value === 'string') return stringText(value, escape);
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  const gap = draw;
  if (Array.isArray(value)) {
    return `[${gap()}${value.map((v) => jsonText(v, draw, escape)).join(`${gap()},${gap()}`)}${gap()}]`;
  }
  const members = Object.entries(value).map(
    ([key, v]) => `${JSON.stringify(key)}${gap()}:${gap()}${jsonText(v, draw, escape)}`,
  );
  return `{${gap()}${members.join(`${gap()},${gap()}`)}${gap()}}`;
}
function stringText(value: string, escape: () => boolean): string {
  let text = '"';
  for (const unit of value.split('')) {
    text += escape()
      ? `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`
      : JSON.stringify(unit).slice(1, -1);
  }
  return `${text}"`;
}

const NAMES = ['model', 'stream', 'cache_salt', 'priority', 'stream_options'];
const key = fc.oneof(fc.constantFrom(...NAMES), fc.string({ unit: 'grapheme' }));
const object = fc
  .dictionary(key, fc.jsonValue({ maxDepth: 4, stringUnit: 'grapheme' }))
  .map((value) => structuredClone(value) as Record<string, unknown>);
const edits: fc.Arbitrary<Edits> = fc
  .dictionary(
    fc.constantFrom(...NAMES),
    fc.option(
      fc.jsonValue().map((value) => JSON.stringify(value)),
      { nil: null },
    ),
  )
  .map((value) => new Map(Object.entries(value)));

describe('splicing', () => {
  test('changes just the named members, whatever stands around them', () => {
    fc.assert(
      fc.property(
        object,
        edits,
        fc.infiniteStream(space),
        fc.infiniteStream(fc.boolean()),
        (value, edit, spaces, escapes) => {
          const gaps = spaces[Symbol.iterator]();
          const flips = escapes[Symbol.iterator]();
          const text = jsonText(
            value,
            () => gaps.next().value as string,
            () => flips.next().value === true,
          );
          const { bytes, scan } = scanned(` ${text}\n`);
          const result: unknown = JSON.parse(spliceMembers(bytes, scan, edit).toString());
          const expected: Record<string, unknown> = { ...(JSON.parse(text) as object) };
          for (const [name, json] of edit) {
            if (json === null) delete expected[name];
            else expected[name] = JSON.parse(json);
          }
          expect(result).toEqual(expected);
        },
      ),
      { numRuns: 500 },
    );
  });

  test('every byte outside the edited members stays as it came', () => {
    const text = '{ "temperature" : 1.0e0 ,"cache_salt":"x", "model":"a\\u0062",  "n" :1 }';
    const { bytes, scan } = scanned(text);
    expect(
      spliceMembers(
        bytes,
        scan,
        new Map([
          ['cache_salt', null],
          ['model', '"m"'],
        ]),
      ).toString(),
    ).toBe('{ "temperature" : 1.0e0 ,"model":"m",  "n" :1 }');
  });

  test('nothing to change returns the very same bytes', () => {
    const { bytes, scan } = scanned('{"a":1}');
    expect(spliceMembers(bytes, scan, new Map([['cache_salt', null]]))).toBe(bytes);
  });

  test('the only member removed and another added leaves one member', () => {
    const { bytes, scan } = scanned('{"cache_salt":1}');
    expect(
      spliceMembers(
        bytes,
        scan,
        new Map([
          ['cache_salt', null],
          ['model', '"m"'],
        ]),
      ).toString(),
    ).toBe('{"model":"m"}');
  });
});

describe('the member scan', () => {
  test('reports an escaped spelling under its real name', () => {
    const { scan } = scanned('{"mod\\u0065l":"x"}');
    expect(scan.members[0]).toMatchObject({ name: 'model', escaped: true });
  });

  test('refuses nesting beyond the limit and takes nesting at it', () => {
    const nested = (depth: number) =>
      scanMembers(Buffer.from(`{"a":${'['.repeat(depth - 1)}${']'.repeat(depth - 1)}}`), 8);
    expect(nested(8).ok).toBe(true);
    expect(nested(9)).toEqual({ ok: false, reason: 'too_deep' });
  });

  test('braces and quotes inside strings are text', () => {
    const { scan, bytes } = scanned('{"a":"}\\"{[","b":[{"c":"]"}],"d":2}');
    expect(scan.members.map((m) => bytes.toString('utf8', m.valueStart, m.valueEnd))).toEqual([
      '"}\\"{["',
      '[{"c":"]"}]',
      '2',
    ]);
  });

  test('never throws and never reads past the end, cut anywhere', () => {
    const text = Buffer.from('{"a":{"b":[1,"\\\\\\"",{}]},"c":null} ');
    for (let cut = 0; cut <= text.length; cut += 1) scanMembers(text.subarray(0, cut), 8);
    fc.assert(fc.property(fc.uint8Array(), (bytes) => void scanMembers(Buffer.from(bytes), 8)));
  });
});
