import { describe, expect, test } from 'vitest';
import { REGIONAL_DEFAULTS } from '../../shared/model/settings.ts';
import { backlogNowMs, PoolSight, type SightSettings, type View } from './sight.ts';

const SETTINGS: SightSettings = { ...REGIONAL_DEFAULTS, holdMs: 60, minReportIntervalMs: 50 };
const CLEAR: View = { holdMs: 60, blind: false, lateMs: 0, meanWaitMs: 200 };
const BLIND: View = { holdMs: 1_000, blind: true, lateMs: 0, meanWaitMs: 200 };

/** Two replicas whose reports come once a second and say this. */
function heard(sight: PoolSight, waits: readonly number[], seconds: number): void {
  for (let second = 0; second < seconds; second += 1) {
    for (const waitMs of waits) sight.heard(waitMs, 1_000, waits.length);
  }
}

describe('the backlog of a replica between two reports', () => {
  test('falls by the ms where reports tell what others send', () => {
    expect(backlogNowMs(CLEAR, 300, 0)).toBe(300);
    expect(backlogNowMs(CLEAR, 300, 100)).toBe(200);
    expect(backlogNowMs(CLEAR, 300, 900)).toBe(0);
  });

  test('comes to be the mean of the pool where they do not, whatever was reported', () => {
    for (const reported of [0, 300, 5_000]) {
      expect(backlogNowMs(BLIND, reported, 0)).toBe(reported);
      expect(Math.abs(backlogNowMs(BLIND, reported, 3_000) - 200)).toBeLessThan(30);
    }
  });

  test.each([
    [50, 600],
    [200, 600],
    [800, 800],
  ])('in a pool that waits %i ms tells for %i ms', (meanWaitMs, keepsMs) => {
    const view = { ...BLIND, meanWaitMs };
    const [idle, busy] = [0, 1_000].map((reported) => backlogNowMs(view, reported, keepsMs));
    expect(busy! - idle!).toBeCloseTo((1_000 - keepsMs) * Math.exp(-1), 6);
  });

  test('has the age that a report had when it came', () => {
    expect(backlogNowMs({ ...CLEAR, lateMs: 250 }, 300, 20)).toBe(30);
  });
});

describe('how a router sees a pool', () => {
  test.each([
    [8, false, 60],
    [60, false, 60],
    [100, true, 100],
    [1_000, true, 1_000],
    [5_000, true, 1_000],
  ])('with %i agents: blind %s, a hold of %i ms', (agents, blind, holdMs) => {
    expect(new PoolSight().view(SETTINGS, agents)).toMatchObject({ blind, holdMs, lateMs: 0 });
  });

  test('by the least time in which what it sent was acknowledged', () => {
    const sight = new PoolSight();
    const clear = { blind: false, lateMs: 0, holdMs: 60 };
    const late = { blind: true, lateMs: 950, holdMs: 1_000 };
    for (let k = 0; k < 7; k += 1) sight.acknowledged(1_020 + 100 * k, k);
    // A few may each have waited for something.
    expect(sight.view(SETTINGS, 8)).toMatchObject(clear);
    sight.acknowledged(1_400, 7);
    expect(sight.view(SETTINGS, 8)).toMatchObject(late);
    sight.acknowledged(40, 300);
    expect(sight.view(SETTINGS, 8)).toMatchObject(clear);
    // What is no longer so is forgotten within two windows.
    for (let k = 0; k < 30; k += 1) sight.acknowledged(1_020, 6_000 + 400 * k);
    expect(sight.view(SETTINGS, 8)).toMatchObject(late);
  });

  test('with the mean wait of its replicas, over seconds', () => {
    const sight = new PoolSight();
    heard(sight, [100, 300], 60);
    expect(sight.view(SETTINGS, 8).meanWaitMs).toBeCloseTo(200, -1);
    heard(sight, [0, 0], 5);
    const { meanWaitMs } = sight.view(SETTINGS, 8);
    expect(meanWaitMs).toBeGreaterThan(50);
    expect(meanWaitMs).toBeLessThan(100);
  });
});

describe('what prefill weighs', () => {
  function crowding(
    waitMs: number,
    prefillMs: number | null,
    { weight = 1, intervalMs = SETTINGS.minReportIntervalMs } = {},
  ): number {
    const sight = new PoolSight();
    heard(sight, [waitMs, waitMs], 60);
    if (prefillMs !== null) sight.sent(prefillMs);
    const settings = { ...SETTINGS, crowdingWeight: weight, minReportIntervalMs: intervalMs };
    return sight.crowding(settings, sight.view(settings, 8));
  }

  test.each([
    ['nobody waits longer than a hold', 60, 100, 1],
    ['one mean prefill waits beyond it', 160, 100, 2],
    ['prefills are short', 160, 50, 3],
    ['very much waits', 60_000, 100, 5],
    ['nothing was sent yet', 160, null, 1],
  ] as const)('%s', (_name, waitMs, prefillMs, expected) => {
    expect(crowding(waitMs, prefillMs)).toBeCloseTo(expected, 2);
  });

  test.each([
    ['come as soon as a hold is over', 60, 1],
    ['take twice as long', 120, 1.25],
    ['come once a second', 1_000, 1.47],
  ])('more where nobody waits and reports %s', (_name, intervalMs, expected) => {
    expect(crowding(0, 100, { intervalMs })).toBeCloseTo(expected, 2);
  });

  test('nothing more where it is switched off', () => {
    expect(crowding(60_000, 100, { weight: 0 })).toBe(1);
    expect(crowding(0, 100, { weight: 0, intervalMs: 1_000 })).toBe(1);
  });
});
