import { describe, expect, test } from 'vitest';
import { IncarnationTracker } from './incarnation.ts';
import { FakeEngine } from '../core.harness.ts';
import type { EngineScrape } from '../events.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import type { Incarnation, ReplicaId } from '../../shared/model/ids.ts';
import type { ResumeState } from '../../shared/protocol/messages.ts';

function scrape(
  startTimeSeconds: number | null,
  promptTokensTotal: number | null = 0,
  generationTokensTotal: number | null = 0,
): EngineScrape {
  const { rank } = new FakeEngine();
  return { startTimeSeconds, ranks: [{ ...rank, promptTokensTotal, generationTokensTotal }] };
}

function remembered(
  incarnation: string,
  promptTokens: number | null,
  generationTokens: number | null,
): ResumeState {
  return {
    replica: 'r:1' as ReplicaId,
    rank: 0,
    incarnation: incarnation as Incarnation,
    prefillCost: null,
    prefillTps: null,
    bytesPerToken: null,
    partTokens: {},
    kappa: 1,
    runningMax: null,
    counters: { promptTokens, generationTokens },
    runs: [],
    leaves: [],
  };
}

const tracker = (seed = 1): IncarnationTracker => new IncarnationTracker(seededRandom(seed));

describe('with a start time', () => {
  test('it is the identity, the same for every agent', () => {
    const [a, b] = [tracker(1), tracker(2)];
    expect(a.scraped(scrape(1_796_010_616.36))).toBe('new');
    b.scraped(scrape(1_796_010_616.36));
    expect(a.current).toBe(b.current);
    expect(a.scraped(scrape(1_796_010_616.36, 10))).toBe('same');
  });

  test('another one is another life, even where counters are higher', () => {
    const a = tracker();
    a.scraped(scrape(1_000, 5));
    const before = a.current;
    expect(a.scraped(scrape(2_000, 50))).toBe('new');
    expect(a.current).not.toBe(before);
  });

  test('the same one after refusals is the same life', () => {
    const a = tracker();
    a.scraped(scrape(1_000, 5));
    a.refused();
    a.refused();
    expect(a.scraped(scrape(1_000, 5))).toBe('same');
  });
});

describe('without a start time', () => {
  test('the first life is unsettled until a router or nobody knows it', () => {
    const a = tracker();
    expect(a.scraped(scrape(null))).toBe('unsettled');
    a.invent();
    expect(a.scraped(scrape(null))).toBe('same');
  });

  test.each([
    ['one refused scrape', 1, 10, 'same'],
    ['two refused scrapes in a row', 2, 10, 'new'],
    ['a counter that went back', 0, 9, 'new'],
    ['a counter that stands still', 0, 10, 'same'],
    ['a counter that is absent', 0, null, 'same'],
  ] as const)('%s', (_, refusals, promptTokens, expected) => {
    const a = tracker();
    a.scraped(scrape(null, 10));
    a.invent();
    for (let i = 0; i < refusals; i += 1) a.refused();
    expect(a.scraped(scrape(null, promptTokens))).toBe(expected);
  });

  test.each([
    ['not ahead of the engine', 90, 9, true],
    ['equal', 100, 10, true],
    ['one counter ahead', 101, 9, false],
    ['one unknown, the other not ahead', null, 10, true],
    ['both unknown', null, null, false],
  ] as const)('a router’s memory fits when its counters are %s', (_, prompt, generation, fits) => {
    const a = tracker();
    a.scraped(scrape(null, 100, 10));
    expect(a.matches(remembered('x', prompt, generation))).toBe(fits);
  });

  test('a known identity is only met by itself', () => {
    const a = tracker();
    a.scraped(scrape(1_000, 100, 10));
    expect(a.matches(remembered(a.current ?? '', null, null))).toBe(true);
    expect(a.matches(remembered('other', 1, 1))).toBe(false);
  });
});

describe('signs from beside the exposition', () => {
  const settled = (startTimeSeconds: number | null): IncarnationTracker => {
    const a = tracker();
    a.sawProcess({ source: 'unit', pid: 7 });
    a.scraped(scrape(startTimeSeconds, 10));
    if (startTimeSeconds === null) a.invent();
    goesOn(a, startTimeSeconds);
    return a;
  };
  const goesOn = (a: IncarnationTracker, startTimeSeconds: number | null): void => {
    for (let look = 0; look < 15; look += 1)
      expect(a.scraped(scrape(startTimeSeconds, 10))).toBe('same');
  };

  test('KV events that begin anew are another life, once', () => {
    const a = settled(null);
    const before = a.current;
    a.eventsBeganAnew();
    expect(a.scraped(scrape(null, 10))).toBe('new');
    expect(a.current).not.toBe(before);
    expect(a.scraped(scrape(null, 10))).toBe('same');
  });

  test('another process of the same source is another life; the same one, or another source, is not', () => {
    const a = settled(null);
    a.sawProcess({ source: 'unit', pid: 7 });
    expect(a.scraped(scrape(null, 10))).toBe('same');
    a.sawProcess(null);
    a.sawProcess({ source: 'list', pid: 9 });
    expect(a.scraped(scrape(null, 10))).toBe('same');
    a.sawProcess({ source: 'list', pid: 10 });
    expect(a.scraped(scrape(null, 10))).toBe('new');
  });

  test('a restart that several signs tell of, one after the other, is one new life', () => {
    const a = settled(null);
    a.refused();
    a.refused();
    expect(a.scraped(scrape(null, 0))).toBe('new');
    const { current } = a;
    a.sawProcess({ source: 'unit', pid: 8 });
    expect(a.scraped(scrape(null, 0))).toBe('same');
    goesOn(a, null);
    expect(a.current).toBe(current);
    a.sawProcess({ source: 'unit', pid: 9 });
    expect(a.scraped(scrape(null, 10))).toBe('new');
  });

  test('an unchanged start time outweighs them', () => {
    const a = settled(1_000);
    a.eventsBeganAnew();
    expect(a.scraped(scrape(1_000, 10))).toBe('same');
    a.sawProcess({ source: 'unit', pid: 8 });
    expect(a.scraped(scrape(1_000, 10))).toBe('same');
    expect(a.scraped(scrape(2_000, 10))).toBe('new');
  });
});
