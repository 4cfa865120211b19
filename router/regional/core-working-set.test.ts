import { describe, expect, test } from 'vitest';
import type { Incarnation, LinkId, PoolId, ReplicaId } from '../../shared/model/ids.ts';
import type { PromptChain } from '../../shared/model/prompt.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import type { PrefixMessage } from '../../shared/protocol/messages.ts';
import type { RegionalSettings } from '../../shared/model/settings.ts';
import type { RouterEffect } from './events.ts';
import {
  attemptIn,
  attemptsIn,
  chainOf,
  configOf,
  CoreRig,
  decisionIn,
  MODEL,
  refusalIn,
  sentTo,
  targetStatus,
} from './core.harness.ts';

/** 10 chunks of 128 tokens: 1,280 tokens, and 256 for the answer. */
const prompt = (from: number, more: Partial<PromptChain> = {}): PromptChain =>
  chainOf(
    Array.from({ length: 10 }, (_, k) => from + k),
    more,
  );
const NEED = 1_280 + 256;
const FULL: Partial<ReplicaReport> = { kvCapacityTokens: 10_000, workingSetTokens: 9_000 };
const HALF: Partial<ReplicaReport> = { kvCapacityTokens: 10_000, workingSetTokens: 5_000 };
/** An end of a turn somewhere in the prompt. */
const GOES_ON = { turnEnds: [{ offset: 100, chunks: 0, hashLow: 1, hashHigh: 2 }] };

/** One ready replica, `a`; 60 s of holding, so that only KV room holds anybody; no room beyond the bound for bursts. */
function rig(report: Partial<ReplicaReport>, settings: Partial<RegionalSettings> = {}): CoreRig {
  const made = new CoreRig({ settings: { holdMs: 60_000, workingSetBoundMax: 0.9, ...settings } });
  made.ready('a', report);
  return made;
}

function idsOf(effects: readonly RouterEffect[]): string[] {
  return attemptsIn(effects).map(({ request }) => request);
}

