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
