import { describe, expect, test } from 'vitest';
import { UPLINK_DEFAULTS, type UplinkSettings } from '../../shared/model/global-settings.ts';
import type { LinkId, PoolId, RegionId, RouterId } from '../../shared/model/ids.ts';
import type {
  AwayMessage,
  RegionChildMessage,
  RegionPoolReport,
  RegionReportMessage,
  RegionWelcome,
} from '../../shared/protocol/region-messages.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import type { TierFacts } from '../policy/request-events.ts';
import { attemptIn, chainOf, CoreRig, COMPLETE } from './core.harness.ts';
import type { RouterEffect } from './events.ts';

const REGION = 'tokyo' as RegionId;
const POOL = 'pool' as PoolId;
const WALL_MS = 1_700_000_000_000;
const BUSY: AttemptResult = { kind: 'backPressure', status: 503, retryAfterMs: 60_000 };

/** `models`: configured ones of its pool. */
function rigOf(settings: Partial<UplinkSettings> = {}, models?: readonly string[]): CoreRig {
  return new CoreRig({
    uplink: { region: REGION, settings: { ...UPLINK_DEFAULTS, ...settings } },
    ...(models === undefined ? {} : { pools: [{ id: 'pool' as PoolId, models, aliases: {} }] }),
  });
}

function welcomeOf(more: Partial<RegionWelcome> = {}): RegionWelcome {
  return {
    kind: 'welcome',
    protocol: 1,
    features: [],
    routerId: 'g1' as RouterId,
    software: 'test',
    region: REGION,
    zone: null,
    reportIntervalMs: 1_000,
    wallMs: WALL_MS,
    ...more,
  };
}

/** A global router that has welcomed the region. */
function welcomed(rig: CoreRig, name = 'g1', more: Partial<RegionWelcome> = {}): RouterEffect[] {
  const link = name as LinkId;
  rig.handle({ kind: 'globalUp', link });
  const message = welcomeOf({ routerId: name as RouterId, ...more });
  return rig.handle({ kind: 'globalMessage', link, message });
}

/** These, and what comes within the least time between two reports. */
function soonAfter(rig: CoreRig, effects: RouterEffect[]): RouterEffect[] {
  return [...effects, ...rig.pass(250)];
}

function toldTo(effects: readonly RouterEffect[], link = 'g1'): RegionChildMessage[] {
  return effects.flatMap((effect) =>
    effect.kind === 'sendGlobal' && effect.link === link ? [effect.message] : [],
  );
}

function reportsIn(effects: readonly RouterEffect[], link = 'g1'): RegionReportMessage[] {
  return toldTo(effects, link).filter((message) => message.kind === 'report');
}

function awayIn(effects: readonly RouterEffect[], link = 'g1'): AwayMessage[] {
  return toldTo(effects, link).filter((message) => message.kind === 'away');
}

function grantsIn(effects: readonly RouterEffect[], link = 'g1'): number {
  return toldTo(effects, link).reduce(
    (sum, message) => sum + (message.kind === 'grant' ? message.prefillMs : 0),
    0,
  );
}

function demand(rig: CoreRig, wantsMs: number, link = 'g1'): RouterEffect[] {
  return rig.handle({
    kind: 'globalMessage',
    link: link as LinkId,
    message: { kind: 'demand', pool: POOL, wantsMs, requestMs: 100, spentMs: 0 },
  });
}

/** What the next regular report says of the pool. */
function poolNow(rig: CoreRig): RegionPoolReport {
  const report = reportsIn(rig.pass(1_250)).at(-1);
  if (report?.pools[0] === undefined) throw new Error('no report');
  return report.pools[0];
}

const tierFacts = (more: Partial<TierFacts> = {}): TierFacts => ({
  from: 'g1' as RouterId,
  seq: 1,
  conversation: 'key-1',
  away: true,
  awayForMs: 0,
  zones: null,
  ...more,
});

/** A turn that a global router sent here, served. */
function turn(rig: CoreRig, tier: TierFacts): RouterEffect[] {
  const { lease } = attemptIn(rig.arrive({ tier }));
  rig.firstToken(lease);
  return rig.end(lease, COMPLETE, true);
}

