import { describe, expect, it } from 'vitest';
import { formatListen, isLoopback, parseListen } from './address.ts';

describe('listener addresses', () => {
  it.each([
    ['127.0.0.1:8080', { host: '127.0.0.1', port: 8080 }],
    ['[::1]:0', { host: '::1', port: 0 }],
    ['router.internal:65535', { host: 'router.internal', port: 65535 }],
    [':8080', { host: '0.0.0.0', port: 8080 }],
  ])('reads %s', (text, address) => {
    expect(parseListen(text)).toEqual(address);
  });

  it.each(['8080', 'localhost', '::1:8080', '127.0.0.1:65536', 'http://a:1', 'a b:1', ''])(
    'refuses %j',
    (text) => {
      expect(parseListen(text)).toBeNull();
    },
  );

  it('writes IPv6 in brackets', () => {
    expect(formatListen({ host: '::1', port: 1 })).toBe('[::1]:1');
  });

  it('takes only certain loopback for loopback', () => {
    expect(['localhost', '::1', '127.1.2.3'].map(isLoopback)).toEqual([true, true, true]);
    expect(['0.0.0.0', '::', '10.0.0.1', 'my-host', '127.evil.example'].map(isLoopback)).toEqual([
      false,
      false,
      false,
      false,
      false,
    ]);
  });
});
