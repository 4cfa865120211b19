import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { WaitingTurns } from './waiting-turns.ts';

const tau = () => 3_000;

describe('a conversation whose next turn waits', () => {
  test('counts from when its agent no longer does', () => {
    const waiting = new WaitingTurns<string>();
    waiting.waits('r1', { target: 'a', tokens: 500, touchedMs: 1_000 });
    waiting.settle(4_000, tau);
    expect(waiting.tokens('a')).toBe(0);
    waiting.settle(4_300, tau);
    expect(waiting.tokens('a')).toBe(500);
    expect(waiting.tokens('b')).toBe(0);
  });

  test('counts until it leaves, and not while nobody knows how long conversations rest', () => {
    const waiting = new WaitingTurns<string>();
    waiting.waits('r1', { target: 'a', tokens: 500, touchedMs: 0 });
    waiting.settle(60_000, () => null);
    expect(waiting.tokens('a')).toBe(0);
    waiting.settle(60_300, tau);
    expect(waiting.tokens('a')).toBe(500);
    waiting.left('r1');
    expect(waiting.tokens('a')).toBe(0);
    expect(waiting.size).toBe(0);
  });

  test('is forgotten with those that have left, also where one waits for long and nobody asks who lives', () => {
    const waiting = new WaitingTurns<string>();
    waiting.waits('first', { target: 'a', tokens: 1, touchedMs: 0 });
    for (let n = 0; n < 1_000; n += 1) {
      waiting.waits(`r${n}`, { target: 'a', tokens: 1, touchedMs: n });
      waiting.left(`r${n}`);
    }
    expect(waiting.size).toBe(1);
    expect(waiting.kept).toBeLessThan(100);
    waiting.settle(10_000, tau);
    expect(waiting.tokens('a')).toBe(1);
  });
});

test('sums are those of a plain recount, whatever comes and leaves', () => {
  const step = fc.record({
    id: fc.integer({ min: 0, max: 9 }).map(String),
    target: fc.constantFrom('a', 'b'),
    tokens: fc.integer({ min: 1, max: 4_000 }),
    restedMs: fc.integer({ min: 0, max: 5_000 }),
    afterMs: fc.integer({ min: 250, max: 2_000 }),
    leaves: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const waiting = new WaitingTurns<string>();
      const plain = new Map<string, { target: string; tokens: number; touchedMs: number }>();
      let nowMs = 0;
      for (const { id, leaves, restedMs, afterMs, target, tokens } of steps) {
        nowMs += afterMs;
        if (leaves) {
          waiting.left(id);
          plain.delete(id);
        } else {
          const turn = { target, tokens, touchedMs: nowMs - restedMs };
          waiting.waits(id, turn);
          plain.set(id, turn);
        }
        waiting.settle(nowMs, tau);
        for (const each of ['a', 'b']) {
          const live = [...plain.values()].filter(
            (turn) => turn.target === each && nowMs - turn.touchedMs > tau(),
          );
          expect(waiting.tokens(each)).toBe(live.reduce((sum, turn) => sum + turn.tokens, 0));
        }
      }
    }),
  );
});
