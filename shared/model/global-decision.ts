// What the global tier decides of a request, as a value. Its `reason` is used as it stands for metric labels, log fields,
// response headers and explain.

import type { PoolId, RegionId } from './ids.ts';

export const GLOBAL_DECISION_KINDS = ['send', 'spill', 'queue', 'shed', 'refuse'] as const;
export type GlobalDecisionKind = (typeof GLOBAL_DECISION_KINDS)[number];

export const GLOBAL_DECISION_REASONS = [
  // send
  'home', // the nearest eligible region
  'affinity', // the conversation lives there
  'only_region', // nothing else was eligible
  'failover', // a second or later attempt
  'moved', // the conversation moves, since staying costs more
  // spill
  'spill_draw', // drawn abroad among home and credited receivers
  // queue
  'all_paused', // every eligible region asked for time
  // shed
  'wait_limit',
  'deadline_unreachable',
  'queue_full', // all places are taken, and nobody who waits has to give way
  // refuse
  'residency', // no region that the tenant allows is left
  'unknown_model',
  'unknown_revision', // the model is served, in no revision that is asked for
  'model_not_allowed',
  'context_length', // longer than any region's model takes
  'no_region',
  'attempts_exhausted',
  'retry_budget',
  'draining',
] as const;
export type GlobalDecisionReason = (typeof GLOBAL_DECISION_REASONS)[number];

/** What is known of the conversation of a request: nothing (it begins, or nobody knows it), or where it lives, and by what. */
export const CONVERSATION_SIGHTS = ['new', 'unknown', 'text', 'id', 'hint', 'none'] as const;
export type ConversationSight = (typeof CONVERSATION_SIGHTS)[number];

/** One region as the decision saw it. */
export interface RegionCandidate {
  readonly region: RegionId;
  /** Of `REGION_FILTER_REASONS`; the figures below are then null. */
  readonly removed: string | null;
  readonly home: boolean;
  readonly networkMs: number | null;
  readonly queueMs: number | null;
  readonly prefillMs: number | null;
  readonly costMs: number | null;
  readonly ttftMs: number | null;
  readonly cachedTokens: number | null;
  /** Spill credit that is left, ms; null: it needs none. */
  readonly creditMs: number | null;
  readonly drawProbability: number;
}

export interface GlobalDecision {
  readonly kind: GlobalDecisionKind;
  readonly region: RegionId | null;
  readonly pool: PoolId | null;
  readonly reason: GlobalDecisionReason;
  /** Null: it was not looked at. */
  readonly conversation: ConversationSight | null;
  /** Every region, in the order of the configuration; none where nobody asks for them. */
  readonly candidates: readonly RegionCandidate[];
}
