import { createHash } from 'node:crypto';
import { Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { ClientKeys, type OwnedKey } from './client-keys.ts';

const entry = (owner: string, key: string): OwnedKey<string> => ({
  owner,
  sha256: createHash('sha256').update(key).digest('hex'),
});
const bearer = (key: string) => ({ authorization: `Bearer ${key}` });

describe('a client key', () => {
  const keys = new ClientKeys([entry('chat', 'k-chat'), entry('batch', 'k-batch')]);

  test.each([
    ['as a bearer', bearer('k-chat'), { kind: 'known', owner: 'chat' }],
    [
      'whatever the case of the scheme',
      { authorization: 'bearer  k-batch' },
      { kind: 'known', owner: 'batch' },
    ],
    ['as x-api-key', { 'x-api-key': 'k-chat' }, { kind: 'known', owner: 'chat' }],
    [
      'beside a header of another scheme',
      { authorization: 'Basic eDp5', 'x-api-key': 'k-chat' },
      { kind: 'known', owner: 'chat' },
    ],
    ['absent', {}, { kind: 'missing' }],
    ['of another scheme', { authorization: 'Basic eDp5' }, { kind: 'missing' }],
    ['wrong', bearer('k-chax'), { kind: 'unknown' }],
    [
      'wrong as a bearer, whatever x-api-key says',
      { ...bearer('guess'), 'x-api-key': 'k-chat' },
      { kind: 'unknown' },
    ],
    ['that is the hash of one', bearer(entry('', 'k-chat').sha256), { kind: 'unknown' }],
    ['too long to be one', bearer('k'.repeat(5_000)), { kind: 'unknown' }],
  ])('%s', (_case, headers, verdict) => {
    expect(keys.check(headers, new Socket())).toEqual(verdict);
  });

  test('two keys of one name are both good while one replaces the other', () => {
    const rotating = new ClientKeys([entry('chat', 'old'), entry('chat', 'new')]);
    for (const key of ['old', 'new']) {
      expect(rotating.check(bearer(key), new Socket())).toEqual({ kind: 'known', owner: 'chat' });
    }
  });

  test('two whose hashes begin alike are told apart', () => {
    const { sha256 } = entry('', 'real');
    const alike = { owner: 'alike', sha256: sha256.slice(0, 8) + '0'.repeat(56) };
    const both = new ClientKeys([alike, { owner: 'real', sha256 }]);
    expect(both.check(bearer('real'), new Socket())).toEqual({ kind: 'known', owner: 'real' });
  });

  test('taken away is refused on a connection that has used it', () => {
    const changing = new ClientKeys([entry('chat', 'k-chat')]);
    const socket = new Socket();
    expect(changing.check(bearer('k-chat'), socket).kind).toBe('known');
    expect(changing.check(bearer('other'), socket).kind).toBe('unknown');
    expect(changing.check(bearer('k-chat'), socket).kind).toBe('known');
    changing.configure([entry('other', 'other')]);
    expect(changing.check(bearer('k-chat'), socket).kind).toBe('unknown');
    expect(changing.check(bearer('other'), socket).kind).toBe('known');
  });
});
