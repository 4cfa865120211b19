import { expect, test } from 'vitest';
import { TurnMemory } from './turn-memory.ts';

const at = (k: number) => ({ hashLow: k, hashHigh: (k * 7) >>> 0 });

test('a turn is found where it ended, once', () => {
  const memory = new TurnMemory();
  memory.ended(at(1), { tokens: 500, endedMs: 10 });
  expect(memory.take(at(2))).toBeNull();
  expect(memory.take(at(1))).toMatchObject({ tokens: 500, endedMs: 10 });
  expect(memory.take(at(1))).toBeNull();
});

test('the same end told again counts as the later one', () => {
  const memory = new TurnMemory();
  memory.ended(at(1), { tokens: 500, endedMs: 10 });
  memory.ended(at(1), { tokens: 600, endedMs: 90 });
  expect(memory.take(at(1))).toMatchObject({ tokens: 600, endedMs: 90 });
});

test('it remembers the last 16,384 and forgets the oldest', () => {
  const memory = new TurnMemory();
  for (let k = 1; k <= 16_385; k += 1) memory.ended(at(k), { tokens: k, endedMs: k });
  expect(memory.take(at(1))).toBeNull();
  expect(memory.take(at(2))?.tokens).toBe(2);
  expect(memory.take(at(16_385))?.tokens).toBe(16_385);
});
