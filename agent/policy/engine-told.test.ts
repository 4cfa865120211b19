import { describe, expect, it } from 'vitest';
import { EngineTold } from './engine-told.ts';
import { absentRank, type RankScrape } from '../events.ts';

const rank = (change: Partial<RankScrape>): RankScrape => ({ ...absentRank(0), ...change });
const busy = (prefillBusyTokens: number, prefillBusySeconds: number): RankScrape =>
  rank({ prefillBusyTokens, prefillBusySeconds });

describe('the prefill rate that an engine tells', () => {
  it('is computed tokens over busy seconds, and holds when idle', () => {
    const told = new EngineTold();
    told.scraped(busy(100_000, 40), 0);
    expect(told.rate()).toBeNull();
    told.scraped(busy(108_000, 41), 0);
    expect(told.rate()).toEqual({ tps: 8_000, derived: false });
    for (let scrapes = 0; scrapes < 100; scrapes += 1) told.scraped(busy(108_000, 41), 0);
    expect(told.rate()?.tps).toBe(8_000);
  });

  it('is not made of a few tokens: they add up until there is enough', () => {
    const told = new EngineTold();
    told.scraped(busy(0, 0), 0);
    for (let scrape = 1; scrape < 52; scrape += 1)
      told.scraped(busy(scrape * 10, scrape * 0.01), 0);
    expect(told.rate()).toBeNull();
    told.scraped(busy(520, 0.52), 0);
    expect(told.rate()?.tps).toBeCloseTo(1_000, 6);
  });

  it('begins anew where a counter went back', () => {
    const told = new EngineTold();
    told.scraped(busy(1_000_000, 10), 0);
    told.scraped(busy(0, 0), 0);
    told.scraped(busy(2_000, 1), 0);
    expect(told.rate()?.tps).toBe(2_000);
  });

  it('says where it is a bound: TGI counts cached prompt tokens too', () => {
    const told = new EngineTold();
    const derived = ['prefillBusyTokens'];
    told.scraped({ ...busy(0, 0), derived }, 0);
    told.scraped({ ...busy(6_000, 1), derived }, 0);
    expect(told.rate()).toEqual({ tps: 6_000, derived: true });
  });
});

describe('the correction of waiting tokens', () => {
  const cases: readonly (readonly [
    string,
    readonly (readonly [number | null, number])[],
    number | null,
  ])[] = [
    ['is unknown where the engine does not tell', [[null, 5]], null],
    ['is unknown after one scrape', [[500, 0]], null],
    [
      'is the lesser of two surpluses',
      [
        [500, 100],
        [900, 100],
      ],
      400,
    ],
    [
      'is the lesser of two lacks',
      [
        [0, 300],
        [0, 100],
      ],
      -100,
    ],
    [
      'is 0 where a message was under way at one scrape only',
      [
        [500, 0],
        [500, 500],
      ],
      0,
    ],
    [
      'is 0 where the scrapes disagree',
      [
        [500, 0],
        [0, 500],
      ],
      0,
    ],
    [
      'is unknown again once the engine stops telling',
      [
        [5, 0],
        [5, 0],
        [null, 0],
      ],
      null,
    ],
  ];
  for (const [what, scrapes, expected] of cases) {
    it(what, () => {
      const told = new EngineTold();
      for (const [waitingPrefillTokens, ledger] of scrapes) {
        told.scraped(rank({ waitingPrefillTokens }), ledger);
      }
      expect(told.correctionTokens()).toBe(expected);
    });
  }
});
