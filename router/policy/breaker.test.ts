import { describe, expect, test } from 'vitest';
import { Breaker, ejected } from './breaker.ts';

const SETTINGS = { breakerFailures: 3, breakerOpenMs: 5_000 };

function broken(atMs = 0): Breaker {
  const breaker = new Breaker();
  for (const attempt of ['x', 'y', 'z']) breaker.failed(attempt, atMs, SETTINGS);
  return breaker;
}

describe('a breaker', () => {
  test('opens at the third consecutive fault, not at three faults with a success between', () => {
    const breaker = new Breaker();
    breaker.failed('a', 0, SETTINGS);
    breaker.failed('b', 0, SETTINGS);
    breaker.succeeded('c');
    breaker.failed('d', 0, SETTINGS);
    breaker.failed('e', 0, SETTINGS);
    expect(breaker.state(0)).toBe('closed');
    breaker.neutral('f');
    breaker.failed('g', 0, SETTINGS);
    expect(breaker.state(0)).toBe('open');
    expect(breaker.opensAgainMs(0)).toBe(5_000);
  });

  test('half-open lets one request through at a time', () => {
    const breaker = broken();
    expect(breaker.blocks(4_999)).toBe(true);
    expect(breaker.blocks(5_000)).toBe(false);
    breaker.sent('trial', 5_000);
    expect(breaker.blocks(5_001)).toBe(true);
    breaker.neutral('trial');
    expect(breaker.blocks(5_002)).toBe(false);
  });

  test('that may be tried sooner lets one request through then, and no sooner for being told of a later time', () => {
    const breaker = broken();
    breaker.mayTryFrom(9_000);
    expect(breaker.opensAgainMs(0)).toBe(5_000);
    breaker.mayTryFrom(2_000);
    expect([breaker.blocks(1_999), breaker.state(2_000)]).toEqual([true, 'half_open']);
    breaker.sent('trial', 2_000);
    breaker.failed('trial', 2_100, SETTINGS);
    expect(breaker.opensAgainMs(2_100)).toBe(12_100);
  });

  test('closes by a trial that succeeds, opens for twice as long by one that fails', () => {
    const good = broken();
    good.sent('trial', 5_000);
    good.succeeded('trial');
    expect(good.state(5_001)).toBe('closed');
    const bad = broken();
    bad.sent('trial', 5_000);
    bad.failed('trial', 6_000, SETTINGS);
    expect(bad.opensAgainMs(6_000)).toBe(16_000);
  });

  test('a first token of the trial closes it, and one more fault opens it again', () => {
    const breaker = broken();
    breaker.sent('trial', 5_000);
    breaker.showedLife('trial', SETTINGS);
    expect(breaker.state(5_001)).toBe('closed');
    breaker.failed('trial', 5_100, SETTINGS);
    expect(breaker.state(5_101)).toBe('open');
  });

  test('attempts that were under way when it opened do not prolong it', () => {
    const breaker = broken();
    breaker.failed('late', 4_000, SETTINGS);
    breaker.failed('later', 5_500, SETTINGS);
    expect(breaker.opensAgainMs(4_999)).toBe(5_000);
    expect(breaker.blocks(5_500)).toBe(false);
  });
});

test('no more than half of a pool is ejected, the longest open first', () => {
  const pool = (...openedAtMs: (number | null)[]) =>
    openedAtMs.map((atMs, id) => ({ id, breaker: atMs === null ? new Breaker() : broken(atMs) }));
  const ids = (...opened: (number | null)[]) =>
    [...ejected(pool(...opened), 4_000)].map(({ id }) => id).toSorted((a, b) => a - b);
  expect(ids(0)).toEqual([]);
  expect(ids(0, null)).toEqual([0]);
  expect(ids(1, 0)).toEqual([1]);
  expect(ids(3, 2, 1, null)).toEqual([1, 2]);
});
