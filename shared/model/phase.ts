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
