// How much of its queue one of several routers may release into a target between two reports.
//
//   share = (holdMs − wait at the report) / routers queueing
//   one request at least when that wait is 0
//
// and nothing while others hold more urgent work. One router alone is bound by the hold only.

import type { QueuedWork } from '../../shared/model/report.ts';

export interface OtherQueues {
  /** Routers that queue, this one included. */
  readonly routers: number;
  /** Most urgent priority that another holds or may hold; null when nobody else queues. */
  readonly topPriority: number | null;
}

/**
 * What the routers besides this one hold, from the sum that an agent reports; `counted`: this one
 * is in it.
 */
export function otherQueues(reported: QueuedWork, counted: boolean): OtherQueues {
  const others = reported.routersQueueing - (counted ? 1 : 0);
  if (others <= 0) return { routers: 1, topPriority: null };
  return { routers: others + 1, topPriority: reported.topPriority };
}

export interface ShareInput {
  readonly others: OtherQueues;
  /** Wait of the target as its last report had it, ms. */
  readonly reportedWaitMs: number;
  readonly holdMs: number;
  /** Released into it since that report. */
  readonly releasedMs: number;
  readonly releasedRequests: number;
}

/** Whether this router's share of the target allows one more request of the priority. */
export function shareAllows(input: ShareInput, priority: number): boolean {
  const { others } = input;
  if (others.topPriority === null) return true;
  if (input.reportedWaitMs <= 0 && input.releasedRequests === 0) return true;
  if (others.topPriority < priority) return false;
  return input.releasedMs < (input.holdMs - input.reportedWaitMs) / others.routers;
}
