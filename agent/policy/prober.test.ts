import { describe, expect, test } from 'vitest';
import { probeDeadlineMs, Prober } from './prober.ts';

const SETTINGS = { probeIntervalMs: 15_000, probeRecoveries: 3, silentMinMs: 10_000 };
const FAILED = { ok: false, ttftMs: null, cause: 'timeout' };
const STILL = { movedMs: -Infinity, foreign: false };
const GOOD = { ok: true, ttftMs: 20, cause: null };

describe('a ready replica', () => {
  test('is probed an interval after the last thing that vouched for it', () => {
    const prober = new Prober(SETTINGS);
    prober.vouched(1_000);
    expect(prober.dueMs('ready', null)).toBe(16_000);
    prober.vouched(9_000);
    expect(prober.dueMs('ready', null)).toBe(24_000);
  });

  test('is asked at once when it has been silent with work for 10 s or twice its largest prefill', () => {
    const prober = new Prober(SETTINGS);
    prober.vouched(0);
    expect(prober.dueMs('ready', { sinceMs: 1_000, largestMs: 100 })).toBe(11_000);
    // A lone 26 s prefill is not frozen before 52 s; the regular probe comes first.
    expect(prober.silentAt({ sinceMs: 0, largestMs: 26_000 })).toBe(52_000);
    expect(prober.dueMs('ready', { sinceMs: 0, largestMs: 26_000 })).toBe(15_000);
  });

  test('is asked at once when it has failed a user, but for what vouches for it since', () => {
    const prober = new Prober(SETTINGS);
    prober.vouched(10_000);
    prober.suspected(12_000);
    expect(prober.dueMs('ready', null)).toBeLessThanOrEqual(12_000);
    prober.vouched(12_500);
    expect(prober.dueMs('ready', null)).toBe(27_500);
  });

  test('that goes on failing users is asked again after 2 s, not for each of them', () => {
    const prober = new Prober(SETTINGS);
    prober.sent(false, 12_000);
    prober.ended(GOOD, STILL, 12_100);
    prober.suspected(12_200);
    expect(prober.dueMs('ready', null)).toBe(14_000);
  });

  test('is not probed twice at a time', () => {
    const prober = new Prober(SETTINGS);
    prober.sent(false, 0);
    expect(prober.dueMs('ready', { sinceMs: -1e6, largestMs: 0 })).toBeNull();
  });
});

test('a degraded replica is probed so often that the recoveries fit in one interval', () => {
  const prober = new Prober(SETTINGS);
  prober.sent(false, 100_000);
  prober.ended(FAILED, STILL, 104_000);
  expect(prober.dueMs('degraded', null)).toBe(105_000);
});

describe('the end of a probe', () => {
  const verdict = (
    outcome: typeof FAILED | typeof GOOD | { ok: false; ttftMs: null; cause: string },
    options: { moved?: number; canary?: boolean; foreign?: boolean } = {},
  ): string => {
    const prober = new Prober(SETTINGS);
    prober.sent(options.canary ?? false, 1_000);
    const engine = { movedMs: options.moved ?? -Infinity, foreign: options.foreign ?? false };
    return prober.ended(outcome, engine, 5_000);
  };

  test('a token within the deadline is good', () => expect(verdict(GOOD)).toBe('good'));
  test('a time-out is bad', () => expect(verdict(FAILED)).toBe('bad'));
  test('a time-out while anything else moved is forgiven', () =>
    expect(verdict(FAILED, { moved: 2_000 })).toBe('forgiven'));
  test('movement before the probe was sent forgives nothing', () =>
    expect(verdict(FAILED, { moved: 999 })).toBe('bad'));
  test('a refused connection is the scrape’s matter', () =>
    expect(verdict({ ok: false, ttftMs: null, cause: 'refused' })).toBe('forgiven'));
  test('a time-out behind work that no router told of is forgiven once, and never a canary', () => {
    expect(verdict(FAILED, { foreign: true })).toBe('forgiven');
    expect(verdict(FAILED, { foreign: true, canary: true })).toBe('bad');
    const prober = new Prober(SETTINGS);
    const engine = { movedMs: -Infinity, foreign: true };
    prober.sent(false, 0);
    expect(prober.ended(FAILED, engine, 10)).toBe('forgiven');
    prober.sent(false, 20);
    expect(prober.ended(FAILED, engine, 30)).toBe('bad');
  });
  test('a broken answer behind such work is as bad as any', () =>
    expect(verdict({ ok: false, ttftMs: null, cause: 'broken' }, { foreign: true })).toBe('bad'));
  test('a status may mean that it is full: the second in a row is bad', () => {
    const prober = new Prober(SETTINGS);
    const status = { ok: false, ttftMs: null, cause: 'status' };
    prober.sent(false, 0);
    expect(prober.ended(status, STILL, 10)).toBe('forgiven');
    prober.sent(false, 20);
    expect(prober.ended(status, STILL, 30)).toBe('bad');
  });
});

test('the deadline of a probe behind queued work includes the wait', () => {
  expect(probeDeadlineMs(0, 20)).toBe(4_040);
  expect(probeDeadlineMs(26_000, 20)).toBe(56_040);
});

test('counts good probes in a row', () => {
  const prober = new Prober(SETTINGS);
  for (const [outcome, expected] of [
    [GOOD, 1],
    [GOOD, 2],
    [FAILED, 0],
    [GOOD, 1],
  ] as const) {
    prober.sent(false, 0);
    prober.ended(outcome, STILL, 1);
    expect(prober.result?.consecutiveOk).toBe(expected);
  }
});
