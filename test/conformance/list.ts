// All checks, in the order in which a run makes them: those that end an engine last.

import type { Theme } from './check.ts';
import { CACHE } from './checks-cache.ts';
import { COUNTERS } from './checks-counters.ts';
import { ENDS, FREEZING } from './checks-ends.ts';
import { KV_EVENTS } from './checks-kv-events.ts';
import { LEAVING } from './checks-leaving.ts';
import { METRICS } from './checks-metrics.ts';
import { PRESSURE } from './checks-pressure.ts';
import { STREAMS } from './checks-streams.ts';
import { SURFACE } from './checks-surface.ts';

export const THEMES: readonly Theme[] = [
  SURFACE,
  STREAMS,
  METRICS,
  COUNTERS,
  CACHE,
  LEAVING,
  PRESSURE,
  KV_EVENTS,
  FREEZING,
  ENDS,
];
