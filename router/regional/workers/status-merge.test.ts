// Two or more cores as the workers of one router, and what their parent says of them.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createMetrics } from '../../../shared/runtime/metrics.ts';
import { attemptIn, CoreRig } from '../core.harness.ts';
import { setGauges } from '../gauges.ts';
import { METRICS, METRICS_PREFIX, type MetricName } from '../metrics.ts';
import type { RouterStatus } from '../status.ts';
import { GoneTotals, mergeStatuses } from './status-merge.ts';

function statusOf(rig: CoreRig, more: Partial<RouterStatus> = {}): RouterStatus {
  return {
    router: { id: 'r', region: 'x', software: 's', upForS: 1 },
    ready: true,
    config: null,
    bodyBytes: 0,
    connections: { clients: 1 },
    linkTotals: null,
    ...rig.core.status(rig.nowMs),
    ...more,
  };
}

const merged = (rigs: readonly CoreRig[], gone = new GoneTotals()) =>
  mergeStatuses(
    rigs.map((rig) => statusOf(rig)),
    gone,
    0,
  );

const targetOf = (status: ReturnType<typeof merged>, replica: string) =>
  status.pools[0]?.replicas.find(({ id }) => id === replica)?.targets[0];

async function exposition(status: ReturnType<typeof merged>): Promise<string> {
  const metrics = createMetrics<MetricName>(METRICS_PREFIX, METRICS);
  const router = { id: 'r', region: 'x', software: 's', upForS: 1 };
  setGauges(metrics, { router, ready: true, config: null, ...status });
  return metrics.text();
}

describe('the status of several workers', () => {
  test('has each replica once, with the leases, attempts and connections of all', () => {
    const rigs = [new CoreRig(), new CoreRig()];
    for (const rig of rigs) for (const name of ['a', 'b']) rig.ready(name);
    for (const rig of rigs) rig.arrive();
    const status = merged(rigs);
    expect(status.pools).toHaveLength(1);
    expect(status.pools[0]?.replicas.map(({ id }) => id)).toEqual(['a', 'b']);
    expect(status.pools[0]?.ready).toBe(2);
    expect(status.leases).toBe(2);
    expect(status.openRequests).toBe(2);
    expect(status.connections).toEqual({ clients: 2 });
    const targets = ['a', 'b'].map((name) => targetOf(status, name));
    expect(targets.reduce((sum, target) => sum + (target?.leases ?? 0), 0)).toBe(2);
    expect(targets.reduce((sum, target) => sum + (target?.attempts ?? 0), 0)).toBe(2);
  });

  test('has the report of the worker that heard last, and never twice what it says', async () => {
    const [early, late] = [new CoreRig(), new CoreRig()];
    early.ready('a', { waitingPrefillTokens: 100, kvUsageRatio: 0.5 });
    late.ready('a', { waitingPrefillTokens: 900, kvUsageRatio: 0.7 });
    early.pass(500);
    const target = targetOf(merged([early, late]), 'a');
    expect(target?.report?.waitingPrefillTokens).toBe(900);
    const text = await exposition(merged([early, late]));
    expect(text).toMatch(/replica_waiting_prefill_tokens\{[^}]*\} 900\n/);
    expect(text).toMatch(/replica_kv_usage_ratio\{[^}]*\} 0.7\n/);
  });

  test('has the fewest links that any has: who lacks an agent knows less', () => {
    const [one, two] = [new CoreRig(), new CoreRig()];
    for (const name of ['a', 'b', 'c']) one.ready(name);
    two.ready('a');
    expect(merged([one, two]).links).toBe(1);
    expect(merged([one, two]).pools[0]?.replicas).toHaveLength(3);
    expect(merged([]).links).toBe(0);
  });

  test('is draining when all of them are', () => {
    const [one, two] = [new CoreRig(), new CoreRig()];
    one.handle({ kind: 'drain' });
    expect(merged([one, two]).draining).toBe(false);
    two.handle({ kind: 'drain' });
    expect(merged([one, two]).draining).toBe(true);
  });
});

describe('counts of workers that are gone', () => {
  test('stay, each once, whoever dies and comes back, in whatever order', () => {
    const step = fc.record({
      worker: fc.integer({ min: 0, max: 2 }),
      what: fc.constantFrom('request', 'request', 'death', 'look'),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        const fresh = (): CoreRig => {
          const rig = new CoreRig();
          rig.ready('a');
          return rig;
        };
        const rigs = [fresh(), fresh(), fresh()];
        const gone = new GoneTotals();
        let sent = 0;
        let seen = 0;
        for (const { worker, what } of steps) {
          const rig = rigs[worker];
          if (rig === undefined) continue;
          if (what === 'request') {
            rig.end(attemptIn(rig.arrive()).lease);
            sent += 1;
          }
          if (what === 'death') {
            gone.add(statusOf(rig), 0);
            rigs[worker] = fresh();
          }
          const attempts = targetOf(merged(rigs, gone), 'a')?.attempts ?? -1;
          expect(attempts).toBe(sent);
          expect(attempts).toBeGreaterThanOrEqual(seen);
          seen = attempts;
        }
      }),
      { numRuns: 40 },
    );
  });

  test('stay for a minute without anybody who knows the replica, and leave with it', () => {
    const rig = new CoreRig();
    rig.ready('a');
    rig.end(attemptIn(rig.arrive()).lease);
    const gone = new GoneTotals();
    gone.add(statusOf(rig), 0);
    const at = (nowMs: number, all: RouterStatus[]) =>
      targetOf(mergeStatuses(all, gone, nowMs), 'a');
    const empty = statusOf(new CoreRig());
    expect(at(60_000, [empty])).toMatchObject({ attempts: 1, leases: 0, reportAgeMs: 60_000 });
    const again = new CoreRig();
    again.ready('a');
    expect(at(60_000, [empty, statusOf(again)])).toMatchObject({ attempts: 1, reportAgeMs: 0 });
    expect(at(120_000, [empty])?.attempts).toBe(1);
    expect(at(120_001, [empty])).toBeUndefined();
    expect(at(120_001, [statusOf(again)])?.attempts).toBe(0);
  });

  test('keep what the engine has counted from falling while its life is the same', () => {
    const [ahead, behind] = [new CoreRig(), new CoreRig()];
    ahead.ready('a', { preemptionsTotal: 9 });
    behind.ready('a', { preemptionsTotal: 7 });
    const gone = new GoneTotals();
    gone.add(statusOf(ahead), 0);
    expect(targetOf(merged([behind], gone), 'a')?.report?.preemptionsTotal).toBe(9);
    behind.report('a', { preemptionsTotal: 0, incarnation: 'another' as never });
    expect(targetOf(merged([behind], gone), 'a')?.report?.preemptionsTotal).toBe(0);
  });

  test('of links are added', () => {
    const totals = {
      links: 1,
      refusedUpgrades: 2,
      malformed: 3,
      unknownKinds: 4,
      unknownFields: 5,
    };
    const gone = new GoneTotals();
    gone.add(statusOf(new CoreRig(), { linkTotals: totals }), 0);
    const all = mergeStatuses([statusOf(new CoreRig(), { linkTotals: totals })], gone, 0);
    expect(all.linkTotals).toMatchObject({ refusedUpgrades: 4, malformed: 6 });
  });
});

test('every gauge, and every counter that somebody else counts, has a rule for workers', () => {
  const gauges = METRICS.filter(({ type }) => type === 'gauge');
  expect(gauges.filter((each) => !('workers' in each)).map(({ name }) => name)).toEqual([]);
});
