// The phase that a rank, and an engine as a whole, is said to be in: that of its process, unless it serves and the rank
// is not fit to (`degraded`), or has not generated yet in this life of the engine (`warming`).

import type { TargetState } from './core-target.ts';
import type { Lifecycle } from './policy/lifecycle.ts';
import type { Phase } from '../shared/model/phase.ts';

export function phaseOf(lifecycle: Lifecycle, target: TargetState): Phase {
  const { phase } = lifecycle;
  if (phase !== 'ready') return phase;
  if (target.health.degradedFor !== null) return 'degraded';
  return target.health.proved ? 'ready' : 'warming';
}

/** Since when, on the core's clock. */
export function phaseSinceMs(lifecycle: Lifecycle, target: TargetState): number {
  if (lifecycle.phase !== 'ready') return lifecycle.sinceMs;
  return Math.max(lifecycle.sinceMs, target.health.sinceMs);
}

/** `degraded` only where no rank is fit. */
export function enginePhase(lifecycle: Lifecycle, targets: readonly TargetState[]): Phase {
  const phases = targets.map((target) => phaseOf(lifecycle, target));
  return phases.every((phase) => phase === 'degraded') ? 'degraded' : lifecycle.phase;
}
