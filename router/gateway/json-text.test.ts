// What a JSON string's bytes say, stretch by stretch, is what JSON.parse makes of all of them.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { OVER_LIMIT_BYTES, writeStretch, type TextForm } from './json-text.ts';

/** The content's bytes in that form, read in stretches of at least one byte. */
function written(content: string, form: TextForm, limit: number): string[] {
  const body = Buffer.from(`"${content}"`);
  const to = body.length - 1;
  const target = Buffer.alloc(limit + OVER_LIMIT_BYTES);
  const stretches: string[] = [];
  for (let at = 1; at < to;) {
    const stretch = writeStretch({ body, to, form }, at, { target, limit });
    expect(stretch.written).toBeLessThanOrEqual(stretch.at - at);
    stretches.push(target.toString('utf8', 0, stretch.written));
    at = stretch.at;
  }
  return stretches;
}

const content = fc
  .array(
    fc.oneof(
      fc
        .string({ unit: 'grapheme', maxLength: 8 })
        .map((value) => JSON.stringify(value).slice(1, -1)),
      fc.nat(0xffff).map((unit) => `\\u${unit.toString(16).padStart(4, '0').toUpperCase()}`),
      fc.constantFrom('\\ud83d\\ude42', '\\uDBFF\\uDFFF', '\\ud83d', '\\ude42', '\\ud83d\\\\ude42'),
      fc.constantFrom('\\n', '\\"', '\\\\', '\\/', '\\b\\f\\r\\t', '🙂', 'é', '\u2028'),
    ),
    { maxLength: 12 },
  )
  .map((pieces) => pieces.join(''));
const limit = fc.oneof(fc.integer({ min: 1, max: 20 }), fc.constant(1_000));

describe('a text', () => {
  test('is what the string is, with halves of pairs replaced as UTF-8 has it', () => {
    fc.assert(
      fc.property(content, limit, (inner, most) => {
        const value = JSON.parse(`"${inner}"`) as string;
        expect(written(inner, 'text', most).join('')).toBe(value.toWellFormed());
      }),
      { numRuns: 500 },
    );
  });

  test('as JSON is what JSON.stringify writes of it', () => {
    fc.assert(
      fc.property(content, limit, (inner, most) => {
        const value = JSON.parse(`"${inner}"`) as string;
        expect(`"${written(inner, 'json', most).join('')}"`).toBe(JSON.stringify(value));
      }),
      { numRuns: 500 },
    );
  });

  test.each<TextForm>(['text', 'json'])('of every unit, written as an escape: %s', (form) => {
    for (let unit = 0; unit <= 0xffff; unit += 1) {
      const inner = `\\u${unit.toString(16).padStart(4, '0')}`;
      const value = String.fromCharCode(unit);
      const expected = form === 'text' ? value.toWellFormed() : JSON.stringify(value).slice(1, -1);
      if (written(inner, form, 64)[0] !== expected) expect(written(inner, form, 64)).toBe(expected);
    }
  });
});