describe('a new conversation', () => {
  test('waits where no replica has KV room for it, and goes where one has', () => {
    const one = rig(FULL);
    expect(decisionIn(one.arrive({ prompts: [prompt(1)] }))).toBe('queue/kv_room');
    const two = rig(FULL);
    two.ready('b', { ...HALF, waitingPrefillMs: 5_000 });
    expect(attemptIn(two.arrive({ prompts: [prompt(1)] })).replica).toBe('b');
  });

  test('goes as room comes, the newest first', () => {
    const one = rig(FULL, { queueMaxWaitMs: 900_000 });
    for (const from of [1, 100, 200]) {
      one.arrive({ prompts: [prompt(from)] });
      one.nowMs += 10;
    }
    const next = (): string[] => {
      const room = { ...FULL, workingSetTokens: 7_400 };
      return [...idsOf(one.report('a', room)), ...idsOf(one.report('a', FULL))];
    };
    expect([next(), next(), next()]).toEqual([['r3'], ['r2'], ['r1']]);
  });

  test('passes nobody who has waited so long that it may enter without room, the oldest of these first', () => {
    const one = rig(FULL, { newConversationWaitMs: 600_000, queueMaxWaitMs: 900_000 });
    for (const from of [1, 100]) {
      one.arrive({ prompts: [prompt(from)] });
      one.nowMs += 10;
    }
    one.nowMs += 600_000;
    const small = { ...FULL, workingSetTokens: 8_500 };
    // The first enters by age; the second has to wait for room, and nobody goes before it.
    expect(idsOf(one.report('a', small))).toEqual(['r1']);
    one.arrive({ prompts: [chainOf([500])] });
    expect(idsOf(one.report('a', small))).toEqual([]);
    expect(idsOf(one.report('a', HALF))).toEqual(['r2', 'r3']);
  });

  test('finds room beyond the bound for a burst, and none where somebody has always waited', () => {
    const one = rig({ ...FULL, workingSetTokens: 8_000 }, { workingSetBoundMax: 1.2 });
    expect(decisionIn(one.arrive({ prompts: [prompt(1)] }))).toBe('send/only_candidate');
    const two = rig(FULL, { workingSetBoundMax: 1.2, newConversationWaitMs: 600_000 });
    two.arrive({ prompts: [prompt(1)] });
    for (let k = 0; k < 50; k += 1) {
      two.nowMs += 1_000;
      two.report('a', { ...FULL, workingSetTokens: 9_500 });
    }
    expect(idsOf(two.report('a', { ...FULL, workingSetTokens: 8_300 }))).toEqual([]);
  });

  test('that waits for the slots of its adapter leaves the way to others', () => {
    const pools = [{ id: 'pool' as PoolId, models: [MODEL, 'x'], aliases: {} }];
    const one = new CoreRig({ settings: { holdMs: 60_000 }, pools });
    const models = (...loras: string[]): ReplicaReport['models'] => [
      { id: MODEL, maxModelLen: 32_768, loras },
    ];
    const tuned = { ...FULL, models: models('x') };
    one.ready('a', tuned);
    one.ready('b', { ...FULL, models: models() });
    one.arrive({ model: 'x', prompts: [prompt(1)] });
    one.arrive({ prompts: [prompt(100)] });
    expect(one.core.status(one.nowMs).pools[0]?.workingSet.held).toBe(2);
    one.report('a', { ...tuned, ...HALF, running: 4, runningMax: 4 });
    expect(idsOf(one.report('b', { ...HALF, models: models() }))).toEqual(['r2']);
  });

  test('counts what was sent there and is in no report yet', () => {
    const one = rig({ ...HALF, ackedSeq: 0 });
    const sent = Array.from({ length: 4 }, (_, k) =>
      decisionIn(one.arrive({ prompts: [prompt(100 * k)] })),
    );
    expect(sent.slice(0, 2)).toEqual(['send/only_candidate', 'send/only_candidate']);
    expect(sent.slice(2)).toEqual(['queue/kv_room', 'queue/kv_room']);
  });

  test('takes its share only where several routers send', () => {
    const one = rig({ ...HALF, routers: 8, ackedSeq: 0 });
    const sent = [1, 100].map((from) => decisionIn(one.arrive({ prompts: [prompt(from)] })));
    expect(sent).toEqual(['send/only_candidate', 'queue/kv_room']);
  });

  test('goes where it finds room, also beside one that waits for more', () => {
    const one = rig({ ...FULL, workingSetTokens: 7_600 });
    expect(decisionIn(one.arrive({ prompts: [prompt(1)] }))).toBe('queue/kv_room');
    const less = { prompts: [prompt(500)], maxTokens: 1 };
    expect(decisionIn(one.arrive(less))).toBe('send/only_candidate');
  });
});

describe('of two routers', () => {
  test('each takes its half of the room once, until the reports include what the other has sent', () => {
    const half = { ...HALF, routers: 2, ackedSeq: 0 };
    const one = rig(half);
    const [sent] = sentTo(one.arrive({ prompts: [prompt(1)] }), 'a');
    expect(decisionIn(one.arrive({ prompts: [prompt(100)] }))).toBe('queue/kv_room');
    const ackedSeq = sent?.kind === 'sent' ? sent.seq : 0;
    const told = { ...half, ackedSeq, workingSetTokens: 5_000 + NEED };
    expect(idsOf(one.report('a', told))).toEqual([]);
    one.nowMs += 100;
    expect(idsOf(one.report('a', told))).toEqual(['r2']);
  });
});

