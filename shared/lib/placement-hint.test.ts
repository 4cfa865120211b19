import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { RegionId } from '../model/ids.ts';
import { MAX_HINT_LENGTH, PlacementHints, type Placement } from './placement-hint.ts';

const NOW = { wallMs: 1_000_000, lifeMs: 60_000 };
const PLACEMENT: Placement = {
  ...{ turnKey: 'turn', idKey: null, region: 'sg' as RegionId, tokens: 1_200 },
  ...{ atMs: 990_000, sinceMs: 900_000, movedMs: null },
};
const hints = new PlacementHints('a secret of the fleet');

function why(token: string, tenant = 'acme', at = NOW, by = hints) {
  const verdict = by.open(token, tenant, at);
  return verdict.kind === 'good' ? null : verdict.why;
}

describe('a hint', () => {
  test('says what was signed, wherever the secret is the same', () => {
    const elsewhere = new PlacementHints('a secret of the fleet');
    const token = hints.sign(PLACEMENT, 'acme');
    expect(elsewhere.open(token, 'acme', NOW)).toEqual({ kind: 'good', placement: PLACEMENT });
    expect(token.length).toBeLessThan(MAX_HINT_LENGTH);
    expect(token).toMatch(/^[\w.-]+$/);
  });

  test('is no good for another tenant, nor under another secret', () => {
    const token = hints.sign(PLACEMENT, 'acme');
    expect(why(token, 'acm')).toBe('signature');
    expect(why(token, 'acme', NOW, new PlacementHints('another secret'))).toBe('signature');
  });

  test('of an older secret is good while that one is known', () => {
    const token = hints.sign(PLACEMENT, 'acme');
    const rotated = new PlacementHints('a newer secret', 'a secret of the fleet');
    expect(why(token, 'acme', NOW, rotated)).toBeNull();
    expect(why(rotated.sign(PLACEMENT, 'acme'))).toBe('signature');
    rotated.configure('a newer secret');
    expect(why(token, 'acme', NOW, rotated)).toBe('signature');
  });

  test('expires, and is not from the future', () => {
    const token = hints.sign(PLACEMENT, 'acme');
    expect(why(token, 'acme', { wallMs: 1_050_000, lifeMs: 60_000 })).toBeNull();
    expect(why(token, 'acme', { wallMs: 1_050_001, lifeMs: 60_000 })).toBe('expired');
    expect(why(token, 'acme', { wallMs: 985_000, lifeMs: 60_000 })).toBeNull();
    expect(why(token, 'acme', { wallMs: 984_999, lifeMs: 60_000 })).toBe('clock_ahead');
  });

  test('that is none, or too long, is not read', () => {
    for (const token of ['', '1', 'h1', 'h1.a', 'h2.a.b', 'h1.a.b.c', `h1.${'a'.repeat(2_000)}.b`])
      expect(why(token)).toBe('malformed');
  });
});

test('no change of any one character is good', () => {
  const token = hints.sign(PLACEMENT, 'acme');
  fc.assert(
    fc.property(
      fc.nat(token.length - 1),
      fc.constantFrom('a', 'Z', '0', '9', '-', '_', '.'),
      (at, char) => {
        const other = `${token.slice(0, at)}${char}${token.slice(at + 1)}`;
        expect(hints.open(other, 'acme', NOW).kind === 'good').toBe(other === token);
      },
    ),
  );
});

test('no text that anybody may send makes it throw', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 1_500 }), fc.string(), (token, tenant) => {
      expect(hints.open(token, tenant, NOW).kind).toBe('refused');
    }),
  );
});
