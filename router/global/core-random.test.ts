// Whatever comes, in whatever order: every request that has arrived and not ended waits or has one attempt, is answered
// once, waits no longer than it may, goes where its tenant's list lets it, and leaves nothing behind.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { LeaseId, RegionId, RequestId } from '../../shared/model/ids.ts';
import type { RegionPoolReport } from '../../shared/protocol/region-messages.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import type { RouteRequest } from '../policy/request-events.ts';
import type { GlobalAttempt, GlobalEffect } from './events.ts';
import { COMPLETE, GlobalRig, regionOf, RESET, tenantOf, turnsOf } from './core.harness.ts';

const REGIONS = ['jp', 'sg', 'eu'] as const;
const TENANTS = {
  all: tenantOf(null),
  asia: tenantOf(['jp'], ['sg']),
  eu: tenantOf(['eu']),
} as const;
/** Of a request that may be looked at no oftener than this, ms. */
const LOOK_MS = 500;

const RESULTS: readonly AttemptResult[] = [
  COMPLETE,
  COMPLETE,
  RESET,
  { kind: 'connectFailed', detail: '' },
  { kind: 'staleConnection', detail: '' },
  { kind: 'clientError', status: 400 },
  { kind: 'backPressure', status: 429, retryAfterMs: 1_500 },
  { kind: 'backPressure', status: 429, retryAfterMs: 3_000 },
  { kind: 'backPressure', status: 429, retryAfterMs: null },
  { kind: 'backPressure', status: 503, retryAfterMs: 30_000 },
];

const region = fc.constantFrom(...REGIONS);
const maybe = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | null> => fc.option(value, { freq: 4 });
const figures = fc.record({
  readyReplicas: fc.constantFrom(0, 1, 2, 60),
  waitingPrefillMs: maybe(fc.constantFrom(0, 100, 1_000, 60_000)),
  queuedPrefillMs: fc.constantFrom(0, 500),
  unacknowledgedMs: fc.constantFrom(0, 50),
}) as fc.Arbitrary<Partial<RegionPoolReport>>;
const asked = fc.record({
  tenant: fc.constantFrom('all', 'asia', 'asia', 'eu'),
  priority: fc.integer({ min: -1, max: 1 }),
  clientDeadlineMs: fc.constantFrom(null, null, 300, 5_000),
  bodyBytes: fc.constantFrom(100, 4_000),
  work: fc.constantFrom('generation', 'generation', 'light'),
  turns: fc.integer({ min: 1, max: 3 }),
  conversation: fc.nat(3),
});
const result = fc.nat(RESULTS.length - 1);

const step = fc.oneof(
  { weight: 16, arbitrary: fc.record({ kind: fc.constant('arrive' as const), asked }) },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('end' as const),
      which: fc.nat(),
      result,
      committed: fc.constantFrom(false, false, false, true),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('begin' as const), which: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('late' as const), which: fc.nat() }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('gone' as const), which: fc.nat() }) },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('report' as const), region, figures }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('grant' as const), region }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('down' as const), region }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('up' as const), region }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('configure' as const),
      regions: fc.subarray([...REGIONS], { minLength: 1 }),
      waitMs: fc.constantFrom(1_000, 10_000),
      eu: fc.constantFrom('eu', 'jp'),
    }),
  },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('pass' as const), ms: fc.nat(4_000) }) },
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

interface Open {
  readonly request: RouteRequest;
  readonly arrivedMs: number;
  lease: string | null;
  /** As of the last event. */
  waits: boolean;
  gone: boolean;
}

interface UnderWay {
  readonly one: Open;
  readonly region: string;
  began: boolean;
  /** It was called back; and that since the region may not serve it any more. */
  aborted: boolean;
  withdrawn: boolean;
}