describe('a turn that goes on', () => {
  test('is sent past those that wait for room', () => {
    const one = rig(FULL);
    one.arrive({ prompts: [prompt(1)] });
    one.holds('a', prompt(1_000));
    expect(decisionIn(one.arrive({ prompts: [prompt(1_000)] }))).toBe('send/only_candidate');
  });

  test('needs room where its cache was evicted, and goes ahead of new ones', () => {
    const one = rig(FULL);
    one.arrive({ prompts: [prompt(1)] });
    one.nowMs += 10;
    const back = one.arrive({ prompts: [prompt(2_000, GOES_ON)] });
    expect(decisionIn(back)).toBe('queue/kv_room');
    expect(idsOf(one.report('a', { ...FULL, workingSetTokens: 9_000 - NEED }))).toEqual(['r2']);
  });

  test('is told with how long it had rested, once, whichever replica it was at and however long it waits here', () => {
    const one = rig(FULL);
    one.ready('b', FULL);
    const leaf = { hashLow: 1, hashHigh: 2, promptTokens: 100, answerTokens: 10 };
    const target = { replica: 'b' as ReplicaId, rank: 0, incarnation: 'b/1' as Incarnation };
    for (const [seq, leaves] of [[], [leaf]].entries()) {
      const told = { ...{ runs: [], evicted: new Uint32Array(0) }, seq, leaves };
      const message = { kind: 'prefix', ...target, ...told } as const;
      one.handle({ kind: 'message', link: 'b' as LinkId, message });
    }
    one.nowMs += 3_000;
    const turn = { prompts: [prompt(2_000, GOES_ON)] };
    expect(decisionIn(one.arrive(turn))).toBe('queue/kv_room');
    one.nowMs += 500;
    const rested = (effects: readonly RouterEffect[]): unknown =>
      sentTo(effects, 'a').flatMap((told) => (told.kind === 'sent' ? [told.restedMs ?? null] : []));
    const sent = one.report('a', HALF);
    expect(rested(sent)).toEqual([3_000]);
    one.end(attemptIn(sent).lease);
    one.report('a', HALF);
    expect(rested(one.arrive(turn))).toEqual([null]);
  });

  test('that is tried again elsewhere is not held back', () => {
    const one = rig(HALF);
    const { lease } = attemptIn(one.arrive({ prompts: [prompt(1)] }));
    one.ready('b', FULL);
    const again = one.end(lease, { kind: 'serverFault', cause: 'reset', detail: 'x' });
    expect(attemptIn(again).replica).toBe('b');
  });
});

describe('one that has waited long enough', () => {
  test('enters without room, one in each such time and replica, and is counted', () => {
    const one = rig(FULL);
    for (const from of [1, 100, 200]) one.arrive({ prompts: [prompt(from)] });
    one.pass(14_900);
    one.report('a', FULL);
    expect(attemptsIn(one.pass(99))).toEqual([]);
    const entered = one.pass(2);
    expect(idsOf(entered)).toEqual(['r1']);
    expect(entered).toContainEqual({ kind: 'limit', limit: 'new_conversation_wait' });
    expect(one.core.status(one.nowMs).pools[0]?.workingSet).toMatchObject({ held: 2, aged: 1 });
    const later = (seconds: number): string[] =>
      Array.from({ length: seconds }, () => [
        ...idsOf(one.report('a', FULL)),
        ...idsOf(one.pass(1_000)),
      ]).flat();
    expect(later(14)).toEqual([]);
    expect(later(3)).toEqual(['r2']);
  });

  test('does so after half of what its client waits', () => {
    const one = rig(FULL);
    one.arrive({ prompts: [prompt(1)], clientDeadlineMs: 8_000 });
    expect(idsOf(one.pass(3_990))).toEqual([]);
    expect(idsOf(one.pass(20))).toEqual(['r1']);
  });
});

test('one that would wait too long, as fast as room lately came, is refused at once', () => {
  const one = rig(FULL, { queueMaxWaitMs: 20_000, newConversationWaitMs: 600_000 });
  for (let k = 0; k < 12; k += 1) one.arrive({ prompts: [prompt(1_000 * k)] });
  for (let k = 0; k < 8; k += 1) {
    one.pass(2_000);
    one.report('a', { ...FULL, workingSetTokens: 9_000 - NEED });
    one.report('a', FULL);
  }
  const ends = Array.from({ length: 12 }, (_, k) =>
    refusalIn(one.arrive({ prompts: [prompt(1_000 * (k + 20))] })),
  );
  // Room came every 2 s: the one behind ten others would wait longer than 20 s.
  const accepted = ends.filter((end) => end === null).length;
  expect(accepted).toBeGreaterThanOrEqual(5);
  expect(accepted).toBeLessThanOrEqual(8);
  expect(ends.at(-1)).toMatchObject({ code: 'saturated', decision: { reason: 'wait_limit' } });
  expect(ends.at(-1)?.retryAfterMs).toBeGreaterThanOrEqual(1_000);
});

