// Several routers of one region, each with links to several global routers: what they say together.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { UPLINK_DEFAULTS } from '../../shared/model/global-settings.ts';
import type { LinkId, PoolId, RegionId, RouterId } from '../../shared/model/ids.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import type { RegionPoolReport } from '../../shared/protocol/region-messages.ts';
import { regionQueueMs } from '../policy/region-estimate.ts';
import { mergePool } from '../policy/region-merge.ts';
import { chainOf, CoreRig } from './core.harness.ts';
import type { RouterEffect } from './events.ts';

const POOL = 'pool' as PoolId;
const REGION = 'tokyo' as RegionId;
const START_MS = UPLINK_DEFAULTS.spillStartMs;
/** Grants look ahead so far. */
const SERVED_MS = 1_000;
const GRANT_COUNTS_MS = UPLINK_DEFAULTS.creditLifeMs + UPLINK_DEFAULTS.creditGraceMs;

class Region {
  readonly routers: readonly CoreRig[];
  readonly #senders: number;

  constructor(routers: number, senders: number) {
    const uplink = { region: REGION, settings: UPLINK_DEFAULTS };
    this.routers = Array.from({ length: routers }, (_, k) => new CoreRig({ uplink, seed: k + 1 }));
    this.#senders = senders;
  }

  /** What agents say is the same for all routers. */
  report(name: string, more: Partial<ReplicaReport>): void {
    const routers = this.routers.length;
    for (const rig of this.routers) rig.report(name, { kvCapacityTokens: null, routers, ...more });
  }

  open(replicas: readonly string[], figures: Partial<ReplicaReport> = {}): void {
    for (const rig of this.routers) for (const name of replicas) rig.link(name);
    for (const name of replicas) this.report(name, figures);
    for (const rig of this.routers) for (const link of this.links()) greet(rig, link);
  }

