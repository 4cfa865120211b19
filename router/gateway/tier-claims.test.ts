import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { MAX_KEY } from '../../shared/protocol/limits.ts';
import { tierClaims } from './tier-claims.ts';

/** The same rules in words of a library that knows nothing of the check by hand. */
const REGIONS = z.array(z.string());
const SCHEMA = z.object({
  aud: z.string(),
  iat: z.number(),
  exp: z.number(),
  jti: z.string().min(1),
  method: z.string(),
  path: z.string(),
  body: z.string(),
  from: z.string().min(1),
  seq: z.int().min(0),
  tenant: z.string().min(1),
  salt: z.string(),
  residency: z.object({ allow: REGIONS, fallback: REGIONS }).nullable(),
  conversation: z.string().min(1).max(MAX_KEY).nullable(),
  away: z.boolean(),
  awayForMs: z.number().min(0).max(3.2e12),
  zones: z.array(z.string()).max(64).nullable(),
  deadlineInMs: z.number().nullable(),
});
type Claims = z.infer<typeof SCHEMA>;
const NAMES = Object.keys(SCHEMA.shape) as (keyof Claims)[];

const text = fc.string({ maxLength: 20 });
const good: fc.Arbitrary<Claims> = fc.record({
  ...{ aud: text, iat: fc.integer(), exp: fc.integer(), jti: fc.string({ minLength: 1 }) },
  ...{ method: text, path: text, body: text, from: fc.string({ minLength: 1 }) },
  ...{ seq: fc.nat(), tenant: fc.string({ minLength: 1 }), salt: text },
  residency: fc.option(fc.record({ allow: fc.array(text), fallback: fc.array(text) })),
  conversation: fc.option(fc.string({ minLength: 1, maxLength: MAX_KEY })),
  ...{ away: fc.boolean(), awayForMs: fc.nat(), zones: fc.option(fc.array(text)) },
  deadlineInMs: fc.option(fc.integer()),
});

/** What stands at the edges of the rules, and what is nothing like them. */
const odd: fc.Arbitrary<unknown> = fc.oneof(
  fc.constantFrom<unknown[]>(
    ...[undefined, null, '', 'x', 0, -0, -1, 0.5, 1e21, 3.2e12, 3.3e12, true, [], {}, ['a'], [1]],
    ...[Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER + 1, Number.POSITIVE_INFINITY],
    ...['k'.repeat(MAX_KEY), 'k'.repeat(MAX_KEY + 1), Array(64).fill('z'), Array(65).fill('z')],
    ...[{ allow: [] }, { allow: [], fallback: [], more: 1 }, { allow: [null], fallback: [] }],
    ...[{ allow: 'eu', fallback: [] }, { allow: [], fallback: null }, Number.NaN, ['a', null]],
  ),
  fc.jsonValue(),
);
const mutated: fc.Arbitrary<unknown> = fc
  .tuple(good, fc.array(fc.tuple(fc.constantFrom(...NAMES, 'other'), odd), { maxLength: 3 }))
  .map(([claims, changes]) => ({ ...claims, ...Object.fromEntries(changes) }));

function expected(value: unknown): Claims | null {
  const parsed = SCHEMA.safeParse(value);
  return parsed.success ? parsed.data : null;
}

describe('claims checked by hand', () => {
  test('are those that a schema takes, and what it takes of them', () => {
    let taken = 0;
    fc.assert(
      fc.property(mutated, (value) => {
        const claims = tierClaims(value);
        if (claims !== null) taken += 1;
        expect(claims).toEqual(expected(value));
      }),
      { numRuns: 3_000 },
    );
    expect(taken).toBeGreaterThan(300);
    expect(taken).toBeLessThan(2_700);
  });

  test.each(NAMES.map((name) => [name]))('are none with anything odd for %s', (name) => {
    fc.assert(
      fc.property(good, odd, (claims, value) => {
        const changed = { ...claims, [name]: value };
        expect(tierClaims(changed)).toEqual(expected(changed));
      }),
    );
  });

  test('are none where they are no object at all', () => {
    fc.assert(
      fc.property(odd, (value) => {
        expect(tierClaims(value)).toEqual(expected(value));
      }),
    );
  });
});
