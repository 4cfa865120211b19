import { describe, expect, test } from 'vitest';
import type { PoolId } from '../../shared/model/ids.ts';
import {
  attemptIn,
  attemptsIn,
  chainOf,
  COMPLETE,
  configOf,
  CoreRig,
  decisionIn,
  MODEL,
  PLAIN_CURVE,
  refusalIn,
  sentTo,
} from './core.harness.ts';

describe('a request', () => {
  test('goes where its prefix is, and the agent of that replica is told', () => {
    const rig = new CoreRig();
    rig.ready('a');
    rig.ready('b');
    const prompt = chainOf([1, 2, 3, 4]);
    rig.holds('b', prompt);
    const effects = rig.arrive({ prompts: [prompt] });
    expect(decisionIn(effects)).toBe('send/prefix');
    expect(attemptsIn(effects)).toMatchObject([
      {
        target: { replica: 'b', rank: 0 },
        url: 'http://b',
        engineModel: MODEL,
        rankHeader: null,
        predictedPromptTokens: 512,
        predictedCachedTokens: 496,
        predictedTtftMs: 16,
        firstTokenTimeoutMs: 4_032,
      },
    ]);
    expect(sentTo(effects, 'b')).toMatchObject([{ kind: 'sent', seq: 1, uncachedTokens: 16 }]);
    const ended = rig.end(attemptIn(effects).lease, COMPLETE, true);
    expect(sentTo(ended, 'b')).toMatchObject([{ kind: 'ended', seq: 2, outcome: 'complete' }]);
    expect(rig.core.leaseCount()).toBe(0);
  });

  test('leaves its prefix when the queue there costs more than the prefill elsewhere', () => {
    const prompt = chainOf([1, 2, 3, 4]);
    const to = (waitingPrefillMs: number): string => {
      const rig = new CoreRig();
      rig.ready('a');
      rig.ready('b', { waitingPrefillMs });
      rig.holds('b', prompt);
      return attemptIn(rig.arrive({ prompts: [prompt] })).replica;
    };
    // 512 tokens: 16 ms with the prefix, 512 ms without.
    expect(to(450)).toBe('b');
    expect(to(550)).toBe('a');
  });

  test('is sent with the rank where a replica has several', () => {
    const rig = new CoreRig();
    rig.link('a', { ranks: 2 });
    rig.report('a', { rank: 0, waitingPrefillMs: 500 });
    rig.report('a', { rank: 1 });
    expect(attemptsIn(rig.arrive())[0]).toMatchObject({ target: { rank: 1 }, rankHeader: 1 });
  });

  test('that is not streamed is due by what its context holds, however many tokens it may have', () => {
    const rig = new CoreRig();
    const models = [{ id: MODEL, maxModelLen: 1_000, loras: [] }];
    rig.ready('a', { itlMs: 10, models });
    const [attempt] = attemptsIn(rig.arrive({ stream: false, maxTokens: 1_000_000_000 }));
    const { waitMs = 0, prefillMs = 0, firstTokenTimeoutMs } = attempt ?? {};
    expect(firstTokenTimeoutMs).toBe(4_000 + waitMs + prefillMs + 2 * 1_000 * 10);
  });

  test('goes under the name that the engine knows', () => {
    const rig = new CoreRig({
      pools: [{ id: 'pool' as PoolId, models: ['public'], aliases: { public: MODEL } }],
    });
    rig.ready('a');
    expect(attemptsIn(rig.arrive({ model: 'public' }))[0]?.engineModel).toBe(MODEL);
    expect(refusalIn(rig.arrive({ model: MODEL }))?.code).toBe('model_not_found');
  });

  test.each([
    ['nobody serves the model', [{ id: 'pool', models: [MODEL], aliases: {} }], 'x', 404],
    [
      'a configured model has no replica yet',
      [{ id: 'pool', models: [MODEL], aliases: {} }],
      MODEL,
      503,
    ],
    ['no agent has reported names yet', [{ id: 'pool', models: [], aliases: {} }], 'x', 503],
  ])('is refused when %s', (_, pools, model, status) => {
    const rig = new CoreRig({ pools: pools as never });
    const refusal = refusalIn(rig.arrive({ model }));
    expect(refusal?.code).toBe(status === 404 ? 'model_not_found' : 'no_replica');
    expect(rig.core.status(rig.nowMs).openRequests).toBe(0);
  });

  test('is found by the names that replicas report where none are configured, LoRAs included', () => {
    const rig = new CoreRig({ pools: [{ id: 'pool' as PoolId, models: [], aliases: {} }] });
    rig.ready('a', { models: [{ id: MODEL, maxModelLen: null, loras: ['m-fr'] }] });
    rig.ready('b');
    expect(attemptIn(rig.arrive({ model: 'm-fr' })).replica).toBe('a');
    expect(refusalIn(rig.arrive({ model: 'm-de' }))?.code).toBe('model_not_found');
  });

  test('is refused for its length only when even the fewest tokens do not fit', () => {
    const rig = new CoreRig();
    rig.ready('a', { models: [{ id: MODEL, maxModelLen: 100, loras: [] }] });
    // 512 bytes: 128 tokens at the mean, 102 at p95.
    const refusal = refusalIn(rig.arrive({ prompts: [chainOf([1])] }));
    expect(refusal?.code).toBe('context_length_exceeded');
    rig.report('a', { models: [{ id: MODEL, maxModelLen: 103, loras: [] }] });
    expect(attemptIn(rig.arrive({ prompts: [chainOf([1])] })).replica).toBe('a');
  });

  test('is explained as it would be served, and nothing changes', () => {
    const rig = new CoreRig();
    rig.ready('a', { waitingPrefillMs: 3 });
    rig.ready('b');
    rig.ready('c', { phase: 'loading' });
    const request = rig.request({ prompts: [chainOf([1, 2])] });
    const decision = rig.core.explain(request, rig.nowMs);
    expect(decision).toMatchObject({ kind: 'send', target: { replica: 'b' } });
    expect(decision.candidates.map(({ removed }) => removed)).toEqual([null, null, 'phase']);
    expect(decision.candidates[0]).toMatchObject({ costMs: 256, waitMs: 0, cachedTokens: 0 });
    expect(decision.candidates[0]?.drawProbability).toBeCloseTo(1 / (1 + Math.exp(-3 / 12.8)), 6);
    expect(rig.core.leaseCount()).toBe(0);
    expect(rig.core.status(rig.nowMs)).toMatchObject({ openRequests: 0, index: { chunks: 0 } });
    const served = rig.handle({ kind: 'arrived', request });
    const [effect] = served;
    expect(effect?.kind === 'attempt' && effect.decision.candidates).toEqual(decision.candidates);
  });

  test('of a list prompt is the sum of its elements', () => {
    const rig = new CoreRig();
    rig.ready('a');
    rig.holds('a', chainOf([1, 2]));
    const effects = rig.arrive({ prompts: [chainOf([1, 2]), chainOf([3])] });
    // 256 tokens, 240 cached; 128 tokens, none cached.
    expect(attemptsIn(effects)[0]).toMatchObject({
      predictedPromptTokens: 384,
      predictedCachedTokens: 240,
      prefillMs: 144,
    });
    const [sent] = sentTo(effects, 'a');
    expect(sent?.kind === 'sent' && sent.chains.length).toBe(2);
  });

  test('counts for as many requests as the engine makes of it: prompts times answers', () => {
    const rig = new CoreRig({ settings: { holdMs: 1e6 } });
    rig.ready('a', { running: 1, runningMax: 8 });
    const two = [chainOf([1]), chainOf([2])];
    expect(sentTo(rig.arrive({ prompts: two, answers: 3 }), 'a')).toMatchObject([{ requests: 6 }]);
    const [one] = sentTo(rig.arrive({}), 'a');
    expect(one !== undefined && 'requests' in one).toBe(false);
    // 1 as reported, 6 and 1 sent since: no slot is left.
    expect(attemptsIn(rig.arrive({}))).toEqual([]);
  });
});

