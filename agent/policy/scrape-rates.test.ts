import { describe, expect, test } from 'vitest';
import { ForeignTraffic } from './foreign.ts';
import { LedgerHistory } from './ledger-history.ts';
import { ScrapeRates } from './scrape-rates.ts';
import { FakeEngine, leaseFacts } from '../core.harness.ts';
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

describe('foreign traffic', () => {
  test('is the least of what two scrapes show above the ledger at their times', () => {
    const foreign = new ForeignTraffic();
    const known = (atMs: number) => ({ open: atMs < 500 ? 2 : 5, withoutFirstToken: 1 });
    foreign.scraped({ atMs: 0, running: 3, waiting: 4 });
    expect(foreign.estimate(known)).toBeNull();
    foreign.scraped({ atMs: 1_000, running: 3, waiting: 3 });
    expect(foreign.estimate(known)).toEqual({ waiting: 2, open: 1 });
  });

  test('is unknown without the gauges', () => {
    const foreign = new ForeignTraffic();
    foreign.scraped({ atMs: 0, running: null, waiting: 4 });
    foreign.scraped({ atMs: 1, running: 1, waiting: 4 });
    expect(foreign.estimate(() => ({ open: 0, withoutFirstToken: 0 }))).toBeNull();
  });
});

test('the ledger of a past moment is told with what has become known since', () => {
  const history = new LedgerHistory();
  const entry = {
    lease: leaseFacts('x').lease,
    router: null,
    facts: leaseFacts('x'),
    sentMs: 100,
    firstTokenMs: null,
    prefillEndMs: null as number | null,
    endedMs: null as number | null,
    outcome: null,
    usage: null,
  };
  history.opened(entry);
  expect(history.momentAt(99)).toEqual({ open: 0, withoutFirstToken: 0 });
  expect(history.momentAt(150)).toEqual({ open: 1, withoutFirstToken: 1 });
  entry.prefillEndMs = 140;
  entry.endedMs = 200;
  history.closedAt(entry, 210);
  expect(history.momentAt(150)).toEqual({ open: 1, withoutFirstToken: 0 });
  expect(history.momentAt(130)).toEqual({ open: 1, withoutFirstToken: 1 });
  expect(history.momentAt(200)).toEqual({ open: 0, withoutFirstToken: 0 });
});
