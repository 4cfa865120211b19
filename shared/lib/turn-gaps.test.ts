import { describe, expect, test } from 'vitest';
import { TurnGaps } from './turn-gaps.ts';

test('the mean gap is of the last ones, and unknown while there are few', () => {
  const gaps = new TurnGaps();
  for (let k = 0; k < 7; k += 1) gaps.observe(1_000);
  expect(gaps.meanMs).toBeNull();
  gaps.observe(9_000);
  expect(gaps.meanMs).toBeCloseTo(2_000);
  for (let k = 0; k < 256; k += 1) gaps.observe(3_000);
  expect(gaps.meanMs).toBeCloseTo(3_000);
});

describe('the rest of nine turns in ten', () => {
  /** Conversations that begin evenly, each with turns so far apart, as seen after `watchedMs`. */
  function watched(gapsMs: readonly number[], watchedMs: number): number | null {
    const gaps = new TurnGaps();
    const events: { atMs: number; gapMs: number | null }[] = [];
    for (let startMs = 0; startMs <= watchedMs; startMs += 100) {
      events.push({ atMs: startMs, gapMs: null });
      for (const [k, gapMs] of gapsMs.entries()) {
        const atMs = startMs + gapsMs.slice(0, k + 1).reduce((sum, each) => sum + each, 0);
        events.push({ atMs, gapMs });
      }
    }
    for (const { atMs, gapMs } of events.toSorted((a, b) => a.atMs - b.atMs)) {
      if (atMs > watchedMs) break;
      if (gapMs !== null) gaps.observe(gapMs);
      gaps.ended(atMs);
    }
    return gaps.tauMs(watchedMs);
  }

  test.each([2_000, 5_000, 12_000])('is unknown until one could have seen %i ms twice', (gapMs) => {
    expect(watched([gapMs, gapMs], 2 * gapMs - 1)).toBeNull();
    expect(watched([gapMs, gapMs], 2 * gapMs)).toBe(gapMs);
  });

  test('is not told by the short ones that came first', () => {
    expect(watched([1_000, 9_000], 9_500)).not.toBe(9_000);
    expect(watched([1_000, 9_000], 21_000)).toBe(9_000);
  });

  test('is told after half a minute, however long it is', () => {
    expect(watched([20_000], 29_999)).toBeNull();
    expect(watched([20_000], 30_000)).toBe(20_000);
  });

  test('is never the time watched', () => {
    for (let watchedMs = 5_000; watchedMs <= 60_000; watchedMs += 1_000) {
      expect([2_000, null]).toContain(watched([2_000, 2_000, 2_000], watchedMs));
    }
  });
});

describe('conversations that end', () => {
  /** Five turns a second, every fifth of which nobody goes on from. */
  function watched(seconds: number, share = 1): TurnGaps {
    const gaps = new TurnGaps();
    for (let k = 0; k < 5 * seconds; k += 1) {
      gaps.ended(200 * k, share);
      if (k % 5 !== 0 && k % (1 / share) === 0) gaps.observe(1_000);
    }
    return gaps;
  }

  test('are the turns that nobody will go on from, also after a few seconds', () => {
    expect(1_000 * (watched(120).endingPerMs(120_000) ?? 0)).toBeCloseTo(1, 1);
    expect(1_000 * (watched(10).endingPerMs(10_000) ?? 0)).toBeCloseTo(1, 0);
  });

  test('are told by each of two observers by half', () => {
    expect(1_000 * (watched(120, 0.5).endingPerMs(120_000) ?? 0)).toBeCloseTo(0.5, 1);
  });

  test('are unknown before any have come back, and fewer when nothing ends any more', () => {
    expect(new TurnGaps().endingPerMs(10_000)).toBeNull();
    const gaps = watched(60);
    expect(gaps.endingPerMs(100_000)).toBeLessThan((gaps.endingPerMs(60_000) ?? 0) / 2);
  });
});
