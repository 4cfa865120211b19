import { describe, expect, test } from 'vitest';
import { ScrapeRates } from './scrape-rates.ts';
import { FakeEngine } from '../core.harness.ts';
import type { RankScrape } from '../events.ts';

const { rank: base } = new FakeEngine();
const at = (change: Partial<RankScrape>): RankScrape => ({ ...base, ...change });

const USERS = { users: true, own: null };

describe('rates', () => {
  test('token time is the counters’ difference, held while nothing moves', () => {
    const rates = new ScrapeRates();
    rates.scraped(at({ itlSumSeconds: 10, itlCount: 100 }), USERS, 0);
    expect(rates.itlMs).toBeNull();
    rates.scraped(at({ itlSumSeconds: 11, itlCount: 150 }), USERS, 1_000);
    expect(rates.itlMs).toBeCloseTo(20);
    rates.scraped(at({ itlSumSeconds: 11, itlCount: 150 }), USERS, 2_000);
    expect(rates.itlMs).toBeCloseTo(20);
  });

  test('a token time measured over a hang is unknown a minute later, or in the next engine life', () => {
    const hung = (): ScrapeRates => {
      const rates = new ScrapeRates();
      rates.scraped(at({ itlSumSeconds: 10, itlCount: 100 }), USERS, 0);
      rates.scraped(at({ itlSumSeconds: 100, itlCount: 150 }), USERS, 1_000);
      expect(rates.itlMs).toBeCloseTo(1_800);
      return rates;
    };
    const idle = hung();
    idle.scraped(at({ itlSumSeconds: 100, itlCount: 150 }), { users: false, own: null }, 61_000);
    expect(idle.itlMs).toBeCloseTo(1_800);
    idle.scraped(at({ itlSumSeconds: 100, itlCount: 150 }), { users: false, own: null }, 62_000);
    expect(idle.itlMs).toBeNull();
    const reborn = hung();
    reborn.clear();
    expect(reborn.itlMs).toBeNull();
  });

  test('what was measured long ago hardly counts beside new tokens', () => {
    const rates = new ScrapeRates();
    rates.scraped(at({ itlSumSeconds: 0, itlCount: 0 }), USERS, 0);
    rates.scraped(at({ itlSumSeconds: 90, itlCount: 50 }), USERS, 1_000);
    rates.scraped(at({ itlSumSeconds: 90, itlCount: 50 }), USERS, 50_000);
    rates.scraped(at({ itlSumSeconds: 91, itlCount: 100 }), USERS, 51_000);
    expect(rates.itlMs).toBeLessThan(25);
  });

  test('the agent’s own tokens are no token time', () => {
    const rates = new ScrapeRates();
    rates.scraped(at({ itlSumSeconds: 10, itlCount: 100 }), { users: false, own: null }, 0);
    rates.scraped(at({ itlSumSeconds: 11, itlCount: 150 }), { users: false, own: null }, 1_000);
    expect(rates.itlMs).toBeNull();
  });

  test('preemptions a minute cover the last minute and are not stretched from a second', () => {
    const rates = new ScrapeRates();
    expect(rates.preemptionsPerMin()).toBeNull();
    rates.scraped(at({ preemptionsTotal: 5 }), USERS, 0);
    rates.scraped(at({ preemptionsTotal: 7 }), USERS, 1_000);
    expect(rates.preemptionsPerMin()).toBe(2);
    for (let s = 2; s <= 70; s += 1) rates.scraped(at({ preemptionsTotal: 7 }), USERS, s * 1_000);
    expect(rates.preemptionsPerMin()).toBe(0);
  });

  test('a counter that is absent or went back says nothing', () => {
    const rates = new ScrapeRates();
    rates.scraped(at({ itlSumSeconds: 10, itlCount: 100 }), USERS, 0);
    rates.scraped(at({ itlSumSeconds: 1, itlCount: 10 }), USERS, 1_000);
    rates.scraped(at({ itlSumSeconds: null, itlCount: null }), USERS, 2_000);
    expect(rates.itlMs).toBeNull();
  });

  test('knows when a counter last moved', () => {
    const rates = new ScrapeRates();
    rates.scraped(at({ generationTokensTotal: 5 }), USERS, 0);
    rates.scraped(at({ generationTokensTotal: 6 }), USERS, 1_000);
    rates.scraped(at({ generationTokensTotal: 6 }), USERS, 2_000);
    expect(rates.movedMs).toBe(1_000);
  });

  test('a mean prompt counts prompts, not scrapes, and leaves out what the ledger had', () => {
    const rates = new ScrapeRates();
    const seen = (computedTokensTotal: number, firstTokensTotal: number): RankScrape =>
      at({ computedTokensTotal, firstTokensTotal });
    rates.scraped(seen(0, 0), USERS, 0);
    expect(rates.meanForeignTokens).toBeNull();
    rates.scraped(seen(9_000, 9), USERS, 1_000);
    rates.scraped(seen(9_100, 10), USERS, 2_000);
    expect(rates.meanForeignTokens).toBeCloseTo(909, 0);
    const own = { prompts: 3, tokens: 300 };
    rates.scraped(seen(13_400, 15), { users: true, own }, 3_000);
    expect(rates.meanForeignTokens).toBe(2_000);
  });

  test('preemptions begin anew where their counter went back', () => {
    const rates = new ScrapeRates();
    rates.scraped(at({ preemptionsTotal: 9 }), USERS, 0);
    rates.scraped(at({ preemptionsTotal: 2 }), USERS, 1_000);
    expect(rates.preemptionsPerMin()).toBeNull();
    rates.scraped(at({ preemptionsTotal: 3 }), USERS, 2_000);
    expect(rates.preemptionsPerMin()).toBe(1);
  });
});