/** A core and what those beside it know of it. */
class World {
  readonly rig = new GlobalRig({
    regions: REGIONS.map((id) => regionOf(id, { zone: id })),
    tenants: TENANTS,
    settings: { queueMaxRequests: 6, queueMaxBytes: 16_000 },
  });
  readonly open = new Map<RequestId, Open>();
  /** Attempts under way. */
  readonly leases = new Map<string, UnderWay>();
  /** As of the last event: how long who waits may do so. */
  #waitMs = 0;

  constructor() {
    for (const id of REGIONS) this.rig.join(id, 15);
    this.#check();
  }

  run(next: Step): void {
    const { rig } = this;
    switch (next.kind) {
      case 'arrive':
        return this.#arrive(next.asked);
      case 'end':
        return this.#end(this.#leaseAt(next.which), RESULTS[next.result] ?? COMPLETE, next);
      case 'begin':
        return this.#ofLease(next.which, 'firstToken');
      case 'late':
        return this.#ofLease(next.which, 'firstTokenLate');
      case 'gone': {
        const all = [...this.open.values()];
        const one = all[next.which % Math.max(1, all.length)];
        if (one === undefined) return;
        one.gone = true;
        if (one.lease === null) this.open.delete(one.request.id);
        return this.take(rig.handle({ kind: 'clientGone', request: one.request.id }));
      }
      case 'report':
        return this.take(rig.report(next.region, next.figures));
      case 'grant':
        return this.take(rig.grant(next.region, 2_000));
      case 'down':
        return this.take(
          rig.handle({ kind: 'regionDown', link: next.region as never, reason: 'cut' as never }),
        );
      case 'up':
        return this.take(rig.up(next.region));
      case 'configure': {
        const { config } = rig;
        const regions = next.regions.map((id) => regionOf(id, { zone: id }));
        const settings = { ...config.settings, queueMaxWaitMs: next.waitMs };
        const tenants = new Map([...config.tenants, ['eu', tenantOf([next.eu])]] as const);
        return this.take(rig.configure({ regions, settings, tenants }));
      }
      case 'pass':
        return this.pass(next.ms);
    }
  }

  /** Time goes on, and the core is woken when it asks to be. */
  pass(ms: number): void {
    const { rig } = this;
    const untilMs = rig.nowMs + ms;
    for (;;) {
      const wakeMs = rig.core.nextWakeMs() ?? Number.POSITIVE_INFINITY;
      if (wakeMs > untilMs) break;
      this.take(rig.pass(Math.max(1, wakeMs - rig.nowMs)));
    }
    if (rig.nowMs < untilMs) this.take(rig.pass(untilMs - rig.nowMs));
  }

  /** All attempts end well, and nothing new comes. */
  settle(): void {
    for (let round = 0; round < 30 && this.open.size > 0; round += 1) {
      for (const lease of [...this.leases.keys()]) this.#end(lease, COMPLETE, { committed: true });
      for (const id of REGIONS) this.take(this.rig.report(id));
      this.pass(1_000);
    }
  }

  take(effects: readonly GlobalEffect[]): void {
    for (const effect of effects) {
      if (effect.kind === 'attempt') this.#attempted(effect.attempt);
      if (effect.kind === 'abort') this.#aborted(effect);
      if (effect.kind === 'queued') expect(this.open.get(effect.request)?.lease).toBe(null);
      if (effect.kind !== 'refuse') continue;
      const refused = this.open.get(effect.request);
      expect(refused?.lease).toBe(null);
      if (refused !== undefined) this.#expectInTime(refused);
      this.open.delete(effect.request);
    }
    this.#check();
  }

