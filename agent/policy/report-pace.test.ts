import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ReportPace, turnLengthMs, type PaceInput } from './report-pace.ts';

const QUIET: PaceInput = {
  intervalMs: 50,
  longestMs: 1_000,
  changed: false,
  falling: false,
  othersSent: 0,
  turn: null,
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
