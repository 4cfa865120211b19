import { describe, expect, test } from 'vitest';
import type { LinkId, PoolId, RequestId } from '../../shared/model/ids.ts';
import type { RegionalSettings } from '../../shared/model/settings.ts';
import { attemptsIn, chainOf, CoreRig, configOf, decisionIn, refusalIn } from './core.harness.ts';
import type { RouterEffect } from './events.ts';

const NO_SLOT = { running: 4, runningMax: 4 };

function fullRig(settings: Partial<RegionalSettings> = {}): CoreRig {
  const rig = new CoreRig({ settings });
  rig.ready('a', NO_SLOT);
  return rig;
}

function endsIn(effects: readonly RouterEffect[]): [string, string, string][] {
  return effects.flatMap((effect) =>
    effect.kind === 'refuse'
      ? [[effect.request, effect.code, effect.decision?.reason ?? ''] as [string, string, string]]
      : [],
  );
}

test('a prompt far beyond the context, that an engine refuses, costs those behind it no more than the context', () => {
  const rig = new CoreRig();
  rig.ready('a', { bytesPerToken: null });
  const huge = { ...chainOf([1, 2, 3]), bytes: 4_000_000 };
  const [attempt] = attemptsIn(rig.arrive({ prompts: [huge] }));
  expect(attempt).toMatchObject({ predictedPromptTokens: 32_768, prefillMs: 32_768 });
  expect(decisionIn(rig.arrive())).toBe('queue/all_full');
});

describe("a client's deadline", () => {
  test('bounds the first token of a stream', () => {
    const rig = fullRig();
    // 128 ms of prefill.
    expect(decisionIn(rig.arrive({ clientDeadlineMs: 129 }))).toBe('queue/all_full');
    expect(decisionIn(rig.arrive({ clientDeadlineMs: 127 }))).toBe('shed/deadline_unreachable');
  });

  test('bounds the whole of an answer that is not streamed: as many tokens as come on the mean', () => {
    const rig = fullRig();
    // 256 tokens of 10 ms.
    const whole = { stream: false, clientDeadlineMs: 2_000 };
    expect(decisionIn(rig.arrive(whole))).toBe('shed/deadline_unreachable');
    expect(decisionIn(rig.arrive({ ...whole, clientDeadlineMs: 2_700 }))).toBe('queue/all_full');
    // The second one waits for the first, too.
    expect(decisionIn(rig.arrive({ ...whole, clientDeadlineMs: 2_700 }))).toBe(
      'shed/deadline_unreachable',
    );
    expect(decisionIn(rig.arrive({ ...whole, maxTokens: 20 }))).toBe('queue/all_full');
    expect(decisionIn(rig.arrive({ ...whole, work: 'prefill' }))).toBe('queue/all_full');
  });

  test('is unreachable only where the fastest engine would not reach it, while none has told its pace', () => {
    const rig = new CoreRig();
    rig.ready('a', { ...NO_SLOT, itlMs: null });
    // 256 tokens at 5 ms and 128 ms of prefill.
    const whole = { stream: false, clientDeadlineMs: 1_400 };
    expect(decisionIn(rig.arrive({ ...whole, clientDeadlineMs: 1_420 }))).toBe('queue/all_full');
    rig.handle({ kind: 'clientGone', request: 'r1' as RequestId });
    expect(decisionIn(rig.arrive(whole))).toBe('shed/deadline_unreachable');
  });

  test('ends the wait when a start would be too late, for the whole answer too', () => {
    const rig = fullRig();
    rig.arrive({ stream: false, maxTokens: 50, clientDeadlineMs: 1_000 });
    const left: number[] = [];
    const startMs = rig.nowMs;
    for (let k = 0; k < 12; k += 1) {
      if (endsIn(rig.pass(100)).length > 0) left.push(rig.nowMs - startMs);
      rig.report('a', NO_SLOT);
    }
    // 1,000 − 50 · 10 − 128 ms
    expect(left).toEqual([400]);
  });
});

