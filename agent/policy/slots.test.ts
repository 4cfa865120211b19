import { describe, expect, test } from 'vitest';
import { SlotEstimate } from './slots.ts';

const full = { running: 8, waiting: 5, kvUsageRatio: 0.4, decoding: 8 };

describe('batch slots', () => {
  test('are what runs while others wait and none is in prefill, seen twice', () => {
    const slots = new SlotEstimate(null);
    slots.scraped(full, 0);
    expect(slots.runningMax(0)).toBeNull();
    slots.scraped(full, 1_000);
    expect(slots.runningMax(1_000)).toBe(8);
  });

  test.each([
    ['while one is in prefill', { ...full, decoding: 7 }],
    ['while nothing waits', { ...full, waiting: 0 }],
    ['while KV room is the limit', { ...full, kvUsageRatio: 0.95 }],
    ['from absent gauges', { ...full, running: null }],
  ])('are not learned %s', (_, scrape) => {
    const slots = new SlotEstimate(null);
    for (let i = 0; i < 5; i += 1) slots.scraped(scrape, i * 1_000);
    expect(slots.runningMax(5_000)).toBeNull();
  });

  test('that more than the learned number run corrects it', () => {
    const slots = new SlotEstimate(null);
    slots.scraped(full, 0);
    slots.scraped(full, 1_000);
    slots.scraped({ running: 12, waiting: 0, kvUsageRatio: 0.4, decoding: 12 }, 2_000);
    expect(slots.runningMax(2_000)).toBe(12);
  });

  test('are forgotten when nothing proves them any more', () => {
    const slots = new SlotEstimate(null);
    slots.scraped(full, 0);
    slots.scraped(full, 1_000);
    expect(slots.runningMax(121_000)).toBe(8);
    expect(slots.runningMax(121_001)).toBeNull();
  });

  test('known to the operator are not learned', () => {
    const slots = new SlotEstimate(16);
    slots.scraped(full, 0);
    slots.scraped(full, 1_000);
    expect(slots.runningMax(1_000)).toBe(16);
  });
});

describe('the wait for a slot', () => {
  test('is nothing while slots are free', () => {
    expect(new SlotEstimate(8).slotWaitMs(7, 0)).toBe(0);
    expect(new SlotEstimate(null).slotWaitMs(7, 0)).toBe(0);
  });

  test('is unknown when all are taken and none has been seen to free up', () => {
    expect(new SlotEstimate(8).slotWaitMs(8, 0)).toBeNull();
  });

  test('is the place in the queue times the time between two ends', () => {
    const slots = new SlotEstimate(8);
    for (let i = 0; i <= 10; i += 1) slots.ended(10, i * 200);
    expect(slots.slotWaitMs(8, 2_000)).toBeCloseTo(200);
    expect(slots.slotWaitMs(10, 2_000)).toBeCloseTo(600);
  });
});
