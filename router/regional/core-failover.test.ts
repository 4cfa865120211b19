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
  refusalIn,
  sentTo,
  targetStatus,
} from './core.harness.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import type { RouterEffect } from './events.ts';

const CONNECT_FAILED: AttemptResult = { kind: 'connectFailed', detail: 'refused' };
const STALE: AttemptResult = { kind: 'staleConnection', detail: 'ECONNRESET' };
const RESET: AttemptResult = { kind: 'serverFault', cause: 'reset', detail: '' };
const LATE: AttemptResult = { kind: 'serverFault', cause: 'first_token_timeout', detail: '' };
const BUSY: AttemptResult = { kind: 'backPressure', status: 503, retryAfterMs: 5_000 };

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
    expect(attemptIn(rig.arrive()).replica).toBe('a');
    const effects = rig.end('r1.1', result);
    expect(attemptIn(effects)).toEqual({ lease: 'r1.2', replica: 'b' });
    expect(decisionIn(effects)).toBe('send/failover');
    expect(sentTo(effects, 'a')).toMatchObject([{ kind: 'ended', lease: 'r1.1', outcome }]);
    expect(rig.core.leaseCount()).toBe(1);
  });

  test('after a stale connection is tried where it was, which is no worse for it', () => {
    const rig = pair();
    expect(attemptIn(rig.arrive()).replica).toBe('a');
    const effects = rig.end('r1.1', STALE);
    expect(attemptIn(effects)).toEqual({ lease: 'r1.2', replica: 'a' });
    expect(sentTo(effects, 'a')).toMatchObject([{ kind: 'ended', outcome: 'refused' }, {}]);
    rig.end('r1.2', COMPLETE);
    for (let k = 2; k < 22; k += 1) {
      const { lease } = attemptIn(rig.arrive());
      const again = attemptIn(rig.end(lease, STALE));
      expect(again.replica).toBe('a');
      rig.end(again.lease, COMPLETE);
    }
    expect(targetStatus(rig, 'a').breaker).toBe('closed');
  });

  test('after a stale connection has all its attempts still, and the second such one is a failure', () => {
    const rig = pair();
    rig.ready('c', { waitingPrefillMs: 45 });
    rig.arrive();
    expect(attemptIn(rig.end('r1.1', STALE)).replica).toBe('a');
    const third = attemptIn(rig.end('r1.2', CONNECT_FAILED)).replica;
    const fourth = attemptIn(rig.end('r1.3', STALE)).replica;
    expect([third, fourth].toSorted()).toEqual(['b', 'c']);
    expect(refusalIn(rig.end('r1.4', CONNECT_FAILED))).toMatchObject({ code: 'upstream_failed' });
    expect(rig.core.status(rig.nowMs)).toMatchObject({ openRequests: 0, leases: 0 });
  });

  test('after two stale connections is tried elsewhere: there the new ones break too', () => {
    const rig = pair();
    rig.arrive();
    expect(attemptIn(rig.end('r1.1', STALE)).replica).toBe('a');
    expect(attemptIn(rig.end('r1.2', STALE)).replica).toBe('b');
  });

  test('is not tried again in a pool that the configuration has no more', () => {
    const rig = pair();
    rig.arrive();
    const other = { id: 'other' as PoolId, models: ['other'], aliases: {} };
    rig.handle({ kind: 'configured', config: configOf({ pools: [other] }) });
    const effects = rig.end('r1.1', RESET);
    expect(attemptsIn(effects)).toEqual([]);
    expect(refusalIn(effects)?.code).toBe('upstream_failed');
    expect(rig.core.leaseCount()).toBe(0);
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
    expect(attemptIn(rig.arrive({ prompts })).replica).toBe('b');
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
    expect(attemptIn(rig.pass(200)).lease).toBe('r1.2');
  });

  test('three in a row open the breaker of that replica, never of more than half the pool', () => {
    const rig = pair();
    for (let k = 0; k < 3; k += 1) {
      const first = attemptIn(rig.arrive());
      expect(first.replica).toBe('a');
      rig.end(first.lease, RESET);
      rig.end(`${first.lease.split('.')[0]}.2`, COMPLETE, true);
    }
    expect(targetStatus(rig, 'a').breaker).toBe('open');
    expect(attemptIn(rig.arrive()).replica).toBe('b');
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
    expect(targetStatus(rig, 'a').breaker).toBe('closed');
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