describe('the rule does not act', () => {
  test.each([
    ['capacity unknown', { ...FULL, kvCapacityTokens: null }, {}],
    ['working set unknown', { ...FULL, workingSetTokens: null }, {}],
    ['switched off', FULL, { workingSetBound: null }],
  ])('%s', (_, report, settings) => {
    const one = rig(report, settings);
    expect(decisionIn(one.arrive({ prompts: [prompt(1)] }))).toBe('send/only_candidate');
  });

  test('where hardly any turn is gone on from; where some are, whichever router they come to, it does', () => {
    const ends = (one: CoreRig, from: number, more: Partial<PrefixMessage>): void => {
      const leaves = Array.from({ length: 20 }, (_, k) => ({
        ...{ hashLow: from + k, hashHigh: 1, promptTokens: 100, answerTokens: 10 },
      }));
      const target = { replica: 'a' as ReplicaId, rank: 0, incarnation: 'a/1' as Incarnation };
      const nothing = { runs: [], evicted: new Uint32Array(0) };
      for (const [seq, told] of [[], leaves].entries()) {
        const of = { kind: 'prefix', ...target, ...more } as const;
        const message = { ...of, seq, leaves: told, ...nothing };
        one.handle({ kind: 'message', link: 'a' as LinkId, message });
      }
    };
    const decided = (
      routers: number,
      returns: number,
      more: Partial<PrefixMessage> = {},
    ): string => {
      const one = rig({ ...HALF, routers });
      ends(one, 1, more);
      for (let k = 0; k < returns; k += 1) {
        const turnEnds = [{ offset: 100, chunks: 0, hashLow: 1 + k, hashHigh: 1 }];
        one.end(attemptIn(one.arrive({ prompts: [prompt(9, { turnEnds })] })).lease);
        one.report('a', { ...HALF, routers });
      }
      for (let k = 0; k < 31; k += 1) {
        one.pass(1_000);
        one.report('a', { ...FULL, routers });
      }
      return decisionIn(one.arrive({ prompts: [prompt(5_000)] }));
    };
    expect(decided(1, 0)).toBe('send/only_candidate');
    expect(decided(1, 2)).toBe('queue/kv_room');
    // The rest of a snapshot tells of turns that ended some time ago.
    expect(decided(1, 0, { continues: true })).toBe('queue/kv_room');
    // One in sixteen of those that go on from the 20 comes here.
    expect(decided(16, 1)).toBe('queue/kv_room');
  });

  test('any more once it is switched off: those held wait as all others do, the oldest first', () => {
    const one = rig(FULL);
    for (const from of [1, 100]) one.arrive({ prompts: [prompt(from)] });
    one.report('a', { ...FULL, running: 4, runningMax: 4 });
    one.pass(1_000);
    const off = configOf({ settings: { holdMs: 60_000, workingSetBound: null } });
    one.handle({ kind: 'configured', config: off });
    expect(one.core.status(one.nowMs).pools[0]).toMatchObject({
      queue: { requests: 2 },
      workingSet: { held: 0 },
    });
    one.arrive({ prompts: [prompt(200)] });
    expect(idsOf(one.report('a', FULL))).toEqual(['r1', 'r2', 'r3']);
  });

  test('on what a static replica said before its reports ceased', () => {
    const one = rig(FULL);
    one.unlink('a');
    one.pass(29_000);
    expect(decisionIn(one.arrive({ prompts: [prompt(1)] }))).toBe('queue/kv_room');
    const [first] = attemptsIn(one.pass(1_500));
    expect(targetStatus(one, 'a').link).toBe('static');
    one.end(first?.lease ?? '');
    expect(decisionIn(one.arrive({ prompts: [prompt(100)] }))).toBe('send/only_candidate');
  });

  test('on what does not come back for its prefix', () => {
    const one = rig(FULL);
    const sent = one.arrive({ prompts: [prompt(1)], work: 'prefill', maxTokens: 0 });
    expect(decisionIn(sent)).toBe('send/only_candidate');
  });
});

