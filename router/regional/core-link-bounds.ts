// What one link may claim: how many targets, how many snapshots of their prefixes, and only what can be true.
//
//   targets     TARGETS_MAX a link: an agent stands beside the engines of one machine
//   order       a report older than one that has come over the same link is dropped
//   acks        nobody has seen what was never sent: such a report acknowledges nothing
//   snapshots   a bucket of two for each target and some, refilled by one for each target in 10 s: a snapshot empties
//               what was held before it, which costs a walk through the index. Past that the link is closed

import type { ReplicaReport } from '../../shared/model/report.ts';
import type { HelloEngine } from '../../shared/protocol/messages.ts';
import type { LinkHolder, RegionalState, TargetState } from './core-state.ts';

const TARGETS_MAX = 256;
const SNAPSHOTS_SPARE = 8;
const SNAPSHOT_REFILL_MS = 10_000;

/** State of a link that the bounds need. */
export interface LinkBounds {
  /** Number of the last report of each target over this link. */
  readonly reportSeqs: Map<TargetState, number>;
  snapshots: number;
  snapshotsMs: number;
}

export function newBounds(nowMs: number): LinkBounds {
  return { reportSeqs: new Map(), snapshots: Number.POSITIVE_INFINITY, snapshotsMs: nowMs };
}

/** The engines of a hello that fit a link, in its order; the others are counted. */
export function enginesWithin(
  state: RegionalState,
  engines: readonly HelloEngine[],
): readonly HelloEngine[] {
  let targets = 0;
  const within = engines.filter(({ ranks }) => {
    targets += ranks;
    return targets <= TARGETS_MAX;
  });
  if (within.length < engines.length) state.limit('link_targets');
  return within;
}

/** Whether the report is the newest of its target over its link. */
export function isNewest(
  state: RegionalState,
  target: TargetState,
  { seq }: ReplicaReport,
): boolean {
  const seqs = target.replica.link?.bounds.reportSeqs;
  const newest = seq >= (seqs?.get(target) ?? 0);
  if (newest) seqs?.set(target, seq);
  else state.limit('report_order');
  return newest;
}

/** Up to which ledger event a report may acknowledge; -1 where it claims to have seen what was never sent. */
export function credibleAck(
  state: RegionalState,
  target: TargetState,
  { ackedSeq }: ReplicaReport,
): number {
  if (ackedSeq <= target.seq) return ackedSeq;
  state.limit('ack_beyond');
  return -1;
}

/** Counts a snapshot. False: the link has sent too many and goes. */
export function admitsSnapshot(state: RegionalState, link: LinkHolder): boolean {
  const { bounds } = link;
  let targets = 0;
  for (const replica of link.replicas) targets += replica.targets.length;
  const refill = (targets * (state.nowMs - bounds.snapshotsMs)) / SNAPSHOT_REFILL_MS;
  bounds.snapshots = Math.min(2 * targets + SNAPSHOTS_SPARE, bounds.snapshots + refill) - 1;
  bounds.snapshotsMs = state.nowMs;
  if (bounds.snapshots >= 0) return true;
  state.limit('prefix_snapshots');
  state.emit({ kind: 'close', link: link.id, reason: 'flooded' });
  return false;
}
