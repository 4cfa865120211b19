import { describe, expect, test } from 'vitest';
import type { Incarnation, PoolId, RequestId } from '../../shared/model/ids.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import {
  attemptsIn,
  chainOf,
  COMPLETE,
  configOf,
  CoreRig,
  MODEL,
  PLAIN_CURVE,
  refusalIn,
  sentTo,
} from './core.harness.ts';
import type { AttemptResult, RouterEffect } from './events.ts';

const CONNECT_FAILED: AttemptResult = { kind: 'connectFailed', detail: 'refused' };
const RESET: AttemptResult = { kind: 'serverFault', cause: 'reset', detail: '' };
const LATE: AttemptResult = { kind: 'serverFault', cause: 'first_token_timeout', detail: '' };
const BUSY: AttemptResult = { kind: 'backPressure', status: 503, retryAfterMs: 5_000 };

/** The one attempt among the effects. */
function attempt(effects: readonly RouterEffect[]): { lease: string; replica: string } {
  const [one] = attemptsIn(effects);
  if (one === undefined) throw new Error(`no attempt in ${JSON.stringify(effects)}`);
  return { lease: one.lease, replica: one.target.replica };
}

function decisionIn(effects: readonly RouterEffect[]): string {
  for (const effect of effects) {
    if ('decision' in effect && effect.decision !== null) {
      return `${effect.decision.kind}/${effect.decision.reason}`;
    }
  }
  return 'none';
}

function target(rig: CoreRig, name: string) {
  const replica = rig.core.status(rig.nowMs).pools[0]?.replicas.find(({ id }) => id === name);
  const found = replica?.targets[0];
  if (replica === undefined || found === undefined) throw new Error(`no replica ${name}`);
  return { ...found, link: replica.link, down: replica.down };
}

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
    const ended = rig.end(attempt(effects).lease, COMPLETE, true);
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
      return attempt(rig.arrive({ prompts: [prompt] })).replica;
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
    expect(attempt(rig.arrive({ model: 'm-fr' })).replica).toBe('a');
    expect(refusalIn(rig.arrive({ model: 'm-de' }))?.code).toBe('model_not_found');
  });

  test('is refused for its length only when even the fewest tokens do not fit', () => {
    const rig = new CoreRig();
    rig.ready('a', { models: [{ id: MODEL, maxModelLen: 100, loras: [] }] });
    // 512 bytes: 128 tokens at the mean, 102 at p95.
    const refusal = refusalIn(rig.arrive({ prompts: [chainOf([1])] }));
    expect(refusal?.code).toBe('context_length_exceeded');
    rig.report('a', { models: [{ id: MODEL, maxModelLen: 103, loras: [] }] });
    expect(attempt(rig.arrive({ prompts: [chainOf([1])] })).replica).toBe('a');
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
});

describe('what is not known', () => {
  test('of a cost curve is the pool’s median, and predictions from no curve at all are not shown', () => {
    const rig = new CoreRig({ settings: { holdMs: 1e6 } });
    rig.ready('a', { prefillCost: null });
    expect(attemptsIn(rig.arrive())[0]?.predictedTtftMs).toBeNull();
    rig.ready('b', { waitingPrefillMs: 5_000 });
    expect(attemptsIn(rig.arrive())[0]).toMatchObject({ target: { replica: 'a' }, prefillMs: 128 });
  });

  test('of waiting work bounds concurrency, and is neither empty nor full', () => {
    const rig = new CoreRig({ settings: { unknownConcurrency: 2, holdMs: 1e6 } });
    const unknown = { waitingPrefillMs: null, waitingPrefillTokens: null, running: null };
    rig.ready('a', unknown);
    expect(attempt(rig.arrive()).replica).toBe('a');
    expect(attempt(rig.arrive()).replica).toBe('a');
    expect(decisionIn(rig.arrive())).toBe('queue/all_full');
    expect(attemptsIn(rig.end('r1.1'))).toHaveLength(1);
  });

  test('of KV usage is the median of the candidates', () => {
    const rig = new CoreRig();
    rig.ready('a', { kvUsageRatio: null });
    rig.ready('b', { kvUsageRatio: 0.5 });
    const { candidates } = rig.core.explain(rig.request(), rig.nowMs);
    expect(candidates.map(({ costMs }) => costMs)).toEqual([278, 278]);
  });
});

