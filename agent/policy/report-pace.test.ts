import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { phaseOf, ReportPace, turnLengthMs, type PaceInput } from './report-pace.ts';

const QUIET: PaceInput = {
  intervalMs: 50,
  longestMs: 1_000,
  changed: false,
  falling: false,
  othersSent: 0,
  turn: null,
  lane: null,
};

function paced(nowMs: number): ReportPace {
  const pace = new ReportPace();
  pace.reported(QUIET, nowMs);
  return pace;
}

describe('a report is due', () => {
  test('at once on a new link', () => {
    expect(new ReportPace().dueMs(QUIET)).toBe(-Infinity);
    const turn = { index: 2, count: 4 };
    expect(new ReportPace().dueMs({ ...QUIET, changed: true, turn })).toBe(-Infinity);
  });

  test('after an interval where something changed, four where work only falls, at the longest otherwise', () => {
    const pace = paced(10_000);
    expect(pace.dueMs({ ...QUIET, changed: true })).toBe(10_050);
    expect(pace.dueMs({ ...QUIET, falling: true })).toBe(10_200);
    expect(pace.dueMs({ ...QUIET, falling: true, intervalMs: 400 })).toBe(11_000);
    expect(pace.dueMs(QUIET)).toBe(11_000);
  });

  test('at once where another router has sent work', () => {
    expect(paced(10_000).dueMs({ ...QUIET, changed: true, othersSent: 1 })).toBe(10_005);
  });

  test('half an interval early beside another one, where something changed and no turn is kept', () => {
    const pace = paced(10_000);
    const changed = { ...QUIET, changed: true };
    expect(pace.dueMs(changed, true)).toBe(10_025);
    expect(pace.dueMs({ ...QUIET, falling: true }, true)).toBe(10_200);
    for (const kept of ['turn', 'lane'] as const) {
      const input = { ...changed, [kept]: { index: 0, count: 4, phase: 0 } };
      expect(pace.dueMs(input, true)).toBe(pace.dueMs(input));
    }
  });

  test('an interval from the last over time, though each of them goes early', () => {
    const pace = paced(0);
    const changed = { ...QUIET, changed: true };
    let reports = 0;
    for (let nowMs = 1; nowMs <= 60_000; nowMs += 1) {
      if (pace.dueMs(changed, true) > nowMs) continue;
      pace.reported(changed, nowMs);
      reports += 1;
    }
    expect(reports).toBeLessThanOrEqual(60_000 / 50 + 1);
  });

  test('in turn while routers hold requests back: one link after the other, an interval each', () => {
    const dues = [0, 1, 2, 3].map((index) => {
      const pace = paced(10_000);
      const input = { ...QUIET, changed: true, turn: { index, count: 4 } };
      const first = pace.dueMs(input);
      pace.reported(input, first + 1);
      return [first, pace.dueMs(input) - first];
    });
    expect(dues).toEqual([
      [10_050, 50],
      [10_012.5, 50],
      [10_025, 50],
      [10_037.5, 50],
    ]);
    expect(turnLengthMs(4, 50)).toBe(12.5);
  });
});

/** Reports to four links for two minutes in which every router sends all the time. */
function toBusyRouters(phase: number): { readonly link: number; readonly atMs: number }[] {
  const reports: { readonly link: number; readonly atMs: number }[] = [];
  for (let index = 0; index < 4; index += 1) {
    const pace = paced(0);
    const lane = { index, count: 4, phase };
    for (let nowMs = 1, othersSent = 0; nowMs < 120_000; nowMs += 1) {
      othersSent += 1;
      const input = { ...QUIET, intervalMs: 1_000, changed: true, othersSent, lane };
      if (pace.dueMs(input) > nowMs) continue;
      pace.reported(input, nowMs);
      reports.push({ link: index, atMs: nowMs });
    }
  }
  return reports.sort((a, b) => a.atMs - b.atMs);
}

describe('where the interval is long and all routers send', () => {
  test('the links hear one after the other, never two within a slot, an interval each', () => {
    for (const phase of [0, 0.4, 0.95]) {
      const reports = toBusyRouters(phase);
      const settled = reports.filter(({ atMs }) => atMs > 10_000);
      const gaps = settled.slice(1).map(({ atMs }, k) => atMs - (settled[k]?.atMs ?? 0));
      expect(Math.min(...gaps)).toBeGreaterThanOrEqual(249);
      expect(reports.length / 4).toBeLessThanOrEqual(120 + 6);
      expect(new Set(settled.slice(0, 4).map(({ link }) => link)).size).toBe(4);
    }
  });

  test('targets have instants of their own, spread over the interval', () => {
    const phases = Array.from({ length: 8 }, (_, k) => phaseOf(`replica-${k + 1}#0`));
    phases.sort((a, b) => a - b);
    const gaps = phases.map((phase, k) => (phases[k + 1] ?? (phases[0] ?? 0) + 1) - phase);
    expect(Math.max(...gaps)).toBeLessThan(2 / 8);
    expect(Math.min(...gaps)).toBeGreaterThan(0.5 / 8);
  });
});

test('whatever changes, a link gets one report an interval over time and four more at most', () => {
  const change = fc.record({
    afterMs: fc.double({ min: 0, max: 120, noNaN: true }),
    others: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(change, { minLength: 1, maxLength: 80 }), (changes) => {
      const pace = paced(0);
      const reports = [0];
      let othersSent = 0;
      let nowMs = 0;
      for (const { afterMs, others } of changes) {
        nowMs += afterMs;
        if (others) othersSent += 1;
        const input = { ...QUIET, changed: true, othersSent };
        const dueMs = Math.max(pace.dueMs(input), nowMs);
        // Until then nothing else happens.
        nowMs = dueMs;
        expect(dueMs - (reports.at(-1) ?? 0)).toBeGreaterThanOrEqual(5 - 1e-6);
        pace.reported(input, dueMs);
        reports.push(dueMs);
      }
      const withinMs = (reports.at(-1) ?? 0) - (reports[0] ?? 0);
      expect(reports.length).toBeLessThanOrEqual(withinMs / 50 + 5);
    }),
  );
});