describe('a link to a global router', () => {
  test('reports as often as it is told anew, and says nothing else for that', () => {
    const rig = rigOf();
    welcomed(rig);
    const reports = (seconds: number): number =>
      Array.from({ length: 4 * seconds }, () => reportsIn(rig.pass(250)).length).reduce(
        (sum, each) => sum + each,
        0,
      );
    reports(2);
    expect(reports(10)).toBe(10);
    const again = rig.handle({
      ...{ kind: 'globalMessage', link: 'g1' as LinkId },
      message: welcomeOf({ routerId: 'g1' as RouterId, reportIntervalMs: 5_000 }),
    });
    expect(again.filter(({ kind }) => kind === 'log' || kind === 'sendGlobal')).toEqual([]);
    reports(5);
    expect(reports(20)).toBe(4);
  });

  test('begins with a hello, and reports follow the welcome', () => {
    const rig = rigOf();
    rig.ready('a');
    const effects = rig.handle({ kind: 'globalUp', link: 'g1' as LinkId });
    expect(toldTo(effects)).toEqual([
      {
        kind: 'hello',
        protocol: [1, 1],
        features: [],
        routerId: 'router-1',
        software: 'test',
        region: REGION,
        wallMs: WALL_MS,
      },
    ]);
    expect(toldTo(rig.pass(5_000))).toEqual([]);
    const [first] = reportsIn(welcomed(rig, 'g1'));
    expect(first).toMatchObject({ seq: 0, routers: 1, draining: false, arrived: [] });
    expect(first?.pools).toHaveLength(1);
  });

  test('is closed where the global router knows the region by another name', () => {
    const rig = rigOf();
    const effects = welcomed(rig, 'g1', { region: 'osaka' as RegionId });
    expect(effects).toContainEqual({ kind: 'closeGlobal', link: 'g1', reason: 'unauthorized' });
    expect(reportsIn([...effects, ...rig.pass(5_000)])).toEqual([]);
  });

  test('is closed where the region reports to nobody', () => {
    const rig = new CoreRig();
    expect(rig.handle({ kind: 'globalUp', link: 'g1' as LinkId })).toEqual([
      { kind: 'closeGlobal', link: 'g1', reason: 'shutting_down' },
    ]);
  });

  test('alarms where clocks are more than 5 s apart', () => {
    const alarms = (offsetMs: number): number =>
      welcomed(rigOf(), 'g1', { wallMs: WALL_MS + offsetMs }).filter(
        (effect) => effect.kind === 'log' && effect.code === 'clock_offset',
      ).length;
    expect([4_900, 5_100, -5_100].map(alarms)).toEqual([0, 1, 1]);
  });
});

describe('reports', () => {
  test('come once an interval where nothing changes, numbered by link', () => {
    const rig = rigOf();
    rig.ready('a');
    welcomed(rig);
    const reports = reportsIn(rig.pass(10_000));
    expect(reports.map(({ seq }) => seq)).toEqual(Array.from({ length: 10 }, (_, k) => k + 1));
    rig.handle({ kind: 'globalDown', link: 'g1' as LinkId });
    expect(reportsIn(soonAfter(rig, welcomed(rig))).map(({ seq }) => seq)).toEqual([0]);
  });

  test('come sooner when a queue doubles or halves, but never two within 250 ms', () => {
    const rig = rigOf();
    rig.ready('a', { waitingPrefillMs: 100 });
    welcomed(rig);
    const times: number[] = [];
    for (let k = 0; k < 100; k += 1) {
      rig.report('a', { waitingPrefillMs: 100 * 4 ** (1 + (k % 2)) });
      if (reportsIn(rig.pass(50)).length > 0) times.push(rig.nowMs);
    }
    const gaps = times.slice(1).map((at, k) => at - (times[k] ?? 0));
    expect(times.length).toBeGreaterThan(10);
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(250);
  });

  test('come sooner when a replica becomes ready or leaves, and when the router drains', () => {
    const rig = rigOf();
    rig.ready('a');
    rig.link('b');
    rig.report('b', { phase: 'warming' });
    welcomed(rig);
    rig.pass(1_000);
    const soon = (event: () => void): RegionReportMessage | undefined => {
      event();
      return reportsIn(rig.pass(250))[0];
    };
    expect(soon(() => undefined)).toBeUndefined();
    expect(soon(() => rig.report('b'))?.pools[0]?.readyReplicas).toBe(2);
    expect(soon(() => rig.report('b', { phase: 'draining' }))?.pools[0]?.readyReplicas).toBe(1);
    expect(soon(() => rig.handle({ kind: 'drain' }))?.draining).toBe(true);
  });

  test('go to every global router, each in its own numbers', () => {
    const rig = rigOf();
    rig.ready('a');
    welcomed(rig, 'g1');
    rig.pass(3_000);
    welcomed(rig, 'g2');
    const effects = rig.pass(1_000);
    expect(reportsIn(effects, 'g2').at(-1)?.seq).toBeLessThan(
      reportsIn(effects, 'g1').at(-1)?.seq ?? 0,
    );
  });

  test('cost a region without global routers nothing: no wake is due for them', () => {
    const rig = rigOf();
    const before = rig.core.nextWakeMs();
    welcomed(rig);
    expect(rig.core.nextWakeMs()).toBe(rig.nowMs + 250);
    rig.handle({ kind: 'globalDown', link: 'g1' as LinkId });
    expect(rig.core.nextWakeMs()).toBe(before);
  });
});