describe('own work on top of reports', () => {
  const waits = (rig: CoreRig): number => target(rig, 'a').waitMs;
  const linked = (more: Partial<ReplicaReport> = {}): CoreRig => {
    const rig = new CoreRig({ settings: { holdMs: 1e6 } });
    rig.ready('a', { ackedSeq: 0, ...more });
    return rig;
  };

  test('is what no report includes yet: each request of 128 tokens once', () => {
    const rig = linked();
    rig.arrive();
    rig.arrive();
    expect(waits(rig)).toBe(256);
    rig.report('a', { ackedSeq: 1, waitingPrefillMs: 128 });
    expect(waits(rig)).toBe(256);
    rig.report('a', { ackedSeq: 2, waitingPrefillMs: 256 });
    expect(waits(rig)).toBe(256);
    expect(target(rig, 'a').unacked.requests).toBe(0);
  });

  test('is cancelled by its first token or end; those of reported ones change nothing', () => {
    const rig = linked();
    rig.arrive();
    rig.arrive();
    rig.report('a', { ackedSeq: 1, waitingPrefillMs: 128 });
    rig.firstToken('r1.1');
    expect(waits(rig)).toBe(256);
    rig.firstToken('r2.1');
    expect(waits(rig)).toBe(128);
    expect(target(rig, 'a').unacked.requests).toBe(1);
    rig.end('r2.1', COMPLETE, true);
    expect(target(rig, 'a').unacked.requests).toBe(0);
    rig.end('r1.1', COMPLETE, true);
    expect(waits(rig)).toBe(128);
  });

  test('a report is local in time: its backlog shrinks with its age', () => {
    const rig = linked({ waitingPrefillMs: 500 });
    rig.nowMs += 200;
    expect(waits(rig)).toBe(300);
    rig.nowMs += 400;
    expect(waits(rig)).toBe(0);
  });

  test('a new link gets all open leases, and nothing before them is acknowledged', () => {
    const rig = linked();
    rig.arrive();
    rig.arrive();
    rig.firstToken('r1.1');
    rig.report('a', { ackedSeq: 3, waitingPrefillMs: 128 });
    rig.unlink('a');
    rig.nowMs += 50;
    const effects = rig.link('a2', { replicas: ['a'], agent: 'agent-a' });
    const [, leases] = sentTo(effects, 'a2');
    expect(leases).toMatchObject({
      kind: 'leases',
      seq: 0,
      open: [
        { lease: 'r1.1', sentAgoMs: 50, firstTokenAgoMs: 50 },
        { lease: 'r2.1', sentAgoMs: 50, firstTokenAgoMs: null },
      ],
    });
    rig.report('a', { ackedSeq: -1, waitingPrefillMs: 0 }, 'a2');
    expect(target(rig, 'a').unacked).toMatchObject({ requests: 2, uncachedTokens: 128 });
    rig.arrive();
    rig.report('a', { ackedSeq: 0, waitingPrefillMs: 128 }, 'a2');
    expect(target(rig, 'a').unacked).toMatchObject({ requests: 1, uncachedTokens: 128 });
  });

  test('a new incarnation is told the leases again, and what the old one had weighs no more', () => {
    const rig = linked();
    rig.holds('a', chainOf([9]));
    rig.arrive();
    expect(target(rig, 'a').indexChunks).toBe(1);
    const effects = rig.report('a', { incarnation: 'a/2' as Incarnation, ackedSeq: -1 });
    expect(sentTo(effects, 'a')).toMatchObject([
      { kind: 'leases', seq: 0, open: [{ lease: 'r1.1', incarnation: 'a/1' }] },
    ]);
    expect(target(rig, 'a')).toMatchObject({ waitMs: 0, indexChunks: 0, leases: 1 });
    rig.end('r1.1', RESET);
    expect(target(rig, 'a').breaker).toBe('closed');
    expect(rig.core.leaseCount()).toBe(0);
  });
});

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
    expect(refusal?.retryAfterMs).toBe(60_000);
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
});

