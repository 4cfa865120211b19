import { describe, expect, test } from 'vitest';
import { REGIONAL_DEFAULTS } from '../../shared/model/settings.ts';
import { attemptDeadlines, type DeadlineInput } from './deadlines.ts';
import { pauseUntilMs } from './pause.ts';
import { reportIntervalMs } from './report-interval.ts';
import { RetryBudget } from './retry-budget.ts';
import { predictedWaitMs, ReleasePace, shedReason } from './shed.ts';
import { FreshHistory, isStatic, staticConcurrency } from './static-pool.ts';
import { medianCurve, medianKnown } from './unknown.ts';

describe('deadlines of an attempt', () => {
  const input: DeadlineInput = {
    stream: true,
    waitMs: 500,
    prefillMs: 1_500,
    maxTokens: 100,
    itlMs: 40,
    largestPrefillMs: 3_000,
    clientLeftMs: null,
  };
  test.each([
    // 4,000 + 2·(500 + 1,500); stall: the floor of 10 s is above 2·3,000 and 20·40
    [{}, { firstTokenTimeoutMs: 8_000, stallTimeoutMs: 10_000, byClient: false }],
    [{ largestPrefillMs: 20_000 }, { stallTimeoutMs: 40_000 }],
    [{ itlMs: 700 }, { stallTimeoutMs: 14_000 }],
    // not streamed: 4,000 + 500 + 1,500 + 2·100·40
    [{ stream: false }, { firstTokenTimeoutMs: 14_000 }],
    // and 2·4,096·40 where max_tokens is not said
    [{ stream: false, maxTokens: null }, { firstTokenTimeoutMs: 333_680 }],
    // no more than the context has room for, however many are allowed: 6,000 + 2·1,000·40
    [
      { stream: false, maxTokens: 1_000_000_000, contextTokens: 1_000 },
      { firstTokenTimeoutMs: 86_000 },
    ],
    [{ clientLeftMs: 3_000 }, { firstTokenTimeoutMs: 3_000, byClient: true }],
    [{ clientLeftMs: 30_000 }, { firstTokenTimeoutMs: 8_000, byClient: false }],
    [{ clientLeftMs: -1 }, { firstTokenTimeoutMs: 0, byClient: true }],
  ] as [Partial<DeadlineInput>, object][])('%j', (more, expected) => {
    expect(attemptDeadlines({ ...input, ...more }, REGIONAL_DEFAULTS)).toMatchObject(expected);
  });
});

