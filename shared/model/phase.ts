// The life of a replica. Only `ready` counts as capacity.

export const PHASES = [
  'starting',
  'loading',
  'warming',
  'ready',
  'degraded',
  'draining',
  'asleep',
  'dead',
] as const;

export type Phase = (typeof PHASES)[number];

/** Why a replica is `degraded`: it does not generate, it prefills far slower than it did, its machine lacks a GPU. */
export const DEGRADED_REASONS = ['probe', 'slow', 'host'] as const;
export type DegradedReason = (typeof DEGRADED_REASONS)[number];
