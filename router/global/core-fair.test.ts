import { describe, expect, test } from 'vitest';
import type { LeaseId } from '../../shared/model/ids.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import type { GlobalAttempt, GlobalEffect } from './events.ts';
import {
  asia,
  attemptIn,
  attemptsIn,
  COMPLETE,
  type GlobalRig,
  tenantOf,
  turnsOf,
  type RigOptions,
} from './core.harness.ts';

const busy = (retryAfterMs: number): AttemptResult => ({
  ...{ kind: 'backPressure', status: 429, retryAfterMs },
});
const JAPAN = { t: tenantOf(['jp']), flood: tenantOf(['jp']), one: tenantOf(['jp']) };

/** Japan has just asked a request of tenant `t` for two seconds. */
function paused(settings: RigOptions['settings'] = {}): GlobalRig {
  const rig = asia({ tenants: JAPAN, settings });
  rig.end(attemptIn(rig.arrive()).lease, busy(2_000));
  return rig;
}

function flood(rig: GlobalRig, requests: number): GlobalEffect[] {
  return Array.from({ length: requests }, () => rig.arrive({ tenant: 'flood' })).flat();
}

/** Tenants in the order in which they are let out, so many of them, one by one. */
function letOut(rig: GlobalRig, requests: number): string[] {
  const order: string[] = [];
  let sent = attemptsIn(rig.pass(2_000));
  while (order.length < requests && sent.length > 0) {
    order.push(...sent.map(({ tenant }) => tenant));
    rig.pass(300);
    rig.report('jp', { readyReplicas: 60 });
    sent = sent.flatMap(({ lease }) => {
      const next = attemptsIn(rig.handle({ kind: 'firstToken', lease: lease as LeaseId }));
      rig.end(lease, COMPLETE, true);
      return next;
    });
  }
  return order.slice(0, requests);
}

const refusals = (effects: readonly GlobalEffect[]) =>
  effects.flatMap((effect) => (effect.kind === 'refuse' ? [effect] : []));
const queued = (rig: GlobalRig) => rig.core.status(rig.nowMs).queued.requests;

describe('tenants that wait for one region', () => {
  test('take turns: one of a few does not wait for the thousand that came before', () => {
    const rig = paused();
    flood(rig, 1_000);
    rig.arrive({ tenant: 'one' });
    rig.arrive({ tenant: 'one' });
    const order = letOut(rig, 7);
    expect(order.slice(0, 3).toSorted()).toEqual(['flood', 'one', 't']);
    expect(order.filter((tenant) => tenant === 'one')).toHaveLength(2);
  });

  test('take turns by work: of who sends prompts ten times as long, a tenth as many go', () => {
    const rig = paused({ queueMaxWaitMs: 60_000 });
    for (let n = 100; n < 140; n += 1) {
      rig.arrive({ tenant: 'flood', prompts: [turnsOf(n, 1, 40_000)] });
      rig.arrive({ tenant: 'one' });
    }
    const order = letOut(rig, 12);
    expect(order.filter((tenant) => tenant === 'one').length).toBeGreaterThanOrEqual(8);
    expect(order).toContain('flood');
  });

  test('go by priority first, whoever they are', () => {
    const rig = paused();
    rig.arrive({ tenant: 'one', priority: 1 });
    flood(rig, 20);
    expect(letOut(rig, 22).at(-1)).toBe('one');
  });

  test('wait for none whose deadline is not pressing yet, and let one go first that is lost otherwise', () => {
    const rig = paused();
    flood(rig, 5);
    rig.arrive({ tenant: 'flood', clientDeadlineMs: 2_400 });
    const [first] = attemptsIn(rig.pass(2_000));
    expect(first?.request).toBe('r7');
  });

  test('are not overtaken by who comes when the time is over', () => {
    const rig = paused();
    rig.nowMs += 2_000;
    const [sent] = attemptsIn(rig.arrive({ tenant: 'one' }));
    expect(sent?.request).toBe('r1');
    expect(rig.core.explain(rig.request(), rig.nowMs).kind).toBe('queue');
  });

  test('are each decided in their turn where policy changes while they wait', () => {
    const rig = paused();
    flood(rig, 10);
    rig.nowMs += 2_000;
    expect(attemptsIn(rig.configure({}))).toHaveLength(1);
    expect(queued(rig)).toBe(10);
  });
});

describe('a waiting place that is full', () => {
  test('takes one of another tenant in, in place of the last of who takes most', () => {
    const rig = paused({ queueMaxRequests: 10 });
    flood(rig, 9);
    const effects = rig.arrive({ tenant: 'one' });
    expect(refusals(effects)).toMatchObject([
      { request: 'r10', code: 'fleet_saturated', decision: { kind: 'shed', reason: 'queue_full' } },
    ]);
    expect(effects).toContainEqual({ kind: 'limit', limit: 'queue' });
    expect(effects.some((effect) => effect.kind === 'queued' && effect.request === 'r11')).toBe(
      true,
    );
    expect(queued(rig)).toBe(10);
  });

  test('refuses one more of who takes most', () => {
    const rig = paused({ queueMaxRequests: 10 });
    const effects = flood(rig, 30);
    expect(refusals(effects)).toHaveLength(21);
    expect(refusals(effects).map(({ request }) => request)).not.toContain('r2');
  });

  test('is bounded in bytes likewise', () => {
    const rig = paused({ queueMaxBytes: 1_000 });
    flood(rig, 9);
    const [refused] = refusals(rig.arrive({ tenant: 'one', bodyBytes: 400 }));
    expect(refused?.request).toBe('r10');
    expect(rig.core.status(rig.nowMs).queued.bytes).toBeLessThanOrEqual(1_000);
  });

  test('says when what waits for the region will have been served, not that there is room in a second', () => {
    const rig = paused({ queueMaxRequests: 100 });
    // A hundred of 125 ms before two replicas, once two seconds are over.
    const [first] = refusals(flood(rig, 100));
    expect(first?.retryAfterMs).toBeGreaterThanOrEqual(2_000 + 6_000);
    expect(first?.retryAfterMs).toBeLessThanOrEqual((2_000 + 6_250) * 1.25);
  });
});

test('what was let out and has ended leaves no trace in what its tenant owes once nobody waits', () => {
  const rig = paused();
  flood(rig, 3);
  expect(letOut(rig, 4)).toHaveLength(4);
  expect(queued(rig)).toBe(0);
  const [region] = rig.core.status(rig.nowMs).regions;
  expect(region?.pools[0]).toMatchObject({ held: 0 });
  const sent: GlobalAttempt[] = attemptsIn(rig.arrive({ tenant: 'flood' }));
  expect(sent).toHaveLength(1);
});
