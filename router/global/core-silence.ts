// Regions that stand still: their connections stay open, and nothing comes over them.
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

import type { LeaseId } from '../../shared/model/ids.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import type { GlobalState, LeaseState, RegionState } from './core-state.ts';
import { isServedElsewhere } from './core-weigh.ts';

/** Least of what a first token may be late by before it is overdue, ms. */
const OVERDUE_MS = 1_000;
/** Events that are further apart were kept from this router: while anything is under way it is woken more often, ms. */
const OWN_STALL_MS = 1_500;
/** Between two looks at what silent regions hold, ms. */
const LOOK_MS = 500;
/** Regions report as often as they are asked to, and at least as often, ms. */
const INTERVAL_MAX_MS = 5_000;
const MISSED = 3;

export interface Silence {
  /** When anything of it last came. */
  heardMs: number;
  silent: boolean;
  /** The attempt that tries it meanwhile. */
  trial: LeaseId | null;
}

export function newSilence(): Silence {
  return { heardMs: Number.NEGATIVE_INFINITY, silent: false, trial: null };
}

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
    if (silence.silent) continue;
    silence.heardMs = Math.max(silence.heardMs, nowMs - OWN_STALL_MS);
    for (const link of links.values()) link.gaps.forgive();
  }
}

export function lookForSilence(state: GlobalState): void {
  let any = false;
  for (const region of state.regions.values()) {
    const { silence } = region;
    if (!silence.silent && isOverdue(state, region)) {
      silence.silent = true;
      const quietMs = Math.round(state.nowMs - silence.heardMs);
      state.log('warn', 'region_silent', { region: region.id, quietMs });
    }
    any ||= silence.silent;
  }
  if (!any || state.nowMs - state.calledBackMs < LOOK_MS) return;
  state.calledBackMs = state.nowMs;
  callBack(state);
}

function isOverdue(state: GlobalState, { silence, links }: RegionState): boolean {
  const { nowMs, settings } = state;
  const quietMs = nowMs - silence.heardMs;
  const intervalMs = Math.min(settings.reportIntervalMs, INTERVAL_MAX_MS);
  // Nothing was ever heard: it is not seen, which is another matter.
  if (!Number.isFinite(quietMs) || quietMs < MISSED * intervalMs) return false;
  if (quietMs >= settings.staleGraceMs) return true;
  for (const { gaps, receivedMs } of links.values()) {
    if (nowMs - receivedMs < gaps.overdueMs(intervalMs)) return false;
  }
  return true;
}

/** What silent regions hold and owe an answer for, where another may give it. */
function callBack(state: GlobalState): void {
  const elsewhere = new Map<string, boolean>();
  for (const lease of state.leases.values()) {
    if (!lease.region.silence.silent || lease.aborting || lease.firstTokenMs !== null) continue;
    if (!isOwed(state, lease)) continue;
    const { request, region } = lease;
    const { tenant, model } = request.request;
    const key = `${region.id} ${tenant} ${model}`;
    const known = request.tried.size === 0 ? elsewhere.get(key) : undefined;
    const other = known ?? isServedElsewhere(state, request, region);
    if (request.tried.size === 0) elsewhere.set(key, other);
    if (!other) continue;
    lease.aborting = true;
    state.emit({ kind: 'abort', lease: lease.id, reason: 'region_silent' });
  }
}

function isOwed({ nowMs, settings }: GlobalState, lease: LeaseState): boolean {
  const ageMs = nowMs - lease.sentMs;
  const expectedMs = Math.max(0, lease.timeoutMs - settings.firstTokenBaseMs);
  if (ageMs >= OVERDUE_MS + expectedMs) return true;
  const quietMs = nowMs - lease.region.silence.heardMs;
  return ageMs >= OVERDUE_MS && quietMs >= settings.staleGraceMs;
}