describe('an attempt that fails before its answer began', () => {
  const pair = (): CoreRig => {
    const rig = new CoreRig();
    rig.ready('a');
    rig.ready('b', { waitingPrefillMs: 40 });
    return rig;
  };

  test.each([
    ['no connection', CONNECT_FAILED, 'refused'],
    ['a reset', RESET, 'failed'],
    ['no first token in time', LATE, 'aborted'],
    ['back-pressure', BUSY, 'refused'],
  ] as const)('after %s is tried elsewhere, as a new lease', (_, result, outcome) => {
    const rig = pair();
    expect(attempt(rig.arrive()).replica).toBe('a');
    const effects = rig.end('r1.1', result);
    expect(attempt(effects)).toEqual({ lease: 'r1.2', replica: 'b' });
    expect(decisionIn(effects)).toBe('send/failover');
    expect(sentTo(effects, 'a')).toMatchObject([{ kind: 'ended', lease: 'r1.1', outcome }]);
    expect(rig.core.leaseCount()).toBe(1);
  });

  test.each([
    ['the client’s own error', { kind: 'clientError', status: 400 }, false],
    ['the client left', { kind: 'clientGone' }, false],
    ['data had been forwarded', RESET, true],
  ] as const)('is not tried again when %s', (_, result, committed) => {
    const rig = pair();
    rig.arrive();
    const effects = rig.end('r1.1', result, committed);
    expect(attemptsIn(effects)).toEqual([]);
    expect(refusalIn(effects)).toBeNull();
    expect(rig.core.status(rig.nowMs)).toMatchObject({ openRequests: 0, leases: 0 });
  });

  test('is refused with what the last one met when nobody is left, or the attempts are used up', () => {
    const rig = pair();
    rig.arrive();
    rig.end('r1.1', CONNECT_FAILED);
    expect(refusalIn(rig.end('r1.2', LATE))).toMatchObject({
      code: 'upstream_timeout',
      decision: { kind: 'refuse', reason: 'attempts_exhausted' },
    });
    const crowd = new CoreRig();
    for (const name of ['a', 'b', 'c', 'd', 'e']) crowd.ready(name);
    crowd.arrive();
    crowd.end('r1.1', RESET);
    crowd.end('r1.2', RESET);
    expect(refusalIn(crowd.end('r1.3', RESET))?.code).toBe('upstream_failed');
  });

  test('is refused when retries have used up their share of the traffic', () => {
    const rig = new CoreRig({ settings: { retryBudgetRatio: 0, retryBudgetMinPerS: 0 } });
    rig.ready('a');
    rig.ready('b');
    rig.arrive();
    const refusal = refusalIn(rig.end('r1.1', RESET));
    expect(refusal).toMatchObject({
      code: 'upstream_failed',
      decision: { reason: 'retry_budget' },
    });
  });

  test('takes its prompt back out of what the router expects in that cache', () => {
    const rig = pair();
    const prompts = [chainOf([1, 2, 3])];
    rig.arrive({ prompts });
    rig.end('r1.1', RESET);
    rig.end('r1.2', COMPLETE, true);
    expect(attempt(rig.arrive({ prompts })).replica).toBe('b');
  });

  test('waits for a paused replica, and does not ask it against its own Retry-After', () => {
    const rig = new CoreRig();
    rig.ready('a');
    rig.arrive();
    expect(decisionIn(rig.end('r1.1', BUSY))).toBe('queue/all_full');
    const passed: RouterEffect[] = [];
    for (let k = 0; k < 49; k += 1) {
      passed.push(...rig.pass(100));
      rig.report('a');
    }
    expect(attemptsIn(passed)).toEqual([]);
    expect(attempt(rig.pass(200)).lease).toBe('r1.2');
  });

  test('three in a row open the breaker of that replica, never of more than half the pool', () => {
    const rig = pair();
    for (let k = 0; k < 3; k += 1) {
      const first = attempt(rig.arrive());
      expect(first.replica).toBe('a');
      rig.end(first.lease, RESET);
      rig.end(`${first.lease.split('.')[0]}.2`, COMPLETE, true);
    }
    expect(target(rig, 'a').breaker).toBe('open');
    expect(attempt(rig.arrive()).replica).toBe('b');
  });
});

describe('a first token that is late', () => {
  test('is waited for once more when the replica gives others theirs, then no longer', () => {
    const rig = new CoreRig({ settings: { holdMs: 1e6 } });
    rig.ready('a');
    rig.arrive();
    rig.arrive();
    rig.firstToken('r2.1');
    rig.nowMs += 2_900;
    const late = { kind: 'firstTokenLate', lease: 'r1.1' } as never;
    expect(rig.handle(late)).toMatchObject([{ kind: 'extend', lease: 'r1.1', timeoutMs: 4_256 }]);
    expect(rig.handle(late)).toMatchObject([{ kind: 'abort', reason: 'first_token_timeout' }]);
    expect(rig.handle(late)).toEqual([]);
  });

  test('is given up at once when the replica is silent, or the client’s patience is over', () => {
    const rig = new CoreRig({ settings: { holdMs: 1e6 } });
    rig.ready('a');
    rig.arrive();
    const late = { kind: 'firstTokenLate', lease: 'r1.1' } as never;
    expect(rig.handle(late)).toMatchObject([{ kind: 'abort' }]);
    rig.arrive({ clientDeadlineMs: 1_000 });
    rig.arrive();
    rig.firstToken('r3.1');
    rig.nowMs += 1_000;
    expect(rig.handle({ kind: 'firstTokenLate', lease: 'r2.1' } as never)).toMatchObject([
      { kind: 'abort' },
    ]);
    const ended = rig.end('r2.1', LATE);
    expect(refusalIn(ended)).toMatchObject({ code: 'upstream_timeout' });
    expect(target(rig, 'a').breaker).toBe('closed');
  });
});

test('a client that leaves while its request is under way has it aborted, once', () => {
  const rig = new CoreRig();
  rig.ready('a');
  rig.arrive();
  const gone = { kind: 'clientGone', request: 'r1' } as never;
  expect(rig.handle(gone)).toEqual([{ kind: 'abort', lease: 'r1.1', reason: 'client_gone' }]);
  expect(rig.handle(gone)).toEqual([]);
  expect(rig.core.leaseCount()).toBe(1);
  rig.end('r1.1', { kind: 'clientGone' });
  expect(rig.core.status(rig.nowMs)).toMatchObject({ openRequests: 0, leases: 0 });
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
    expect(attempt(rig.report('a', { prefillCost: PLAIN_CURVE })).lease).toBe('r1.1');
  });
});
