import { describe, expect, test } from 'vitest';
import type { RegionId } from '../../shared/model/ids.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import {
  attemptIn,
  attemptsIn,
  COMPLETE,
  decisionIn,
  GlobalRig,
  refusalIn,
  regionOf,
  RESET,
  tenantOf,
  turnsOf,
  type RigOptions,
} from './core.harness.ts';

const EU = regionOf('eu', { zone: 'eu' });
const JP = regionOf('jp', { zone: 'asia' });
const SG = regionOf('sg', { zone: 'asia' });

/** Three regions as seen from Japan. */
function asia(options: RigOptions = {}): GlobalRig {
  const rig = new GlobalRig({ regions: [JP, SG, EU], ...options });
  rig.join('jp', 15);
  rig.join('sg', 60);
  rig.join('eu', 220);
  return rig;
}

function kindOf(effects: Parameters<typeof decisionIn>[0]) {
  const decision = decisionIn(effects);
  return decision === null ? null : [decision.kind, decision.reason, decision.region];
}

describe('a new conversation', () => {
  test('goes home, the eligible region with the least round trip', () => {
    const rig = asia({ tenants: { t: tenantOf(null), e: tenantOf(['eu']) } });
    expect(kindOf(rig.arrive())).toEqual(['send', 'home', 'jp']);
    expect(kindOf(rig.arrive({ tenant: 'e' }))).toEqual(['send', 'only_region', 'eu']);
  });

  test('stays home however much cheaper abroad looks, while the gate is closed', () => {
    const rig = asia();
    for (let n = 0; n < 20; n += 1) {
      rig.pass(100);
      rig.report('jp', { waitingPrefillMs: 780 });
      rig.report('sg');
      rig.grant('sg', 1_000);
      expect(kindOf(rig.arrive())).toEqual(['send', 'home', 'jp']);
    }
  });

  test('costs what the documents say: 1,415 ms at a hot home, 640 at a neighbour', () => {
    const rig = asia();
    rig.nowMs = 60_000;
    for (let n = 0; n < 60; n += 1) {
      rig.pass(1_000);
      rig.report('jp', { readyReplicas: 60, waitingPrefillMs: 54_000 });
      rig.report('sg', { readyReplicas: 60, waitingPrefillMs: 4_800 });
    }
    const decision = rig.core.explain(rig.request({ prompts: [turnsOf(0, 1, 16_000)] }), rig.nowMs);
    const [jp, sg, eu] = decision.candidates;
    expect(eu?.removed).toBe('unseen');
    expect(jp).toMatchObject({ region: 'jp', home: true, networkMs: 15, prefillMs: 500 });
    expect(jp?.queueMs).toBeCloseTo(900);
    expect(jp?.ttftMs).toBeCloseTo(1_415);
    expect(sg?.ttftMs).toBeCloseTo(640);
  });

  test('shows a cold connection as three round trips', () => {
    const rig = asia();
    rig.handle({ kind: 'warmth', region: 'sg' as RegionId, warm: false });
    const [, sg] = rig.core.explain(rig.request(), 0).candidates;
    expect(sg?.networkMs).toBe(180);
  });

  test('counts what this router has sent and no report includes', () => {
    const rig = asia();
    const sent = attemptIn(rig.arrive());
    const queue = () => rig.core.explain(rig.request(), rig.nowMs).candidates[0]?.queueMs;
    // 1,000 tokens at 8,000 a second over two replicas.
    expect(queue()).toBeCloseTo(62.5);
    rig.report('jp', {}, [sent.seq]);
    expect(queue()).toBe(0);
    rig.arrive();
    expect(queue()).toBeCloseTo(62.5);
    rig.pass(10_000);
    expect(rig.core.status(rig.nowMs).regions[0]?.unacknowledged).toBe(0);
  });
});

