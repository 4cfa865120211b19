import { describe, expect, test } from 'vitest';
import type { LinkId, RegionId } from '../../shared/model/ids.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import {
  asia,
  attemptIn,
  attemptsIn,
  COMPLETE,
  decisionIn,
  EU,
  JP,
  kindOf,
  poolReport,
  refusalIn,
  RESET,
  SG,
  tenantOf,
  turnsOf,
} from './core.harness.ts';

describe('an attempt that fails before the client has seen anything', () => {
  test('is made again in the next region, and the failed one is not asked again', () => {
    const rig = asia();
    const first = attemptIn(rig.arrive());
    const effects = rig.end(first.lease, RESET);
    expect(kindOf(effects)).toEqual(['send', 'failover', 'sg']);
    const third = rig.end(attemptIn(effects).lease, { kind: 'connectFailed', detail: '' });
    expect(kindOf(third)).toEqual(['send', 'failover', 'eu']);
    expect(attemptIn(third).lease).toBe(`${first.request}.3`);
    const last = rig.end(attemptIn(third).lease, RESET);
    expect(refusalIn(last)).toMatchObject({ code: 'upstream_failed' });
    expect(rig.core.status(0).openRequests).toBe(0);
  });

  test('stays within the list of its tenant', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    const effects = rig.end(attemptIn(rig.arrive()).lease, RESET);
    expect(refusalIn(effects)).toMatchObject({ code: 'upstream_failed' });
  });

  test('ends with the request where something was seen, or the request was at fault', () => {
    const rig = asia();
    expect(rig.end(attemptIn(rig.arrive()).lease, RESET, true)).toEqual([]);
    expect(rig.end(attemptIn(rig.arrive()).lease, { kind: 'clientError', status: 400 })).toEqual(
      [],
    );
    expect(rig.core.status(0).openRequests).toBe(0);
  });

  test('is made good for all that a region takes along when it dies, whatever the budget', () => {
    const rig = asia({ settings: { retryBudgetRatio: 0, retryBudgetMinPerS: 0.2 } });
    const open = Array.from({ length: 50 }, () => attemptIn(rig.arrive()));
    expect(new Set(open.map(({ region }) => region))).toEqual(new Set(['jp']));
    const ends = open.map(({ lease }) => kindOf(rig.end(lease, RESET)));
    expect(new Set(ends.map(String))).toEqual(new Set(['send,failover,sg']));
    // Singapore is sound: what fails there now and then is charged.
    expect(refusalIn(rig.end(attemptIn(rig.arrive()).lease, RESET))?.decision?.reason).toBe(
      'retry_budget',
    );
  });

  test('opens the breaker of a region that fails again and again; a good probe closes it', () => {
    const rig = asia();
    for (let n = 0; n < 3; n += 1) rig.end(attemptIn(rig.arrive()).lease, RESET);
    expect(attemptIn(rig.arrive()).region).toBe('sg');
    const result = { kind: 'good', ttftMs: 100, buffered: false } as const;
    rig.handle({ kind: 'probed', region: 'jp' as RegionId, result });
    expect(attemptIn(rig.arrive()).region).toBe('jp');
  });

  test('of the only region that its tenant has is tried all the same', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    for (let n = 0; n < 5; n += 1) rig.end(attemptIn(rig.arrive()).lease, RESET);
    expect(attemptIn(rig.arrive()).region).toBe('jp');
  });
});

