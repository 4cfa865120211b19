// Who of a pool is fit for users: ready, or slow and not among those that stay out for it (policy/slow-third.ts).

import { heldOut, type SlowTarget } from '../policy/slow-third.ts';
import type { PoolState, RequestState, TargetState } from './core-state.ts';

/** Of replicas that do not say which they run. */
const UNKNOWN_REVISION = 'unknown';

/** Targets of a pool whose reports count, whatever the request. */
export function targetsOf(pool: PoolState): readonly TargetState[] {
  return pool.roster.targets;
}

/** Fit for users: ready, or slow and not among those of its pool that stay out for it. */
export function isReady(target: TargetState, slow: SlowOut): boolean {
  return couldServe(target) && !slow.has(target);
}

export type SlowOut = ReadonlySet<TargetState>;

/** Of a look at everybody who could serve. */
export const NOBODY: SlowOut = new Set();

/** Those that stay out for slowness now. */
export function slowOut(pool: PoolState): SlowOut {
  let slow: SlowTarget<TargetState>[] | null = null;
  for (const target of targetsOf(pool)) {
    const { report } = target;
    if (report?.phase !== 'degraded' || !couldServe(target)) continue;
    slow ??= [];
    slow.push({ target, key: target.key, slowRatio: report.slowRatio });
  }
  if (slow === null) return NOBODY;
  let members = 0;
  for (const target of targetsOf(pool)) if (couldServe(target)) members += 1;
  return heldOut(slow, members);
}

function couldServe({ report, replica }: TargetState): boolean {
  if (replica.state === 'out' || replica.down) return false;
  return report?.phase === 'ready' || isSlow(report);
}

export function isSlow(report: TargetState['report']): boolean {
  return report?.phase === 'degraded' && report.degradedFor === 'slow';
}

/** None is asked for, or it says that it runs one of them. */
export function runsOther(
  revisions: RequestState['revisions'],
  report: TargetState['report'],
): boolean {
  if (revisions === null) return false;
  const revision = report?.revision ?? UNKNOWN_REVISION;
  return revision === UNKNOWN_REVISION || !revisions.includes(revision);
}