describe('what is not known', () => {
  test('of a cost curve is the pool’s median, and predictions from no curve at all are not shown', () => {
    const rig = new CoreRig({ settings: { holdMs: 1e6 } });
    rig.ready('a', { prefillCost: null });
    expect(attemptsIn(rig.arrive())[0]?.predictedTtftMs).toBeNull();
    rig.ready('b', { waitingPrefillMs: 5_000 });
    expect(attemptsIn(rig.arrive())[0]).toMatchObject({ target: { replica: 'a' }, prefillMs: 128 });
  });

  test('of waiting work bounds concurrency, is neither empty nor full, and raises an alarm', () => {
    const rig = new CoreRig({ settings: { unknownConcurrency: 2, holdMs: 1e6 } });
    const unknown = { waitingPrefillMs: null, waitingPrefillTokens: null, running: null };
    rig.link('a');
    const alarm = { kind: 'log', level: 'warn', code: 'load_unknown' };
    expect(rig.report('a', unknown)).toContainEqual(expect.objectContaining(alarm));
    expect(rig.report('a', unknown)).not.toContainEqual(expect.objectContaining(alarm));
    expect(attemptIn(rig.arrive()).replica).toBe('a');
    expect(attemptIn(rig.arrive()).replica).toBe('a');
    expect(decisionIn(rig.arrive())).toBe('queue/all_full');
    expect(attemptsIn(rig.end('r1.1'))).toHaveLength(1);
  });

  test('of a cost curve in the whole pool holds nobody back: concurrency is bounded', () => {
    const rig = new CoreRig({ settings: { unknownConcurrency: 3, holdMs: 20 } });
    rig.ready('a', { prefillCost: null });
    for (let n = 0; n < 3; n += 1) expect(attemptsIn(rig.arrive())).toHaveLength(1);
    expect(decisionIn(rig.arrive())).toBe('queue/all_full');
    // As soon as somebody has learned, the hold is in ms.
    rig.ready('b', { waitingPrefillMs: 5_000 });
    rig.report('a', { prefillCost: null, waitingPrefillMs: 15 });
    expect(decisionIn(rig.arrive())).toBe('queue/all_full');
  });

  test('of KV usage is the median of the candidates', () => {
    const rig = new CoreRig();
    rig.ready('a', { kvUsageRatio: null });
    rig.ready('b', { kvUsageRatio: 0.5 });
    const { candidates } = rig.core.explain(rig.request(), rig.nowMs);
    expect(candidates.map(({ costMs }) => costMs)).toEqual([278, 278]);
  });
});