describe('a region that asks for time', () => {
  const busy = (retryAfterMs: number): AttemptResult => ({
    ...{ kind: 'backPressure', status: 429, retryAfterMs },
  });

  test('gets nothing until then; what waits for it is sent when the time is over, one first', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    const queued = rig.end(attemptIn(rig.arrive()).lease, busy(2_000));
    expect(kindOf(queued)).toEqual(['queue', 'all_paused', null]);
    expect(kindOf(rig.arrive())).toEqual(['queue', 'all_paused', null]);
    expect(attemptsIn(rig.pass(1_900))).toEqual([]);
    const [first, ...more] = attemptsIn(rig.pass(100));
    expect(more).toEqual([]);
    expect(
      attemptsIn(rig.handle({ kind: 'firstToken', lease: first?.lease as never })),
    ).toHaveLength(1);
  });

  test('is not waited for longer than the queue or the client allows', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    const refused = refusalIn(rig.end(attemptIn(rig.arrive()).lease, busy(30_000)));
    expect(refused).toMatchObject({ code: 'fleet_saturated', decision: { kind: 'shed' } });
    expect(refused?.retryAfterMs).toBeGreaterThanOrEqual(30_000);
    expect(refusalIn(rig.arrive({ clientDeadlineMs: 5_000 }))).toMatchObject({
      decision: { reason: 'deadline_unreachable' },
    });
  });

  test('does not send its load to a neighbour that gave no credit', () => {
    const rig = asia();
    const queued = rig.end(attemptIn(rig.arrive()).lease, busy(2_000));
    expect(kindOf(queued)).toEqual(['queue', 'all_paused', null]);
  });

  test('gets no spill either, whatever credit it gave', () => {
    const rig = asia({ settings: { spillIntervalMs: 10_000 } });
    const regions = new Set<string>();
    for (let n = 0; n < 100; n += 1) {
      rig.pass(200);
      if (n % 5 === 0) {
        rig.report('jp', { waitingPrefillMs: 4_000 });
        for (const region of ['sg', 'eu']) {
          rig.report(region);
          rig.grant(region, 1_000);
        }
      }
      const attempt = attemptIn(rig.arrive());
      // Singapore asks for time whenever it is asked for anything.
      if (attempt.region === 'sg') {
        expect(regions.has('sg')).toBe(false);
        regions.add('sg');
        const again = rig.end(attempt.lease, busy(60_000));
        for (const each of attemptsIn(again)) rig.end(each.lease, COMPLETE);
      } else {
        regions.add(attempt.region);
        rig.end(attempt.lease, COMPLETE);
      }
    }
    expect(regions).toEqual(new Set(['jp', 'sg', 'eu']));
  });

  test('is asked for what is more urgent than what it refused', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    rig.end(attemptIn(rig.arrive({ priority: 5 })).lease, busy(2_000));
    expect(kindOf(rig.arrive())).toEqual(['send', 'only_region', 'jp']);
  });

  test('is not paused for the haste of one client', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    rig.end(attemptIn(rig.arrive({ clientDeadlineMs: 400 })).lease, busy(2_000));
    expect(kindOf(rig.arrive())).toEqual(['send', 'only_region', 'jp']);
  });

  test('is not asked again at once for a client in haste, which waits as long or is told so', () => {
    const rig = asia();
    const patient = rig.end(attemptIn(rig.arrive({ clientDeadlineMs: 9_000 })).lease, busy(2_000));
    expect(kindOf(patient)).toEqual(['queue', 'all_paused', null]);
    expect(attemptsIn(rig.pass(1_900))).toEqual([]);
    expect(attemptsIn(rig.pass(100))).toHaveLength(1);
    const hasty = rig.end(attemptIn(rig.arrive({ clientDeadlineMs: 1_000 })).lease, busy(2_000));
    expect(refusalIn(hasty)).toMatchObject({
      ...{ code: 'fleet_saturated', decision: { reason: 'deadline_unreachable' } },
    });
    expect(refusalIn(hasty)?.retryAfterMs).toBeGreaterThanOrEqual(2_000);
  });

  test('has its share of new conversations served on credit elsewhere, while the others wait', () => {
    const rig = asia({ settings: { spillIntervalMs: 2_000 } });
    for (let n = 0; n < 40; n += 1) {
      rig.pass(500);
      rig.report('jp', { waitingPrefillMs: 4_000 });
      rig.report('sg');
      rig.grant('sg', 1_000);
    }
    expect(rig.core.status(rig.nowMs).regions[0]?.pools[0]?.spill.share).toBe(0.5);
    rig.end(attemptIn(rig.arrive()).lease, busy(8_000));
    const kinds = Array.from({ length: 40 }, () => {
      rig.grant('sg', 1_000);
      return decisionIn(rig.arrive())?.kind;
    });
    const count = (kind: string): number => kinds.filter((each) => each === kind).length;
    expect([count('spill'), count('queue')]).toEqual([20, 20]);
  });

  test.each([
    ['list of prompts', { prompts: [turnsOf(1, 1), turnsOf(2, 1)] }],
    ['input to embed', { work: 'prefill' as const }],
  ])('sends no %s to a neighbour that gave no credit', (_, more) => {
    const rig = asia();
    rig.end(attemptIn(rig.arrive()).lease, busy(2_000));
    expect(kindOf(rig.arrive(more))).toEqual(['queue', 'all_paused', null]);
  });

  test('has what takes no engine done by the next nearest', () => {
    const rig = asia({ regions: [JP, EU, SG] });
    rig.end(attemptIn(rig.arrive()).lease, busy(2_000));
    expect(kindOf(rig.arrive({ work: 'light', prompts: [] }))).toEqual(['send', 'home', 'sg']);
  });
});