describe('a gate that is open', () => {
  /** Japan is hot, Singapore gives credit; five minutes of it. */
  function hot(creditMs: number, more: RigOptions = {}): { rig: GlobalRig; regions: string[] } {
    const rig = asia({ settings: { spillIntervalMs: 10_000 }, ...more });
    const regions: string[] = [];
    for (let n = 0; n < 300; n += 1) {
      rig.pass(200);
      if (n % 5 === 0) {
        rig.report('jp', { waitingPrefillMs: 4_000 });
        rig.report('sg');
        rig.report('eu');
        if (creditMs > 0) rig.grant('sg', creditMs);
      }
      const attempt = attemptIn(rig.arrive());
      regions.push(attempt.region);
      rig.end(attempt.lease, COMPLETE);
    }
    return { rig, regions };
  }

  test('lets new conversations go to receivers with credit, and nowhere else', () => {
    const { rig, regions } = hot(1_000);
    expect(new Set(regions)).toEqual(new Set(['jp', 'sg']));
    const abroad = regions.filter((region) => region === 'sg').length;
    expect(abroad).toBeGreaterThan(20);
    expect(abroad).toBeLessThanOrEqual(150);
    const [jp, sg] = rig.core.status(rig.nowMs).regions;
    expect(jp?.pools[0]?.spill).toMatchObject({ share: 0.5, out: abroad });
    expect(sg?.pools[0]?.spill.in).toBe(abroad);
  });

  test('lets none go where nobody gives credit', () => {
    expect(new Set(hot(0).regions)).toEqual(new Set(['jp']));
  });

  test('spends no more than the credit and one request', () => {
    const { regions } = hot(50);
    // 60 grants of 50 ms; a request is 125 ms.
    expect(regions.filter((region) => region === 'sg').length).toBeLessThanOrEqual(60 / 2.5 + 1);
  });

  test('lets a tenant that may only be served at home stay there', () => {
    const { regions } = hot(1_000, { tenants: { t: tenantOf(['jp']) } });
    expect(new Set(regions)).toEqual(new Set(['jp']));
  });

  test('states what it wants and what it has spent, and says so when it wants nothing more', () => {
    const rig = asia({ settings: { spillIntervalMs: 10_000, spillDwellMs: 1_000 } });
    const demands: unknown[] = [];
    for (let n = 0; n < 200; n += 1) {
      const effects = rig.pass(200);
      const sent = rig.arrive();
      effects.push(...sent, ...rig.end(attemptIn(sent).lease, COMPLETE));
      const isHot = n < 50;
      if (n % 5 === 0) {
        effects.push(...rig.report('jp', { waitingPrefillMs: isHot ? 4_000 : 0 }));
        effects.push(...rig.report('sg'));
      }
      for (const effect of effects) {
        if (effect.kind === 'send' && effect.message.kind === 'demand') {
          expect(effect.link).not.toBe('jp');
          if (effect.link === 'sg') demands.push(effect.message.wantsMs);
        }
      }
    }
    expect(demands.length).toBeGreaterThan(3);
    expect(demands[0]).toBeGreaterThanOrEqual(125);
    expect(demands.at(-1)).toBe(0);
  });
});

