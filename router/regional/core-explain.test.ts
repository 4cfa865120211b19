// Explain and serving decide alike: the same inputs have the same filters, costs and draw probabilities.

import { describe, expect, test } from 'vitest';
import type { Decision } from '../../shared/model/decision.ts';
import { attemptIn, chainOf, CoreRig, MODEL } from './core.harness.ts';
import type { RouterEffect } from './events.ts';
import type { RouteRequest } from '../policy/request-events.ts';

/** What was explained of a request, and what then became of it. */
function both(rig: CoreRig, more: Partial<RouteRequest> = {}) {
  const request = rig.request(more);
  const explained = rig.core.explain(request, rig.nowMs);
  const effects = rig.handle({ kind: 'arrived', request });
  const own = effects.find((effect) => of(effect) === request.id && 'decision' in effect);
  if (own === undefined || !('decision' in own) || own.decision === null) throw new Error('none');
  return { explained, served: own.decision, effects };
}

function of(effect: RouterEffect): string | null {
  if (effect.kind === 'attempt') return effect.attempt.request;
  return 'request' in effect ? effect.request : null;
}

describe('explain says what serving does', () => {
  test('with removals, costs and probabilities in a pool of every kind of replica', () => {
    const rig = new CoreRig();
    const prompt = chainOf([1, 2, 3]);
    rig.ready('a', { waitingPrefillMs: 3 });
    rig.ready('b', { kvUsageRatio: 0.03 });
    rig.ready('c', { phase: 'loading' });
    rig.ready('d', { models: [{ id: 'other', maxModelLen: null, loras: [] }] });
    rig.ready('e', { models: [{ id: MODEL, maxModelLen: 10, loras: [] }] });
    rig.ready('f', { waitingPrefillMs: 900 });
    rig.holds('f', prompt);
    const { explained, served } = both(rig, { prompts: [prompt] });
    expect(served.candidates).toEqual(explained.candidates);
    const removed = explained.candidates.map((candidate) => candidate.removed);
    expect(removed).toEqual([null, null, null, 'phase', 'model', 'context_length']);
    const drawn = explained.candidates.map(({ drawProbability }) => drawProbability);
    expect(drawn.filter((p) => p > 0)).toHaveLength(2);
    expect(drawn.reduce((sum, p) => sum + p)).toBeCloseTo(1, 9);
    expect(explained.candidates.find(({ cachedTokens }) => (cachedTokens ?? 0) > 0)).toMatchObject({
      target: { replica: 'f' },
      waitMs: 900,
    });
  });

  test('with what this router has itself sent since the last report', () => {
    const rig = new CoreRig();
    rig.ready('a', { ackedSeq: 0 });
    rig.ready('b', { ackedSeq: 0 });
    const first = attemptIn(rig.arrive({ prompts: [chainOf([1])] })).replica;
    const { explained, served } = both(rig, { prompts: [chainOf([2])] });
    expect(served).toEqual(explained);
    const waits = new Map(explained.candidates.map((c) => [c.target.replica as string, c.waitMs]));
    expect(waits.get(first)).toBe(128);
  });

  test.each([
    ['queueing', { waitingPrefillMs: 500 }, {}, 'queue/all_full'],
    [
      'a deadline that cannot be kept',
      { waitingPrefillMs: 500 },
      { clientDeadlineMs: 10 },
      'shed/deadline_unreachable',
    ],
    ['an unknown model', {}, { model: 'none' }, 'refuse/unknown_model'],
    ['no replica that can', { phase: 'dead' as const }, {}, 'refuse/no_replica'],
  ])('of %s', (_name, report, request, expected) => {
    const rig = new CoreRig();
    rig.ready('a', report);
    const { explained, served } = both(rig, request);
    expect(served).toEqual(explained);
    expect(`${explained.kind}/${explained.reason}`).toBe(expected);
  });

  test('of a full queue: the less urgent is shed, the more urgent takes the place of another', () => {
    const rig = new CoreRig({ settings: { queueMaxRequests: 1 } });
    rig.ready('a', { waitingPrefillMs: 500 });
    rig.arrive({ priority: 5 });
    expect(both(rig, { priority: 5 })).toMatchObject({
      explained: { kind: 'shed', reason: 'queue_full' },
      served: { kind: 'shed', reason: 'queue_full' },
    });
    const { explained, served } = both(rig, { priority: 1 });
    expect(served.kind).toBe('queue');
    expect(explained).toEqual(served);
  });

  test('of a queue with too many bytes: nobody is given up where that does not suffice', () => {
    const rig = new CoreRig({ settings: { queueMaxBytes: 3_000 } });
    rig.ready('a', { waitingPrefillMs: 500 });
    rig.arrive({ priority: 1, bodyBytes: 2_000 });
    rig.arrive({ priority: 5, bodyBytes: 1_000 });
    const { explained, served, effects } = both(rig, { priority: 3, bodyBytes: 1_500 });
    expect(served).toEqual(explained);
    expect(served).toMatchObject({ kind: 'shed', reason: 'queue_full' });
    expect(effects.filter(({ kind }) => kind === 'refuse')).toHaveLength(1);
  });

  test('of work for the front end alone: every replica that takes work is as probable', () => {
    const rig = new CoreRig();
    for (const name of ['a', 'b', 'c']) rig.ready(name, { waitingPrefillMs: 5_000 });
    rig.ready('d', { phase: 'dead' });
    const { explained, served } = both(rig, { work: 'light', maxTokens: 0, prompts: [] });
    expect(served.candidates).toEqual(explained.candidates);
    expect(explained.candidates.map(({ drawProbability: p }) => p)).toEqual([
      1 / 3,
      1 / 3,
      1 / 3,
      0,
    ]);
  });
});

test('serving draws as often as explain says', () => {
  const rig = new CoreRig({ seed: 11 });
  rig.ready('a', { waitingPrefillMs: 4 });
  rig.ready('b');
  rig.ready('c', { waitingPrefillMs: 2 });
  const prompts = [chainOf([1])];
  const explained: Decision = rig.core.explain(rig.request({ prompts }), rig.nowMs);
  const drawn = new Map<string, number>();
  const rounds = 4_000;
  for (let k = 0; k < rounds; k += 1) {
    const request = rig.request({ prompts });
    const { lease, replica } = attemptIn(rig.handle({ kind: 'arrived', request }));
    drawn.set(replica, (drawn.get(replica) ?? 0) + 1);
    rig.end(lease, { kind: 'clientGone' });
  }
  expect(rig.core.explain(rig.request({ prompts }), rig.nowMs)).toEqual(explained);
  for (const { target, drawProbability: p } of explained.candidates) {
    // Four standard deviations.
    const spread = 4 * Math.sqrt((p * (1 - p)) / rounds);
    expect(Math.abs((drawn.get(target.replica) ?? 0) / rounds - p)).toBeLessThan(spread);
  }
});
