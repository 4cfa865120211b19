// Replicas and their targets: made when an agent names them, dropped with all that the router knew
// of them.

import { ChurnMap, ChurnSet } from '../../shared/lib/churn.ts';
import { emptySums } from '../../shared/model/cost-curve.ts';
import { targetKey, type AgentId } from '../../shared/model/ids.ts';
import type { HelloEngine, ResumeState } from '../../shared/protocol/messages.ts';
import { Breaker } from '../policy/breaker.ts';
import { RecentTurns } from '../policy/working-set.ts';
import type { PoolState, RegionalState, ReplicaState, TargetState } from './core-state.ts';

const RANKS_MAX = 64;

export function newReplica(
  state: RegionalState,
  pool: PoolState,
  from: { engine: HelloEngine; agentId: AgentId },
): ReplicaState {
  const { engine, agentId } = from;
  const replica: ReplicaState = {
    id: engine.replica,
    pool,
    url: engine.advertiseUrl,
    targets: [],
    link: null,
    agentId,
    state: 'out',
    reportedMs: null,
    lostMs: state.nowMs,
    gone: false,
    leftMs: null,
    down: false,
    probeAtMs: 0,
    probeBackoffMs: 0,
    probing: false,
  };
  state.replicas.set(replica.id, replica);
  pool.replicas.add(replica);
  setRanks(state, replica, engine.ranks);
  return replica;
}

/** More ranks get targets at once; fewer lose theirs, or, where something is under way there, are sent nothing any more. */
export function setRanks(state: RegionalState, replica: ReplicaState, ranks: number): void {
  const wanted = Math.max(1, Math.min(RANKS_MAX, ranks));
  replica.pool.roster.changed();
  while (replica.targets.length < wanted) {
    replica.targets.push(newTarget(state, replica, replica.targets.length));
  }
  while (replica.targets.length > wanted) {
    const last = replica.targets.at(-1);
    if (last === undefined || last.leases.size > 0) break;
    forgetTarget(state, last);
    replica.targets.pop();
  }
  // What its agent said of them was of an engine that had them.
  for (const target of replica.targets.slice(wanted)) target.report = null;
}

/** Forgets a replica without open leases. */
export function dropReplica(state: RegionalState, replica: ReplicaState): void {
  for (const target of replica.targets) forgetTarget(state, target);
  replica.link?.replicas.delete(replica);
  replica.pool.replicas.delete(replica);
  replica.pool.roster.changed();
  state.replicas.delete(replica.id);
}

/** What an agent process that starts beside a living engine gets back. */
export function resumeOf(state: RegionalState, replica: ReplicaState): ResumeState[] {
  const resume: ResumeState[] = [];
  for (const target of replica.targets) {
    const { report, incarnation } = target;
    if (report === null || incarnation === null) continue;
    const indexed = state.index.incarnation(target.slot) === incarnation;
    resume.push({
      replica: replica.id,
      rank: target.rank,
      incarnation,
      prefillCost: report.prefillCost,
      prefillTps: report.prefillTps,
      bytesPerToken: report.bytesPerToken,
      partTokens: report.partTokens,
      kappa: report.kappa,
      runningMax: report.runningMax,
      counters: report.counters,
      ...(indexed ? state.index.snapshot(target.slot) : { runs: [], leaves: [] }),
    });
  }
  return resume;
}

/** What the target is said to hold is forgotten: its engine process is another one, or it tells all of it anew. */
export function renewSlot({ index }: RegionalState, target: TargetState): void {
  target.slot = index.renew(target.slot);
  target.replica.pool.roster.renewed(target);
}

function forgetTarget(state: RegionalState, target: TargetState): void {
  state.index.removeTarget(target.slot);
  target.breaker.reset();
}

function newTarget(state: RegionalState, replica: ReplicaState, rank: number): TargetState {
  return {
    replica,
    rank,
    key: targetKey({ replica: replica.id, rank }),
    slot: state.index.addTarget(),
    place: -1,
    report: null,
    receivedMs: Number.NEGATIVE_INFINITY,
    incarnation: null,
    asked: null,
    leasesFor: undefined,
    seq: 0,
    unconfirmed: true,
    leases: new ChurnMap(),
    attempts: 0,
    unacked: new ChurnSet(),
    unackedSums: emptySums(),
    openSums: emptySums(),
    others: null,
    breaker: new Breaker(replica.pool.roster.breakers),
    pausedUntilMs: Number.NEGATIVE_INFINITY,
    firstTokenMs: Number.NEGATIVE_INFINITY,
    peakRunning: { current: 0, previous: 0, sinceMs: state.nowMs },
    released: { requests: 0, prefillMs: 0 },
    idleSinceMs: null,
    roomSinceMs: null,
    claims: [],
    agedMs: Number.NEGATIVE_INFINITY,
    recentTurns: new RecentTurns(),
  };
}