  links(): LinkId[] {
    return Array.from({ length: this.#senders }, (_, k) => `g${k}` as LinkId);
  }
}

function greet(rig: CoreRig, link: LinkId): void {
  rig.handle({ kind: 'globalUp', link });
  rig.handle({
    kind: 'globalMessage',
    link,
    message: {
      ...{ kind: 'welcome', protocol: 1, features: [], routerId: link as string as RouterId },
      ...{ software: 'test', region: REGION, zone: null, reportIntervalMs: 1_000 },
      wallMs: 1_700_000_000_000,
    },
  });
}

function demand(rig: CoreRig, link: LinkId, asked: { wantsMs: number; spentMs: number }): void {
  const message = { kind: 'demand', pool: POOL, requestMs: 50, ...asked } as const;
  rig.handle({ kind: 'globalMessage', link, message });
}

function grantsIn(effects: readonly RouterEffect[]): { link: LinkId; prefillMs: number }[] {
  return effects.flatMap((effect) =>
    effect.kind === 'sendGlobal' && effect.message.kind === 'grant'
      ? [{ link: effect.link, prefillMs: effect.message.prefillMs }]
      : [],
  );
}

function lastPool(effects: readonly RouterEffect[]): RegionPoolReport {
  const reports = effects.flatMap((effect) =>
    effect.kind === 'sendGlobal' && effect.message.kind === 'report' ? [effect.message] : [],
  );
  const pool = reports.at(-1)?.pools[0];
  if (pool === undefined) throw new Error('no report');
  return pool;
}

describe('four routers of a region', () => {
  test('are read as one: what waits in replicas once, what each holds and has sent in sum', () => {
    const region = new Region(4, 1);
    // Full: whatever comes, the routers hold back.
    const full = { waitingPrefillMs: 60, running: 1, runningMax: 1 };
    region.open(['a', 'b'], full);
    region.routers.forEach((rig, k) => {
      for (let n = 0; n <= k; n += 1) rig.arrive({ prompts: [chainOf([k, n, 3, 4])] });
    });
    const reports = region.routers.map((rig) => {
      const effects: RouterEffect[] = [];
      for (let s = 0; s < 2; s += 1) {
        for (const name of ['a', 'b']) rig.report(name, { ...full, routers: 4 });
        effects.push(...rig.pass(1_000));
      }
      return lastPool(effects);
    });
    const merged = mergePool(reports.map((report) => ({ report, receivedMs: 0 })));
    if (merged === null) throw new Error('nothing');
    const waiting = reports[0]?.waitingPrefillMs ?? 0;
    // 1 + 2 + 3 + 4 prompts of 2,048 bytes: 512 tokens, 1 ms each.
    expect(reports.map(({ queuedPrefillMs }) => queuedPrefillMs)).toEqual([
      512, 1_024, 1_536, 2_048,
    ]);
    expect(merged).toMatchObject({ readyReplicas: 2, queuedRequests: 10 });
    const queueMs = regionQueueMs({
      ...merged,
      queuedPrefillMs: merged.routersMs,
      unacknowledgedMs: 0,
    });
    expect(queueMs).toBeCloseTo((waiting + 5_120) / 2);
  });

  const history = fc.record({
    waiting: fc.array(fc.integer({ min: 0, max: 900 }), { minLength: 12, maxLength: 12 }),
    wants: fc.array(fc.integer({ min: 0, max: 5_000 }), { minLength: 12, maxLength: 12 }),
    spends: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 12, maxLength: 12 }),
    routers: fc.integer({ min: 1, max: 4 }),
    senders: fc.integer({ min: 1, max: 5 }),
    replicas: fc.integer({ min: 1, max: 3 }),
  });

  test('never have more credit under way than the greatest headroom that there was, and a request each', () => {
    fc.assert(
      fc.property(history, (h) => {
        const region = new Region(h.routers, h.senders);
        const names = ['a', 'b', 'c'].slice(0, h.replicas);
        region.open(names);
        const given: { atMs: number; prefillMs: number }[] = [];
        const spent = new Map<string, { heldMs: number; spentMs: number }>();
        // What fits under the threshold, and a second of service: nothing comes.
        let roomMs = h.replicas * (START_MS + SERVED_MS);
        for (const [k, waitingPrefillMs] of h.waiting.entries()) {
          for (const name of names) region.report(name, { waitingPrefillMs });
          roomMs = Math.max(roomMs, h.replicas * (START_MS + SERVED_MS - waitingPrefillMs));
          region.routers.forEach((rig, r) => {
            for (const link of region.links()) {
              const key = `${r} ${link}`;
              const purse = spent.get(key) ?? { heldMs: 0, spentMs: 0 };
              const paid = purse.heldMs * (h.spends[k] ?? 0);
              const after = { heldMs: purse.heldMs - paid, spentMs: purse.spentMs + paid };
              spent.set(key, after);
              demand(rig, link, { wantsMs: h.wants[k] ?? 0, spentMs: after.spentMs });
            }
            for (const { link, prefillMs } of grantsIn(rig.pass(1_000))) {
              const purse = spent.get(`${r} ${link}`) ?? { heldMs: 0, spentMs: 0 };
              spent.set(`${r} ${link}`, { ...purse, heldMs: purse.heldMs + prefillMs });
              given.push({ atMs: rig.nowMs, prefillMs });
            }
          });
          const underWayMs = [...spent.values()].reduce((sum, { heldMs }) => sum + heldMs, 0);
          // Those that have lapsed since are counted: the bound is for what could be spent at once.
          const lapsedMs = given
            .filter(({ atMs }) => atMs + GRANT_COUNTS_MS <= (region.routers[0]?.nowMs ?? 0))
            .reduce((sum, { prefillMs }) => sum + prefillMs, 0);
          expect(underWayMs).toBeLessThanOrEqual(roomMs + lapsedMs + 50 * h.routers + 1e-6);
        }
      }),
      { numRuns: 100 },
    );
  });
});
