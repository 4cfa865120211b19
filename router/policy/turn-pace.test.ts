import { expect, test } from 'vitest';
import { PACE_HALF_LIFE_MS, PACE_MAX, TurnPace } from './turn-pace.ts';

/** Notes one every so often for so long; whether it was crowded at the end. */
function after(gapMs: number, forMs: number): boolean {
  const pace = new TurnPace();
  for (let nowMs = 0; nowMs <= forMs; nowMs += gapMs) pace.note('a', nowMs, 10);
  return pace.isCrowded('a', forMs);
}

test('turns that follow each other, an agent’s quick ones too, are one conversation', () => {
  expect(after(1_000, 600_000)).toBe(false);
  const pace = new TurnPace();
  for (let n = 0; n < PACE_MAX - 1; n += 1) pace.note('a', 0, 10);
  expect(pace.isCrowded('a', 0)).toBe(false);
});

test('an id under which many come at once, or for long, is a crowd', () => {
  expect(after(800, 600_000)).toBe(true);
  const pace = new TurnPace();
  for (let n = 0; n < PACE_MAX; n += 1) pace.note('a', 0, 10);
  expect(pace.isCrowded('a', 0)).toBe(true);
  expect(pace.isCrowded('b', 0)).toBe(false);
});

test('a crowd that has gone is forgotten', () => {
  const pace = new TurnPace();
  for (let n = 0; n < 2 * PACE_MAX - 1; n += 1) pace.note('a', 0, 10);
  expect(pace.isCrowded('a', PACE_HALF_LIFE_MS / 2)).toBe(true);
  expect(pace.isCrowded('a', PACE_HALF_LIFE_MS)).toBe(false);
});

test('as many are remembered as are asked for', () => {
  const pace = new TurnPace();
  for (let n = 0; n < PACE_MAX; n += 1) pace.note('a', 0, 2);
  for (const key of ['b', 'c']) pace.note(key, 0, 2);
  expect(pace.isCrowded('a', 0)).toBe(false);
});
