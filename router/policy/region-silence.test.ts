import { describe, expect, test } from 'vitest';
import { seededRandom } from '../../shared/lib/random.ts';
import { ReportGaps } from './region-silence.ts';

const SECOND = 1_000;

/** Reports of every second, each late by what `lateMs` says, in their order. */
function heard(lateMs: (k: number) => number, count = 60): { gaps: ReportGaps; longestMs: number } {
  const gaps = new ReportGaps();
  let atMs = 0;
  let longestMs = 0;
  for (let k = 0; k < count; k += 1) {
    const beforeMs = atMs;
    atMs = Math.max(atMs, k * SECOND + lateMs(k));
    if (k > 0) longestMs = Math.max(longestMs, atMs - beforeMs);
    gaps.note(atMs);
  }
  return { gaps, longestMs };
}

describe('a link', () => {
  test('is overdue after three reports that have not come', () => {
    expect(heard(() => 0).gaps.overdueMs(SECOND)).toBe(3_000);
  });

  test('is so too where all of them are late by the same', () => {
    for (const late of [1_000, 5_000]) {
      expect(heard(() => late).gaps.overdueMs(SECOND)).toBe(3_000);
    }
  });

  test('is given more where they are late by now this and now that, so that none of such gaps is overdue', () => {
    for (const seed of [1, 2, 3, 4, 5]) {
      const random = seededRandom(seed);
      const { gaps, longestMs } = heard(() => 1_000 + 4_000 * random.next());
      // Gaps are as long as the next ones will be.
      expect(gaps.overdueMs(SECOND)).toBeGreaterThan(longestMs);
    }
  });

  test('that stood still once is given no more for it', () => {
    expect(heard((k) => (k === 30 ? 20_000 : k > 30 ? 0 : 0)).gaps.overdueMs(SECOND)).toBe(3_000);
  });

  test('is not overdue before its habit is known', () => {
    expect(heard(() => 0, 16).gaps.overdueMs(SECOND)).toBe(Number.POSITIVE_INFINITY);
    expect(heard(() => 0, 17).gaps.overdueMs(SECOND)).toBe(3_000);
  });

  test('is judged by the interval that was asked for', () => {
    expect(heard(() => 0).gaps.overdueMs(250)).toBe(2_000);
  });
});