describe('a configuration that is swapped', () => {
  test('changes settings and pools at once; a pool that is gone sends its agents away', () => {
    const rig = new CoreRig();
    rig.ready('a', { running: 1, runningMax: 1 });
    rig.arrive();
    const effects = rig.handle({
      kind: 'configured',
      config: configOf({ pools: [{ id: 'other' as PoolId, models: ['n'], aliases: {} }] }),
    });
    expect(effects).toMatchObject([
      { kind: 'close', link: 'a', reason: 'unknown_pool' },
      { kind: 'refuse', request: 'r1', code: 'no_replica' },
    ]);
    expect(refusalIn(rig.arrive())?.code).toBe('model_not_found');
    expect(refusalIn(rig.arrive({ model: 'n' }))?.code).toBe('no_replica');
  });

  test('a router that drains refuses new requests and ends the rest', () => {
    const rig = new CoreRig();
    rig.ready('a', { waitingPrefillMs: 60 });
    rig.arrive();
    rig.handle({ kind: 'drain' });
    expect(refusalIn(rig.arrive())?.code).toBe('draining');
    expect(attemptIn(rig.report('a', { prefillCost: PLAIN_CURVE })).lease).toBe('r1.1');
  });
});

test('a prefix index that has reached its budget says so', () => {
  const rig = new CoreRig({ settings: { prefixIndexBytes: 65_536 } });
  rig.ready('a');
  const hit = { kind: 'limit', limit: 'prefix_index_bytes' };
  const chain = (length: number) => chainOf(Array.from({ length }, (_, k) => k));
  expect(rig.holds('a', chain(100))).not.toContainEqual(hit);
  expect(rig.holds('a', chain(5_000), 1)).toContainEqual(hit);
  expect(rig.report('a')).not.toContainEqual(hit);
});
