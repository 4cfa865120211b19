import type { IncomingMessage } from 'node:http';
import { expect, test } from 'vitest';
import { operatorVerdict } from './operator.ts';

const SECRETS = ['an-old-secret-of-the-links', 'a-new-secret-of-the-links'];

test.each([
  ['this machine', '127.0.0.1', {}, false, 'allowed'],
  ['this machine, by an IPv6 socket', '::ffff:127.0.0.1', {}, false, 'allowed'],
  ['a page in a browser on this machine', '127.0.0.1', { origin: 'http://a' }, false, 'page'],
  ['another machine', '10.0.0.9', {}, false, 'unknown'],
  ['one with a checked certificate', '10.0.0.9', {}, true, 'allowed'],
  ['one with a secret', '10.0.0.9', { authorization: `Bearer ${SECRETS[1]}` }, false, 'allowed'],
  ['one with another', '10.0.0.9', { authorization: 'Bearer guess' }, false, 'unknown'],
  ['one with a scheme of its own', '10.0.0.9', { authorization: SECRETS[0] }, false, 'unknown'],
  ['an address that is gone', undefined, {}, false, 'unknown'],
] as const)('%s', (_who, remoteAddress, headers, certified, expected) => {
  const request = { headers, socket: { remoteAddress } } as unknown as IncomingMessage;
  expect(operatorVerdict(request, { secrets: SECRETS, certified })).toBe(expected);
});

test('without any secret nobody on another machine has one', () => {
  const request = {
    headers: { authorization: 'Bearer undefined' },
    socket: { remoteAddress: '10.0.0.9' },
  } as unknown as IncomingMessage;
  expect(operatorVerdict(request, { secrets: [], certified: false })).toBe('unknown');
});
