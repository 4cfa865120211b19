// Finds regions that have fallen silent (core-silence.ts), and calls back what they hold.

import type { GlobalState, LeaseState, RegionState } from './core-state.ts';
import { isServedElsewhere } from './core-weigh.ts';

/** Least of what a first token may be late by before it is overdue, ms. */
const OVERDUE_MS = 1_000;
/** Between two looks at what silent regions hold, ms. */
const LOOK_MS = 500;
/** Regions report as often as they are asked to, and at least as often, ms. */
const INTERVAL_MAX_MS = 5_000;
const MISSED = 3;

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

function isOverdue(state: GlobalState, { silence, links, pools }: RegionState): boolean {
  const { nowMs, settings } = state;
  const quietMs = nowMs - silence.heardMs;
  const intervalMs = Math.min(settings.reportIntervalMs, INTERVAL_MAX_MS);
  // Nothing was ever reported: it is not seen, which is another matter.
  if (pools.size === 0 || quietMs < MISSED * intervalMs) return false;
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
