import { describe, expect, test } from 'vitest';
import { Backlog } from './backlog.ts';
import type { LedgerEntry } from './ledger.ts';
import { UnstreamedCount } from './unstreamed.ts';
import { leaseFacts } from '../core.harness.ts';
import type { CostCurve } from '../../shared/model/cost-curve.ts';

/** 10 ms a step of 1,000 tokens, 0.1 ms a token: 1,000 tokens are 110 ms, 2,500 are 280. */
const CURVE: CostCurve = {
  baseMs: 10,
  frontMsPerToken: 0,
  linearMsPerToken: 0.1,
  contextMsPerToken2: 0,
  stepTokens: 1_000,
};

function entryAt(sentMs: number, tokens: number, streamed = true): LedgerEntry {
  const facts = leaseFacts(`${sentMs}`, { promptTokens: tokens, uncachedTokens: tokens, streamed });
  return {
    lease: facts.lease,
    router: null,
    facts,
    sentMs,
    firstTokenMs: null,
    prefillEndMs: null,
    endedMs: null,
    outcome: null,
    usage: null,
  };
}

describe('what waits', () => {
  test('is the prefill of all together, sharing steps, less the progress of the head', () => {
    const backlog = new Backlog();
    backlog.add(entryAt(0, 2_500));
    backlog.add(entryAt(10, 400));
    // 2,900 tokens in three steps: 30 + 290.
    expect(backlog.figures(CURVE, 0)).toEqual({
      waitingMs: 320,
      waitingTokens: 2_900,
      largestMs: 280,
    });
    expect(backlog.figures(CURVE, 100).waitingMs).toBe(220);
  });

  test('never falls below one step before the head has shown its first token', () => {
    const backlog = new Backlog();
    backlog.add(entryAt(0, 2_500));
    expect(backlog.figures(CURVE, 60_000).waitingMs).toBe(10);
  });

  test('counts as progress what shares the step of the head, and nothing sent after it began', () => {
    const backlog = new Backlog();
    backlog.add(entryAt(0, 300));
    backlog.add(entryAt(0, 500));
    backlog.add(entryAt(0, 2_000));
    backlog.add(entryAt(1, 100));
    // One step takes 300 + 500 + 200 tokens: 100 ms of the 2,900 tokens' 320 can be done before a first token.
    expect(backlog.figures(CURVE, 60).waitingMs).toBe(260);
    expect(backlog.figures(CURVE, 60_000).waitingMs).toBe(220);
    const late = new Backlog();
    late.add(entryAt(0, 300));
    late.add(entryAt(1, 500));
    expect(late.figures(CURVE, 60_000).waitingMs).toBe(60);
  });

  test('counts progress from the later of the sending and the last prefill that ended', () => {
    const backlog = new Backlog();
    const first = entryAt(0, 1_000);
    backlog.add(first);
    backlog.add(entryAt(5, 1_000));
    backlog.pass(first, 120);
    expect(backlog.figures(CURVE, 120).waitingMs).toBe(110);
    expect(backlog.figures(CURVE, 160).waitingMs).toBe(70);
  });

  test('is in order of sending, whatever the order in which it was told', () => {
    const backlog = new Backlog();
    backlog.add(entryAt(50, 100));
    const early = entryAt(10, 100);
    backlog.add(early);
    expect(backlog.firstStream()).toBe(early);
  });

  test('is nothing without requests', () => {
    expect(new Backlog().figures(CURVE, 5)).toEqual({
      waitingMs: 0,
      waitingTokens: 0,
      largestMs: 0,
    });
  });
});

describe('a request that shows no first token', () => {
  test('leaves when the model reaches its end', () => {
    const backlog = new Backlog();
    const silent = entryAt(0, 1_000, false);
    backlog.add(silent);
    backlog.add(entryAt(0, 1_000));
    expect(backlog.modelledEndMs(CURVE)).toBe(110);
    expect(backlog.advance(CURVE, 109)).toEqual([]);
    expect(backlog.advance(CURVE, 110)).toEqual([110]);
    expect(silent.prefillEndMs).toBe(110);
    expect(backlog.size).toBe(1);
  });

  test('leaves with the first token of one sent after it', () => {
    const backlog = new Backlog();
    const silent = entryAt(0, 1_000, false);
    const later = entryAt(1, 1_000);
    backlog.add(silent);
    backlog.add(later);
    backlog.pass(later, 90);
    expect([silent.prefillEndMs, backlog.size]).toEqual([90, 0]);
  });

  test('waits again when the engine has counted fewer first tokens, until it counts more', () => {
    const backlog = new Backlog();
    const [a, b] = [entryAt(0, 1_000, false), entryAt(0.5, 1_000, false)];
    backlog.add(a);
    backlog.add(b);
    backlog.advance(CURVE, 500);
    expect(backlog.size).toBe(0);
    backlog.correct(1, 500);
    expect([a.prefillEndMs, b.prefillEndMs]).toEqual([110, null]);
    backlog.advance(CURVE, 5_000);
    expect(backlog.size).toBe(1);
    backlog.correct(2, 5_000);
    expect([backlog.size, b.prefillEndMs]).toEqual([0, 5_000]);
  });

  test('is counted by the engine less what streams showed and what has ended', () => {
    const count = new UnstreamedCount();
    expect(count.passed({ firstTokensTotal: 40, atMs: 0 }, 0)).toBeNull();
    count.streamed(100);
    count.ended(200);
    count.streamed(1_500);
    // Five more at the engine by 1,000: one streamed, one ended, the third stream came later.
    expect(count.passed({ firstTokensTotal: 45, atMs: 1_000 }, 4)).toBe(3);
    expect(count.passed({ firstTokensTotal: 45, atMs: 1_000 }, 2)).toBe(2);
    expect(count.passed({ firstTokensTotal: null, atMs: 1_000 }, 2)).toBeNull();
  });
});
