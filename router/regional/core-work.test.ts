// Requests that are no generation: a prefill without decode, and work for an engine's front end alone.

import { describe, expect, test } from 'vitest';
import type { PromptChain } from '../../shared/model/prompt.ts';
import { poolingPrompts } from '../gateway/pooling-prompts.ts';
import {
  attemptIn,
  attemptsIn,
  chainOf,
  COMPLETE,
  CoreRig,
  decisionIn,
  refusalIn,
  sentTo,
  targetStatus,
} from './core.harness.ts';

const TEXT = 'x'.repeat(400);
const embed = (...texts: string[]): { prompts: PromptChain[] } & typeof PREFILL => ({
  ...PREFILL,
  prompts: poolingPrompts('embeddings', { input: texts }),
});
const PREFILL = { work: 'prefill', stream: false, maxTokens: 0 } as const;
const LIGHT = { work: 'light', stream: false, maxTokens: 0, prompts: [] } as const;

describe('a prefill without decode', () => {
  test('costs its prefill and nothing for tokens that it does not generate', () => {
    const rig = new CoreRig();
    rig.ready('a', { itlMs: 10 });
    rig.ready('b', { itlMs: 40 });
    const { candidates } = rig.core.explain(rig.request(embed(TEXT, TEXT)), rig.nowMs);
    expect(candidates.map(({ costMs, promptTokens }) => [costMs, promptTokens])).toEqual([
      [200, 200],
      [200, 200],
    ]);
    const generation = rig.core.explain(rig.request({ maxTokens: 100 }), rig.nowMs);
    expect(generation.candidates[1]?.costMs).toBeGreaterThan(generation.candidates[0]?.costMs ?? 0);
  });

  test('is due when a first token would be', () => {
    const rig = new CoreRig();
    rig.ready('a', { waitingPrefillMs: 50 });
    const [attempt] = attemptsIn(rig.arrive(embed(TEXT)));
    expect(attempt?.firstTokenTimeoutMs).toBe(4_000 + 2 * (50 + 100));
  });

  test('waits in the ledger until its answer, which the agent is told as a first token', () => {
    const rig = new CoreRig();
    rig.ready('a', { ackedSeq: 0 });
    const sent = rig.arrive(embed(TEXT));
    expect(sentTo(sent, 'a')).toMatchObject([
      {
        kind: 'sent',
        promptTokens: 100,
        uncachedTokens: 100,
        promptBytes: 400,
        streamed: true,
        chains: [],
      },
    ]);
    const { lease } = attemptIn(sent);
    rig.pass(5_000);
    rig.report('a', { ackedSeq: 0 });
    expect(targetStatus(rig, 'a').unacked.prefillMs).toBe(100);
    expect(sentTo(rig.firstToken(lease), 'a')).toMatchObject([{ kind: 'firstToken', lease }]);
    expect(targetStatus(rig, 'a').unacked.prefillMs).toBe(0);
    expect(sentTo(rig.end(lease), 'a')).toMatchObject([{ kind: 'ended', outcome: 'complete' }]);
    expect(rig.core.leaseCount()).toBe(0);
  });

  test('neither finds a cached prefix nor leaves one', () => {
    const rig = new CoreRig();
    rig.ready('a');
    rig.ready('b');
    const { lease } = attemptIn(rig.arrive(embed(TEXT.repeat(4))));
    const again = rig.core.explain(rig.request(embed(TEXT.repeat(4))), rig.nowMs);
    expect(again.candidates.map(({ cachedTokens }) => cachedTokens)).toEqual([0, 0]);
    rig.end(lease);
    expect(rig.core.status(rig.nowMs).index.chunks).toBe(0);
  });

  test('is tried elsewhere where it fails, and waits in the queue like any other', () => {
    const rig = new CoreRig();
    rig.ready('a');
    rig.ready('b');
    const first = attemptIn(rig.arrive(embed(TEXT)));
    const second = attemptIn(
      rig.end(first.lease, { kind: 'serverFault', cause: 'status', detail: '' }),
    );
    expect(second.replica).not.toBe(first.replica);
    const full = new CoreRig();
    full.ready('a', { waitingPrefillMs: 500 });
    expect(decisionIn(full.arrive(embed(TEXT)))).toBe('queue/all_full');
  });

  test('does not teach the pool how long answers are', () => {
    const rig = new CoreRig();
    rig.ready('a');
    const means = () => rig.core.status(rig.nowMs).pools[0];
    const before = means()?.meanOutputTokens;
    rig.end(attemptIn(rig.arrive(embed(TEXT))).lease);
    expect(means()?.meanOutputTokens).toBe(before);
    rig.end(attemptIn(rig.arrive()).lease, COMPLETE, true);
    expect(means()?.meanOutputTokens).not.toBe(before);
  });

  test('that the engine may cut is not refused for its length', () => {
    const rig = new CoreRig();
    rig.ready('a', { models: [{ id: 'm', maxModelLen: 50, loras: [] }] });
    expect(refusalIn(rig.arrive(embed(TEXT)))?.code).toBe('context_length_exceeded');
    expect(attemptIn(rig.arrive({ ...embed(TEXT), truncates: true })).replica).toBe('a');
  });
});

