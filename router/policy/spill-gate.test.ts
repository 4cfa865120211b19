import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { seededRandom } from '../../shared/lib/random.ts';
import { GLOBAL_DEFAULTS } from '../../shared/model/global-settings.ts';
import { SpillGate, type SpillSettings } from './spill-gate.ts';

const SETTINGS: SpillSettings = {
  ...GLOBAL_DEFAULTS,
  spillIntervalMs: 10_000,
  spillDwellMs: 5_000,
};
const HOT = { queueMs: 900, roomAbroad: true };

/** Steps every 100 ms. */
function hold(gate: SpillGate, sight: Parameters<SpillGate['step']>[0], from: number, to: number) {
  for (let at = from; at <= to; at += 100) gate.step(sight, SETTINGS, at);
}

describe('the share of a hot region', () => {
  test('grows by the ramp an interval, to the ceiling and no further', () => {
    const gate = new SpillGate();
    hold(gate, HOT, 0, 10_000);
    expect(gate.share).toBeCloseTo(0.1);
    hold(gate, HOT, 10_100, 20_000);
    expect(gate.share).toBeCloseTo(0.2);
    hold(gate, HOT, 20_100, 200_000);
    expect(gate.share).toBe(0.5);
    expect(gate.direction).toBe('still');
  });

  test.each([
    ['between the two thresholds', { queueMs: 300, roomAbroad: true }],
    ['while no receiver has credit', { queueMs: 900, roomAbroad: false }],
  ])('stays %s', (_, sight) => {
    const gate = new SpillGate();
    hold(gate, HOT, 0, 10_000);
    const before = gate.share;
    hold(gate, sight, 10_100, 60_000);
    expect(gate.share).toBe(before);
  });

  test('shrinks by the ramp below the stop threshold, to none', () => {
    const gate = new SpillGate();
    hold(gate, HOT, 0, 20_000);
    hold(gate, { queueMs: 100, roomAbroad: true }, 20_100, 35_000);
    // 5 s of dwell, then 10 s of the ramp.
    expect(gate.share).toBeCloseTo(0.1, 1);
    hold(gate, { queueMs: 100, roomAbroad: true }, 35_100, 60_000);
    expect(gate.share).toBe(0);
  });

  test('stays for a while where the region is not seen, then shrinks', () => {
    const gate = new SpillGate();
    hold(gate, HOT, 0, 20_000);
    const before = gate.share;
    hold(gate, { queueMs: null, roomAbroad: true }, 20_100, 29_900);
    expect(gate.share).toBe(before);
    hold(gate, { queueMs: null, roomAbroad: true }, 30_000, 60_000);
    expect(gate.share).toBe(0);
  });

  test('never grows where the region was never seen', () => {
    const gate = new SpillGate();
    hold(gate, { queueMs: null, roomAbroad: true }, 0, 60_000);
    expect(gate.share).toBe(0);
  });

  test('does not depend on how often it is looked at', () => {
    const often = new SpillGate();
    const seldom = new SpillGate();
    hold(often, HOT, 0, 12_000);
    for (const at of [0, 5_000, 12_000]) seldom.step(HOT, SETTINGS, at);
    expect(seldom.share).toBeCloseTo(often.share);
  });
});

