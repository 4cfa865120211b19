import { describe, expect, test } from 'vitest';
import { BusyRate } from './busy-rate.ts';
import { HitTrust } from './hit-trust.ts';
import { TokenRatio } from './token-ratio.ts';
import { TurnGaps } from '../../shared/lib/turn-gaps.ts';

describe('bytes per token', () => {
  test('is unknown until learned; the mean is weighted by tokens', () => {
    const ratio = new TokenRatio();
    expect(ratio.ratio()).toBeNull();
    ratio.observe({ bytes: 3_000, parts: {}, tokens: 1_000 });
    ratio.observe({ bytes: 500, parts: {}, tokens: 100 });
    expect(ratio.ratio()?.mean).toBeCloseTo(3.19, 1);
    expect([ratio.ratio()?.p5, ratio.ratio()?.p95]).toEqual([3, 5]);
  });

  test('parts count their own tokens, learned once the text’s ratio is known', () => {
    const ratio = new TokenRatio();
    ratio.observe({ bytes: 400, parts: { image: 1 }, tokens: 700 });
    expect([ratio.ratio(), ratio.partTokens()]).toEqual([null, {}]);
    for (let i = 0; i < 50; i += 1) ratio.observe({ bytes: 4_000, parts: {}, tokens: 1_000 });
    ratio.observe({ bytes: 400, parts: { image: 2 }, tokens: 1_300 });
    expect(ratio.partTokens()['image']).toBeCloseTo(600);
    expect(ratio.ratio()?.mean).toBeCloseTo(4);
  });

  test('an inherited ratio yields to own samples', () => {
    const ratio = new TokenRatio();
    ratio.adopt({ mean: 4, p5: 3, p95: 5 }, { image: 900 });
    expect(ratio.ratio()).toEqual({ mean: 4, p5: 3, p95: 5 });
    for (let i = 0; i < 400; i += 1) ratio.observe({ bytes: 2_000, parts: {}, tokens: 1_000 });
    expect(ratio.ratio()?.mean).toBeCloseTo(2, 1);
    expect(ratio.partTokens()).toEqual({ image: 900 });
  });
});

describe('one prompt among many', () => {
  const seen = (): TokenRatio => {
    const ratio = new TokenRatio();
    for (let i = 0; i < 100; i += 1) {
      ratio.observe({ bytes: 4_000 + 40 * (i % 9), parts: {}, tokens: 1_000 });
    }
    return ratio;
  };

  test.each([
    ['of a thousand bytes a token', { bytes: 1_000_000, tokens: 1_000 }],
    ['of a hundredth of a byte a token', { bytes: 100, tokens: 10_000 }],
    [
      'a hundred times as long as all others, at half the ratio',
      { bytes: 200_000, tokens: 100_000 },
    ],
  ])('%s moves the mean by a sixteenth at most', (_, strange) => {
    const ratio = seen();
    const before = ratio.mean ?? 0;
    ratio.observe({ parts: {}, ...strange });
    expect(Math.abs((ratio.mean ?? 0) / before - 1)).toBeLessThan(1 / 16);
  });

  test('is told by p5 and p95 only when it is no longer alone', () => {
    const ratio = seen();
    ratio.observe({ bytes: 1_000, parts: {}, tokens: 1_000 });
    expect(ratio.ratio()?.p5).toBeGreaterThan(3.9);
    for (let i = 0; i < 8; i += 1) ratio.observe({ bytes: 1_000, parts: {}, tokens: 1_000 });
    expect(ratio.ratio()?.p5).toBe(1);
  });
});

test('languages of different ratios: the mean lies between, p5 and p95 are theirs', () => {
  const ratio = new TokenRatio();
  for (let i = 0; i < 300; i += 1) {
    const tokens = 500 + 37 * (i % 11);
    const perToken = i % 4 === 0 ? 1.8 : 4.3;
    ratio.observe({ bytes: perToken * tokens, parts: {}, tokens });
  }
  expect(ratio.ratio()?.p5).toBeCloseTo(1.8);
  expect(ratio.ratio()?.p95).toBeCloseTo(4.3);
  expect(ratio.ratio()?.mean).toBeCloseTo((1.8 + 3 * 4.3) / 4, 1);
});

