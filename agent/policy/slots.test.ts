import { describe, expect, test } from 'vitest';
import { SlotEstimate, type SlotScrape } from './slots.ts';

function full(firstTokensTotal: number, changes: Partial<SlotScrape> = {}): SlotScrape {
  const gauges = { running: 8, waiting: 5, kvUsageRatio: 0.4, firstTokensTotal };
  return { ...gauges, blocked: false, kvRoom: true, ...changes };
}

/** A slot count learned at 2,000 ms. */
function learned(): SlotEstimate {
  const slots = new SlotEstimate(null);
  for (let i = 0; i < 3; i += 1) slots.scraped(full(i), i * 1_000);
  return slots;
}

describe('batch slots', () => {
  test('are the plateau of what runs while others wait, seen three times with first tokens between', () => {
    const slots = new SlotEstimate(null);
    slots.scraped(full(10), 0);
    slots.scraped(full(12), 1_000);
    expect(slots.runningMax(1_000)).toBeNull();
    slots.scraped(full(13), 2_000);
    expect(slots.runningMax(2_000)).toBe(8);
  });

  test('are learned sooner where nobody was prefilled although requests waited', () => {
    const slots = new SlotEstimate(null);
    slots.scraped(full(10, { blocked: true }), 0);
    expect(slots.limits(9, 0)).toBe(true);
    slots.scraped(full(12, { blocked: true }), 1_000);
    expect(slots.runningMax(1_000)).toBe(8);
  });

  test('show also where prefills keep some scrapes below the plateau', () => {
    const slots = new SlotEstimate(null);
    for (let i = 0; i < 12; i += 1) {
      slots.scraped(full(i, { running: i % 4 === 0 ? 8 : 7 }), i * 1_000);
    }
    expect(slots.runningMax(12_000)).toBe(8);
  });

  test.each([
    ['while one long prompt is prefilled', () => full(10, { running: 1 })],
    ['while ever more run', (i: number) => full(i, { running: i + 1 })],
    ['while nothing waits', (i: number) => full(i, { waiting: 0 })],
    ['while KV room is the limit', (i: number) => full(i, { kvUsageRatio: 0.95 })],
    ['while the next prompt finds no KV room', (i: number) => full(i, { kvRoom: false })],
    ['from absent gauges', (i: number) => full(i, { running: null })],
  ])('are not learned %s', (_, scrapeAt) => {
    const slots = new SlotEstimate(null);
    for (let i = 0; i < 20; i += 1) slots.scraped(scrapeAt(i), i * 1_000);
    expect(slots.runningMax(20_000)).toBeNull();
  });

  test('not proven for a while are reported one higher, and that request proves them anew', () => {
    const slots = learned();
    expect(slots.runningMax(12_000)).toBe(8);
    expect(slots.runningMax(12_001)).toBe(9);
    slots.scraped(full(99, { waiting: 1 }), 13_000);
    expect(slots.runningMax(13_000)).toBe(8);
  });

  test('learned too low grow as soon as more run', () => {
    const slots = learned();
    slots.scraped(full(99, { running: 9, waiting: 0 }), 13_000);
    expect(slots.runningMax(13_000)).toBe(10);
    slots.scraped(full(99, { running: 10, waiting: 0 }), 14_000);
    expect(slots.runningMax(14_000)).toBe(11);
  });

  test('known to the operator are not learned', () => {
    const slots = new SlotEstimate(16);
    for (let i = 0; i < 5; i += 1) slots.scraped(full(i), i * 1_000);
    expect(slots.runningMax(5_000)).toBe(16);
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

  test('takes the end of a batch for as many ends as it had requests', () => {
    const slots = new SlotEstimate(8);
    for (let i = 0; i <= 10; i += 1) slots.ended(16, i * 800, 4);
    expect(slots.slotWaitMs(8, 8_000)).toBeCloseTo(200);
  });

  test('concerns those inside only when there are more than slots', () => {
    const slots = new SlotEstimate(8);
    expect(slots.limits(8, 0)).toBe(false);
    expect(slots.limits(9, 0)).toBe(true);
    const kv = new SlotEstimate(null);
    kv.scraped(full(1, { kvUsageRatio: 0.97 }), 0);
    expect(kv.limits(3, 0)).toBe(true);
  });

  test('is told from the time of an answer until ends have been seen with all slots taken', () => {
    const slots = new SlotEstimate(null);
    slots.answered(4_000);
    slots.scraped(full(1, { blocked: true, waiting: 3 }), 0);
    expect(slots.slotWaitMs(11, 0)).toBe((4 * 4_000) / 8);
  });
});
