// All checks, in the order in which a run makes them, chosen so that a real engine, which loads for a minute, is started
// as seldom as can be: loading first, ends last.

import type { Theme } from './check.ts';
import { CACHE } from './checks-cache.ts';
import { COUNTERS } from './checks-counters.ts';
import { ENDS, FREEZING, LOADING } from './checks-ends.ts';
import { KV_EVENTS } from './checks-kv-events.ts';
import { LEAVING } from './checks-leaving.ts';
import { LORA } from './checks-lora.ts';
import { METRICS } from './checks-metrics.ts';
import { PRESSURE } from './checks-pressure.ts';
import { RANKS_THEME } from './checks-ranks.ts';
import { STREAMS } from './checks-streams.ts';
import { SURFACE } from './checks-surface.ts';

/** For an engine of one rank. */
export const THEMES: readonly Theme[] = [
  LOADING,
  SURFACE,
  STREAMS,
  METRICS,
  COUNTERS,
  CACHE,
  LEAVING,
  PRESSURE,
  KV_EVENTS,
  LORA,
  FREEZING,
  ENDS,
];

/** For an engine of two ranks behind one port. */
export const RANK_THEMES: readonly Theme[] = [RANKS_THEME];
