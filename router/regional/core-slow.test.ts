import { describe, expect, test } from 'vitest';
import type { ReplicaReport } from '../../shared/model/report.ts';
import { CoreRig, refusalIn, attemptIn, decisionIn } from './core.harness.ts';
import { statusText } from './status.ts';

/** A pool whose first replicas are slow by these ratios. */
function pool(size: number, slow: readonly number[]): CoreRig {
  const rig = new CoreRig();
  for (let at = 0; at < size; at += 1) {
    const slowRatio = slow[at] ?? null;
    rig.ready(`r${at}`, slowRatio === null ? {} : slowBy(slowRatio));
  }
  return rig;
}

function slowBy(slowRatio: number): Partial<ReplicaReport> {
  return { phase: 'degraded', degradedFor: 'slow', slowRatio };
}

function removals(rig: CoreRig): Record<string, string | null> {
  const { candidates } = rig.core.explain(rig.request(), rig.nowMs);
  return Object.fromEntries(
    candidates
      .map(({ target, removed }) => [target.replica as string, removed] as const)
      .toSorted(([a], [b]) => (a < b ? -1 : 1)),
  );
}

function ready(rig: CoreRig): number | undefined {
  return rig.core.status(rig.nowMs).pools[0]?.ready;
}

describe('slow replicas', () => {
  test('stay out while they are a third of the pool at most', () => {
    const rig = pool(6, [4, 5]);
    expect(removals(rig)).toMatchObject({ r0: 'slow', r1: 'slow', r2: null, r5: null });
    expect(ready(rig)).toBe(4);
  });

  test('beyond a third stay in use, the least slow of them', () => {
    const rig = pool(3, [4, 6]);
    expect(removals(rig)).toEqual({ r0: null, r1: 'slow', r2: null });
    rig.report('r0', slowBy(7));
    expect(removals(rig)).toEqual({ r0: 'slow', r1: null, r2: null });
  });

  test('come in where nobody else has room, and are out again when somebody has', () => {
    const rig = pool(3, [4]);
    const full = { waitingPrefillMs: 500 };
    rig.report('r1', full);
    expect(removals(rig)).toMatchObject({ r0: 'slow' });
    rig.report('r2', full);
    expect(removals(rig)).toEqual({ r0: null, r1: null, r2: null });
    expect(attemptIn(rig.arrive()).replica).toBe('r0');
    rig.report('r1', { waitingPrefillMs: 0 });
    expect(removals(rig)).toMatchObject({ r0: 'slow', r1: null });
  });

  test('take from the queue what nobody else has room for', () => {
    const rig = pool(3, [4]);
    const full = { waitingPrefillMs: 500 };
    for (const name of ['r1', 'r2']) rig.report(name, full);
    rig.report('r0', { ...slowBy(4), ...full });
    expect(decisionIn(rig.arrive())).toBe('queue/all_full');
    expect(attemptIn(rig.report('r0', { ...slowBy(4), waitingPrefillMs: 0 })).replica).toBe('r0');
  });

  test('all stay in use where all of the pool is slow', () => {
    const rig = pool(3, [4, 6, 8]);
    expect(removals(rig)).toEqual({ r0: null, r1: null, r2: null });
    expect(ready(rig)).toBe(3);
    expect(attemptIn(rig.arrive()).replica).toBeDefined();
  });

  test('are a third of those that could serve, not of those that were ever there', () => {
    const rig = pool(4, [4, 5]);
    expect(ready(rig)).toBe(3);
    // Three could serve now, two of them slow: one of the two stays out.
    rig.report('r3', { phase: 'degraded', degradedFor: 'probe' });
    expect(removals(rig)).toEqual({ r0: null, r1: 'slow', r2: null, r3: 'phase' });
    // Two could serve: a third of two is none.
    rig.report('r2', { phase: 'dead' });
    expect(removals(rig)).toEqual({ r0: null, r1: null, r2: 'phase', r3: 'phase' });
  });

  test('can never empty a pool: no mix of ratios leaves a request without a candidate', () => {
    for (let size = 1; size <= 7; size += 1) {
      for (let slow = 0; slow <= size; slow += 1) {
        const rig = pool(
          size,
          Array.from({ length: slow }, (_, at) => 3 + at),
        );
        expect(ready(rig)).toBeGreaterThanOrEqual(size - Math.floor(size / 3));
        expect(refusalIn(rig.arrive())).toBeNull();
      }
    }
  });

  test('are another matter than replicas that do not generate: a pool of those refuses', () => {
    const rig = new CoreRig();
    for (const name of ['a', 'b', 'c'])
      rig.ready(name, { phase: 'degraded', degradedFor: 'probe' });
    expect(refusalIn(rig.arrive())?.code).toBe('no_replica');
  });

  test('an agent that does not say why its replica is degraded means that it does not generate', () => {
    const rig = pool(6, []);
    rig.report('r0', { phase: 'degraded', degradedFor: null });
    expect(removals(rig)).toMatchObject({ r0: 'phase' });
  });
});

test('the status for people says why a replica is degraded, and how far another has come', () => {
  const rig = pool(3, [4.26, 3.2]);
  rig.ready('load', {
    phase: 'loading',
    progress: { stage: 'weights', ratio: 0.5 },
    etaMs: 41_200,
  });
  const gpu = { name: 'H200', memoryTotalBytes: null, memoryUsedBytes: null, temperatureC: null };
  const gpus = { ...gpu, count: 7, lost: 1, utilisationRatio: null, throttled: null };
  rig.ready('hot', { phase: 'degraded', degradedFor: 'host', gpus });
  const text = statusText({
    router: { id: 'r', region: 'fra', software: 'spillway/1', upForS: 7 },
    ready: true,
    config: null,
    bodyBytes: 0,
    connections: {},
    linkTotals: null,
    ...rig.core.status(rig.nowMs),
  });
  expect(text).toMatch(/r0 +degraded \(slow 4\.3×\):/);
  expect(text).toMatch(/r1 +degraded \(slow 3\.2×, in use\):/);
  expect(text).toMatch(/load +loading \(weights 50 %, 42 s left\):/);
  expect(text).toMatch(/hot +degraded \(host, 1 GPU missing\):/);
});
