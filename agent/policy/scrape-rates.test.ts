import { describe, expect, test } from 'vitest';
import { ScrapeRates } from './scrape-rates.ts';
import { FakeEngine } from '../core.harness.ts';
import type { RankScrape } from '../events.ts';

const { rank: base } = new FakeEngine();
const at = (change: Partial<RankScrape>): RankScrape => ({ ...base, ...change });

describe('rates', () => {
  test('token time is the counters’ difference, held while nothing moves', () => {
    const rates = new ScrapeRates();
    rates.scraped(at({ itlSumSeconds: 10, itlCount: 100 }), true, 0);
    expect(rates.itlMs).toBeNull();
    rates.scraped(at({ itlSumSeconds: 11, itlCount: 150 }), true, 1_000);
    expect(rates.itlMs).toBeCloseTo(20);
    rates.scraped(at({ itlSumSeconds: 11, itlCount: 150 }), true, 2_000);
    expect(rates.itlMs).toBeCloseTo(20);
  });

  test('the agent’s own tokens are no token time', () => {
    const rates = new ScrapeRates();
    rates.scraped(at({ itlSumSeconds: 10, itlCount: 100 }), false, 0);
    rates.scraped(at({ itlSumSeconds: 11, itlCount: 150 }), false, 1_000);
    expect(rates.itlMs).toBeNull();
  });

  test('preemptions a minute cover the last minute and are not stretched from a second', () => {
    const rates = new ScrapeRates();
    expect(rates.preemptionsPerMin()).toBeNull();
    rates.scraped(at({ preemptionsTotal: 5 }), true, 0);
    rates.scraped(at({ preemptionsTotal: 7 }), true, 1_000);
    expect(rates.preemptionsPerMin()).toBe(2);
    for (let s = 2; s <= 70; s += 1) rates.scraped(at({ preemptionsTotal: 7 }), true, s * 1_000);
    expect(rates.preemptionsPerMin()).toBe(0);
  });

  test('a counter that is absent or went back says nothing', () => {
    const rates = new ScrapeRates();
    rates.scraped(at({ itlSumSeconds: 10, itlCount: 100 }), true, 0);
    rates.scraped(at({ itlSumSeconds: 1, itlCount: 10 }), true, 1_000);
    rates.scraped(at({ itlSumSeconds: null, itlCount: null }), true, 2_000);
    expect(rates.itlMs).toBeNull();
  });

  test('knows when a counter last moved', () => {
    const rates = new ScrapeRates();
    rates.scraped(at({ generationTokensTotal: 5 }), true, 0);
    rates.scraped(at({ generationTokensTotal: 6 }), true, 1_000);
    rates.scraped(at({ generationTokensTotal: 6 }), true, 2_000);
    expect(rates.movedMs).toBe(1_000);
  });
});
