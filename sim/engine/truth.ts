// The prefill that an engine still has before it: what routers and agents estimate, known here.
//
// Found by running a copy forward with no new requests: every step with prefill in it counts, those that only
// decode do not (they are a wait for room or a slot, not prefill). So prefixes that waiting requests share are
// computed once, evictions and preemptions to come are included, and answers end when they will.

import type { EngineEvent } from './events.ts';
import type { EngineCore } from './core.ts';

export interface PrefillLeft {
  /** Prompt tokens that steps still compute, those of preempted requests again; the step under way counts whole. */
  readonly tokens: number;
  /** ms of those steps; of the one under way what is left of it. */
  readonly ms: number;
}

/** Steps that are looked ahead at most: an hour of decoding at 20 ms. */
const STEPS_MAX = 180_000;

/** `nowMs` on the engine's clock; for a core that stands still, when it stopped. */
export function prefillLeft(core: EngineCore, nowMs: number): PrefillLeft {
  if (!core.hasPrefill) return { tokens: 0, ms: 0 };
  const fork = core.fork(nowMs);
  let tokens = 0;
  let ms = 0;
  fork.onStep = ({ prefillTokens, startMs, endMs }) => {
    if (prefillTokens === 0) return;
    tokens += prefillTokens;
    ms += Math.max(0, endMs - Math.max(startMs, nowMs));
  };
  const ignored: EngineEvent[] = [];
  for (let step = 0; step < STEPS_MAX && fork.hasPrefill; step += 1) {
    const nextMs = fork.nextEventMs();
    if (nextMs === null) break;
    fork.advance(nextMs, ignored);
    ignored.length = 0;
  }
  return { tokens, ms };
}