describe('a breaker that lets one request through', () => {
  /** Japan has failed three times and is asked again by one request. */
  const trial = () => {
    const rig = asia({ tenants: { t: tenantOf(null) } });
    for (let n = 0; n < 3; n += 1) rig.end(attemptIn(rig.arrive()).lease, RESET);
    rig.pass(5_100);
    for (const region of ['jp', 'sg', 'eu']) rig.report(region);
    const open = attemptIn(rig.arrive());
    expect(open.region).toBe('jp');
    expect(attemptIn(rig.arrive()).region).toBe('sg');
    return { rig, open };
  };

  test('lets the others through when that one has its first token, not when its stream has ended', () => {
    const { rig, open } = trial();
    rig.handle({ kind: 'firstToken', lease: open.lease });
    expect(attemptIn(rig.arrive()).region).toBe('jp');
  });

  test('lets another through where that one was called back', () => {
    const { rig, open } = trial();
    rig.configure({ tenants: new Map([['t', tenantOf(['sg'])]]) });
    rig.end(open.lease, { kind: 'serverFault', cause: 'abort', detail: '' });
    rig.configure({ tenants: new Map([['t', tenantOf(null)]]) });
    expect(attemptIn(rig.arrive()).region).toBe('jp');
  });
});

describe('a region whose breaker has opened again and again', () => {
  /** Japan fails three requests, then two that try it. */
  const failing = (reports: boolean) => {
    const rig = asia();
    for (let n = 0; n < 3; n += 1) rig.end(attemptIn(rig.arrive()).lease, RESET);
    for (const afterMs of [5_100, 10_100]) {
      rig.pass(afterMs);
      for (const region of ['jp', 'sg', 'eu']) rig.report(region);
      const trial = attemptIn(rig.arrive());
      expect(trial.region).toBe('jp');
      rig.end(trial.lease, RESET);
    }
    // Its next time would be in 20 s.
    for (let n = 0; n < 5; n += 1) {
      rig.pass(1_010);
      for (const region of ['sg', 'eu', ...(reports ? ['jp'] : [])]) rig.report(region);
    }
    return rig;
  };

  test('is tried by one request as often as after the first time while its reports come', () => {
    expect(attemptIn(failing(false).arrive()).region).toBe('sg');
    const rig = failing(true);
    const trial = attemptIn(rig.arrive());
    expect([trial.region, attemptIn(rig.arrive()).region]).toEqual(['jp', 'sg']);
    rig.handle({ kind: 'firstToken', lease: trial.lease });
    expect(attemptIn(rig.arrive()).region).toBe('jp');
  });

  test('is tried at once, by one request, when a link comes where none was', () => {
    const rig = failing(false);
    rig.handle({ kind: 'regionDown', link: 'jp' as never });
    rig.up('jp');
    rig.report('jp');
    expect([attemptIn(rig.arrive()).region, attemptIn(rig.arrive()).region]).toEqual(['jp', 'sg']);
  });
});