describe('what a report says of a pool', () => {
  test('is unknown, not zero, where nothing has reported', () => {
    const rig = rigOf();
    welcomed(rig);
    expect(poolNow(rig)).toMatchObject({
      observedAgoMs: null,
      readyReplicas: 0,
      waitingPrefillMs: null,
      prefillCost: null,
      kvUsageRatio: null,
      kvLifetimeMs: null,
      queuedRequests: 0,
      oldestQueuedMs: null,
      pending: [],
    });
  });

  test('counts ready replicas alone: loading and cordoned ones are capacity on its way, or none', () => {
    const rig = rigOf();
    rig.ready('a', { waitingPrefillMs: 300 });
    rig.ready('b', { waitingPrefillMs: 500 });
    rig.link('c');
    rig.report('c', { phase: 'loading', etaMs: 30_000, waitingPrefillMs: 9_000 });
    rig.link('d');
    rig.report('d', { phase: 'loading', etaMs: 30_000 });
    rig.link('e');
    rig.report('e', { phase: 'draining', waitingPrefillMs: 9_000 });
    const [report] = reportsIn(welcomed(rig));
    expect(report?.pools[0]).toMatchObject({
      readyReplicas: 2,
      waitingPrefillMs: 800,
      pending: [{ replicas: 2, etaMs: 30_000 }],
    });
  });

  test('counts replicas that all ask for time: a queue is no loss of capacity', () => {
    const rig = rigOf();
    rig.ready('a');
    rig.ready('b');
    const { lease } = attemptIn(rig.arrive());
    const second = attemptIn(rig.end(lease, BUSY));
    welcomed(rig);
    expect(poolNow(rig).readyReplicas).toBe(1);
    rig.end(second.lease, BUSY);
    expect(poolNow(rig).readyReplicas).toBe(2);
    demand(rig, 10_000);
    expect(grantsIn(rig.pass(1_250))).toBe(0);
  });

  test('lets those that do not tell what waits be as those that do', () => {
    const rig = rigOf();
    rig.ready('a', { waitingPrefillMs: 300 });
    rig.ready('b', { waitingPrefillMs: null, waitingPrefillTokens: null });
    const [report] = reportsIn(welcomed(rig));
    expect(report?.pools[0]).toMatchObject({ readyReplicas: 2, waitingPrefillMs: 600 });
  });

  test('sums what can be summed and takes the least or the middle of what cannot', () => {
    const rig = rigOf();
    const figures = { prefillTps: 8_000, preemptionsPerMin: 30, waitingPrefillTokens: 100 };
    rig.ready('a', { ...figures, slotWaitMs: 40, kvUsageRatio: 0.2 });
    rig.ready('b', { ...figures, slotWaitMs: 10, kvUsageRatio: 0.4 });
    rig.ready('c', { ...figures, slotWaitMs: null, kvUsageRatio: 0.9 });
    const [report] = reportsIn(welcomed(rig));
    expect(report?.pools[0]).toMatchObject({
      prefillTps: 24_000,
      preemptionsPerS: 1.5,
      waitingPrefillTokens: 300,
      slotWaitMs: 10,
      kvUsageRatio: 0.4,
    });
  });

  test('names each model with every revision that runs, the context that all of them take, and the longest', () => {
    const rig = rigOf();
    const models = (maxModelLen: number) => [{ id: 'm', maxModelLen, loras: [] }];
    rig.ready('a', { revision: 'r1', models: models(8_192) });
    rig.ready('b', { revision: 'r1', models: models(4_096) });
    rig.ready('c', { revision: 'r2', models: models(16_384) });
    const [report] = reportsIn(welcomed(rig));
    expect(report?.pools[0]?.models).toEqual([
      {
        ...{ name: 'm', revision: 'r1', maxModelLen: 4_096 },
        ...{ longestModelLen: 8_192, bytesPerTokenMost: 5 },
      },
      {
        ...{ name: 'm', revision: 'r2', maxModelLen: 16_384 },
        ...{ longestModelLen: 16_384, bytesPerTokenMost: 5 },
      },
    ]);
  });

  test('says nothing of the longest context, or of bytes, where a replica does not', () => {
    const rig = rigOf();
    rig.ready('a', { models: [{ id: 'm', maxModelLen: 8_192, loras: [] }] });
    rig.ready('b', { models: [{ id: 'm', maxModelLen: null, loras: [] }], bytesPerToken: null });
    const [report] = reportsIn(welcomed(rig));
    expect(report?.pools[0]?.models).toMatchObject([
      { maxModelLen: null, longestModelLen: null, bytesPerTokenMost: null },
    ]);
  });

  test('names them as soon as the first agent has told them', () => {
    const rig = rigOf({}, []);
    const [before] = reportsIn(welcomed(rig));
    expect(before?.pools[0]?.models).toEqual([]);
    rig.ready('a', { models: [{ id: 'm', maxModelLen: null, loras: [] }] });
    const [after] = reportsIn(rig.pass(1_000));
    expect(after?.pools[0]?.models.map(({ name }) => name)).toEqual(['m']);
  });

  test('names the models that are configured before any agent has told them', () => {
    const rig = rigOf({}, ['m', 'n']);
    const [before] = reportsIn(welcomed(rig));
    const row = { revision: 'unknown', maxModelLen: null };
    expect(before?.pools[0]?.models).toEqual([
      { name: 'm', ...row },
      { name: 'n', ...row },
    ]);
    rig.ready('a', { revision: 'r1', models: [{ id: 'm', maxModelLen: null, loras: [] }] });
    const [after] = reportsIn(rig.pass(1_000));
    expect(after?.pools[0]?.models).toMatchObject([
      { name: 'm', revision: 'r1', maxModelLen: null },
    ]);
  });

  test('shows a queue that the router holds back, while its replicas are hardly waiting', () => {
    const rig = rigOf();
    // As full as a replica may be: nothing more is sent there.
    rig.ready('a', { waitingPrefillMs: 60, runningMax: 1, running: 1 });
    for (let k = 0; k < 6; k += 1) rig.arrive({ prompts: [chainOf([k, 2, 3, 4])] });
    const [report] = reportsIn(welcomed(rig));
    expect(report?.pools[0]).toMatchObject({ queuedRequests: 6, waitingPrefillMs: 60 });
    expect(report?.pools[0]?.queuedPrefillMs).toBeGreaterThan(1_000);
    expect(poolNow(rig).oldestQueuedMs).toBeGreaterThanOrEqual(1_000);
  });

  test('adds what this router has sent and no report includes', () => {
    const rig = rigOf();
    rig.ready('a');
    rig.arrive({ prompts: [chainOf([1, 2, 3, 4])] });
    const [before] = reportsIn(welcomed(rig));
    expect(before?.pools[0]?.unacknowledgedMs).toBe(512);
    rig.report('a', { waitingPrefillMs: 512 });
    const after = poolNow(rig);
    expect(after.unacknowledgedMs).toBe(0);
  });

  test('tells how long a cache lasts by what is written into it', () => {
    const rig = rigOf();
    rig.ready('a', { kvCapacityTokens: 100_000 });
    welcomed(rig);
    expect(poolNow(rig).kvLifetimeMs).toBe(3_600_000);
    // About 768 tokens a second: 512 of prompt that is not found, and an answer of 256.
    for (let k = 0; k < 120; k += 1) {
      const { lease } = attemptIn(rig.arrive({ prompts: [chainOf([k, 1, 2, 3])], maxTokens: 256 }));
      rig.firstToken(lease);
      rig.end(lease, { kind: 'complete', usage: null }, true);
      rig.report('a', { kvCapacityTokens: 100_000 });
      rig.pass(1_000);
    }
    const life = poolNow(rig).kvLifetimeMs ?? 0;
    expect(life / 1_000).toBeGreaterThan(115);
    expect(life / 1_000).toBeLessThan(145);
  });
});

