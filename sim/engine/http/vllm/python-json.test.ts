import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { jsonFault } from './python-json.ts';

describe('faults', () => {
  /** As Python 3.11's decoder says. */
  it.each<[string, number, string]>([
    ['{"messages": [', 14, 'Expecting value'],
    ['{"messages": "x', 13, 'Unterminated string starting at'],
    ['{a}', 1, 'Expecting property name enclosed in double quotes'],
    ['{"a":1,}', 7, 'Expecting property name enclosed in double quotes'],
    ['[1', 2, "Expecting ',' delimiter"],
    ['{"a": tru}', 6, 'Expecting value'],
    ['{"a":1} x', 8, 'Extra data'],
    ['{"a" 1}', 5, "Expecting ':' delimiter"],
    ['{"a":"b\n"}', 7, 'Invalid control character at'],
  ])('of %j are at %i: %s', (text, at, words) => {
    expect(jsonFault(text)).toEqual({ at, words });
  });

  it('are found in just the texts that are no JSON', () => {
    const json = fc.json().map((text) => text);
    const broken = fc
      .tuple(fc.json(), fc.nat(), fc.constantFrom('', '"', '{', ',', '\\', ':', ']'))
      .map(([text, at, put]) => {
        const cut = at % (text.length + 1);
        return text.slice(0, cut) + put + text.slice(cut + 1);
      });
    fc.assert(
      fc.property(fc.oneof(json, broken), (text) => {
        let valid = true;
        try {
          JSON.parse(text);
        } catch {
          valid = false;
        }
        expect(jsonFault(text) === null).toBe(valid);
      }),
      { numRuns: 500 },
    );
  });
});