test('a workload that changes its language for good is followed', () => {
  const ratio = new TokenRatio();
  for (let i = 0; i < 300; i += 1) ratio.observe({ bytes: 4_300, parts: {}, tokens: 1_000 });
  for (let i = 0; i < 300; i += 1) ratio.observe({ bytes: 900, parts: {}, tokens: 1_000 });
  expect(ratio.ratio()).toMatchObject({ p5: 0.9, p95: 0.9 });
  expect(ratio.mean).toBeLessThan(1.2);
});

describe('κ', () => {
  test('one long prompt whose prefix was gone moves it by an eighth at most', () => {
    const trust = new HitTrust();
    for (let i = 0; i < 100; i += 1) trust.observe(1_000, 1_000);
    trust.observe(100_000, 0);
    expect(trust.kappa).toBeGreaterThan(0.87);
    for (let i = 0; i < 100; i += 1) trust.observe(1_000, 1_000);
    expect(trust.kappa).toBeGreaterThan(0.98);
  });

  test('follows an engine that begins to evict, and one that stops', () => {
    const trust = new HitTrust();
    for (let i = 0; i < 100; i += 1) trust.observe(2_000, 2_000);
    for (let i = 0; i < 100; i += 1) trust.observe(2_000, i % 2 === 0 ? 2_000 : 0);
    expect(trust.kappa).toBeCloseTo(0.5, 1);
    for (let i = 0; i < 100; i += 1) trust.observe(2_000, 2_000);
    expect(trust.kappa).toBeGreaterThan(0.95);
  });

  test('is 1 until learned, then reported over predicted within its bounds', () => {
    const trust = new HitTrust();
    expect(trust.kappa).toBe(1);
    for (let i = 0; i < 200; i += 1) trust.observe(1_000, 800);
    expect(trust.kappa).toBeCloseTo(0.8, 1);
    for (let i = 0; i < 400; i += 1) trust.observe(1_000, 3_000);
    expect(trust.kappa).toBe(1);
    for (let i = 0; i < 400; i += 1) trust.observe(1_000, 0);
    expect(trust.kappa).toBe(0.1);
  });

  test('requests without a prediction say nothing', () => {
    const trust = new HitTrust();
    for (let i = 0; i < 100; i += 1) trust.observe(0, 500);
    expect(trust.kappa).toBe(1);
  });

  test('an index is broken only after many failed promises', () => {
    const trust = new HitTrust();
    for (let i = 0; i < 19; i += 1) trust.observe(4_000, 0);
    expect(trust.broken).toBe(false);
    trust.observe(4_000, 0);
    expect(trust.broken).toBe(true);
    trust.reset();
    expect([trust.broken, trust.kappa]).toEqual([false, 1]);
  });
});

test('prefill tokens per second are over busy time, whatever the pauses', () => {
  const rate = new BusyRate();
  expect(rate.tps()).toBeNull();
  for (let i = 0; i < 50; i += 1) rate.observe(1_000, 125);
  expect(rate.tps()).toBeCloseTo(8_000);
  // Half of the weight is gone after 30 s of busy time.
  for (let i = 0; i < 600; i += 1) rate.observe(1_000, 250);
  expect(rate.tps()).toBeLessThan(4_300);
});

test('τ is the 90th percentile of the gaps between turns, 1 to 60 s, unknown until seen', () => {
  const gaps = new TurnGaps();
  gaps.ended(0);
  expect(gaps.tauMs(0)).toBeNull();
  for (let i = 1; i <= 100; i += 1) gaps.observe(i * 100);
  expect(gaps.tauMs(70_000)).toBe(9_000);
  for (let i = 0; i < 300; i += 1) gaps.observe(10);
  expect(gaps.tauMs(70_000)).toBe(1_000);
  for (let i = 0; i < 300; i += 1) gaps.observe(1e6);
  expect(gaps.tauMs(70_000)).toBe(60_000);
});

test('where hardly any turn is gone on from, nothing is kept for one', () => {
  const gaps = new TurnGaps();
  for (let k = 0; k < 100; k += 1) gaps.ended(100 * k);
  expect([gaps.tauMs(10_000), gaps.tauMs(31_000)]).toEqual([null, 1_000]);
  for (let k = 0; k < 20; k += 1) gaps.observe(20_000);
  expect(gaps.tauMs(31_000)).toBe(20_000);
  for (let k = 0; k < 600; k += 1) gaps.ended(40_000);
  expect(gaps.tauMs(41_000)).toBe(1_000);
});
