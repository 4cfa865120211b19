import { describe, expect, test } from 'vitest';
import type { Incarnation, LinkId, ReplicaId, RequestId } from '../../shared/model/ids.ts';
import type { PromptChain } from '../../shared/model/prompt.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import { attemptIn, attemptsIn, chainOf, CoreRig, decisionIn } from './core.harness.ts';

const HALF: Partial<ReplicaReport> = { kvCapacityTokens: 10_000, workingSetTokens: 5_000 };
const BUSY: Partial<ReplicaReport> = { ...HALF, running: 4, runningMax: 4 };
/** 10 chunks of 128 tokens, but for the last token, which an engine always computes. */
const HELD_TOKENS = 1_279;

const prompt = (from: number, more: Partial<PromptChain> = {}): PromptChain =>
  chainOf(
    Array.from({ length: 10 }, (_, k) => from + k),
    more,
  );
const goesOnFrom = (hashLow: number): Partial<PromptChain> => ({
  turnEnds: [{ offset: 100, chunks: 0, hashLow, hashHigh: 1 }],
});

/** One ready replica whose conversations rest for a second, as its router has seen. */
function rig(report: Partial<ReplicaReport> = {}): CoreRig {
  const one = new CoreRig({ settings: { holdMs: 60_000, workingSetBoundMax: 0.9 } });
  one.ready('a', { ...HALF, ...report });
  const leaves = Array.from({ length: 20 }, (_, k) => ({
    ...{ hashLow: k, hashHigh: 1, promptTokens: 100, answerTokens: 10 },
  }));
  const target = { replica: 'a' as ReplicaId, rank: 0, incarnation: 'a/1' as Incarnation };
  for (const [seq, told] of [[], leaves].entries()) {
    const message = { kind: 'prefix', ...target, seq, leaves: told } as const;
    const nothing = { runs: [], evicted: new Uint32Array(0) };
    one.handle({ kind: 'message', link: 'a' as LinkId, message: { ...message, ...nothing } });
  }
  one.pass(1_000);
  for (let k = 0; k < 10; k += 1) {
    one.end(attemptIn(one.arrive({ prompts: [prompt(9, goesOnFrom(k))] })).lease);
    one.report('a', { ...HALF, ...report });
  }
  one.holds('a', prompt(1_000), 2);
  return one;
}

/** Of the replica's live conversations, as a new one finds them. */
function liveTokens(one: CoreRig): number | null {
  const { candidates } = one.core.explain(one.request({ prompts: [prompt(5_000)] }), one.nowMs);
  return candidates[0]?.kvRoom?.workingSetTokens ?? null;
}

function pass(one: CoreRig, ms: number, report: Partial<ReplicaReport>): void {
  for (let passedMs = 0; passedMs < ms; passedMs += 500) {
    one.pass(500);
    one.report('a', report);
  }
}

describe('a turn that waits for an engine', () => {
  test('keeps its conversation alive once it has rested for longer than others do', () => {
    const one = rig();
    one.report('a', BUSY);
    expect(decisionIn(one.arrive({ prompts: [prompt(1_000, goesOnFrom(500))] }))).toBe(
      'queue/all_full',
    );
    expect(liveTokens(one)).toBe(5_000);
    pass(one, 3_000, BUSY);
    expect(liveTokens(one)).toBe(5_000 + HELD_TOKENS);
  });

  test('no longer does so once it is sent, or its client has left', () => {
    const leaves = (how: (one: CoreRig, id: RequestId) => void): void => {
      const one = rig();
      one.report('a', BUSY);
      const request = one.request({ prompts: [prompt(1_000, goesOnFrom(500))] });
      one.handle({ kind: 'arrived', request });
      pass(one, 3_000, BUSY);
      expect(liveTokens(one)).toBe(5_000 + HELD_TOKENS);
      how(one, request.id);
      expect(liveTokens(one)).toBe(5_000);
    };
    leaves((one, request) => one.handle({ kind: 'clientGone', request }));
    leaves((one) => expect(attemptsIn(one.report('a', HALF))).toHaveLength(1));
  });

  test('of several routers stands for as many as there are', () => {
    const one = rig({ routers: 2 });
    one.report('a', { ...BUSY, routers: 2 });
    one.arrive({ prompts: [prompt(1_000, goesOnFrom(500))] });
    pass(one, 3_000, { ...BUSY, routers: 2 });
    expect(liveTokens(one)).toBe(5_000 + 2 * HELD_TOKENS);
  });
});
