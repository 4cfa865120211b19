// Regions that stand still: their connections stay open, and nothing comes over them. core-call-back.ts finds them.
//
//   silent   nothing was heard for three reports' time: no report, no answer to a ping, no first token, no other answer;
//            and each of its links is overdue by its own habit (`ReportGaps`), so that reports that are only late are none
//            that are missing
//   then     one request at a time tries it, others go where they else may; where they may nowhere, they go there all the
//            same. Attempts that it holds are called back once their first token is overdue by what was expected of
//            them, or once nothing was heard for `staleGraceMs`, if some other region may serve them
//   until    anything is heard of it
//
// A router that has itself stood still has heard nothing either, and is not to take that for everybody else's silence.

import type { AttemptResult } from '../policy/attempt-result.ts';
import type { GlobalState, RegionState } from './core-state.ts';

/** Events that are further apart were kept from this router: while anything is under way it is woken more often, ms. */
const OWN_STALL_MS = 1_500;

/** Something of it has come that only a region that runs can send. */
export function heard(state: GlobalState, region: RegionState): void {
  const { silence } = region;
  silence.heardMs = state.nowMs;
  if (!silence.silent) return;
  silence.silent = false;
  silence.trial = null;
  state.log('info', 'region_heard', { region: region.id });
}

/** It has answered, whatever it said. */
export function isAnswer(result: AttemptResult): boolean {
  if (result.kind === 'serverFault') {
    return result.cause === 'status' || result.cause === 'error_event';
  }
  return (
    result.kind === 'complete' || result.kind === 'clientError' || result.kind === 'backPressure'
  );
}

/** Somebody tries it: others are kept away. */
export function keepsAway({ silence }: RegionState): boolean {
  return silence.silent && silence.trial !== null;
}

/** Called before the time of an event counts: `gapMs` since the last one. */
export function forgiveOwnStall(state: GlobalState, nowMs: number): void {
  if (nowMs - state.nowMs < OWN_STALL_MS) return;
  for (const { silence, links } of state.regions.values()) {
    // Of whom nothing was ever heard is not seen; that is no silence.
    if (silence.silent || !Number.isFinite(silence.heardMs)) continue;
    silence.heardMs = Math.max(silence.heardMs, nowMs - OWN_STALL_MS);
    for (const link of links.values()) link.gaps.forgive();
  }
}