  #arrive({
    turns,
    conversation,
    ...more
  }: typeof asked extends fc.Arbitrary<infer A> ? A : never) {
    const prompts = more.work === 'light' ? [] : [turnsOf(conversation, turns)];
    const request = this.rig.request({ ...more, prompts } as Partial<RouteRequest>);
    const { nowMs: arrivedMs } = this.rig;
    this.open.set(request.id, { request, arrivedMs, lease: null, waits: false, gone: false });
    this.take(this.rig.handle({ kind: 'arrived', request }));
  }

  #attempted({ lease, request, region: at }: Pick<GlobalAttempt, 'lease' | 'request' | 'region'>) {
    const one = this.open.get(request);
    expect(one).toMatchObject({ lease: null, gone: false });
    if (one === undefined) return;
    expect(this.#isListed(one, at)).toBe(true);
    this.#expectInTime(one);
    one.lease = lease;
    this.leases.set(lease, { one, region: at, began: false, aborted: false, withdrawn: false });
  }

  #aborted({ lease, reason }: Extract<GlobalEffect, { kind: 'abort' }>): void {
    const underWay = this.leases.get(lease);
    expect(underWay?.aborted).toBe(false);
    if (underWay === undefined) return;
    underWay.aborted = true;
    underWay.withdrawn = reason === 'no_longer_allowed';
  }

  #isListed({ request }: Open, at: string): boolean {
    const { tenants, regions } = this.rig.config;
    const residency = tenants.get(request.tenant)?.residency ?? null;
    const listed = residency === null ? null : [...residency.allow, ...residency.fallback];
    return regions.some(({ id }) => id === at) && (listed?.includes(at as RegionId) ?? true);
  }

  #leaseAt(which: number): string | null {
    const all = [...this.leases.keys()];
    return all[which % Math.max(1, all.length)] ?? null;
  }

  #ofLease(which: number, kind: 'firstToken' | 'firstTokenLate'): void {
    const lease = this.#leaseAt(which);
    const underWay = lease === null ? undefined : this.leases.get(lease);
    if (lease === null || underWay === undefined) return;
    underWay.began ||= kind === 'firstToken';
    this.take(this.rig.handle({ kind, lease: lease as LeaseId }));
  }

  #end(lease: string | null, how: AttemptResult, { committed }: { committed: boolean }): void {
    const underWay = lease === null ? undefined : this.leases.get(lease);
    if (lease === null || underWay === undefined) return;
    const { one, withdrawn } = underWay;
    this.leases.delete(lease);
    one.lease = null;
    // What a region says that should not have been asked is not passed on.
    const isRefused = how.kind === 'clientError' && !withdrawn;
    const isOver = how.kind === 'complete' || isRefused || committed || one.gone;
    if (isOver) this.open.delete(one.request.id);
    this.take(this.rig.end(lease, how, how.kind === 'complete' || committed));
  }

  /** Who has waited is told, or sent, no later than this, whatever the core was woken for. */
  #expectInTime({ request, arrivedMs, waits }: Open): void {
    const { clientDeadlineMs } = request;
    const mostMs = Math.min(this.#waitMs, clientDeadlineMs ?? Number.POSITIVE_INFINITY);
    if (waits) expect(this.rig.nowMs - arrivedMs).toBeLessThanOrEqual(mostMs + LOOK_MS);
  }

  #check(): void {
    const { rig, open } = this;
    const { openRequests, queued } = rig.core.status(rig.nowMs);
    let [requests, bytes] = [0, 0];
    for (const one of open.values()) {
      one.waits = one.lease === null;
      this.#expectInTime(one);
      if (!one.waits) continue;
      requests += 1;
      bytes += one.request.bodyBytes;
    }
    expect([openRequests, queued]).toEqual([open.size, { requests, bytes }]);
    for (const { one, region: at, began, aborted } of this.leases.values()) {
      expect(began || aborted || this.#isListed(one, at)).toBe(true);
    }
    this.#waitMs = rig.config.settings.queueMaxWaitMs;
  }
}

test('every request is answered once and in time, where its tenant may be served, and nothing is left', () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 40, maxLength: 120 }), (steps) => {
      const world = new World();
      for (const next of steps) world.run(next);
      world.settle();
      expect(world.open.size).toBe(0);
      const status = world.rig.core.status(world.rig.nowMs);
      const pools = status.regions.flatMap((each) => each.pools);
      expect(pools.map(({ held }) => held)).toEqual(pools.map(() => 0));
    }),
    { numRuns: 100 },
  );
});