describe('new conversations', () => {
  test.each([0.1, 0.3, 0.5])('of a share of %f, that many go abroad and no more', (share) => {
    const gate = new SpillGate();
    const settings = { ...SETTINGS, spillCeilingRatio: share };
    for (const at of [0, 100_000]) gate.step(HOT, settings, at);
    let abroad = 0;
    for (let n = 1; n <= 1_000; n += 1) {
      if (gate.admits({ uncachedTokens: 500, again: false }, settings, 100_000)) abroad += 1;
      expect(abroad).toBeLessThanOrEqual(share * n + 1e-6);
    }
    expect(abroad).toBeGreaterThanOrEqual(share * 1_000 - 1);
  });

  test('stay at home while the share is 0, however many there were', () => {
    const gate = new SpillGate();
    for (let n = 0; n < 100; n += 1)
      expect(gate.admits({ uncachedTokens: 500, again: false }, SETTINGS, n)).toBe(false);
  });

  test('begin to count anew where the share has been 0: a turn that was left is gone', () => {
    const gate = new SpillGate();
    const settings = { ...SETTINGS, spillTokensPerS: 1 };
    for (const at of [0, 100_000]) gate.step(HOT, settings, at);
    const ask = (uncachedTokens: number): boolean =>
      gate.admits({ uncachedTokens, again: false }, settings, 100_000);
    // The second turn is there, and the cap does not let it go.
    const first = Array.from({ length: 25 }, () => ask(1_000_000));
    expect(first.filter(Boolean)).toHaveLength(1);
    const quiet = { queueMs: 0, roomAbroad: true };
    for (const at of [200_000, 300_000]) gate.step(quiet, settings, at);
    expect([gate.share, ask(1)]).toEqual([0, false]);
    gate.step(quiet, settings, 400_000);
    gate.step(HOT, settings, 400_100);
    expect(gate.share).toBeCloseTo(0.001);
    const open = { ...SETTINGS, spillTokensPerS: null };
    expect(gate.admits({ uncachedTokens: 1, again: false }, open, 400_100)).toBe(false);
  });

  test('take no more prefill tokens a second abroad than the cap, a second of it and one request aside', () => {
    const gate = new SpillGate();
    const settings = { ...SETTINGS, spillTokensPerS: 2_000 };
    for (const at of [0, 100_000]) gate.step(HOT, settings, at);
    let tokens = 0;
    for (let at = 100_000; at < 130_000; at += 50) {
      if (gate.admits({ uncachedTokens: 900, again: false }, settings, at)) tokens += 900;
      expect(tokens).toBeLessThanOrEqual((2_000 * (at - 100_000)) / 1_000 + 2_000 + 900);
    }
    expect(tokens).toBeGreaterThan(55_000);
  });
});

test('the gate keeps its bounds whatever it sees', () => {
  const sight = fc.record({
    gapMs: fc.integer({ min: 0, max: 20_000 }),
    queueMs: fc.option(fc.integer({ min: 0, max: 2_000 }), { nil: null }),
    roomAbroad: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(sight, { maxLength: 200 }), fc.integer(), (sights, seed) => {
      const gate = new SpillGate();
      const random = seededRandom(seed);
      let now = 0;
      let share = 0;
      let lastUp = Number.NEGATIVE_INFINITY;
      let lastDown = Number.NEGATIVE_INFINITY;
      for (const each of sights) {
        now += each.gapMs;
        gate.step(each, SETTINGS, now);
        const most = (0.1 * each.gapMs) / 10_000 + 1e-9;
        expect(Math.abs(gate.share - share)).toBeLessThanOrEqual(most);
        expect(gate.share).toBeGreaterThanOrEqual(0);
        expect(gate.share).toBeLessThanOrEqual(0.5);
        if (gate.share > share) {
          expect(now - lastDown).toBeGreaterThanOrEqual(5_000);
          expect(each.queueMs).toBeGreaterThanOrEqual(400);
          lastUp = now;
        }
        if (gate.share < share) {
          expect(now - lastUp).toBeGreaterThanOrEqual(5_000);
          lastDown = now;
        }
        share = gate.share;
        gate.admits({ uncachedTokens: random.next() * 5_000, again: false }, SETTINGS, now);
      }
    }),
  );
});

test('a conversation that asks again adds nothing to the account, and takes a turn that is left', () => {
  const gate = new SpillGate();
  for (const at of [0, 100_000]) gate.step(HOT, SETTINGS, at);
  const ask = (again: boolean): boolean =>
    gate.admits({ uncachedTokens: 500, again }, SETTINGS, 100_000);
  expect(ask(false)).toBe(false);
  for (let n = 0; n < 10; n += 1) {
    expect(gate.wouldAdmit(true, SETTINGS, 100_000)).toBe(false);
    expect(ask(true)).toBe(false);
  }
  expect(gate.wouldAdmit(false, SETTINGS, 100_000)).toBe(true);
  expect(ask(false)).toBe(true);
});
