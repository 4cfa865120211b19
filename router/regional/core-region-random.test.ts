// Whatever comes, a region says to the global tier only what can be read there, in order, and names no conversation where
// it may not be told.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { UPLINK_DEFAULTS } from '../../shared/model/global-settings.ts';
import type { LinkId, PoolId, RegionId, RouterId } from '../../shared/model/ids.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import { decodeRegionChild, encodeRegionChild } from '../../shared/protocol/region-codec.ts';
import type { RegionChildMessage } from '../../shared/protocol/region-messages.ts';
import { attemptsIn, chainOf, COMPLETE, CoreRig } from './core.harness.ts';
import type { RouterEffect } from './events.ts';

const REGION = 'tokyo' as RegionId;
const GLOBALS = ['g-eu', 'g-asia', 'g-none'] as const;
const ZONE: Readonly<Record<string, string | null>> = {
  'g-eu': 'eu',
  'g-asia': 'asia',
  'g-none': null,
};
const REPLICAS = ['a', 'b'] as const;

const amount = fc.oneof(
  fc.constantFrom(null, 0, 1e-9, 1e18, 1e18, 1e18),
  fc.double({ min: 0, max: 1e6, noNaN: true }),
);
const figures = fc.record({
  waitingPrefillMs: amount,
  waitingPrefillTokens: amount,
  prefillTps: amount,
  slotWaitMs: amount,
  kvUsageRatio: amount,
  kvCapacityTokens: amount,
  workingSetTokens: amount,
  preemptionsPerMin: amount,
  etaMs: amount,
  phase: fc.constantFrom('ready', 'ready', 'ready', 'loading', 'warming', 'draining'),
  runningMax: fc.constantFrom(null, 1),
  running: fc.nat(3),
  routers: fc.nat(5),
  prefillCost: fc.constantFrom(undefined, null),
  queued: fc.record({
    prefillMs: fc.double({ min: 0, max: 1e18, noNaN: true }),
    ...{ requests: fc.nat(9), topPriority: fc.constant(null), routersQueueing: fc.nat(4) },
  }),
});
const global = fc.constantFrom(...GLOBALS);
const replica = fc.constantFrom(...REPLICAS);
const step = fc.oneof(
  fc.record({ what: fc.constant('up' as const), global }),
  fc.record({ what: fc.constant('welcome' as const), global }),
  fc.record({ what: fc.constant('down' as const), global }),
  fc.record({
    what: fc.constant('demand' as const),
    ...{ global, pool: fc.constantFrom('pool', 'other') },
    wantsMs: fc.double({ min: 0, max: 1e18, noNaN: true }),
    requestMs: fc.double({ min: 1e-6, max: 1e9, noNaN: true }),
    spentMs: fc.double({ min: 0, max: 1e18, noNaN: true }),
  }),
  fc.record({ what: fc.constant('agent' as const), replica }),
  fc.record({ what: fc.constant('lost' as const), replica }),
  fc.record({ what: fc.constant('report' as const), replica, figures }),
  fc.record({
    what: fc.constant('turn' as const),
    ...{ from: global, key: fc.nat(20), seq: fc.nat(), awayForMs: fc.nat(100_000) },
  }),
  fc.record({ what: fc.constant('pass' as const), ms: fc.integer({ min: 1, max: 90_000 }) }),
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** Bound to zones by its key, always the same. */
const zonesOf = (key: number): readonly string[] | null =>
  [null, ['eu'], ['asia'], []][key % 4] ?? null;

function act(rig: CoreRig, one: Step): RouterEffect[] {
  switch (one.what) {
    case 'up':
      return rig.handle({ kind: 'globalUp', link: one.global as string as LinkId });
    case 'down':
      return rig.handle({ kind: 'globalDown', link: one.global as string as LinkId });
    case 'welcome':
      return rig.handle({
        kind: 'globalMessage',
        link: one.global as string as LinkId,
        message: {
          ...{ kind: 'welcome', protocol: 1, features: [], software: 'test', region: REGION },
          ...{ routerId: one.global as string as RouterId, zone: ZONE[one.global] ?? null },
          ...{ reportIntervalMs: 1_000, wallMs: 0 },
        },
      });
    case 'demand': {
      const { wantsMs, requestMs, spentMs } = one;
      const pool = one.pool as PoolId;
      const message = { kind: 'demand', pool, wantsMs, requestMs, spentMs } as const;
      return rig.handle({ kind: 'globalMessage', link: one.global as string as LinkId, message });
    }
    case 'agent':
      return rig.link(one.replica);
    case 'lost':
      return rig.unlink(one.replica);
    case 'report': {
      const { prefillCost, ...told } = one.figures;
      const cost = prefillCost === undefined ? {} : { prefillCost };
      return rig.report(one.replica, { ...told, ...cost } as Partial<ReplicaReport>);
    }
    case 'turn':
      return turn(rig, one);
    case 'pass':
      return rig.pass(one.ms);
  }
}

/** A request of a global router; served where it is sent at all. */
function turn(rig: CoreRig, one: Extract<Step, { what: 'turn' }>): RouterEffect[] {
  const { from, key, seq, awayForMs } = one;
  const conversation = `key-${key}`;
  const facts = { seq, conversation, away: true, awayForMs, zones: zonesOf(key) };
  const effects = rig.arrive({
    prompts: [chainOf([key, 1, 2])],
    tier: { ...facts, from: from as string as RouterId },
  });
  for (const { lease } of attemptsIn(effects)) {
    effects.push(...rig.firstToken(lease), ...rig.end(lease, COMPLETE, true));
  }
  return effects;
}

/** Every history begins with all of them there. */
const BEGINNING: readonly Step[] = [
  ...REPLICAS.map((each) => ({ what: 'agent', replica: each }) as const),
  ...GLOBALS.map((each) => ({ what: 'up', global: each }) as const),
  ...GLOBALS.map((each) => ({ what: 'welcome', global: each }) as const),
];

/** What a global router would find wrong with what it is told. */
class Listener {
  #seq = 0;
  #greeted = false;
  readonly #zone: string | null;

  constructor(zone: string | null) {
    this.#zone = zone;
  }

  hear(message: RegionChildMessage): void {
    expect(decodeRegionChild(encodeRegionChild(message))).toMatchObject({ ok: true });
    expect(message.kind === 'hello').toBe(!this.#greeted);
    this.#greeted = true;
    if (message.kind === 'report') expect(message.seq).toBe(this.#seq++);
    if (message.kind !== 'away') return;
    for (const key of [...message.here.map((each) => each.key), ...message.gone]) {
      const zones = zonesOf(Number(key.slice('key-'.length)));
      expect(zones === null || (this.#zone !== null && zones.includes(this.#zone))).toBe(true);
    }
  }
}

test('every message can be read, goes to a link that is up, in order, and names no key elsewhere', () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 120 }), (later) => {
      const steps = [...BEGINNING, ...later];
      const rig = new CoreRig({ uplink: { region: REGION, settings: UPLINK_DEFAULTS } });
      const listeners = new Map<LinkId, Listener>();
      for (const one of steps) {
        // A link comes up once, and says nothing that is not after it.
        if (one.what === 'up' && listeners.has(one.global as string as LinkId)) continue;
        const absent = 'global' in one && !listeners.has(one.global as string as LinkId);
        if (absent && one.what !== 'up') continue;
        if (one.what === 'up') {
          const zone = ZONE[one.global] ?? null;
          listeners.set(one.global as string as LinkId, new Listener(zone));
        }
        const effects = act(rig, one);
        if (one.what === 'down') listeners.delete(one.global as string as LinkId);
        for (const effect of effects) {
          if (effect.kind !== 'sendGlobal') continue;
          const listener = listeners.get(effect.link);
          expect(listener, `to ${effect.link} by ${one.what}`).toBeDefined();
          listener?.hear(effect.message);
        }
      }
    }),
    { numRuns: 150 },
  );
});