describe('a conversation', () => {
  test('goes on where it lives, also where that is not home any more', () => {
    const rig = asia();
    const first = attemptIn(rig.arrive({ prompts: [turnsOf(7, 1)] }));
    expect(first).toMatchObject({ region: 'jp', conversation: 't/7@4000', away: false });
    rig.end(first.lease, COMPLETE);
    rig.handle({ kind: 'rtt', region: 'sg' as RegionId, rttMs: 5 });
    expect(attemptIn(rig.arrive()).region).toBe('sg');
    const next = rig.arrive({ prompts: [turnsOf(7, 2)] });
    expect(kindOf(next)).toEqual(['send', 'affinity', 'jp']);
    expect(attemptIn(next)).toMatchObject({ away: true, predictedCachedTokens: 1_010 });
  });

  test('is found where a region says that it lives away from home, by a router that never saw it', () => {
    const rig = asia();
    const here = [{ key: 't/7@8000', tokens: 2_000, idleMs: 0, awayForMs: 5_000 }];
    rig.say('sg', { kind: 'away', snapshot: true, here, gone: [] });
    const effects = rig.arrive({ prompts: [turnsOf(7, 3)] });
    expect(kindOf(effects)).toEqual(['send', 'affinity', 'sg']);
    expect(attemptIn(effects)).toMatchObject({ away: true, awayForMs: 5_000 });
    rig.say('sg', { kind: 'away', snapshot: false, here: [], gone: ['t/7@8000'] });
    expect(kindOf(rig.arrive({ prompts: [turnsOf(7, 3)] }))).toEqual(['send', 'home', 'jp']);
  });

  test('that nobody knows lives at home, and does not pass the gate', () => {
    const rig = asia();
    expect(kindOf(rig.arrive({ prompts: [turnsOf(9, 4)] }))).toEqual(['send', 'home', 'jp']);
  });

  test('is forgotten where its region is none of the tenant any more', () => {
    const rig = asia({ tenants: { t: tenantOf(null) } });
    const first = attemptIn(rig.arrive({ prompts: [turnsOf(7, 1)] }));
    rig.end(first.lease, COMPLETE);
    rig.configure({ tenants: new Map([['t', tenantOf(['eu'])]]) });
    const next = rig.arrive({ prompts: [turnsOf(7, 2)] });
    expect(kindOf(next)).toEqual(['send', 'only_region', 'eu']);
  });

  test('of another tenant is another one', () => {
    const rig = asia({ tenants: { t: tenantOf(null), u: tenantOf(null) } });
    const here = [{ key: 't/7@4000', tokens: 2_000, idleMs: 0, awayForMs: 0 }];
    rig.say('sg', { kind: 'away', snapshot: true, here, gone: [] });
    expect(attemptIn(rig.arrive({ tenant: 'u', prompts: [turnsOf(7, 2)] })).region).toBe('jp');
    expect(attemptIn(rig.arrive({ tenant: 't', prompts: [turnsOf(7, 2)] })).region).toBe('sg');
  });

  test('that shares only a system prompt with others is a new one', () => {
    const rig = asia();
    const shared = turnsOf(7, 1);
    rig.end(attemptIn(rig.arrive({ prompts: [shared] })).lease, COMPLETE);
    rig.handle({ kind: 'rtt', region: 'sg' as RegionId, rttMs: 5 });
    expect(kindOf(rig.arrive({ prompts: [shared] }))).toEqual(['send', 'home', 'sg']);
  });

  test('given as examples, as their usage shows, counts as new', () => {
    const rig = asia();
    const usage = { promptTokens: 3_000, cachedTokens: 0, completionTokens: 10 };
    for (let n = 0; n < 60; n += 1) {
      const attempt = attemptIn(rig.arrive({ prompts: [turnsOf(1_000 + n, 3)] }));
      rig.end(attempt.lease, { kind: 'complete', usage });
    }
    expect(attemptIn(rig.arrive({ prompts: [turnsOf(5, 3)] })).predictedCachedTokens).toBe(0);
  });

  describe('moves for load', () => {
    /** It lives in Japan; `queues` are the reports of its queue, ms of each of two replicas. */
    function lives(queues: readonly number[], creditMs = 10_000): GlobalRig {
      const rig = asia({ settings: { spillIntervalMs: 1_000, smoothingHalfLifeMs: 1 } });
      rig.end(attemptIn(rig.arrive({ prompts: [turnsOf(7, 1)] })).lease, COMPLETE);
      for (const queue of queues) {
        rig.pass(1_000);
        rig.report('sg');
        rig.report('jp', { waitingPrefillMs: 2 * queue });
        if (creditMs > 0) rig.grant('sg', creditMs);
      }
      // The share has had its time to grow: accounts fill with each that could go.
      return rig;
    }
    const next = (rig: GlobalRig): unknown => {
      let effects: ReturnType<GlobalRig['arrive']> = [];
      for (let n = 0; n < 12; n += 1) {
        effects = rig.arrive({ prompts: [turnsOf(7, 2)] });
        if (decisionIn(effects)?.reason === 'moved') break;
      }
      return kindOf(effects);
    };

    test('where staying costs more by twice the start threshold in two reports', () => {
      expect(next(lives([600, 1_500, 1_500, 1_500]))).toEqual(['spill', 'moved', 'sg']);
    });

    test('never for one report alone', () => {
      expect(next(lives([600, 600, 600, 1_500]))).toEqual(['send', 'affinity', 'jp']);
    });

    test('never without credit', () => {
      expect(next(lives([600, 1_500, 1_500, 1_500], 0))).toEqual(['send', 'affinity', 'jp']);
    });

    test('never for less', () => {
      expect(next(lives([600, 700, 700, 700]))).toEqual(['send', 'affinity', 'jp']);
    });
  });
});

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

  test('gets nothing until then; what waits for it is sent when the time is over', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    const queued = rig.end(attemptIn(rig.arrive()).lease, busy(2_000));
    expect(kindOf(queued)).toEqual(['queue', 'all_paused', null]);
    expect(kindOf(rig.arrive())).toEqual(['queue', 'all_paused', null]);
    expect(attemptsIn(rig.pass(1_900))).toEqual([]);
    expect(attemptsIn(rig.pass(100))).toHaveLength(2);
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

describe('several routers of a region', () => {
  test('say the same of replicas, of which the freshest counts, and their own, which is summed', () => {
    const rig = asia();
    rig.up('jp', 'jp/2');
    for (let n = 0; n < 30; n += 1) {
      rig.report('jp', { observedAgoMs: 100, waitingPrefillMs: 500, queuedPrefillMs: 300 });
      rig.report('jp/2', { observedAgoMs: 400, waitingPrefillMs: 900, queuedPrefillMs: 100 });
      rig.pass(1_000);
    }
    const [jp] = rig.core.status(rig.nowMs).regions;
    expect(jp?.links).toHaveLength(2);
    expect(jp?.pools[0]?.queueMs).toBeCloseTo((500 + 400) / 2, 0);
  });

  test('leave one by one: what one had queued goes with it', () => {
    const rig = asia();
    rig.up('jp', 'jp/2');
    rig.report('jp/2', { queuedPrefillMs: 5_000 });
    rig.handle({ kind: 'regionDown', link: 'jp/2' as never });
    for (let n = 0; n < 30; n += 1) {
      rig.pass(1_000);
      rig.report('jp');
    }
    expect(rig.core.status(rig.nowMs).regions[0]?.pools[0]?.queueMs).toBeCloseTo(0, 0);
  });
});

describe('who a region is', () => {
  test('is what its credential says: another name closes the link', () => {
    const rig = new GlobalRig();
    const hello = rig.hello('far');
    const effects = rig.handle({
      ...{ kind: 'regionUp', link: 'l' as never, region: 'near' as RegionId, hello },
    });
    expect(effects).toContainEqual({ kind: 'close', link: 'l', reason: 'unauthorized' });
    expect(rig.core.status(0).regions.every(({ links }) => links.length === 0)).toBe(true);
  });

  test('is told in the welcome, with the zone of this router', () => {
    const rig = new GlobalRig();
    const [welcome] = rig.up('near').filter(({ kind }) => kind === 'send');
    expect(welcome).toMatchObject({ message: { kind: 'welcome', region: 'near', zone: null } });
  });
});

describe('a change of policy', () => {
  test('calls back what is open in a region that is not allowed any more, and places it anew', () => {
    const rig = asia({ tenants: { t: tenantOf(null) } });
    const first = attemptIn(rig.arrive());
    const tenants = new Map([['t', tenantOf(['eu'])]]);
    const effects = rig.configure({ tenants });
    expect(effects).toContainEqual({
      ...{ kind: 'abort', lease: first.lease, reason: 'no_longer_allowed' },
    });
    const fault = { kind: 'serverFault', cause: 'no_longer_allowed', detail: '' } as const;
    expect(kindOf(rig.end(first.lease, fault))).toEqual(['send', 'failover', 'eu']);
  });

  test('leaves a stream alone that has begun', () => {
    const rig = asia({ tenants: { t: tenantOf(null) } });
    const first = attemptIn(rig.arrive());
    rig.handle({ kind: 'firstToken', lease: first.lease });
    const effects = rig.configure({ tenants: new Map([['t', tenantOf(['eu'])]]) });
    expect(effects.filter(({ kind }) => kind === 'abort')).toEqual([]);
  });

  test('acts on what waits', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    rig.end(attemptIn(rig.arrive()).lease, {
      ...{ kind: 'backPressure', status: 503, retryAfterMs: 5_000 },
    });
    const effects = rig.configure({ tenants: new Map([['t', tenantOf(['eu'])]]) });
    expect(kindOf(effects)).toEqual(['send', 'failover', 'eu']);
  });

  test('takes a region out at once by its rollout', () => {
    const rig = asia();
    rig.configure({ regions: [{ ...JP, rollout: 'off' }, SG, EU] });
    expect(attemptIn(rig.arrive()).region).toBe('sg');
    rig.configure({ regions: [JP, { ...SG, rollout: 'failover' }, EU] });
    expect(attemptIn(rig.arrive()).region).toBe('jp');
    rig.configure({ regions: [{ ...JP, rollout: 'off' }, { ...SG, rollout: 'failover' }, EU] });
    expect(attemptIn(rig.arrive()).region).toBe('eu');
    const down = [JP, SG, EU].map((each) => ({ ...each, rollout: 'off' as const }));
    rig.configure({
      regions: [...down.slice(0, 1), { ...SG, rollout: 'failover' }, ...down.slice(2)],
    });
    expect(attemptIn(rig.arrive()).region).toBe('sg');
  });
});