describe('a region whose routers leave', () => {
  const leaves = (rig: ReturnType<typeof asia>, link: string, seq = 1): void => {
    const report = { kind: 'report', seq, pools: [poolReport()], routers: 2 } as const;
    rig.say(link, { ...report, draining: true, arrived: [] });
  };

  test('gets nothing new when all of them do, and no credit is asked of it; one of two is no reason', () => {
    const rig = asia();
    rig.up('jp', 'jp2');
    rig.report('jp2');
    leaves(rig, 'jp');
    expect(attemptIn(rig.arrive()).region).toBe('jp');
    leaves(rig, 'jp2');
    expect(attemptIn(rig.arrive()).region).toBe('sg');
    rig.handle({ kind: 'regionDown', link: 'jp' as LinkId });
    expect(attemptIn(rig.arrive()).region).toBe('sg');
    rig.up('jp', 'jp3');
    rig.report('jp3');
    expect(attemptIn(rig.arrive()).region).toBe('jp');
    const asked = new Set<string>();
    for (let n = 1; n <= 4; n += 1) {
      rig.report('jp3', { waitingPrefillMs: 8_000 });
      rig.report('eu');
      leaves(rig, 'sg', n);
      for (const effect of [...rig.arrive(), ...rig.pass(1_000)])
        if (effect.kind === 'send' && effect.message.kind === 'demand') asked.add(effect.link);
    }
    expect([...asked]).toEqual(['eu']);
  });

  test('is not waited for where its tenant has no other', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    leaves(rig, 'jp');
    expect(refusalIn(rig.arrive())).toMatchObject({ code: 'no_healthy_region' });
  });
});

describe('a region without a ready replica', () => {
  const LOADING = {
    ...{ readyReplicas: 0, waitingPrefillMs: null, pending: [{ replicas: 1, etaMs: 60_000 }] },
  };

  test('gets nothing while another may serve, however near it is and whatever loads there', () => {
    const rig = asia();
    rig.report('jp', LOADING);
    expect(kindOf(rig.arrive())).toEqual(['send', 'home', 'sg']);
    const bound = asia({ tenants: { t: tenantOf(['jp'], ['sg']) } });
    bound.report('jp', LOADING);
    expect(kindOf(bound.arrive())).toEqual(['send', 'only_region', 'sg']);
  });

  test('is waited for where no other may serve and something loads there', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    rig.report('jp', LOADING);
    expect(kindOf(rig.arrive())).toEqual(['send', 'only_region', 'jp']);
    rig.report('jp', { ...LOADING, pending: [] });
    expect(refusalIn(rig.arrive())).toMatchObject({ code: 'no_healthy_region' });
  });
});

describe('a region that claims what cannot be', () => {
  test('keeps nobody waiting for ever', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    rig.pass(3_000);
    rig.report('jp', { waitingPrefillMs: 1e18 });
    expect(attemptIn(rig.arrive()).firstTokenTimeoutMs).toBeLessThan(600_000);
  });

  test('is believed again within half a minute', () => {
    const rig = asia();
    rig.pass(3_000);
    rig.report('jp', { waitingPrefillMs: 1e18 });
    for (let n = 0; n < 30; n += 1) {
      rig.pass(1_000);
      rig.report('jp');
    }
    expect(rig.core.status(rig.nowMs).regions[0]?.pools[0]?.queueMs).toBeLessThan(150);
  });
});