test('explain shows bound and figures of each candidate, and says unknown', () => {
  const one = rig(FULL);
  one.ready('b', { ...HALF, kvCapacityTokens: null });
  const { candidates } = one.core.explain(one.request({ prompts: [prompt(1)] }), one.nowMs);
  const shown = Object.fromEntries(
    candidates.map(({ target, kvRoom }) => [target.replica, kvRoom]),
  );
  expect(shown['a']).toEqual({
    state: 'full',
    boundRatio: 0.9,
    capacityTokens: 10_000,
    workingSetTokens: 9_000,
    ownTokens: 0,
    neededTokens: NEED,
  });
  expect(shown['b']).toMatchObject({ state: 'unknown', capacityTokens: null });
  one.holds('a', prompt(7_000));
  const goesOn = one.core.explain(one.request({ prompts: [prompt(7_000)] }), one.nowMs);
  expect(goesOn.candidates[0]?.kvRoom?.state).toBe('continues');
});

test('in a large pool they are looked at after a moment, without being forgotten or looked at again and again', () => {
  const one = new CoreRig({ settings: { holdMs: 60_000, newConversationWaitMs: 600_000 } });
  const names = Array.from({ length: 100 }, (_, k) => `r${k}`);
  for (const name of names) one.ready(name, FULL);
  one.arrive({ prompts: [prompt(1)] });
  expect(idsOf(one.report('r5', HALF))).toEqual([]);
  expect(idsOf(one.pass(3))).toEqual(['r1']);
  one.report('r5', FULL);
  one.pass(10);
  one.arrive({ prompts: [prompt(100)] });
  for (const name of names) one.report(name, { ...FULL, running: 4, runningMax: 4 });
  let ticks = 0;
  for (const untilMs = one.nowMs + 200; (one.core.nextWakeMs() ?? untilMs) < untilMs; ticks += 1) {
    one.nowMs = one.core.nextWakeMs() as number;
    one.handle({ kind: 'tick' });
  }
  expect(ticks).toBeLessThan(6);
});

test('what was first in the queue and now waits for KV room slows down no pace of the others', () => {
  const one = rig(FULL);
  // Nothing has a slot: it waits as any other, and only then finds no room.
  one.report('a', { ...FULL, running: 4, runningMax: 4 });
  one.arrive({ prompts: [prompt(1)] });
  one.report('a', FULL);
  expect(one.core.status(one.nowMs).pools[0]?.workingSet.held).toBe(1);
  one.pass(10_000);
  one.report('a', { ...FULL, running: 4, runningMax: 4 });
  one.holds('a', prompt(1_000));
  for (let k = 0; k < 8; k += 1) one.arrive({ prompts: [prompt(1_000)], clientDeadlineMs: 9_000 });
  expect(attemptsIn(one.report('a', { ...FULL, running: 2, runningMax: 4 }))).toHaveLength(2);
  for (let k = 0; k < 4; k += 1) {
    const again = one.arrive({ prompts: [prompt(1_000)], clientDeadlineMs: 9_000 });
    expect(decisionIn(again)).toBe('queue/all_full');
  }
});

test('other routers are not told of what waits for KV room: it claims none of their share', () => {
  const one = rig(FULL);
  const effects = [...one.arrive({ prompts: [prompt(1)] }), ...one.pass(1_000)];
  expect(sentTo(effects, 'a').filter(({ kind }) => kind === 'queued')).toEqual([]);
  expect(one.core.status(one.nowMs).pools[0]?.queue.requests).toBe(1);
});
