import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { OwnSends } from './own-sends.ts';

describe('sends that no report includes', () => {
  test('count in full when they come together, and less by what was served since', () => {
    const sends = new OwnSends();
    for (const seq of [1, 2, 3]) sends.sent(seq, 100, { nowMs: 0, ready: 2 });
    expect(sends.backlogMs(0, 2)).toBe(300);
    expect(sends.backlogMs(100, 2)).toBe(100);
    expect(sends.backlogMs(200, 2)).toBe(0);
  });

  test('of a steady flow below capacity add no more than one request', () => {
    const sends = new OwnSends();
    // 0.8 of two replicas.
    for (let seq = 0; seq < 80; seq += 1) {
      sends.sent(seq, 200, { nowMs: seq * 125, ready: 2 });
      expect(sends.backlogMs(seq * 125, 2)).toBe(200);
    }
  });

  test('of a flow above capacity add what it is above', () => {
    const sends = new OwnSends();
    for (let seq = 0; seq < 100; seq += 1) sends.sent(seq, 30, { nowMs: seq * 10, ready: 2 });
    expect(sends.backlogMs(1_000, 2)).toBeCloseTo(100 * 30 - 2 * 1_000);
  });

  test('are gone once a report has seen them, or after a time', () => {
    const sends = new OwnSends();
    for (const seq of [1, 2, 3]) sends.sent(seq, 100, { nowMs: seq, ready: 1 });
    sends.seen(2);
    sends.seen(2);
    expect(sends.backlogMs(3, 1)).toBe(198);
    sends.lapse(1);
    expect(sends.backlogMs(3, 1)).toBe(100);
    expect(sends.count).toBe(1);
  });

  test('are as many whether counted one by one or anew', () => {
    const send = fc.record({ gapMs: fc.nat(500), workMs: fc.nat(2_000), drop: fc.boolean() });
    fc.assert(
      fc.property(
        fc.array(send, { maxLength: 50 }),
        fc.integer({ min: 1, max: 9 }),
        (all, ready) => {
          const counted = new OwnSends();
          const anew = new OwnSends();
          let nowMs = 0;
          for (const [seq, { gapMs, workMs }] of all.entries()) {
            nowMs += gapMs;
            counted.sent(seq, workMs, { nowMs, ready });
            anew.sent(seq, workMs, { nowMs, ready });
          }
          anew.sent(-1, 0, { nowMs, ready });
          anew.seen(-1);
          expect(anew.backlogMs(nowMs, ready)).toBeCloseTo(counted.backlogMs(nowMs, ready), 6);
        },
      ),
    );
  });

  test('are what they would be by counting one after the other, whichever have left and however many serve', () => {
    const step = fc.record({
      gapMs: fc.nat(300),
      workMs: fc.nat(2_000),
      /** Of the sends so far, how far back one leaves. */
      leaves: fc.option(fc.nat(80)),
      ready: fc.integer({ min: 0, max: 4 }),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 300 }), (steps) => {
        const sends = new OwnSends();
        const left: { seq: number; workMs: number; atMs: number }[] = [];
        let nowMs = 1_000_000;
        for (const [seq, { gapMs, workMs, leaves, ready }] of steps.entries()) {
          nowMs += gapMs;
          sends.sent(seq, workMs, { nowMs, ready });
          left.push({ seq, workMs, atMs: nowMs });
          const [gone] = leaves === null ? [] : left.splice(-1 - leaves, 1);
          if (gone !== undefined) sends.seen(gone.seq);
          expect(sends.count).toBe(left.length);
          expect(sends.backlogMs(nowMs + 50, ready)).toBeCloseTo(
            counted(left, nowMs + 50, ready),
            6,
          );
        }
      }),
      { numRuns: 60 },
    );
  });

  test('are bounded: the oldest of too many is forgotten', () => {
    const sends = new OwnSends();
    for (let seq = 0; seq <= 100_000; seq += 1) sends.sent(seq, 1, { nowMs: 0, ready: 1 });
    expect(sends.count).toBe(100_000);
    expect(sends.backlogMs(0, 1)).toBe(100_000);
    sends.seen(0);
    expect(sends.count).toBe(100_000);
  });
});

/** The plain form: one after the other, in their order. */
function counted(
  sends: readonly { readonly workMs: number; readonly atMs: number }[],
  nowMs: number,
  ready: number,
): number {
  const servedPerMs = Math.max(1, ready);
  let backlogMs = 0;
  let countedMs = 0;
  for (const { workMs, atMs } of sends) {
    backlogMs = Math.max(0, backlogMs - servedPerMs * (atMs - countedMs)) + workMs;
    countedMs = atMs;
  }
  return Math.max(0, backlogMs - servedPerMs * (nowMs - countedMs));
}
