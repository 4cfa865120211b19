// Two whole regions before two global routers: every core is the real one, engines are simulated.

import { expect, test } from 'vitest';
import { GLOBAL_DEFAULTS, UPLINK_DEFAULTS } from '../../shared/model/global-settings.ts';
import { HmacConversationKeys } from '../../shared/lib/conversation-key.ts';
import { PlacementHints } from '../../shared/lib/placement-hint.ts';
import type { LinkId, RegionId, RouterId } from '../../shared/model/ids.ts';
import type { GlobalAttempt } from '../../router/global/events.ts';
import { SMALL_TALK, DEMO } from '../world/test-worlds.ts';
import { WorldContext } from '../world/context.ts';
import type { RequestRow } from '../world/recorder.ts';
import type { RouterHost } from '../world/router-host.ts';
import { World } from '../world/world.ts';
import { GlobalHost } from './global-host.ts';
import { GlobalFront, WholeRegion } from './whole-region.ts';
import { RegionWire } from './wire.ts';

const SETTINGS = { ...GLOBAL_DEFAULTS, spillIntervalMs: 2_000, spillDwellMs: 3_000 };
const REPLICAS = 2;

function twoWholeRegions(seed: number) {
  const context = new WorldContext(seed);
  const regions = [
    ['near', 10],
    ['far', 50],
  ].map(([name, rttMs]) => {
    const region = name as RegionId;
    const uplink = { region, settings: UPLINK_DEFAULTS };
    const world = new World({
      seed,
      profile: DEMO,
      replicas: REPLICAS,
      routers: 2,
      context,
      uplink,
    });
    return new WholeRegion(region, rttMs as number, world);
  });
  for (const { world } of regions) world.runUntilReady();
  const attempts: { attempt: GlobalAttempt; kind: string }[] = [];
  const fronts = [0, 1].map((k) => {
    const host = new GlobalHost(context.timeline, {
      deps: {
        ...{ routerId: `g${k}` as RouterId, software: 'sim', random: context.stream(`g${k}`) },
        wallMs: () => 0,
        keys: new HmacConversationKeys('sim'),
        hints: new PlacementHints('sim'),
        config: {
          ...{ settings: SETTINGS, zone: null, tenants: new Map() },
          regions: regions.map(({ id }) => ({
            ...{ id, zone: 'z', certifications: [], tiers: [], costMs: 0 },
            ...{ baseUrl: `http://${id}`, rollout: 'active' as const },
          })),
        },
      },
      ...{ regions, clockMs: 1_000 * k },
      onAttempt: (attempt, { decision }) => attempts.push({ attempt, kind: decision.kind }),
    });
    for (const region of regions) {
      for (const router of region.world.routers) link(host, region, router);
    }
    return { host, front: new GlobalFront(`g${k}`, host) };
  });
  const [near] = regions as [WholeRegion, WholeRegion];
  near.world.run(3_000);
  return { regions, fronts, attempts, near };
}

let links = 0;

function link(host: GlobalHost, region: WholeRegion, router: RouterHost): void {
  links += 1;
  const id = `l${links}` as LinkId;
  const { timeline } = region.world.context;
  const delayMs = region.rttMs / 2;
  const wire = new RegionWire(id, timeline, {
    delays: { upMs: delayMs, downMs: delayMs },
    ends: {
      toGlobal: (message) => host.heard(id, region.id, message),
      toRegion: (message) => router.fromGlobal(id, message),
      globalDown: () => host.left(id),
      regionDown: () => router.globalDown(id),
    },
  });
  host.joined(wire);
  router.globalLinked(wire);
}

/** Of what later turns share with the turn before, what engines found in their caches. */
function reusedRatio(rows: readonly RequestRow[]): number {
  let shared = 0;
  let found = 0;
  for (const { turn, reusableTokens, end } of rows) {
    if (turn === 0 || end?.kind !== 'complete') continue;
    shared += reusableTokens;
    found += Math.min(reusableTokens, end.usage.cachedTokens ?? 0);
  }
  return found / shared;
}

test('a region beyond its capacity spills on credit of the other, which stays below its threshold', () => {
  const { fronts, attempts, near, regions } = twoWholeRegions(7);
  // Clients need no more of a router than a front has.
  const routers = fronts.map(({ front }) => front as unknown as RouterHost);
  const clients = near.world.clients(SMALL_TALK, { routers });
  clients.openLoop(12);
  let farMostMs = 0;
  let nearMostMs = 0;
  for (let n = 0; n < 80; n += 1) {
    near.world.run(500);
    const [host] = fronts.map((each) => each.host);
    const status = host?.core.status(host.nowMs).regions ?? [];
    nearMostMs = Math.max(nearMostMs, status[0]?.pools[0]?.queueMs ?? 0);
    farMostMs = Math.max(farMostMs, status[1]?.pools[0]?.queueMs ?? 0);
  }
  clients.stop();
  const spills = attempts.filter(({ kind }) => kind === 'spill');
  expect(nearMostMs).toBeGreaterThan(SETTINGS.spillStartMs);
  expect(spills.length).toBeGreaterThan(20);
  expect(spills.every(({ attempt }) => attempt.region === 'far')).toBe(true);
  // Its threshold, and a second's service of its replicas.
  expect(farMostMs).toBeLessThan(SETTINGS.spillStartMs + 1_000);
  expect(reusedRatio(near.world.recorder.rows)).toBeGreaterThan(0.8);
  for (const { world } of regions) for (const router of world.routers) router.check();
});