describe('what has arrived', () => {
  test('is said once, to the global router that sent it', () => {
    const rig = rigOf();
    rig.ready('a');
    welcomed(rig, 'g1');
    welcomed(rig, 'g2');
    rig.pass(1_000);
    for (const seq of [4, 5]) rig.arrive({ tier: tierFacts({ from: 'g2' as RouterId, seq }) });
    rig.arrive({ tier: tierFacts({ seq: 9 }) });
    rig.arrive({ tier: tierFacts({ from: 'unknown' as RouterId, seq: 1 }) });
    const effects = rig.pass(3_000);
    expect(reportsIn(effects, 'g1').flatMap(({ arrived }) => arrived)).toEqual([9]);
    expect(reportsIn(effects, 'g2').flatMap(({ arrived }) => arrived)).toEqual([4, 5]);
  });

  test('is said of what was refused too: the sender need not count it any longer', () => {
    const rig = rigOf();
    welcomed(rig);
    rig.arrive({ tier: tierFacts({ seq: 3 }), model: 'nobody has it' });
    expect(reportsIn(rig.pass(1_000)).flatMap(({ arrived }) => arrived)).toEqual([3]);
  });
});

describe('credit', () => {
  test('is given as far as the pool stays below the start threshold', () => {
    const rig = rigOf();
    rig.ready('a', { waitingPrefillMs: 100, kvCapacityTokens: null });
    rig.ready('b', { waitingPrefillMs: 200, kvCapacityTokens: null });
    welcomed(rig);
    demand(rig, 10_000);
    // 2 · (400 − 300 / 2) less what is left of the reports' work a second later, and a second of both, since nothing comes.
    const given = grantsIn(rig.pass(1_250));
    expect(given).toBeGreaterThanOrEqual(2_500);
    expect(given).toBeLessThanOrEqual(2_801);
  });

  test.each([
    ['a queue in the routers above the threshold', { runningMax: 1, running: 1 }, 8],
    ['work in the replicas above the threshold', { waitingPrefillMs: 60_000 }, 0],
    ['nobody knows what waits', { waitingPrefillMs: null, waitingPrefillTokens: null }, 0],
  ])('is not given where there is %s', (_, figures, queued) => {
    const rig = rigOf();
    rig.ready('a', figures);
    for (let k = 0; k < queued; k += 1) rig.arrive({ prompts: [chainOf([k, 2, 3, 4])] });
    welcomed(rig);
    demand(rig, 10_000);
    expect(grantsIn(rig.pass(2_000))).toBe(0);
  });

  test('is not given by a router that drains', () => {
    const rig = rigOf();
    rig.ready('a');
    welcomed(rig);
    rig.handle({ kind: 'drain' });
    demand(rig, 10_000);
    expect(grantsIn(rig.pass(2_000))).toBe(0);
  });

  test('is given once for a demand, however often it is looked at', () => {
    const rig = rigOf();
    rig.ready('a', { kvCapacityTokens: null });
    welcomed(rig);
    demand(rig, 10);
    let given = 0;
    for (let k = 0; k < 12; k += 1) {
      rig.report('a', { kvCapacityTokens: null, waitingPrefillMs: k % 2 === 0 ? 0 : 380 });
      given += grantsIn(rig.pass(250));
    }
    expect(given).toBe(10);
  });

  test('of one of four routers is a quarter', () => {
    const given = (routers: number): number => {
      const rig = rigOf();
      rig.ready('a', { routers, kvCapacityTokens: null });
      welcomed(rig);
      demand(rig, 10_000);
      return grantsIn(rig.pass(1_250));
    };
    expect(given(4)).toBeCloseTo(given(1) / 4);
  });

  test('counts what the other routers of the region hold back', () => {
    const rig = rigOf();
    const queued = { prefillMs: 300, requests: 3, topPriority: 0, routersQueueing: 1 };
    rig.ready('a', { queued, kvCapacityTokens: null });
    welcomed(rig);
    demand(rig, 10_000);
    // 400 − 300 of its one replica, and a second of it.
    expect(grantsIn(rig.pass(1_250))).toBe(1_100);
  });

  test('is no more than the KV caches have room for', () => {
    const rig = rigOf();
    rig.ready('a', { kvCapacityTokens: 10_000, workingSetTokens: 12_000 });
    welcomed(rig);
    demand(rig, 10_000);
    expect(grantsIn(rig.pass(1_250))).toBe(0);
  });

  test('of a link that has closed is not given again at once to another', () => {
    const rig = rigOf();
    rig.ready('a', { kvCapacityTokens: null });
    welcomed(rig, 'g1');
    demand(rig, 10_000);
    expect(grantsIn(rig.pass(1_250))).toBeCloseTo(1_400);
    rig.handle({ kind: 'globalDown', link: 'g1' as LinkId });
    welcomed(rig, 'g2');
    demand(rig, 10_000, 'g2');
    expect(grantsIn(rig.pass(3_000), 'g2')).toBe(0);
    const keep = (ms: number): number => {
      rig.report('a', { kvCapacityTokens: null });
      return grantsIn(rig.pass(ms), 'g2');
    };
    let later = 0;
    for (let k = 0; k < 12; k += 1) later += keep(1_000);
    expect(later).toBeGreaterThanOrEqual(400);
  });
});

