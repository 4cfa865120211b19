import { describe, expect, test } from 'vitest';
import type { CostCurve } from '../../shared/model/cost-curve.ts';
import { paceOf, SlowWatch, tellsPace } from './slow-watch.ts';

const SETTINGS = { slowFactor: 3, slowDwellMs: 10_000 };

/** One prefill a second, each so much slower than calibrated. */
function watched(
  ratios: readonly number[],
  settings = SETTINGS,
): { watch: SlowWatch; nowMs: number } {
  const watch = new SlowWatch(settings);
  let nowMs = 0;
  for (const ratio of ratios) {
    nowMs += 1_000;
    watch.observe(ratio, nowMs);
  }
  return { watch, nowMs };
}

const times = (count: number, ratio: number): number[] =>
  Array.from({ length: count }, () => ratio);

describe('prefills are slow', () => {
  test('when they take three times as long as calibrated, for the dwell', () => {
    const { watch, nowMs } = watched(times(13, 4));
    // The fourth was the first that said so: at 4 s.
    expect(nowMs).toBe(13_000);
    expect(watch.isSlow(nowMs)).toBe(false);
    watch.observe(4, 14_000);
    expect(watch.isSlow(14_000)).toBe(true);
    expect(watch.ratio(14_000)).toBe(4);
  });

  const cases: [string, number[], boolean][] = [
    ['not at twice the time: batches of a loaded engine do that', times(40, 2.2), false],
    ['not for one long stall', [...times(20, 1), 80, ...times(3, 1)], false],
    ['not for a few prefills', times(3, 50), false],
    ['not when the slowness was over before the dwell', [...times(8, 5), ...times(20, 1)], false],
    ['whatever single good ones lie between', [...times(9, 5), 1, ...times(9, 5)], true],
  ];
  test.each(cases)('%s', (_, ratios, expected) => {
    const { watch, nowMs } = watched(ratios);
    expect(watch.isSlow(nowMs)).toBe(expected);
  });

  test('no longer once all of them are old: nothing is known of an idle engine', () => {
    const { watch } = watched(times(20, 5));
    expect(watch.isSlow(25_000)).toBe(true);
    expect(watch.isSlow(100_000)).toBe(false);
    expect(watch.ratio(100_000)).toBeNull();
    watch.observe(5, 100_000);
    expect(watch.isSlow(100_000)).toBe(false);
  });

  test('never with the rule off, though the ratio is still told', () => {
    const watch = new SlowWatch({ ...SETTINGS, slowFactor: null });
    for (let at = 0; at < 30; at += 1) watch.observe(20, at * 1_000);
    expect([watch.isSlow(29_000), watch.ratio(29_000)]).toEqual([false, 20]);
  });
});

test('at pace again is halfway between the calibrated time and the factor', () => {
  const watch = new SlowWatch(SETTINGS);
  expect([1, 2, 2.01, 5].map((ratio) => watch.isAtPace(ratio))).toEqual([true, true, false, false]);
  expect(watch.isAtPace(null)).toBe(false);
  expect(new SlowWatch({ ...SETTINGS, slowFactor: null }).isAtPace(null)).toBe(true);
});

describe('the pace of a stretch', () => {
  const curve: CostCurve = {
    baseMs: 10,
    frontMsPerToken: 0,
    linearMsPerToken: 0.1,
    contextMsPerToken2: 0,
    stepTokens: 1_000,
  };
  const sums = (uncached: number) => ({ uncached, prompt: uncached, context: 0 });

  test('counts every step of a lone prompt', () => {
    // Three steps: 30 ms, and 250 ms of tokens.
    expect(paceOf({ ms: 560, lone: true, instants: 1, sums: sums(2_500) }, curve)).toBe(2);
  });

  test('does not take small prompts that end one after the other for a slow engine', () => {
    // Four steps of 125 tokens each: 40 ms and 50 ms.
    expect(paceOf({ ms: 90, lone: false, instants: 4, sums: sums(500) }, curve)).toBeCloseTo(1);
  });

  test('is not told by prompts so short that the steps of a full batch decide how long they take', () => {
    const tells = (lone: boolean, instants: number, tokens: number): boolean =>
      tellsPace({ ms: 500, lone, instants, sums: sums(tokens) }, curve);
    expect(tells(true, 1, 90)).toBe(false);
    expect(tells(true, 1, 110)).toBe(true);
    expect(tells(false, 10, 900)).toBe(false);
    expect(tells(false, 10, 1_100)).toBe(true);
  });
});