describe('work for the front end alone', () => {
  test('goes to any replica that takes work, however full, and weighs nothing', () => {
    const rig = new CoreRig();
    rig.ready('a', { waitingPrefillMs: 5_000 });
    rig.ready('b', { running: 8, runningMax: 8 });
    const seen = new Set<string>();
    for (let k = 0; k < 40; k += 1) {
      const effects = rig.arrive(LIGHT);
      expect(effects.filter(({ kind }) => kind === 'send')).toEqual([]);
      seen.add(attemptIn(effects).replica);
    }
    expect([...seen].toSorted()).toEqual(['a', 'b']);
    for (const name of ['a', 'b']) {
      expect(targetStatus(rig, name)).toMatchObject({
        leases: 0,
        unacked: { requests: 0, prefillMs: 0 },
      });
    }
    expect(rig.core.leaseCount()).toBe(40);
  });

  test('is not in what an agent is told on a new link', () => {
    const rig = new CoreRig();
    rig.ready('a');
    const { lease } = attemptIn(rig.arrive(LIGHT));
    attemptIn(rig.arrive({ prompts: [chainOf([1])] }));
    rig.unlink('a');
    const effects = rig.link('a2', { replicas: ['a'], agent: 'agent-a' });
    const again = [...effects, ...rig.report('a', {}, 'a2')];
    const open = sentTo(again, 'a2').flatMap((m) => (m.kind === 'leases' ? m.open : []));
    expect(open).toHaveLength(1);
    expect(open[0]?.lease).not.toBe(lease);
  });

  test('goes past a queue, and is refused at once where nobody takes work', () => {
    const rig = new CoreRig();
    rig.ready('a', { waitingPrefillMs: 500 });
    expect(decisionIn(rig.arrive())).toBe('queue/all_full');
    expect(decisionIn(rig.arrive(LIGHT))).toBe('send/only_candidate');
    rig.report('a', { phase: 'loading' });
    const refused = rig.arrive(LIGHT);
    expect(decisionIn(refused)).toBe('refuse/no_replica');
    expect(refusalIn(refused)?.code).toBe('warming_up');
  });

  test('is tried elsewhere; a good answer speaks for no engine, a closed port against it', () => {
    const rig = new CoreRig({ settings: { breakerFailures: 1 } });
    rig.ready('a');
    rig.ready('b');
    const first = attemptIn(rig.arrive(LIGHT));
    const failed = rig.end(first.lease, { kind: 'connectFailed', detail: '' });
    expect(attemptIn(failed).replica).not.toBe(first.replica);
    expect(targetStatus(rig, first.replica).breaker).toBe('open');
    rig.pass(5_000);
    expect(targetStatus(rig, first.replica).breaker).toBe('half_open');
    for (let k = 0; k < 20; k += 1) rig.end(attemptIn(rig.arrive(LIGHT)).lease);
    expect(targetStatus(rig, first.replica).breaker).toBe('half_open');
  });
});
