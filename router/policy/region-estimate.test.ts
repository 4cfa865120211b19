import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { CostCurve } from '../../shared/model/cost-curve.ts';
import {
  estimateTtft,
  keptTokens,
  regionProbabilities,
  regionQueueMs,
  Smoothed,
  type TtftInput,
} from './region-estimate.ts';

/** 8,000 tokens a second and nothing else. */
const FLAT: CostCurve = {
  baseMs: 0,
  frontMsPerToken: 0,
  linearMsPerToken: 1 / 8,
  contextMsPerToken2: 0,
  stepTokens: 1_000_000,
};

function ttft(more: Partial<TtftInput>) {
  return estimateTtft({
    rttMs: 15,
    warm: true,
    queueMs: 0,
    promptTokens: 4_000,
    cachedTokens: 0,
    curve: FLAT,
    costMs: 0,
    expectedTokens: 0,
    ...more,
  });
}

describe("the documents' arithmetic", () => {
  test('432,000 waiting tokens over 60 replicas of 8,000 tokens a second are 900 ms', () => {
    const waitingPrefillMs = 432_000 / 8;
    const queue = { readyReplicas: 60, queuedPrefillMs: [], unacknowledgedMs: 0 };
    expect(regionQueueMs({ ...queue, waitingPrefillMs })).toBe(900);
  });

  test('a hot home of 1,415 ms loses to a neighbour of 640, and with no queues wins by 45', () => {
    expect(ttft({ rttMs: 15, queueMs: 900 }).ttftMs).toBe(1_415);
    expect(ttft({ rttMs: 60, queueMs: 80 }).ttftMs).toBe(640);
    expect(ttft({ rttMs: 60 }).ttftMs - ttft({ rttMs: 15 }).ttftMs).toBe(45);
  });

  test('30,000 tokens at 8,000 a second are 3.75 s', () => {
    expect(ttft({ promptTokens: 30_000 }).prefillMs).toBe(3_750);
  });

  test('a cold connection costs three round trips', () => {
    expect(ttft({ rttMs: 60, warm: false }).networkMs).toBe(180);
  });

  test('150 ms more weigh 0.37', () => {
    const [home = 0, abroad = 0] = regionProbabilities([500, 650], 150);
    expect(abroad / home).toBeCloseTo(0.37, 2);
  });

  test('without a gate the draw alone sends much of quiet traffic abroad for 45 ms', () => {
    expect(regionProbabilities([515, 560], 150)[1]).toBeCloseTo(0.43, 2);
  });
});

describe('the queue of a region', () => {
  const one = { readyReplicas: 2, waitingPrefillMs: 120, queuedPrefillMs: [], unacknowledgedMs: 0 };

  test('is what engines, all its routers and this one have in hand, over ready replicas', () => {
    const queue = { ...one, queuedPrefillMs: [900, 700], unacknowledgedMs: 80 };
    expect(regionQueueMs(queue)).toBe(900);
  });

  test('shows what waits in routers where each engine has 60 ms', () => {
    expect(regionQueueMs({ ...one, queuedPrefillMs: [1_800] })).toBe(960);
  });

  test('is at least what new conversations wait for KV room', () => {
    expect(regionQueueMs({ ...one, kvRoomWaitMs: 2_000 })).toBe(2_000);
  });

  test('is unknown without a ready replica or without a figure, never 0', () => {
    expect(regionQueueMs({ ...one, readyReplicas: 0 })).toBeNull();
    expect(regionQueueMs({ ...one, waitingPrefillMs: null })).toBeNull();
  });
});

describe('an estimate', () => {
  test('is the sum of its parts', () => {
    const parts = ttft({ queueMs: 70, cachedTokens: 3_000, costMs: 2, expectedTokens: 5_000 });
    expect(parts).toEqual({ networkMs: 15, queueMs: 70, prefillMs: 125, costMs: 10, ttftMs: 220 });
  });

  test('takes no more for cached than the prompt has', () => {
    expect(ttft({ cachedTokens: 9_000 }).prefillMs).toBe(0);
  });

  test('takes no prompt for longer than an hour, whatever curve a region tells', () => {
    const curve = { ...FLAT, baseMs: 1e18, linearMsPerToken: 1e18, contextMsPerToken2: 1e18 };
    expect(ttft({ curve }).prefillMs).toBe(3_600_000);
  });
});

test('a conversation is forgotten with the life of KV entries; unknown life holds nothing', () => {
  expect(keptTokens(10_000, 0, 60_000)).toBe(10_000);
  expect(keptTokens(10_000, 60_000, 60_000)).toBeCloseTo(3_679, 0);
  expect(keptTokens(10_000, 0, null)).toBe(0);
});

test('probabilities add up to 1 and the least estimate is the most probable', () => {
  const estimates = fc.array(fc.double({ min: 0, max: 1e6, noNaN: true }), { minLength: 1 });
  fc.assert(
    fc.property(estimates, fc.double({ min: 0, max: 1_000, noNaN: true }), (ttfts, temperature) => {
      const drawn = regionProbabilities(ttfts, temperature);
      expect(drawn.reduce((sum, each) => sum + each, 0)).toBeCloseTo(1);
      expect(drawn[ttfts.indexOf(Math.min(...ttfts))]).toBe(Math.max(...drawn));
    }),
  );
});

test('an estimate is smoothed with its half-life, and unknown leaves it', () => {
  const smoothed = new Smoothed(2_000);
  smoothed.note(null, 0);
  expect(smoothed.value).toBeNull();
  smoothed.note(100, 0);
  expect(smoothed.value).toBe(100);
  smoothed.note(300, 2_000);
  expect(smoothed.value).toBe(200);
  smoothed.note(null, 9_000);
  expect(smoothed.value).toBe(200);
});
