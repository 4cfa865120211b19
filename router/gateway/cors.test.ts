import { describe, expect, test } from 'vitest';
import { corsHeaders, isPreflight, preflightHeaders } from './cors.ts';

const APP = 'https://app.example.com';
const POLICY = { origins: [APP, 'http://localhost:3000'], maxAgeS: 600 };
const EVERY = { origins: ['*'], maxAgeS: 0 };

describe('an answer', () => {
  test('to a page of an allowed origin may be read, its headers too', () => {
    const headers = corsHeaders(POLICY, { origin: APP });
    expect(headers).toMatchObject({ 'access-control-allow-origin': APP, vary: 'Origin' });
    const exposed = headers['access-control-expose-headers']?.split(', ') ?? [];
    for (const name of ['x-request-id', 'retry-after', 'x-should-retry', 'server-timing']) {
      expect(exposed).toContain(name);
    }
    expect(Object.keys(headers)).not.toContain('access-control-allow-credentials');
  });

  test.each([
    ['of another origin', 'https://evil.example.com'],
    ['of the same host by another scheme', 'http://app.example.com'],
    ['of a longer name', `${APP}.evil.com`],
    ['of no origin at all', 'null'],
    ['that is none', undefined],
  ])('to a page %s has no leave, and no cache may mix it up', (_name, origin) => {
    expect(corsHeaders(POLICY, origin === undefined ? {} : { origin })).toEqual({ vary: 'Origin' });
  });

  test('is the same for all where every page may', () => {
    const headers = corsHeaders(EVERY, { origin: 'https://any.example.com' });
    expect(headers['access-control-allow-origin']).toBe('*');
    expect(headers['vary']).toBeUndefined();
  });
});

describe('a preflight', () => {
  const asks = (requested: string, origin = APP) =>
    preflightHeaders(POLICY, { origin, 'access-control-request-headers': requested }, ['POST']);

  test('is told methods, and those of the headers that may be sent', () => {
    expect(
      asks('authorization, Content-Type,x-stainless-lang,x-stainless-retry-count, x-evil,cookie'),
    ).toEqual({
      'access-control-allow-origin': APP,
      'access-control-allow-methods': 'POST',
      'access-control-allow-headers':
        'authorization, content-type, x-stainless-lang, x-stainless-retry-count',
      'access-control-max-age': '600',
      vary: 'Origin, Access-Control-Request-Headers',
    });
  });

  test('of another origin is told nothing', () => {
    expect(asks('authorization', 'https://evil.example.com')).toEqual({
      vary: 'Origin, Access-Control-Request-Headers',
    });
  });

  test('cannot make the answer long, or put a line of its own into it', () => {
    const many = Array.from({ length: 5_000 }, (_, k) => `x-stainless-${k}`).join(',');
    expect(asks(many)['access-control-allow-headers']?.length).toBeLessThan(2_000);
    expect(asks('x-stainless-a\r\nset-cookie: b')['access-control-allow-headers']).toBeUndefined();
  });

  test('is an OPTIONS request with an origin and a method, nothing else', () => {
    const headers = { origin: APP, 'access-control-request-method': 'POST' };
    expect(isPreflight('OPTIONS', headers)).toBe(true);
    expect(isPreflight('POST', headers)).toBe(false);
    expect(isPreflight('OPTIONS', { origin: APP })).toBe(false);
    expect(isPreflight('OPTIONS', { 'access-control-request-method': 'POST' })).toBe(false);
  });
});