describe('a refusal', () => {
  test.each([
    ['no region of the tenant is configured', tenantOf(['mars']), 'm', 'residency_violation'],
    ['the tenant may be served nowhere', tenantOf([]), 'm', 'residency_violation'],
    ['nobody has the model', tenantOf(null), 'x', 'model_not_found'],
    ['the tenant may not use it', tenantOf(null, [], { models: ['y'] }), 'm', 'model_not_found'],
  ])('says so where %s', (_, tenant, model, code) => {
    const rig = asia({ tenants: { t: tenant } });
    expect(refusalIn(rig.arrive({ model }))).toMatchObject({ code });
  });

  test('of a model that others have names no region', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    rig.report('sg', { models: [{ name: 'x', revision: 'unknown', maxModelLen: null }] });
    const refused = refusalIn(rig.arrive({ model: 'x' }));
    expect(refused).toMatchObject({ code: 'model_not_available_in_region' });
    expect(JSON.stringify(refused)).not.toContain('sg');
  });

  test('meets a tenant that is none of ours', () => {
    const rig = asia({ tenants: { u: tenantOf(null) } });
    expect(refusalIn(rig.arrive())).toMatchObject({ code: 'residency_violation' });
  });
});

test('what a region is told names the zones of a bound tenant', () => {
  const rig = asia({ tenants: { t: tenantOf(['jp', 'sg']), u: tenantOf(null) } });
  expect(attemptIn(rig.arrive()).zones).toEqual(['asia']);
  expect(attemptIn(rig.arrive({ tenant: 'u' })).zones).toBeNull();
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