describe('conversations away from home', () => {
  test('are all told to a new link, and then what changes', () => {
    const rig = rigOf();
    rig.ready('a');
    welcomed(rig, 'g1');
    turn(rig, tierFacts({ awayForMs: 5_000 }));
    const here = awayIn(rig.pass(1_000)).flatMap((message) => message.here);
    expect(here).toMatchObject([{ key: 'key-1', tokens: 110 }]);
    expect(here[0]?.awayForMs).toBeGreaterThanOrEqual(5_000);
    expect(awayIn(rig.pass(3_000))).toEqual([]);
    const [snapshot] = awayIn(soonAfter(rig, welcomed(rig, 'g2')), 'g2');
    expect(snapshot).toMatchObject({ snapshot: true, here: [{ key: 'key-1' }] });
    expect(snapshot?.here[0]?.idleMs).toBeGreaterThanOrEqual(4_000);
  });

  test.each([
    ['at home', { away: false }],
    ['not to be remembered', { conversation: null }],
  ])('are not those that are %s', (_, facts) => {
    const rig = rigOf();
    rig.ready('a');
    welcomed(rig);
    turn(rig, tierFacts(facts));
    expect(awayIn(rig.pass(2_000)).flatMap(({ here }) => here)).toEqual([]);
  });

  test('of a tenant that is bound to zones are told only there, to old links and new ones', () => {
    const rig = rigOf();
    rig.ready('a');
    const zones: [string, string | null][] = [
      ['g-eu', 'eu'],
      ['g-asia', 'asia'],
      ['g-none', null],
    ];
    for (const [name, zone] of zones) welcomed(rig, name, { zone });
    turn(rig, tierFacts({ zones: ['eu'] }));
    turn(rig, tierFacts({ conversation: 'key-2' }));
    const effects = rig.pass(1_000);
    const keys = (link: string, from = effects): string[] =>
      awayIn(from, link).flatMap(({ here }) => here.map(({ key }) => key));
    expect(keys('g-eu')).toEqual(['key-1', 'key-2']);
    expect([keys('g-asia'), keys('g-none')]).toEqual([['key-2'], ['key-2']]);
    expect(keys('g-new', soonAfter(rig, welcomed(rig, 'g-new', { zone: 'asia' })))).toEqual([
      'key-2',
    ]);
    // Nor is their end.
    const later = rig.pass(4_000_000);
    const gone = (link: string): string[] => awayIn(later, link).flatMap((each) => each.gone);
    expect(gone('g-eu')).toEqual(['key-1', 'key-2']);
    expect(gone('g-asia')).toEqual(['key-2']);
  });

  test('are bounded: the one that has been idle longest goes, and that is counted', () => {
    const rig = rigOf({ awayMax: 2 });
    rig.ready('a');
    welcomed(rig);
    const ends = ['k1', 'k2', 'k1', 'k3'].flatMap((conversation) =>
      turn(rig, tierFacts({ conversation })),
    );
    expect(ends).toContainEqual({ kind: 'limit', limit: 'away_conversations' });
    const [told] = awayIn(rig.pass(1_000));
    expect(told?.here.map(({ key }) => key).toSorted()).toEqual(['k1', 'k3']);
    expect(told?.gone).toEqual(['k2']);
  });

  test('are remembered where the stream began and did not end well', () => {
    const rig = rigOf();
    rig.ready('a');
    welcomed(rig);
    const { lease } = attemptIn(rig.arrive({ tier: tierFacts() }));
    rig.firstToken(lease);
    rig.end(lease, { kind: 'clientGone' }, true);
    expect(awayIn(rig.pass(1_000)).flatMap(({ here }) => here)).toHaveLength(1);
  });
});
