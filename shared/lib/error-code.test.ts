import { describe, expect, test } from 'vitest';
import { errorCode } from './error-code.ts';

const coded = (code: unknown): Error => Object.assign(new Error('x'), { code });

describe('the code of an error', () => {
  test.each<[string, unknown, string | null]>([
    ['its own', coded('ECONNRESET'), 'ECONNRESET'],
    ['its own before its cause’s', Object.assign(coded('A'), { cause: coded('B') }), 'A'],
    ['that of its cause', new Error('x', { cause: coded('EPIPE') }), 'EPIPE'],
    [
      'that of the first of several',
      new AggregateError([coded('ECONNREFUSED'), coded('EHOSTUNREACH')]),
      'ECONNREFUSED',
    ],
    ['none where it is no text', coded(7), null],
    ['none where there is none', new Error('x'), null],
    ['none of what is no error', { code: 'EPIPE' }, null],
  ])('is %s', (_name, error, code) => {
    expect(errorCode(error)).toBe(code);
  });

  test('is looked for to an end, in causes that are a circle too', () => {
    const circle = new Error('x');
    circle.cause = circle;
    expect(errorCode(circle)).toBeNull();
  });
});
