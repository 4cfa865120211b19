import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { seededRandom } from '../../shared/lib/random.ts';
import { Promises, retryAfterMs } from './promises.ts';

const STILL = { next: () => 0 };

function give(promises: Promises, more: Partial<Parameters<Promises['give']>[0]> = {}, nowMs = 0) {
  const asked = { priority: 0, workMs: 500, roomInMs: 0, ...more };
  return promises.give(asked, { nowMs, rate: 2, random: STILL });
}

test('a time to come back is within 1 and 60 s, never early, and not the same for all', () => {
  const random = seededRandom(3);
  const many = Array.from({ length: 200 }, () => retryAfterMs(10_000, random));
  expect(Math.min(...many)).toBeGreaterThanOrEqual(10_000);
  expect(Math.max(...many)).toBeLessThanOrEqual(11_000);
  expect(new Set(many).size).toBeGreaterThan(100);
  expect(retryAfterMs(-5, random)).toBeGreaterThanOrEqual(1_000);
  expect(retryAfterMs(1e9, random)).toBe(60_000);
});

describe('those who are turned away together', () => {
  test('come back one after the other, at two thirds of what the pool can do', () => {
    const promises = new Promises();
    // 500 ms of work at 2 ms per ms, two thirds of it for them: 375 ms apart.
    expect([1, 2, 3].map(() => give(promises))).toEqual([1_000, 1_375, 1_750]);
    expect(give(promises, { roomInMs: 4_000 })).toBe(5_125);
  });

  test('wait for the more urgent among them only', () => {
    const promises = new Promises();
    give(promises, { priority: 5, workMs: 10_000 });
    expect(give(promises, { priority: 0 })).toBe(1_000);
    expect(give(promises, { priority: 5 })).toBe(8_875);
  });

  test('find room kept about their time, and none is kept once they came or did not', () => {
    const promises = new Promises();
    give(promises);
    expect(promises.nearMs(0, 0)).toBe(0);
    expect(promises.nearMs(0, 500)).toBe(500);
    expect(promises.nearMs(-1, 500)).toBe(0);
    promises.kept({ priority: 0, workMs: 200 }, 1_000);
    expect(promises.nearMs(0, 1_000)).toBe(300);
    promises.kept({ priority: 0, workMs: 900 }, 1_000);
    expect(promises.nearMs(0, 1_000)).toBe(0);
    give(promises, {}, 1_000);
    expect(promises.nearMs(0, 2_500)).toBe(500);
    expect(promises.nearMs(0, 4_000)).toBe(0);
  });
});

test('what is kept is what was promised within the time, however it was', () => {
  const step = fc.record({
    gapMs: fc.integer({ min: 0, max: 20_000 }),
    priority: fc.integer({ min: -1, max: 1 }),
    workMs: fc.integer({ min: 1, max: 2_000 }),
    roomInMs: fc.integer({ min: 0, max: 70_000 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const promises = new Promises();
      const given: { priority: number; workMs: number; dueMs: number }[] = [];
      let nowMs = 0;
      for (const { gapMs, ...asked } of steps) {
        nowMs += gapMs;
        const afterMs = promises.give(asked, { nowMs, rate: 1, random: STILL });
        expect(afterMs).toBeGreaterThanOrEqual(1_000);
        expect(afterMs).toBeLessThanOrEqual(60_000);
        given.push({ ...asked, dueMs: nowMs + afterMs });
        for (const priority of [-1, 0, 1]) {
          const mine = given.filter((one) => one.priority <= priority);
          const sumOf = (slackMs: number): number =>
            mine
              .filter(({ dueMs }) => Math.abs(dueMs - nowMs) < 1_000 + slackMs)
              .reduce((sum, { workMs }) => sum + workMs, 0);
          const near = promises.nearMs(priority, nowMs);
          // Buckets of half a second.
          expect(near).toBeGreaterThanOrEqual(sumOf(0) - 1e-6);
          expect(near).toBeLessThanOrEqual(sumOf(500) + 1e-6);
        }
      }
    }),
  );
});
