// A region of several routers that loses one: what was under way there breaks off, and what goes there is refused, while the
// others serve. That is no fault of the region, and its tenants may have no other.
//
//   told by   a connection refused or broken, in a region one of whose linked routers knows of several
//   then      the request is decided anew with the region still among the choices, once; connections lead to another of its
//             routers (`RegionConnections`, or the balancer before them)
//   breaker   all that breaks within a second is one fault. A second try that fails counts in full, so that a region
//             that is gone whole is left alone as soon as any other
//
// The second try is free, as what a region takes along when it dies: it is no more than was under way to one router.

import type { AttemptResult } from '../policy/attempt-result.ts';
import type { GlobalState, LeaseState, RegionState } from './core-state.ts';

/** What breaks so close together breaks with one router, ms. */
const TOGETHER_MS = 1_000;

/** Whether what ended the attempt may be one router of several. */
export function isLostRouter(
  { nowMs }: GlobalState,
  { region, request }: LeaseState,
  result: AttemptResult,
): boolean {
  const broke =
    result.kind === 'connectFailed' || (result.kind === 'serverFault' && result.cause === 'reset');
  if (!broke || request.lostIn.has(region.id) || region.silence.silent) return false;
  return region.breaker.state(nowMs) === 'closed' && knowsSeveral(region);
}

/** True for the first of those that break together: that one counts. */
export function isNewLoss({ nowMs }: GlobalState, region: RegionState): boolean {
  if (nowMs - region.lostMs < TOGETHER_MS) return false;
  region.lostMs = nowMs;
  return true;
}

function knowsSeveral({ links }: RegionState): boolean {
  for (const { report } of links.values()) if (report !== null && report.routers > 1) return true;
  return false;
}
