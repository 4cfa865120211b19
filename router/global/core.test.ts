import { describe, expect, test } from 'vitest';
import type { LinkId, PoolId, RegionId, RouterId } from '../../shared/model/ids.ts';
import {
  asia,
  attemptIn,
  COMPLETE,
  EU,
  GlobalRig,
  JP,
  kindOf,
  poolReport,
  refusalIn,
  SG,
  tenantOf,
  turnsOf,
  type RigOptions,
} from './core.harness.ts';

describe('a new conversation', () => {
  test('goes home, the eligible region with the least round trip', () => {
    const rig = asia({ tenants: { t: tenantOf(null), e: tenantOf(['eu']) } });
    expect(kindOf(rig.arrive())).toEqual(['send', 'home', 'jp']);
    expect(kindOf(rig.arrive({ tenant: 'e' }))).toEqual(['send', 'only_region', 'eu']);
  });

  test('stays with one of two regions that are as near, however their round trips waver', () => {
    const rig = new GlobalRig({ regions: [JP, SG] });
    rig.join('jp', 10);
    rig.join('sg', 10.5);
    for (let n = 0; n < 200; n += 1) {
      rig.pass(1_000);
      for (const region of ['jp', 'sg'] as RegionId[]) {
        rig.report(region);
        rig.handle({ kind: 'rtt', region, rttMs: 10 + ((n * 7 + region.length) % 13) / 10 });
      }
      rig.handle({ kind: 'rtt', region: (n < 100 ? 'jp' : 'sg') as RegionId, rttMs: 9.9 });
      expect(attemptIn(rig.arrive()).region).toBe('jp');
    }
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

  test('costs the price of its region too, by the thousand tokens that are expected', () => {
    const rig = asia({ regions: [JP, { ...SG, costMs: 50 }, EU] });
    const [, sg] = rig.core.explain(rig.request({ maxTokens: 100 }), rig.nowMs).candidates;
    expect(sg).toMatchObject({ costMs: 55, ttftMs: 60 + 125 + 55 });
  });

  test('waits as long as new conversations do for KV room', () => {
    const rig = asia();
    rig.pass(60_000);
    rig.report('jp', { kvRoomWaitMs: 900 });
    const [jp] = rig.core.explain(rig.request(), rig.nowMs).candidates;
    expect(jp?.queueMs).toBeCloseTo(900);
  });

  test('is not told by a report that comes again, or from before', () => {
    const rig = asia();
    rig.report('jp', { waitingPrefillMs: 2_000 });
    rig.pass(60_000);
    const pools = [poolReport({ waitingPrefillMs: 1e6 })];
    for (const seq of [0, 1]) {
      const report = { kind: 'report', seq, pools, routers: 1, draining: false } as const;
      expect(rig.say('jp', { ...report, arrived: [] })).toContainEqual({
        ...{ kind: 'limit', limit: 'report_order' },
      });
    }
    expect(rig.core.status(rig.nowMs).regions[0]?.pools[0]?.reportAgoMs).toBe(60_000);
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

  test.each([
    ['much', Number.MAX_SAFE_INTEGER, 2_000],
    ['little', 1, 125 / 16],
  ])(
    'takes a prompt for so long at most and at least, where an engine has read as %s of one',
    (_, promptTokens, prefillMs) => {
      const rig = asia();
      const usage = { promptTokens, completionTokens: 0, cachedTokens: null };
      for (let n = 0; n < 200; n += 1) {
        rig.end(attemptIn(rig.arrive()).lease, { kind: 'complete', usage });
      }
      const [jp] = rig.core.explain(rig.request(), rig.nowMs).candidates;
      expect(jp?.prefillMs).toBeCloseTo(prefillMs, 0);
    },
  );

  test('costs little more where one engine says that it has written without end', () => {
    const rig = asia({ regions: [{ ...JP, costMs: 100 }, SG, EU] });
    const costMs = () =>
      rig.core.explain(rig.request({ maxTokens: null }), rig.nowMs).candidates[0]?.costMs ?? 0;
    const before = costMs();
    const usage = { promptTokens: 1_000, completionTokens: 2 ** 53 - 1, cachedTokens: null };
    rig.end(attemptIn(rig.arrive()).lease, { kind: 'complete', usage });
    expect(costMs()).toBeLessThan(before + 200);
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

  test('spends nothing that a router gave whose link is gone: it could not be told', () => {
    const { rig } = hot(1_000);
    rig.grant('sg', 1_000);
    const credit = () => rig.core.status(rig.nowMs).regions[1]?.pools[0]?.spill.creditMs;
    expect(credit()).toBeGreaterThan(0);
    rig.handle({ kind: 'regionDown', link: 'sg' as LinkId });
    expect(credit()).toBeLessThanOrEqual(0);
    const regions = Array.from({ length: 20 }, () => attemptIn(rig.arrive()).region);
    expect(new Set(regions)).toEqual(new Set(['jp']));
  });

  test('lets none go to a receiver that has not reported for three seconds, whatever credit is left', () => {
    const { rig } = hot(1_000);
    const regions = new Set<string>();
    rig.grant('sg', 1_000, 60_000);
    for (let n = 0; n < 100; n += 1) {
      rig.pass(100);
      rig.report('jp', { waitingPrefillMs: 4_000 });
      const attempt = attemptIn(rig.arrive());
      if (n > 30) regions.add(attempt.region);
      rig.end(attempt.lease, COMPLETE);
    }
    expect(rig.core.status(rig.nowMs).regions[1]?.pools[0]?.spill.creditMs).toBeGreaterThan(0);
    expect(regions).toEqual(new Set(['jp']));
  });

  test('lets a tenant that may only be served at home stay there', () => {
    const { regions } = hot(1_000, { tenants: { t: tenantOf(['jp']) } });
    expect(new Set(regions)).toEqual(new Set(['jp']));
  });

  test.each([
    [290, true],
    [301, false],
  ])('opens further with the receiver at %d ms of queue: %s', (queueMs, grows) => {
    const rig = asia({ settings: { spillIntervalMs: 10_000 } });
    for (let n = 0; n < 60; n += 1) {
      rig.pass(1_000);
      rig.report('jp', { waitingPrefillMs: 4_000 });
      rig.report('sg', { waitingPrefillMs: 2 * queueMs });
      if (n > 30) rig.grant('sg', 1_000);
    }
    const share = rig.core.status(rig.nowMs).regions[0]?.pools[0]?.spill.share ?? -1;
    expect(share > 0).toBe(grows);
  });

  test('asks each router of a receiver for its part', () => {
    const wanted = (routers: number): number => {
      const rig = asia();
      for (let k = 1; k < routers; k += 1) rig.up('sg', `sg/${k}`);
      const asked = new Map<string, number>();
      for (let n = 0; n < 30; n += 1) {
        const effects = rig.pass(200);
        const sent = rig.arrive();
        effects.push(...rig.end(attemptIn(sent).lease, COMPLETE));
        effects.push(...rig.report('jp', { waitingPrefillMs: 4_000 }), ...rig.report('sg'));
        for (let k = 1; k < routers; k += 1) effects.push(...rig.report(`sg/${k}`));
        for (const effect of effects) {
          if (effect.kind !== 'send' || effect.message.kind !== 'demand') continue;
          if (effect.link.startsWith('sg')) asked.set(effect.link, effect.message.wantsMs);
        }
      }
      expect(asked.size).toBe(routers);
      return [...asked.values()].reduce((sum, each) => sum + each, 0);
    };
    expect(wanted(4) / wanted(1)).toBeCloseTo(1, 0);
  });

  test('asks nothing of a region that is kept for failover', () => {
    const rig = asia({ regions: [JP, { ...SG, rollout: 'failover' }, EU] });
    const asked = new Set<string>();
    for (let n = 0; n < 50; n += 1) {
      const effects = rig.pass(200);
      for (const region of ['jp', 'sg', 'eu'])
        rig.report(region, { waitingPrefillMs: region === 'jp' ? 4_000 : 0 });
      rig.end(attemptIn(rig.arrive()).lease, COMPLETE);
      for (const effect of effects) {
        if (effect.kind === 'send' && effect.message.kind === 'demand') asked.add(effect.link);
      }
    }
    expect(asked).toEqual(new Set(['eu']));
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

describe('a router of a region', () => {
  test('that comes back before its old link is missed is counted once', () => {
    const rig = asia();
    rig.report('jp', { queuedPrefillMs: 600 });
    const hello = rig.hello('jp', { routerId: 'jp' as RouterId });
    rig.handle({ ...{ kind: 'regionUp', link: 'new' as LinkId, region: 'jp' as RegionId }, hello });
    for (let n = 0; n < 9; n += 1) {
      rig.pass(1_000);
      rig.report('new', { queuedPrefillMs: 600 });
    }
    expect(rig.core.status(rig.nowMs).regions[0]?.pools[0]?.queueMs).toBeLessThan(301);
  });

  test('may name new pools for ever: those that nobody names any more make room', () => {
    const rig = asia();
    for (let n = 0; n < 300; n += 1) rig.report('jp', { pool: `old-${n}` as PoolId });
    const models = [{ name: 'x', revision: 'unknown', maxModelLen: null }];
    rig.report('jp', { pool: 'new' as PoolId, models });
    expect(kindOf(rig.arrive({ model: 'x' }))).toEqual(['send', 'only_region', 'jp']);
    expect(rig.core.status(rig.nowMs).regions[0]?.pools).toHaveLength(256);
  });

  test('that names more pools at once than are kept is told of by a limit', () => {
    const rig = asia();
    const pools = Array.from({ length: 256 }, (_, n) => poolReport({ pool: `p${n}` as PoolId }));
    rig.up('jp', 'jp/2');
    const report = { kind: 'report', seq: 0, pools, routers: 2, draining: false } as const;
    expect(rig.say('jp/2', { ...report, arrived: [] })).toContainEqual({
      ...{ kind: 'limit', limit: 'region_pools' },
    });
  });

  test('takes back nothing that a router of another region has said under the same name', () => {
    const rig = asia();
    rig.up('sg', 'r');
    const away = (key: string) => [{ key, tokens: 2_000, idleMs: 0, awayForMs: 0 }];
    rig.say('r', { kind: 'away', snapshot: true, here: away('t/7@4000'), gone: [] });
    const hello = rig.hello('eu', { routerId: 'r' as RouterId });
    rig.handle({ ...{ kind: 'regionUp', link: 'e' as LinkId, region: 'eu' as RegionId }, hello });
    rig.say('e', { kind: 'away', snapshot: true, here: [], gone: [] });
    expect(attemptIn(rig.arrive({ prompts: [turnsOf(7, 2)] })).region).toBe('sg');
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

  test('is charged to nobody: neither to the request nor to the region', () => {
    const rig = asia({ tenants: { t: tenantOf(null) }, settings: { maxAttempts: 1 } });
    const fault = { kind: 'serverFault', cause: 'no_longer_allowed', detail: '' } as const;
    for (let n = 0; n < 5; n += 1) {
      const first = attemptIn(rig.arrive());
      rig.configure({ tenants: new Map([['t', tenantOf(['eu'])]]) });
      const second = attemptIn(rig.end(first.lease, fault));
      expect([first.region, second.region]).toEqual(['jp', 'eu']);
      rig.end(second.lease, COMPLETE);
      rig.configure({ tenants: new Map([['t', tenantOf(null)]]) });
    }
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

  test.each([
    [
      'no region is left to its tenant',
      [['t', tenantOf(['mars'])]],
      'residency',
      'residency_violation',
    ],
    ['its tenant is gone', [['u', tenantOf(null)]], 'residency', 'residency_violation'],
    [
      'its model is gone',
      [['t', tenantOf(null, [], { models: ['x'] })]],
      'model_not_allowed',
      'model_not_found',
    ],
  ] as const)(
    'refuses what waits or is called back by its name where %s',
    (_, entries, reason, code) => {
      const rig = asia({ tenants: { t: tenantOf(['jp']) } });
      const called = attemptIn(rig.arrive());
      const waits = attemptIn(rig.arrive());
      rig.end(waits.lease, { ...{ kind: 'backPressure', status: 503, retryAfterMs: 5_000 } });
      const refused = refusalIn(rig.configure({ tenants: new Map(entries) }));
      expect(refused).toMatchObject({ request: waits.request, code, decision: { reason } });
      const fault = { kind: 'serverFault', cause: 'no_longer_allowed', detail: '' } as const;
      expect(refusalIn(rig.end(called.lease, fault))).toMatchObject({ code, decision: { reason } });
    },
  );

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

test('a region that is linked is told how often to report when that changes, and not otherwise', () => {
  const rig = asia();
  const told = (effects: ReturnType<GlobalRig['arrive']>) =>
    effects.flatMap((effect) =>
      effect.kind === 'send' && effect.message.kind === 'welcome'
        ? [[effect.link, effect.message.reportIntervalMs]]
        : [],
    );
  const { settings } = rig.config;
  expect(told(rig.configure({ settings: { ...settings, spillStartMs: 300 } }))).toEqual([]);
  const often = { ...settings, reportIntervalMs: 250 };
  expect(told(rig.configure({ settings: often }))).toEqual([
    ...[
      ['jp', 250],
      ['sg', 250],
      ['eu', 250],
    ],
  ]);
  expect(told(rig.configure({ settings: often, tenants: new Map() }))).toEqual([]);
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
    expect(refused?.message).not.toContain('sg');
  });

  test('of a model is no certainty while a region has not heard what its replicas serve', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    rig.report('jp', { models: [], readyReplicas: 0, observedAgoMs: null });
    expect(kindOf(rig.arrive())).toEqual(['refuse', 'no_region', null]);
    rig.report('jp', { models: [{ name: 'x', revision: 'unknown', maxModelLen: null }] });
    // Others have it, this tenant's region does not.
    expect(refusalIn(rig.arrive())).toMatchObject({ code: 'model_not_available_in_region' });
  });

  test('of a model says that it is not there to a request that was called back, too', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    rig.report('eu', { models: [{ name: 'x', revision: 'unknown', maxModelLen: null }] });
    const called = attemptIn(rig.arrive());
    rig.configure({ tenants: new Map([['t', tenantOf(['eu'])]]) });
    const fault = { kind: 'serverFault', cause: 'no_longer_allowed', detail: '' } as const;
    const refused = refusalIn(rig.end(called.lease, fault));
    expect(refused).toMatchObject({ code: 'model_not_available_in_region' });
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
