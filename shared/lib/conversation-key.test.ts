import { expect, test } from 'vitest';
import type { TurnEnd } from '../model/prompt.ts';
import { HmacConversationKeys } from './conversation-key.ts';

const END: TurnEnd = { offset: 700, chunks: 1, hashLow: 0x1234, hashHigh: 0xffff_ffff };
const keys = new HmacConversationKeys('secret of the fleet');

test('a conversation has the same key wherever the secret is the same', () => {
  const elsewhere = new HmacConversationKeys('secret of the fleet');
  expect(keys.keyOf('acme', END)).toBe(elsewhere.keyOf('acme', { ...END }));
  expect(keys.keyOf('acme', END)).toMatch(/^[\w-]{22}$/);
});

test('another tenant, another point or another secret is another key', () => {
  const key = keys.keyOf('acme', END);
  const others = [
    keys.keyOf('acm', END),
    keys.keyOf('acme', { ...END, offset: 701 }),
    keys.keyOf('acme', { ...END, hashLow: 0x1235 }),
    keys.keyOf('acme', { ...END, hashHigh: 0 }),
    new HmacConversationKeys('other').keyOf('acme', END),
  ];
  expect(new Set([key, ...others]).size).toBe(6);
});

test('an id names a conversation of one tenant and one model, and no point of a text', () => {
  const named = { tenant: 'acme', model: 'llama', id: 'chat-1' };
  const key = keys.keyOfId(named);
  expect(key).toMatch(/^[\w-]{22}$/);
  const others = [
    keys.keyOfId({ ...named, tenant: 'acm', model: 'ellama' }),
    keys.keyOfId({ ...named, model: 'llamac', id: 'hat-1' }),
    keys.keyOfId({ ...named, id: 'chat-2' }),
    keys.keyOf('acmellamachat-1', { offset: 0, chunks: 0, hashLow: 4, hashHigh: 5 }),
  ];
  expect(new Set([key, ...others]).size).toBe(5);
});

test('what an older secret has named is found by it while it is known', () => {
  const rotated = new HmacConversationKeys('newer secret', 'secret of the fleet');
  expect(rotated.generations).toBe(2);
  expect(rotated.keyOf('acme', END)).not.toBe(keys.keyOf('acme', END));
  expect(rotated.keyOf('acme', END, 1)).toBe(keys.keyOf('acme', END));
  rotated.configure('newest secret');
  expect(rotated.generations).toBe(1);
});