describe('shedding', () => {
  const input = {
    waitMs: 1_000,
    prefillMs: 500,
    answerMs: 0,
    keptMs: 0,
    clientLeftMs: null,
    queue: { requests: 0, bytes: 0 },
    bytes: 1_000,
  };
  const { queueMaxRequests, queueMaxBytes } = REGIONAL_DEFAULTS;
  test.each([
    [{}, null],
    [{ waitMs: 60_001 }, 'wait_limit'],
    [{ clientLeftMs: 1_500 }, null],
    [{ clientLeftMs: 1_499 }, 'deadline_unreachable'],
    // Not streamed: the client sees nothing before the end of the answer.
    [{ clientLeftMs: 4_500, answerMs: 3_000 }, null],
    [{ clientLeftMs: 4_499, answerMs: 3_000 }, 'deadline_unreachable'],
    // Room kept for those who were told to come, a quarter at most.
    [{ waitMs: 59_001, keptMs: 1_000 }, 'wait_limit'],
    [{ waitMs: 59_000, keptMs: 1_000 }, null],
    [{ waitMs: 45_000, keptMs: 1e9 }, null],
    [{ waitMs: 45_001, keptMs: 1e9 }, 'wait_limit'],
    [{ queue: { requests: queueMaxRequests, bytes: 0 } }, 'queue_full'],
    [{ queue: { requests: 1, bytes: queueMaxBytes - 999 } }, 'queue_full'],
  ])('%j → %s', (more, expected) => {
    expect(shedReason({ ...input, ...more }, REGIONAL_DEFAULTS)).toBe(expected);
  });

  test('predicts the wait from work and from the pace of releases, whichever is longer', () => {
    const outlook = {
      backlogMs: 1_000,
      ahead: { requests: 20, prefillMs: 9_000 },
      othersMs: 0,
      targets: 4,
      inflow: { requestsPerMs: 0, workPerMs: 0 },
      msPerRelease: null,
      etaMs: 0,
    };
    expect(predictedWaitMs(outlook)).toBe(2_500);
    expect(predictedWaitMs({ ...outlook, msPerRelease: 300 })).toBe(6_000);
    expect(predictedWaitMs({ ...outlook, etaMs: 20_000, targets: 0 })).toBe(30_000);
    // What other routers hold waits for the same targets.
    expect(predictedWaitMs({ ...outlook, othersMs: 10_000 })).toBe(5_000);
  });

  test('predicts a longer wait behind what keeps coming ahead of it, and an end to it', () => {
    const outlook = {
      backlogMs: 1_000,
      ahead: { requests: 20, prefillMs: 9_000 },
      othersMs: 0,
      targets: 4,
      inflow: { requestsPerMs: 0.001, workPerMs: 2 },
      msPerRelease: null,
      etaMs: 0,
    };
    expect(predictedWaitMs(outlook)).toBe(5_000);
    // One release in 300 ms, and in a second another that goes before.
    expect(predictedWaitMs({ ...outlook, msPerRelease: 300 })).toBeCloseTo(6_000 / 0.7);
    const flooded = { ...outlook, inflow: { requestsPerMs: 1, workPerMs: 9 } };
    expect(predictedWaitMs(flooded)).toBe(50_000);
  });

  test('measures its pace while others wait, and a stop counts as long as it lasts', () => {
    const pace = new ReleasePace();
    pace.started(0);
    for (let k = 1; k <= 50; k += 1) pace.released(5, 200 * k);
    const before = pace.msPerRelease(10_000) ?? 0;
    expect(before).toBeGreaterThan(198);
    expect(before).toBeLessThan(202);
    const after = pace.msPerRelease(13_000) ?? 0;
    // 13 s for 50 releases, the last 3 s weighing a little more.
    expect(after).toBeGreaterThan(13_000 / 50);
    expect(after).toBeLessThan(400);
    expect(pace.msPerRelease(300_000)).toBe(60_000);
  });

  test('measures releases that come batch by batch as their mean, before a batch and after it', () => {
    const pace = new ReleasePace();
    pace.started(0);
    // Batches of 32 that take a second, all released within 10 ms.
    for (let batch = 1; batch <= 10; batch += 1) {
      expect(pace.msPerRelease(batch * 1_000 - 1) ?? 0).toBeLessThan(batch === 1 ? 1 : 70);
      for (let k = 0; k < 32; k += 1) pace.released(99, batch * 1_000 + k / 3);
      expect(pace.msPerRelease(batch * 1_000 + 11) ?? 0).toBeGreaterThan(20);
    }
  });

  test('believes no pace that it has hardly seen', () => {
    const pace = new ReleasePace();
    pace.started(0);
    pace.released(9, 400);
    expect(pace.msPerRelease(500)).toBeNull();
    expect(pace.msPerRelease(2_500)).toBeGreaterThan(1_500);
  });

  test.each([
    ['a release', (pace: ReleasePace) => pace.released(0, 2_000)],
    ['its client', (pace: ReleasePace) => pace.emptied()],
  ])('measures each queue anew, when the last one ended by %s', (_name, end) => {
    const pace = new ReleasePace();
    pace.started(0);
    for (let k = 1; k <= 20; k += 1) pace.released(5, 100 * k);
    end(pace);
    expect(pace.msPerRelease(3_600_000)).toBeNull();
    pace.started(3_600_000);
    for (let k = 1; k <= 10; k += 1) pace.released(5, 3_600_000 + 10 * k);
    expect(pace.msPerRelease(3_600_100)).toBeLessThan(11);
  });
});

