import { expect, test } from 'vitest';
import type { PoolId } from '../../shared/model/ids.ts';
import type { RegionPoolReport } from '../../shared/protocol/region-messages.ts';
import { mergePool } from './region-merge.ts';

const REPORT: RegionPoolReport = {
  ...{ pool: 'p' as PoolId, observedAgoMs: 0, readyReplicas: 2, waitingPrefillMs: 100 },
  ...{ waitingPrefillTokens: null, prefillCost: null, prefillTps: null, slotWaitMs: null },
  ...{ kvUsageRatio: null, preemptionsPerS: null, kvLifetimeMs: null, kvRoomTokens: null },
  ...{ pending: [], models: [], tiers: [], queuedPrefillMs: 0, queuedRequests: 0 },
  ...{ oldestQueuedMs: null, kvRoomWaitMs: null, unacknowledgedMs: 0 },
};

function merged(...reports: readonly (readonly [Partial<RegionPoolReport>, number])[]) {
  return mergePool(
    reports.map(([more, receivedMs]) => ({ report: { ...REPORT, ...more }, receivedMs })),
  );
}

test('figures of replicas are those of the report that saw them last, not of the one that came last', () => {
  const sight = merged(
    [{ observedAgoMs: 50, waitingPrefillMs: 300, readyReplicas: 3 }, 1_000],
    [{ observedAgoMs: 900, waitingPrefillMs: 700, readyReplicas: 4 }, 1_100],
  );
  expect(sight).toMatchObject({ waitingPrefillMs: 300, readyReplicas: 3, receivedMs: 1_100 });
});

test('a router that has just started, or is cut off from most replicas, does not tell of them while another does', () => {
  const whole = { observedAgoMs: 900, waitingPrefillMs: 6_000, readyReplicas: 60 };
  const few = { observedAgoMs: 0, waitingPrefillMs: 100, readyReplicas: 1, queuedPrefillMs: 500 };
  expect(merged([few, 1_000], [whole, 1_000])).toMatchObject({
    ...{ readyReplicas: 60, waitingPrefillMs: 6_000, routersMs: [500, 0] },
  });
  // Most have gone: the other says so with its next report, or is out of date.
  expect(merged([few, 2_000], [whole, 800])?.readyReplicas).toBe(1);
  expect(merged([{ ...few, readyReplicas: 30 }, 1_000], [whole, 1_000])?.readyReplicas).toBe(30);
  const unseen = { ...few, observedAgoMs: null, readyReplicas: 0 };
  expect(merged([unseen, 1_000], [unseen, 1_000])?.readyReplicas).toBe(0);
});

test('what routers hold themselves is summed, however old', () => {
  const sight = merged(
    [{ queuedPrefillMs: 900, unacknowledgedMs: 20, queuedRequests: 4 }, 1_000],
    [{ queuedPrefillMs: 700, unacknowledgedMs: 10, queuedRequests: 3 }, 400],
  );
  expect(sight).toMatchObject({ routersMs: [920, 710], queuedRequests: 7, waitingPrefillMs: 100 });
});

test('new conversations wait for KV room as long as in the router where it is longest; null is no wait', () => {
  expect(merged([{ kvRoomWaitMs: 10 }, 0], [{ kvRoomWaitMs: 800 }, 0])?.kvRoomWaitMs).toBe(800);
  expect(merged([{}, 0])?.kvRoomWaitMs).toBeNull();
});

test('replicas on their way are capacity; a router that has seen none says nothing of them', () => {
  expect(merged([{ readyReplicas: 0 }, 0])?.hasCapacity).toBe(false);
  expect(merged([{ readyReplicas: 0, pending: [{ replicas: 1, etaMs: 9 }] }, 0])?.hasCapacity).toBe(
    true,
  );
  const sight = merged(
    [{ observedAgoMs: null, readyReplicas: 0, waitingPrefillMs: null }, 900],
    [{ observedAgoMs: 100 }, 500],
  );
  expect(sight).toMatchObject({ readyReplicas: 2, waitingPrefillMs: 100 });
});

test('nobody has said anything: nothing is known', () => {
  expect(merged()).toBeNull();
});