describe('a region that is cut off', () => {
  test('is used for the grace after its last report, then seen by nobody', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    rig.handle({ kind: 'regionDown', link: 'jp' as never });
    rig.pass(10_000);
    expect(attemptIn(rig.arrive()).region).toBe('jp');
    rig.pass(1);
    expect(refusalIn(rig.arrive())).toMatchObject({ code: 'no_healthy_region' });
  });

  test('is dead at once where it refuses connections too, until a link or a probe says otherwise', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    const refused: AttemptResult = { kind: 'connectFailed', detail: '' };
    rig.end(attemptIn(rig.arrive()).lease, refused);
    expect(attemptIn(rig.arrive()).region).toBe('jp');
    rig.handle({ kind: 'regionDown', link: 'jp' as never });
    const open = attemptIn(rig.arrive());
    expect(refusalIn(rig.end(open.lease, refused))).toMatchObject({ code: 'upstream_failed' });
    const next = refusalIn(rig.arrive());
    expect(next).toMatchObject({ code: 'no_healthy_region' });
    expect(next?.retryAfterMs).toBeGreaterThanOrEqual(2_000);
    const result = { kind: 'good', ttftMs: 50, buffered: null } as const;
    rig.handle({ kind: 'probed', region: 'jp' as RegionId, result });
    expect(attemptIn(rig.arrive()).region).toBe('jp');
  });

  test('that answers probes while it is full is seen as full', () => {
    const rig = asia();
    const result = { kind: 'good', ttftMs: 20, buffered: false } as const;
    for (let n = 0; n < 60; n += 1) {
      rig.pass(1_000);
      rig.report('jp', { waitingPrefillMs: 3_000 });
      rig.report('sg');
      rig.grant('sg', 1_000);
      rig.handle({ kind: 'probed', region: 'jp' as RegionId, result });
    }
    const [jp] = rig.core.status(rig.nowMs).regions;
    expect(jp?.pools[0]?.queueMs).toBeCloseTo(1_500);
    expect(jp?.pools[0]?.spill.share).toBeGreaterThan(0.05);
  });

  test('that gives nobody a first token any more is left alone after three, and its requests go elsewhere', () => {
    const rig = asia();
    for (let n = 0; n < 3; n += 1) {
      const slow = attemptIn(rig.arrive());
      expect(slow.region).toBe('jp');
      rig.pass(slow.firstTokenTimeoutMs);
      for (const region of ['jp', 'sg', 'eu']) rig.report(region);
      expect(rig.handle({ kind: 'firstTokenLate', lease: slow.lease })).toContainEqual({
        ...{ kind: 'abort', lease: slow.lease, reason: 'first_token_timeout' },
      });
      const late = { kind: 'serverFault', cause: 'first_token_timeout', detail: '' } as const;
      const again = attemptIn(rig.end(slow.lease, late));
      expect(again.region).toBe('sg');
      rig.end(again.lease, COMPLETE);
    }
    expect(attemptIn(rig.arrive()).region).toBe('sg');
  });

  test('that dies and comes back between two probes is back with the next good one, users or none', () => {
    const rig = asia();
    const result = { kind: 'good', ttftMs: 20, buffered: false } as const;
    const probe = () => rig.handle({ kind: 'probed', region: 'jp' as RegionId, result });
    const breaker = () => rig.core.status(rig.nowMs).regions[0]?.breaker;
    probe();
    for (let n = 0; n < 3; n += 1) rig.end(attemptIn(rig.arrive()).lease, RESET);
    rig.handle({ kind: 'regionDown', link: 'jp' as never });
    expect(breaker()).toBe('open');
    rig.up('jp');
    probe();
    expect(breaker()).toBe('closed');
  });

  test('that answers probes while its users starve is left alone all the same, until one of them is served', () => {
    const rig = asia();
    const probe = (kind: 'good' | 'busy'): void => {
      const result = kind === 'good' ? { kind, ttftMs: 20, buffered: false } : { kind };
      rig.handle({ kind: 'probed', region: 'jp' as RegionId, result });
    };
    const fault = { kind: 'serverFault', cause: 'first_token_timeout', detail: '' } as const;
    const breaker = () => rig.core.status(rig.nowMs).regions[0]?.breaker;
    const pass = (): void => {
      rig.pass(1_000);
      for (const region of ['jp', 'sg', 'eu']) rig.report(region);
    };
    probe('good');
    for (const between of ['good', 'busy', 'good'] as const) {
      const starved = attemptIn(rig.arrive());
      expect(starved.region).toBe('jp');
      probe(between);
      rig.end(attemptIn(rig.end(starved.lease, fault)).lease, COMPLETE);
      pass();
    }
    expect(breaker()).toBe('open');
    for (let n = 0; n < 4; n += 1) {
      probe('good');
      expect(attemptIn(rig.arrive()).region).toBe('sg');
      pass();
    }
    // One of them tries, the others stay away meanwhile.
    expect(breaker()).toBe('half_open');
    const trial = attemptIn(rig.arrive());
    expect([trial.region, attemptIn(rig.arrive()).region]).toEqual(['jp', 'sg']);
    probe('good');
    expect(attemptIn(rig.arrive()).region).toBe('sg');
    rig.end(trial.lease, COMPLETE);
    expect(breaker()).toBe('closed');
    expect(attemptIn(rig.arrive()).region).toBe('jp');
  });

  test('spills where its pool is full at 60 ms of waiting and 900 ms are queued in its routers', () => {
    const rig = asia();
    const kinds = new Set<string | undefined>();
    for (let n = 0; n < 60; n += 1) {
      rig.pass(1_000);
      rig.report('jp', { waitingPrefillMs: 120, queuedPrefillMs: 1_800 });
      rig.report('sg');
      rig.grant('sg', 1_000);
      for (let k = 0; k < 5; k += 1) {
        const effects = rig.arrive();
        kinds.add(decisionIn(effects)?.kind);
        rig.end(attemptIn(effects).lease, COMPLETE);
      }
    }
    expect(rig.core.status(rig.nowMs).regions[0]?.pools[0]?.queueMs).toBeCloseTo(960);
    expect(kinds).toEqual(new Set(['send', 'spill']));
  });

  test('keeps its controller over a reconnect, and grows no share while it is not seen', () => {
    const rig = asia();
    const share = (): number => rig.core.status(rig.nowMs).regions[0]?.pools[0]?.spill.share ?? -1;
    const hold = (seconds: number, isSeen: boolean): void => {
      for (let n = 0; n < seconds; n += 1) {
        rig.pass(1_000);
        if (isSeen) rig.report('jp', { waitingPrefillMs: 2_000 });
        rig.report('sg');
        rig.grant('sg', 1_000);
      }
    };
    hold(30, true);
    const before = share();
    expect(before).toBeGreaterThan(0.03);
    rig.handle({ kind: 'regionDown', link: 'jp' as never });
    hold(9, false);
    expect(share()).toBeLessThan(before + 0.01);
    rig.up('jp');
    hold(1, true);
    expect(share()).toBeGreaterThanOrEqual(before);
    rig.handle({ kind: 'regionDown', link: 'jp' as never });
    hold(200, false);
    expect(share()).toBe(0);
  });
});

test('an answer that is late is waited for while its region gives others theirs', () => {
  const rig = asia();
  const [slow, quick] = [attemptIn(rig.arrive()), attemptIn(rig.arrive())];
  rig.pass(11_000);
  rig.handle({ kind: 'firstToken', lease: quick.lease });
  const late = rig.handle({ kind: 'firstTokenLate', lease: slow.lease });
  expect(late).toContainEqual({ kind: 'extend', lease: slow.lease, timeoutMs: 5_000 });
  rig.pass(6_000);
  expect(rig.handle({ kind: 'firstTokenLate', lease: slow.lease })).toContainEqual({
    ...{ kind: 'abort', lease: slow.lease, reason: 'first_token_timeout' },
  });
});
