import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ResumeRamp } from './resume-ramp.ts';

/** Sends as many as may go, and returns how many. */
function fill(ramp: ResumeRamp, from: number, hasRoom = true): string[] {
  const sent: string[] = [];
  while (ramp.takes(hasRoom)) {
    sent.push(`${from}.${sent.length}`);
    ramp.sent(sent.at(-1) as string, 100, 0);
  }
  return sent;
}

describe('a target that had asked for time', () => {
  test('is sent one request, then twice as many with each round of first tokens', () => {
    const ramp = new ResumeRamp(0, 0);
    const rounds: number[] = [];
    for (let round = 0; round < 6; round += 1) {
      const sent = fill(ramp, round);
      rounds.push(sent.length);
      for (const attempt of sent) ramp.began(attempt, 0);
    }
    expect(rounds).toEqual([1, 2, 4, 8, 16, 32]);
  });

  test('is sent one at a time while it has no room by its own figures, however many were answered', () => {
    const ramp = new ResumeRamp(0, 0);
    for (let round = 0; round < 6; round += 1) {
      const [only, ...more] = fill(ramp, round, false);
      expect([only, more]).toEqual([`${round}.0`, []]);
      ramp.began(only as string, 0);
    }
  });

  test('is sent half as many where one fails, and one again where it asks for time anew', () => {
    const ramp = new ResumeRamp(0, 0);
    for (let round = 0; round < 3; round += 1) {
      for (const attempt of fill(ramp, round)) ramp.began(attempt, 0);
    }
    const [first, ...others] = fill(ramp, 3);
    ramp.ended(first as string, true);
    expect(ramp.window).toBe(4);
    for (const other of others) ramp.ended(other, false);
    expect(fill(ramp, 4)).toHaveLength(4);
    const before = fill(ramp, 5);
    ramp.again(0, 0);
    for (const attempt of before) ramp.began(attempt, 0);
    expect(ramp.window).toBe(1);
  });

  test('is taken up once nobody is held back, and not before anything was answered', () => {
    const ramp = new ResumeRamp(0, 0);
    expect(ramp.isOver(0, 1_000)).toBe(false);
    ramp.sent('a', 100, 1_000);
    expect(ramp.isOver(0, 1_000)).toBe(false);
    ramp.began('a', 1_100);
    expect([ramp.isOver(1, 1_100), ramp.isOver(0, 1_100)]).toEqual([false, true]);
  });

  test('is taken up after half a minute in which nobody came', () => {
    const ramp = new ResumeRamp(0, 0);
    expect([ramp.isOver(0, 29_999), ramp.isOver(0, 30_000)]).toEqual([false, true]);
  });

  test('is never owed more than it has answered, and one', () => {
    const step = fc.constantFrom('send', 'began', 'failed', 'left', 'again');
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), fc.boolean(), (steps, hasRoom) => {
        const ramp = new ResumeRamp(0, 0);
        const owed: string[] = [];
        let answered = 0;
        for (const [k, what] of steps.entries()) {
          if (what === 'send' && ramp.takes(hasRoom)) {
            owed.push(String(k));
            ramp.sent(String(k), 100, 0);
            expect(owed.length).toBeLessThanOrEqual(answered + 1);
            expect(ramp.owedMs).toBe(100 * owed.length);
          } else if (what === 'again') {
            ramp.again(0, 0);
            owed.length = 0;
            answered = 0;
          } else if (what !== 'send') {
            const attempt = owed.shift();
            if (attempt === undefined) continue;
            if (what === 'began') {
              ramp.began(attempt, 0);
              answered += 1;
            } else ramp.ended(attempt, what === 'failed');
          }
        }
      }),
    );
  });
});
