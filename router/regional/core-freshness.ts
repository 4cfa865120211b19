// Whether a replica's reports come, and what holds for it when they do not.
//
//   fresh --link lost, or reports late--> stale --grace over--> static or out
//   any of them --a report--> fresh
//
// A stale or static replica that fails us is down until its agent returns or a probe of our own
// succeeds.

import { isStatic } from '../policy/static-pool.ts';
import { passPredicted } from './core-leases.ts';
import { tellPace } from './core-pace.ts';
import { dropReplica } from './core-targets.ts';
import type { PoolState, RegionalState, ReplicaState } from './core-state.ts';

/** A live agent reports at least every second; three missed ones make its link as good as lost. */
const REPORT_LATE_MS = 3_000;
const SWEEP_MS = 250;
/** How long a replica that left is remembered, for an agent that returns beside a living engine. */
const REMEMBER_MS = 600_000;
const PROBE_FIRST_MS = 1_000;
const PROBE_MAX_MS = 30_000;

export function noteFresh(state: RegionalState, replica: ReplicaState): void {
  replica.reportedMs = state.nowMs;
  replica.leftMs = null;
  if (replica.down) touch(replica);
  replica.down = false;
  if (replica.state === 'fresh' && replica.lostMs === null) return;
  touch(replica);
  replica.state = 'fresh';
  replica.lostMs = null;
  noteCount(state, replica.pool);
}

/** No report comes any more. */
export function noteLost(state: RegionalState, replica: ReplicaState): void {
  if (replica.state === 'out') replica.leftMs ??= state.nowMs;
  if (replica.lostMs !== null) return;
  touch(replica);
  replica.lostMs = state.nowMs;
  replica.state = 'stale';
  replica.pool.dirty = true;
  noteCount(state, replica.pool);
}

/** It said goodbye: no candidate from now on. */
export function noteGone(state: RegionalState, replica: ReplicaState): void {
  replica.gone = true;
  replica.pool.roster.changed();
  replica.link?.replicas.delete(replica);
  replica.link = null;
  replica.lostMs ??= state.nowMs;
  replica.state = 'out';
  replica.leftMs = state.nowMs;
  replica.pool.dirty = true;
  noteCount(state, replica.pool);
}

/** It failed us while no agent vouches for it. */
export function noteDown(state: RegionalState, replica: ReplicaState): void {
  if (replica.down) return;
  touch(replica);
  replica.down = true;
  replica.probeBackoffMs = PROBE_FIRST_MS;
  replica.probeAtMs = state.nowMs + PROBE_FIRST_MS;
  replica.pool.dirty = true;
  state.log('warn', 'replica_down', { replica: replica.id, state: replica.state });
}

export function probed(state: RegionalState, replica: ReplicaState, ok: boolean): void {
  if (!replica.probing) return;
  replica.probing = false;
  if (!replica.down) return;
  if (ok) {
    touch(replica);
    replica.down = false;
    for (const target of replica.targets) target.breaker.reset();
    replica.pool.dirty = true;
    state.log('info', 'replica_probed_up', { replica: replica.id });
    return;
  }
  replica.probeBackoffMs = Math.min(PROBE_MAX_MS, 2 * replica.probeBackoffMs);
  const jitter = 0.75 + 0.5 * state.deps.random.next();
  replica.probeAtMs = state.nowMs + jitter * replica.probeBackoffMs;
}

/** What only time changes. */
export function sweep(state: RegionalState): void {
  for (const replica of state.replicas.values()) sweepReplica(state, replica);
  tellPace(state);
}

/** When time alone may change something next; null when it cannot. */
export function sweepWakeMs(state: RegionalState): number | null {
  return state.replicas.size === 0 ? null : state.sweptMs + SWEEP_MS;
}

function sweepReplica(state: RegionalState, replica: ReplicaState): void {
  const { nowMs, settings } = state;
  const late = replica.reportedMs !== null && nowMs - replica.reportedMs > REPORT_LATE_MS;
  if (replica.lostMs === null && late) {
    noteLost(state, replica);
    state.log('warn', 'reports_late', { replica: replica.id });
  }
  const { lostMs } = replica;
  if (replica.state === 'stale' && lostMs !== null && nowMs - lostMs >= settings.staleGraceMs) {
    endGrace(state, replica);
  }
  for (const target of replica.targets) {
    if (lostMs !== null || target.report?.waitingPrefillMs === null) passPredicted(state, target);
  }
  if (wantsProbe(replica, nowMs)) probe(state, replica);
  const { leftMs } = replica;
  if (leftMs === null || replica.link !== null || nowMs - leftMs < REMEMBER_MS) return;
  if (replica.targets.every((target) => target.leases.size === 0)) dropReplica(state, replica);
}

function endGrace(state: RegionalState, replica: ReplicaState): void {
  const { pool } = replica;
  const { settings, nowMs } = state;
  const backMs = Math.max(settings.staticWindowMs, settings.staleGraceMs + SWEEP_MS);
  const members = [...pool.replicas].filter((other) => !other.gone && other.state !== 'out').length;
  const freshBefore = pool.fresh.at(nowMs - backMs);
  const holds = isStatic({ members, freshNow: freshCount(pool), freshBefore });
  touch(replica);
  replica.state = holds ? 'static' : 'out';
  if (!holds) replica.leftMs = nowMs;
  pool.dirty = true;
  state.log('warn', holds ? 'replica_static' : 'replica_out', { replica: replica.id });
}

/** How the replica stands is another thing now. */
function touch({ pool, targets }: ReplicaState): void {
  pool.roster.touchAll(targets);
}

function wantsProbe(replica: ReplicaState, nowMs: number): boolean {
  const used = replica.state === 'stale' || replica.state === 'static';
  return used && replica.down && !replica.probing && nowMs >= replica.probeAtMs;
}

function probe(state: RegionalState, replica: ReplicaState): void {
  const model = replica.targets[0]?.report?.models[0]?.id;
  if (model === undefined) return;
  replica.probing = true;
  const { id, url, pool } = replica;
  state.emit({ kind: 'probe', replica: id, pool: pool.id, url, model });
}

function freshCount(pool: PoolState): number {
  let count = 0;
  for (const replica of pool.replicas) if (replica.state === 'fresh') count += 1;
  return count;
}

function noteCount(state: RegionalState, pool: PoolState): void {
  const { settings, nowMs } = state;
  const keepMs = 2 * Math.max(settings.staticWindowMs, settings.staleGraceMs);
  pool.fresh.note(freshCount(pool), nowMs, keepMs);
}
