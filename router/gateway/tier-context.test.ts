import { createHmac } from 'node:crypto';
import fc from 'fast-check';
import { beforeEach, describe, expect, test } from 'vitest';
import type { RegionId, RouterId } from '../../shared/model/ids.ts';
import { KEPT_MS } from './seen-attempts.ts';
import {
  CLOCK_MS,
  ContextDoor,
  LIFE_MS,
  isBody,
  signContext,
  type BoundTo,
  type TierContext,
} from './tier-context.ts';

const PARIS = 'paris' as RegionId;
const TOKYO = 'tokyo' as RegionId;
const KEY = { id: 'g-paris', secret: 'a-secret-of-the-pair' };
const NOW = 1_790_000_000_000;
const BOUND: BoundTo = {
  method: 'POST',
  path: '/v1/chat/completions',
  body: Buffer.from('{"model":"m"}'),
};
const CONTEXT: TierContext = {
  attempt: 'req.1',
  tenant: 'clinic',
  saltGroup: 'clinic',
  residency: { allow: ['paris'], fallback: [] },
  conversation: 'k1',
  from: 'router-1' as RouterId,
  seq: 7,
  awayForMs: 0,
  zones: null,
  away: false,
  deadlineInMs: 8_000,
};

function sign(more: Partial<TierContext> = {}, wallMs = NOW, region = PARIS): string {
  return signContext({ ...CONTEXT, ...more }, { region, key: KEY, bound: BOUND }, wallMs);
}

/** Signs what a program of ours never would. */
function forged(header: object, claims: object): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const signed = `${part(header)}.${part(claims)}`;
  return `${signed}.${createHmac('sha256', KEY.secret).update(signed).digest('base64url')}`;
}

function claimsOf(token: string): object {
  return JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()) as object;
}

test('attempts are remembered for as long as a context of theirs could be used', () => {
  expect(KEPT_MS).toBe(LIFE_MS + 2 * CLOCK_MS);
});

describe('a signed context', () => {
  let door: ContextDoor;
  beforeEach(() => {
    door = new ContextDoor(PARIS, [KEY]);
  });
  const why = (token: string, wallMs = NOW, asked: Partial<BoundTo> = {}): string => {
    const verdict = door.open(token, { ...BOUND, ...asked }, wallMs);
    return verdict.kind === 'good' ? 'good' : verdict.why;
  };

  test('says in the region what the global tier said', () => {
    const verdict = door.open(sign(), BOUND, NOW + 100);
    expect(verdict).toMatchObject({ kind: 'good', context: CONTEXT });
    if (verdict.kind !== 'good') return;
    expect(isBody(BOUND.body, verdict.bodySha256)).toBe(true);
    expect(isBody(Buffer.from('{"model":"n"}'), verdict.bodySha256)).toBe(false);
    expect(isBody(BOUND.body, '')).toBe(false);
  });

  test('is good once', () => {
    const token = sign();
    expect([why(token), why(token), why(sign({ attempt: 'req.2' }))]).toEqual([
      'good',
      'replayed',
      'good',
    ]);
  });

  test('is remembered for as long as it could be shown again', () => {
    const token = sign();
    why(token);
    for (let n = 0; n < 100; n += 1) {
      const now = NOW + n * 1_000;
      why(sign({ attempt: `other.${n}` }, now), now);
      expect(['replayed', 'expired']).toContain(why(token, now));
    }
  });

  test.each([
    ['in another region', sign({}, NOW, TOKYO), 'audience'],
    ['after its life', sign({}, NOW - 36_000), 'expired'],
    ['from a clock far behind', sign({}, NOW - 600_000), 'expired'],
    ['from a clock far ahead', sign({}, NOW + 600_000), 'clock_ahead'],
    ['from a clock a little ahead', sign({}, NOW + 4_000), 'good'],
    ['longer than any of ours', 'x'.repeat(10_000), 'malformed'],
    ['empty', '', 'malformed'],
    ['with a fourth part', `${sign()}.x`, 'malformed'],
  ])('%s', (_, token, verdict) => {
    expect(why(token)).toBe(verdict);
  });

  test.each([
    ['method', { method: 'GET' }],
    ['path', { path: '/v1/embeddings' }],
  ])('of another %s is refused', (_, asked) => {
    expect(why(sign(), NOW, asked)).toBe('other_request');
  });

  test.each([
    [{ alg: 'none', typ: 'JWT', kid: KEY.id }, 'malformed'],
    [{ alg: 'HS512', typ: 'JWT', kid: KEY.id }, 'malformed'],
    [{ alg: 'HS256', typ: 'JWT' }, 'malformed'],
    [{ alg: 'HS256', typ: 'JWT', kid: 'g-tokyo' }, 'unknown_key'],
    [{ alg: 'HS256', typ: 'JWT', kid: '__proto__' }, 'unknown_key'],
  ])('with the header %j is refused', (header, verdict) => {
    expect(why(forged(header, claimsOf(sign())))).toBe(verdict);
  });

  test('that would live for longer than any may is refused', () => {
    const header = { alg: 'HS256', typ: 'JWT', kid: KEY.id };
    const claims = { ...claimsOf(sign()), exp: NOW / 1_000 + 3_600 };
    expect(why(forged(header, claims))).toBe('expired');
  });

  test('of a key that was taken away is refused, and what was seen stays seen', () => {
    const token = sign();
    why(token);
    door.configure([{ id: 'other', secret: 'x' }]);
    expect(why(sign({ attempt: 'req.2' }))).toBe('unknown_key');
    door.configure([KEY]);
    expect(why(token)).toBe('replayed');
  });

  test('with any one character changed is refused', () => {
    const token = sign();
    const [head = '', claims = ''] = token.split('.');
    const signedLength = head.length + claims.length + 1;
    fc.assert(
      fc.property(fc.nat(signedLength - 1), fc.constantFrom('A', 'b', '7', '_'), (at, letter) => {
        fc.pre(token[at] !== letter);
        expect(why(token.slice(0, at) + letter + token.slice(at + 1))).not.toBe('good');
      }),
    );
  });
});