test('a pause lasts as long as the target asked, bounded, and is never shortened', () => {
  expect(pauseUntilMs(-1, 5_000, 100)).toBe(5_100);
  expect(pauseUntilMs(-1, null, 100)).toBe(1_100);
  expect(pauseUntilMs(-1, 0, 100)).toBe(1_100);
  expect(pauseUntilMs(-1, 3_600_000, 100)).toBe(60_100);
  expect(pauseUntilMs(9_000, 1_000, 100)).toBe(9_000);
});

test('retries are a share of the requests of the last 10 s, and a few always', () => {
  const settings = { retryBudgetRatio: 0.2, retryBudgetMinPerS: 1 };
  const budget = new RetryBudget();
  const spend = (nowMs: number): number => {
    let granted = 0;
    while (budget.charge(nowMs, settings)) granted += 1;
    return granted;
  };
  expect(spend(500)).toBe(10);
  for (let k = 0; k < 100; k += 1) budget.request(1_500);
  expect(spend(1_600)).toBe(20);
  expect(spend(9_999)).toBe(0);
  // The first second's retries have left the window; the requests have not.
  expect(spend(10_500)).toBe(10);
  expect(spend(60_000)).toBe(10);
});

describe('a static pool', () => {
  test.each([
    [{ members: 1, freshNow: 0, freshBefore: 1 }, true],
    [{ members: 4, freshNow: 3, freshBefore: 4 }, false],
    [{ members: 4, freshNow: 2, freshBefore: 4 }, false],
    [{ members: 4, freshNow: 1, freshBefore: 4 }, true],
    [{ members: 4, freshNow: 0, freshBefore: 4 }, true],
    [{ members: 2, freshNow: 0, freshBefore: 0 }, false],
  ])('%j → %s', (pool, expected) => {
    expect(isStatic(pool)).toBe(expected);
  });

  test('remembers how many were fresh a window ago', () => {
    const history = new FreshHistory();
    for (const [atMs, count] of [
      [0, 1],
      [10_000, 4],
      [70_000, 2],
      [70_500, 0],
    ] as const) {
      history.note(count, atMs, 60_000);
    }
    expect([10_000, 69_999, 70_200, 99_000].map((atMs) => history.at(atMs))).toEqual([4, 4, 2, 0]);
  });

  test('a router younger than the window compares with the most it has seen', () => {
    const history = new FreshHistory();
    history.note(1, 100_000, 60_000);
    history.note(4, 100_500, 60_000);
    history.note(0, 105_000, 60_000);
    expect(history.at(75_000)).toBe(4);
    expect(isStatic({ members: 4, freshNow: 0, freshBefore: history.at(75_000) })).toBe(true);
  });

  test('shares the last seen peak between the routers, one request at least', () => {
    expect([staticConcurrency(9, 1), staticConcurrency(9, 2), staticConcurrency(0, 3)]).toEqual([
      9, 5, 1,
    ]);
  });
});

test('reports of many agents come less often, each second at least', () => {
  expect([1, 50, 100, 5_000].map((agents) => reportIntervalMs(50, agents))).toEqual([
    50, 50, 100, 1_000,
  ]);
});

test('the median stands for what is not known', () => {
  expect(medianKnown([null, 5, 1, 3, null])).toBe(3);
  expect(medianKnown([4, 1])).toBe(1);
  expect(medianKnown([null])).toBeNull();
  const curve = (linearMsPerToken: number) => ({
    baseMs: 0,
    frontMsPerToken: 0,
    linearMsPerToken,
    contextMsPerToken2: 0,
    stepTokens: 2_048,
  });
  expect(medianCurve([curve(3), null, curve(1), curve(2)])).toEqual(curve(2));
  expect(medianCurve([null])).toBeNull();
});
