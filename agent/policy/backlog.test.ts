import { describe, expect, test } from 'vitest';
import { Backlog } from './backlog.ts';
import type { LedgerEntry } from './ledger.ts';
import { UnstreamedCount } from './unstreamed.ts';
import { leaseFacts } from '../core.harness.ts';
import { prefillMs } from '../../shared/model/cost-curve.ts';
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

  test('waits again when the engine has counted fewer first tokens, as long as the model was too early', () => {
    const backlog = new Backlog();
    const [a, b] = [entryAt(0, 1_000, false), entryAt(0.5, 1_000, false)];
    backlog.add(a);
    backlog.add(b);
    backlog.advance(CURVE, 250);
    expect([a.prefillEndMs, b.prefillEndMs]).toEqual([110, 220]);
    backlog.correct(1, CURVE, 250);
    expect([a.prefillEndMs, b.prefillEndMs]).toEqual([110, null]);
    expect(backlog.figures(CURVE, 250).waitingMs).toBeCloseTo(30);
    expect(backlog.advance(CURVE, 279)).toEqual([]);
    expect(backlog.advance(CURVE, 280)).toEqual([280]);
  });

  test('leaves at the scrape at which the engine has counted it', () => {
    const backlog = new Backlog();
    const entry = entryAt(0, 1_000, false);
    backlog.add(entry);
    backlog.correct(1, CURVE, 50);
    expect([backlog.size, entry.prefillEndMs]).toEqual([0, 50]);
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

describe('a request given up in mid-prefill', () => {
  test('leaves its step under way: what comes next begins after it', () => {
    const backlog = new Backlog();
    const [long, next] = [entryAt(0, 10_000), entryAt(5, 1_000)];
    backlog.add(long);
    backlog.add(next);
    const chunkMs = prefillMs(CURVE, CURVE.stepTokens, 0);
    backlog.remove(long, CURVE, 1.5 * chunkMs);
    const aloneMs = prefillMs(CURVE, 1_000, 0);
    const { waitingMs } = backlog.figures(CURVE, 1.5 * chunkMs);
    expect(waitingMs).toBeCloseTo(0.5 * chunkMs + aloneMs);
    const later = backlog.figures(CURVE, 2 * chunkMs + 40).waitingMs;
    expect(later).toBeCloseTo(aloneMs - 40);
  });

  test('leaves nothing where it was waiting for room', () => {
    const backlog = new Backlog();
    const [long, next] = [entryAt(0, 10_000), entryAt(5, 1_000)];
    backlog.add(long);
    backlog.add(next);
    backlog.admit({ requests: 0, sinceMs: 0 });
    backlog.remove(long, CURVE, 300);
    expect(backlog.figures(CURVE, 300).waitingMs).toBeCloseTo(prefillMs(CURVE, 1_000, 0));
  });
});

test('a batch counts for its requests, and is past its prefill only when all of them are', () => {
  const backlog = new Backlog();
  const one = entryAt(0, 1_000, false);
  const batch: LedgerEntry = { ...one, facts: { ...one.facts, requests: 4 } };
  backlog.add(batch);
  backlog.add(entryAt(1, 1_000, false));
  expect([backlog.size, backlog.requests, backlog.unstreamedAt(1)]).toEqual([2, 5, 5]);
  backlog.correct(3, CURVE, 50);
  expect(batch.prefillEndMs).toBeNull();
  backlog.correct(4, CURVE, 60);
  expect([batch.prefillEndMs, backlog.requests]).toEqual([60, 1]);
});

test('where the batch has no room nothing is under way; with room for one, one is', () => {
  const backlog = new Backlog();
  for (const sentMs of [0, 0, 0]) backlog.add(entryAt(sentMs, 500));
  const allMs = backlog.figures(CURVE, 0).waitingMs;
  backlog.admit({ requests: 0, sinceMs: 0 });
  expect(backlog.figures(CURVE, 1_000).waitingMs).toBeCloseTo(allMs);
  backlog.admit({ requests: 1, sinceMs: 1_000 });
  expect(backlog.figures(CURVE, 1_020).waitingMs).toBeCloseTo(allMs - 20);
  const oneMs = prefillMs(CURVE, 500, 0) - CURVE.baseMs;
  expect(backlog.figures(CURVE, 9_000).waitingMs).toBeCloseTo(allMs - oneMs);
});

test('work that no entry stands for shares the steps', () => {
  const backlog = new Backlog();
  backlog.add(entryAt(0, 500));
  const { waitingTokens, waitingMs } = backlog.figures(CURVE, 0, { requests: 2, tokens: 250 });
  expect(waitingTokens).toBe(1_000);
  expect(waitingMs).toBeCloseTo(prefillMs({ ...CURVE, contextMsPerToken2: 0 }, 1_000, 0), 0);
});
