// A routing decision is a value: what, where, why, and what else was considered. Its `reason` is used as it
// stands for metric labels, log fields, response headers and explain.

import type { Target } from './ids.ts';

export const DECISION_KINDS = ['send', 'queue', 'shed', 'refuse'] as const;
export type DecisionKind = (typeof DECISION_KINDS)[number];

export const SHED_REASONS = [
  'queue_full',
  'queue_timeout',
  'wait_limit',
  'deadline_unreachable',
] as const;

export const DECISION_REASONS = [
  // send
  'prefix', // the least cost, and it holds more of the prompt than any other
  'least_cost', // the least cost
  'tie_draw', // drawn among near ties
  'only_candidate', // nothing else was eligible
  'failover', // a second or later attempt
  // queue
  'all_full',
  'kv_room', // a new conversation, and no replica has KV room for it
  'order', // others queue before it
  'no_capacity_yet', // nothing ready, pending capacity in sight
  ...SHED_REASONS,
  // refuse
  'unknown_model',
  'unknown_revision', // the model is served, in no revision that is asked for
  'no_replica',
  'context_length',
  'attempts_exhausted',
  'retry_budget',
  'draining',
] as const;
export type DecisionReason = (typeof DECISION_REASONS)[number];

export const FILTER_REASONS = [
  'model',
  'revision', // it runs none of those that are asked for
  'phase',
  'slow',
  'stale',
  'static_down',
  'breaker',
  'paused',
  'excluded',
  'context_length',
] as const;
export type FilterReason = (typeof FILTER_REASONS)[number];

export const KV_ROOM_STATES = [
  'room',
  'full',
  'spare', // full, but its prefill keeps up without what the cache would hold, and nothing waits there
  'aged', // full, and the request has waited long enough to enter anyway
  'continues', // a conversation that some candidate holds: never held back
  'unknown', // capacity or working set is: the rule does not act
] as const;

/** What a conversation finds in a replica's KV cache, in tokens. */
export interface KvRoom {
  readonly state: (typeof KV_ROOM_STATES)[number];
  /** Share of the capacity that live conversations may take. */
  readonly boundRatio: number;
  readonly capacityTokens: number | null;
  /** As last reported. */
  readonly workingSetTokens: number | null;
  /** Growth by what this router and its siblings have sent and no report includes. */
  readonly ownTokens: number;
  /** Growth by the request itself. */
  readonly neededTokens: number;
}

export interface Candidate {
  readonly target: Target;
  /** Set when the filter removed it; the figures below are then null. */
  readonly removed: FilterReason | null;
  readonly costMs: number | null;
  readonly waitMs: number | null;
  readonly prefillMs: number | null;
  readonly predictedTtftMs: number | null;
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
  readonly full: boolean;
  /** Null where it was removed, and where working-set admission is off or not about such requests. */
  readonly kvRoom: KvRoom | null;
  /** Probability with which it is drawn. */
  readonly drawProbability: number;
}

export interface Decision {
  readonly kind: DecisionKind;
  readonly target: Target | null;
  readonly reason: DecisionReason;
  /** The best ones, and those removed; none where nobody asks for them (`explain`). */
  readonly candidates: readonly Candidate[];
}
