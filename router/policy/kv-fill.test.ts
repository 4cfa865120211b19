import { describe, expect, test } from 'vitest';
import { KvFill, kvLifetimeMs, LIFE_MAX_MS } from './kv-fill.ts';

/** After `seconds` of so many tokens a second. */
function filled(perS: number, seconds: number): { fill: KvFill; nowMs: number } {
  const fill = new KvFill();
  for (let k = 0; k <= seconds; k += 1) fill.wrote(perS, k * 1_000);
  return { fill, nowMs: seconds * 1_000 };
}

describe('the rate at which KV caches fill', () => {
  test.each([10, 60, 600])('is right after %d s of an even load', (seconds) => {
    const { fill, nowMs } = filled(2_000, seconds);
    const perS = fill.perMs(nowMs) * 1_000;
    expect(perS).toBeGreaterThan(2_000 * 0.97);
    expect(perS).toBeLessThan(2_000 * 1.12);
  });

  test('is no rate after one request: a burst is not a load', () => {
    const fill = new KvFill();
    fill.wrote(10_000, 0);
    expect(fill.perMs(0) * 1_000).toBeLessThan(1_100);
  });

  test('fades within some minutes of silence', () => {
    const { fill, nowMs } = filled(2_000, 600);
    expect(fill.perMs(nowMs + 300_000)).toBeLessThan(fill.perMs(nowMs) / 100);
  });
});

describe('the life of what is idle', () => {
  test.each([
    // 480,000 tokens at 2,000 a second last four minutes.
    [480_000, 2, 240_000],
    [480_000, 0, LIFE_MAX_MS],
    [1e12, 2, LIFE_MAX_MS],
    [null, 2, null],
  ])('of a capacity of %s tokens at %s tokens a ms is %s ms', (capacity, perMs, life) => {
    expect(kvLifetimeMs(capacity, perMs)).toBe(life);
  });
});
