// What the routers of one region say of one pool, as one: agents' figures are the same in every router's report, so the
// freshest counts, but for one of a router that sees less than half of the replicas that another has just told of: it has
// just started, or is cut off from them. What a router holds itself (its queue, what it has sent and no agent has reported) is its own, so
// those are summed. What new conversations wait for KV room is the longest of them.

import type { CostCurve } from '../../shared/model/cost-curve.ts';
import type { RegionModelReport, RegionPoolReport } from '../../shared/protocol/region-messages.ts';

export interface ReceivedPool {
  readonly report: RegionPoolReport;
  readonly receivedMs: number;
}

/** A pool of a region as all its routers show it. Times are this router's. */
export interface PoolSight {
  /** When a report last came. */
  readonly receivedMs: number;
  readonly readyReplicas: number;
  /** Of all ready replicas; null: unknown. */
  readonly waitingPrefillMs: number | null;
  /** Of every router: held back, or on its way to a replica. */
  readonly routersMs: readonly number[];
  readonly queuedRequests: number;
  readonly kvRoomWaitMs: number | null;
  readonly prefillCost: CostCurve | null;
  readonly kvLifetimeMs: number | null;
  readonly kvUsageRatio: number | null;
  readonly hasCapacity: boolean;
  readonly models: readonly RegionModelReport[];
}

/** Null where nobody has said anything of it. */
export function mergePool(received: readonly ReceivedPool[]): PoolSight | null {
  const freshest = freshestOf(received);
  if (freshest === null) return null;
  const { report } = freshest;
  const waits = received.flatMap((each) => each.report.kvRoomWaitMs ?? []);
  return {
    receivedMs: Math.max(...received.map((each) => each.receivedMs)),
    readyReplicas: report.readyReplicas,
    waitingPrefillMs: report.waitingPrefillMs,
    routersMs: received.map((each) => each.report.queuedPrefillMs + each.report.unacknowledgedMs),
    queuedRequests: received.reduce((sum, each) => sum + each.report.queuedRequests, 0),
    kvRoomWaitMs: waits.length === 0 ? null : Math.max(...waits),
    prefillCost: report.prefillCost,
    kvLifetimeMs: report.kvLifetimeMs,
    kvUsageRatio: report.kvUsageRatio,
    hasCapacity: report.readyReplicas > 0 || report.pending.length > 0,
    models: report.models,
  };
}

/** Of what was seen within so long of what was seen last, ms: two reports. */
const AS_FRESH_MS = 2_000;

/** By when its replicas were last seen, not by when it came. */
function freshestOf(received: readonly ReceivedPool[]): ReceivedPool | null {
  const lastMs = Math.max(...received.map(seenMs));
  let most = 0;
  for (const each of received) {
    if (lastMs - seenMs(each) <= AS_FRESH_MS) most = Math.max(most, each.report.readyReplicas);
  }
  let freshest: ReceivedPool | null = null;
  for (const each of received) {
    if (each.report.readyReplicas * 2 < most) continue;
    if (freshest === null || seenMs(each) > seenMs(freshest)) freshest = each;
  }
  return freshest;
}

function seenMs({ report, receivedMs }: ReceivedPool): number {
  return report.observedAgoMs === null
    ? Number.NEGATIVE_INFINITY
    : receivedMs - report.observedAgoMs;
}