describe('each bound of the queue', () => {
  test('in bytes: the least urgent is given up for one that is more urgent, and counted', () => {
    const rig = fullRig({ queueMaxBytes: 2_500 });
    rig.arrive({ priority: 2 });
    rig.arrive({ priority: 1 });
    expect(endsIn(rig.arrive({ priority: 2 }))).toEqual([['r3', 'saturated', 'queue_full']]);
    expect(endsIn(rig.arrive({ priority: 0 }))).toEqual([['r1', 'saturated', 'queue_full']]);
    expect(rig.seen.filter(({ kind }) => kind === 'limit')).toHaveLength(2);
  });

  test('in time: at the door by the predicted wait, in the queue by the clock', () => {
    const rig = fullRig({ queueMaxWaitMs: 500 });
    rig.ready('a', { waitingPrefillMs: 400, ...NO_SLOT });
    expect(decisionIn(rig.arrive())).toBe('queue/all_full');
    const away = rig.arrive();
    expect(refusalIn(away)).toMatchObject({ decision: { reason: 'wait_limit' } });
    expect(endsIn(rig.pass(500))).toEqual([['r1', 'queue_timeout', 'queue_timeout']]);
  });

  test('in time: what other routers hold waits for the same replicas, where it is as urgent', () => {
    const held = (othersTop: number) => ({
      ...{ prefillMs: 20_000, requests: 40, topPriority: othersTop, routersQueueing: 1 },
      place: { othersTop, othersAtTop: 1, before: 1 },
    });
    const rig = fullRig({ queueMaxWaitMs: 10_000 });
    rig.report('a', { ...NO_SLOT, queued: held(0) });
    expect(refusalIn(rig.arrive())).toMatchObject({ decision: { reason: 'wait_limit' } });
    expect(decisionIn(rig.arrive({ priority: -1 }))).toBe('queue/all_full');
    rig.report('a', { ...NO_SLOT, queued: held(5) });
    expect(decisionIn(rig.arrive())).toBe('queue/all_full');
    // As urgent there as here: most of theirs goes before one that is less urgent.
    expect(refusalIn(rig.arrive({ priority: 5 }))).toMatchObject({
      decision: { reason: 'wait_limit' },
    });
  });

  test('a retry keeps its place, however full it is', () => {
    const rig = new CoreRig({ settings: { queueMaxRequests: 1 } });
    rig.ready('a');
    const [first] = attemptsIn(rig.arrive());
    rig.report('a', NO_SLOT);
    rig.nowMs += 5;
    rig.arrive();
    rig.end(first?.lease ?? '', { kind: 'backPressure', status: 429, retryAfterMs: 100 });
    expect(rig.core.status(rig.nowMs).pools[0]?.queue.requests).toBe(2);
    rig.pass(101);
    // It came first, and goes first.
    expect(attemptsIn(rig.report('a')).at(0)?.request).toBe('r1');
  });
});

describe('one that comes again', () => {
  test('is told when its wait is short enough, and then finds room that others do not', () => {
    const rig = fullRig({ queueMaxWaitMs: 1_000 });
    const busy = { waitingPrefillMs: 1_500, ...NO_SLOT };
    rig.report('a', busy);
    const refusal = refusalIn(rig.arrive());
    expect(refusal?.retryAfterMs).toBeGreaterThanOrEqual(1_000);
    expect(refusal?.retryAfterMs).toBeLessThan(1_101);
    rig.pass(1_000);
    rig.report('a', { waitingPrefillMs: 950, ...NO_SLOT });
    expect(decisionIn(rig.arrive())).toBe('shed/wait_limit');
    expect(decisionIn(rig.arrive({ comesAgain: true }))).toBe('queue/all_full');
  });
});

describe('a queued request ends', () => {
  test('refused when the last replica leaves, or dies', () => {
    for (const leave of [
      (rig: CoreRig) =>
        rig.handle({
          kind: 'message',
          link: 'a' as LinkId,
          message: { kind: 'bye', replica: 'a' as never, reason: 'shutdown' },
        }),
      (rig: CoreRig) => rig.report('a', { phase: 'dead' }),
    ]) {
      const rig = fullRig();
      rig.arrive();
      expect(endsIn(leave(rig))).toEqual([['r1', 'no_replica', 'no_replica']]);
      expect(rig.core.status(rig.nowMs)).toMatchObject({ openRequests: 0 });
    }
  });

  test('refused when its pool is taken out of the configuration', () => {
    const rig = fullRig();
    rig.arrive();
    const other = { id: 'other' as PoolId, models: ['n'], aliases: {} };
    const effects = rig.handle({ kind: 'configured', config: configOf({ pools: [other] }) });
    expect(endsIn(effects)).toEqual([['r1', 'no_replica', 'no_replica']]);
  });

  test('in its answer while the router drains: only what comes new is refused', () => {
    const rig = fullRig();
    rig.arrive();
    rig.handle({ kind: 'drain' });
    expect(endsIn(rig.arrive())).toEqual([['r2', 'draining', 'draining']]);
    expect(attemptsIn(rig.report('a')).map(({ request }) => request)).toEqual(['r1']);
  });
});

describe('work without decode', () => {
  test('tokenising passes by a queue, in no sum of it', () => {
    const rig = fullRig();
    rig.arrive();
    expect(decisionIn(rig.arrive({ work: 'light', prompts: [] }))).toMatch(/^send/);
    expect(rig.core.status(rig.nowMs).pools[0]?.queue.requests).toBe(1);
  });
});
