import { describe, expect, test } from 'vitest';
import type { PoolId, RequestId } from '../../shared/model/ids.ts';
import type { QueuePlace, ReplicaReport } from '../../shared/model/report.ts';
import {
  attemptIn,
  attemptsIn,
  chainOf,
  CoreRig,
  decisionIn,
  MODEL,
  refusalIn,
  sentTo,
} from './core.harness.ts';
import type { RouterEffect } from './events.ts';

describe('the queue', () => {
  const full: Partial<ReplicaReport> = { waitingPrefillMs: 60 };

  test('holds when every candidate is full, not when one has room', () => {
    const rig = new CoreRig();
    rig.ready('a', full);
    rig.ready('b', { waitingPrefillMs: 59 });
    expect(decisionIn(rig.arrive())).toMatch(/^send/);
    rig.report('b', { running: 8, runningMax: 8 });
    expect(decisionIn(rig.arrive())).toBe('queue/all_full');
  });

  test('releases when reports say so, the work that is short first', () => {
    const rig = new CoreRig();
    rig.ready('a', full);
    rig.arrive({ prompts: [chainOf([1, 2, 3])] });
    rig.arrive({ prompts: [chainOf([4])] });
    const effects = rig.report('a', { ackedSeq: 0 });
    expect(attemptsIn(effects).map(({ lease }) => lease)).toEqual(['r2.1']);
    expect(attemptsIn(rig.report('a', { ackedSeq: 1 })).map(({ lease }) => lease)).toEqual([
      'r1.1',
    ]);
  });

  test('releases by itself when the reported backlog must have shrunk below the hold', () => {
    const rig = new CoreRig();
    rig.ready('a', { waitingPrefillMs: 500 });
    rig.arrive();
    expect(attemptsIn(rig.pass(439))).toEqual([]);
    expect(attemptsIn(rig.pass(10))).toMatchObject([{ queueMs: 441 }]);
  });

  test('lets those that wait for an adapter hide nobody, however many they are', () => {
    const rig = new CoreRig({
      pools: [{ id: 'pool' as PoolId, models: [MODEL, 'x'], aliases: {} }],
    });
    const models = (...loras: string[]): ReplicaReport['models'] => [
      { id: MODEL, maxModelLen: 32_768, loras },
    ];
    rig.ready('a', { ...full, models: models('x') });
    rig.ready('b', { ...full, models: models() });
    for (let k = 0; k < 40; k += 1) {
      expect(decisionIn(rig.arrive({ model: 'x' }))).toMatch(/^queue/);
    }
    expect(decisionIn(rig.arrive())).toMatch(/^queue/);
    expect(attemptsIn(rig.report('b', { models: models() }))).toMatchObject([
      { request: 'r41', target: { replica: 'b' } },
    ]);
    // And one that comes while it idles goes at once.
    rig.report('b', { models: models(), ackedSeq: 1 });
    expect(attemptsIn(rig.arrive())).toHaveLength(1);
  });

  test('lets nobody pass those who wait', () => {
    const rig = new CoreRig();
    rig.ready('a', full);
    rig.arrive();
    const late = rig.request({ prompts: [chainOf([1, 2])] });
    rig.nowMs += 1_000;
    const effects = rig.handle({ kind: 'arrived', request: late });
    // The report is a second old and its backlog gone: the first one goes, the new one waits its turn.
    expect(attemptsIn(effects).map(({ lease }) => lease)).toEqual(['r1.1']);
    expect(decisionIn(effects.filter(({ kind }) => kind === 'queued'))).toBe('queue/order');
  });

  test('holds for pending capacity, and refuses when none is in sight', () => {
    const rig = new CoreRig();
    rig.link('a');
    rig.report('a', { phase: 'loading', etaMs: 20_000 });
    expect(decisionIn(rig.arrive())).toBe('queue/no_capacity_yet');
    const effects = rig.report('a', { phase: 'starting' });
    expect(refusalIn(effects)).toMatchObject({ code: 'warming_up', request: 'r1' });
    expect(refusalIn(rig.arrive())?.code).toBe('warming_up');
    rig.report('a', { phase: 'dead' });
    expect(refusalIn(rig.arrive())?.code).toBe('no_replica');
  });

  test('refuses at once when capacity will come too late', () => {
    const rig = new CoreRig();
    rig.link('a');
    rig.report('a', { phase: 'loading', etaMs: 90_000 });
    const refusal = refusalIn(rig.arrive());
    expect(refusal).toMatchObject({ code: 'warming_up', decision: { reason: 'wait_limit' } });
    // In 30 s the rest of its loading is no longer than a request may wait.
    expect(refusal?.retryAfterMs).toBeGreaterThanOrEqual(30_000);
    expect(refusal?.retryAfterMs).toBeLessThan(33_001);
  });

  test('gives up after its limit, and before a deadline that can no longer be kept', () => {
    const rig = new CoreRig({ settings: { queueMaxWaitMs: 5_000 } });
    rig.ready('a', { running: 4, runningMax: 4 });
    rig.arrive();
    rig.arrive({ clientDeadlineMs: 2_000 });
    const keepAlive = (): void => void rig.report('a', { running: 4, runningMax: 4 });
    const refusals: [number, string, string][] = [];
    const started = rig.nowMs;
    for (let k = 0; k < 60; k += 1) {
      for (const effect of rig.pass(100)) {
        if (effect.kind !== 'refuse') continue;
        refusals.push([rig.nowMs - started, effect.code, effect.decision?.reason ?? '']);
      }
      keepAlive();
    }
    // 128 ms of prefill fit before 2,000 ms until 1,872 ms.
    expect(refusals).toEqual([
      [1_900, 'saturated', 'deadline_unreachable'],
      [5_000, 'queue_timeout', 'queue_timeout'],
    ]);
  });

  test('is bounded: at the limit the least urgent is given up for a more urgent one only', () => {
    const rig = new CoreRig({ settings: { queueMaxRequests: 2 } });
    rig.ready('a', full);
    rig.arrive({ priority: 1 });
    rig.arrive({ priority: 1 });
    const shed = rig.arrive({ priority: 1 });
    expect(refusalIn(shed)).toMatchObject({ request: 'r3', code: 'saturated' });
    const swapped = rig.arrive({ priority: 0 });
    expect(refusalIn(swapped)).toMatchObject({ request: 'r2', code: 'saturated' });
    expect(rig.core.status(rig.nowMs).pools[0]?.queue.requests).toBe(2);
    expect(rig.seen.filter(({ kind }) => kind === 'limit')).toHaveLength(2);
  });

  test('is told to the agents on change, at most once per interval', () => {
    const rig = new CoreRig();
    rig.ready('a', { running: 4, runningMax: 4 });
    const told = (effects: RouterEffect[]): unknown[] =>
      sentTo(effects, 'a').filter(({ kind }) => kind === 'queued');
    expect(told(rig.arrive())).toMatchObject([{ requests: 1, prefillMs: 128, topPriority: 0 }]);
    expect(told(rig.arrive({ priority: -1 }))).toEqual([]);
    expect(told(rig.pass(60))).toMatchObject([{ requests: 2, prefillMs: 256, topPriority: -1 }]);
    expect(told(rig.pass(1_000))).toEqual([]);
    rig.handle({ kind: 'clientGone', request: 'r1' as RequestId });
    rig.handle({ kind: 'clientGone', request: 'r2' as RequestId });
    expect(told(rig.pass(60))).toMatchObject([{ requests: 0, topPriority: null }]);
    expect(told(rig.pass(5_000))).toEqual([]);
  });

  test('forgets a client that leaves', () => {
    const rig = new CoreRig();
    rig.ready('a', full);
    rig.arrive();
    expect(rig.handle({ kind: 'clientGone', request: 'r1' as RequestId })).toEqual([]);
    expect(rig.core.status(rig.nowMs)).toMatchObject({ openRequests: 0 });
    expect(attemptsIn(rig.report('a'))).toEqual([]);
  });

  test('with other routers queueing, a target gets one request at wait 0 and no more until it reports', () => {
    const rig = new CoreRig();
    const others = { prefillMs: 900, requests: 3, topPriority: 0, routersQueueing: 2 };
    rig.ready('a', { ...full, queued: others });
    for (let k = 0; k < 3; k += 1) rig.arrive();
    const first = rig.report('a', { ackedSeq: 0, queued: { ...others, routersQueueing: 3 } });
    expect(attemptsIn(first)).toHaveLength(1);
    expect(attemptsIn(rig.pass(500))).toHaveLength(0);
    const second = rig.report('a', { ackedSeq: 1, queued: { ...others, routersQueueing: 3 } });
    expect(attemptsIn(second)).toHaveLength(1);
  });

  describe('where reports come in turn', () => {
    const inTurn = (requests: number, more: Partial<QueuePlace> = {}) => ({
      ...{ prefillMs: 100 * requests, requests, topPriority: 0, routersQueueing: 1 },
      place: {
        ...{ othersTop: 0, othersAtTop: 1, before: 0, turnMs: 6, othersRequests: requests },
        ...more,
      },
    });

    test('nobody waits for a turn while more targets have room than requests wait elsewhere', () => {
      const decided = (requests: number) => {
        const rig = new CoreRig();
        for (const name of ['a', 'b']) rig.ready(name, { queued: inTurn(requests) });
        rig.pass(20);
        return decisionIn(rig.arrive());
      };
      expect(decided(1)).toMatch(/^send/);
      expect(decided(2)).toBe('queue/order');
    });

    test("who has waited for seconds goes where it may, and waits no longer for its prefix's turn", () => {
      const rig = new CoreRig();
      // Full when they report, and with room when it is no longer their turn.
      const room = { waitingPrefillMs: 66, queued: inTurn(9) };
      for (const name of ['a', 'b', 'c']) rig.ready(name, room);
      const prompt = chainOf([1, 2, 3]);
      for (const name of ['a', 'c']) rig.holds(name, prompt);
      rig.pass(20);
      expect(decisionIn(rig.arrive({ prompts: [prompt] }))).toBe('queue/order');
      rig.pass(2_500);
      const turn = { waitingPrefillMs: 10, queued: inTurn(9) };
      expect(attemptsIn(rig.report('b', turn))).toEqual([]);
      rig.pass(600);
      expect(attemptIn(rig.report('b', turn)).replica).toBe('b');
    });

    test('whoever comes for a prefix that one target alone holds goes there once any has room', () => {
      const decided = (waitingPrefillMs: number) => {
        const rig = new CoreRig();
        rig.ready('a', { waitingPrefillMs: 100, queued: inTurn(9) });
        rig.ready('b', { waitingPrefillMs, queued: inTurn(9) });
        const prompt = chainOf([1, 2, 3]);
        rig.holds('a', prompt);
        rig.pass(20);
        return decisionIn(rig.arrive({ prompts: [prompt] }));
      };
      expect(decided(0)).toMatch(/^send/);
      expect(decided(100)).toBe('queue/all_full');
    });

    test('whoever has waited longer than all others waits for no turn once there is room', () => {
      const rig = new CoreRig();
      const full = { waitingPrefillMs: 100, queued: inTurn(9, { oldestAgeMs: 0 }) };
      rig.ready('a', full);
      expect(decisionIn(rig.arrive())).toBe('queue/all_full');
      rig.pass(20);
      expect(attemptsIn(rig.pass(60))).toEqual([]);
      const room = (oldestAgeMs: number) => ({
        ...{ waitingPrefillMs: 66, queued: inTurn(9, { oldestAgeMs }) },
      });
      rig.report('a', room(2_000));
      expect(attemptsIn(rig.pass(20))).toEqual([]);
      rig.report('a', room(-2_000));
      expect(attemptsIn(rig.pass(20))).toHaveLength(1);
    });
  });
});
