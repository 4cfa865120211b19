// Links with agents: who may say what, what a new one is told, and what its messages change.
//
// A replica belongs to one link at a time, the newest that named it; the older agent is fenced and
// no longer heard about it.

import type { LinkId } from '../../shared/model/ids.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import {
  PROTOCOL_VERSION,
  ROUTER_FEATURES,
  type AgentMessage,
  type Hello,
  type HelloEngine,
  type PrefixMessage,
  type ResumeState,
} from '../../shared/protocol/messages.ts';
import { reportIntervalMs } from '../policy/report-interval.ts';
import { noteFresh, noteGone, noteLost } from './core-freshness.ts';
import {
  admitsSnapshot,
  credibleAck,
  enginesWithin,
  isNewest,
  newBounds,
} from './core-link-bounds.ts';
import { noteOthersAcked } from './core-siblings.ts';
import { acknowledge, chainsOf, orphanLeases, tellLeases } from './core-leases.ts';
import { queuedMessage } from './core-queued.ts';
import { noteIdle } from './core-share.ts';
import type {
  LinkHolder,
  PoolState,
  RegionalState,
  ReplicaState,
  TargetState,
} from './core-state.ts';
import { lookForRoom, noteTurnEnds } from './core-working-set.ts';
import { dropReplica, newReplica, renewSlot, resumeOf, setRanks } from './core-targets.ts';

const REPLICAS_MAX = 4_096;
const NAMES_MAX = 1_024;
/** ms between two times that all reports of a pool are looked through for names. */
const SORT_NAMES_MS = 10_000;
const CLOCK_OFFSET_ALARM_MS = 5_000;
const PEAK_WINDOW_MS = 60_000;
/** ms that an agent may have fewer links than there are routers before somebody is told. */
const FEW_LINKS_MS = 15_000;

/** `workers`: link addresses of this router's own, as the agent reaches them. */
export function linkUp(
  state: RegionalState,
  id: LinkId,
  hello: Hello,
  workers: readonly string[] = [],
): void {
  const [least, greatest] = hello.protocol;
  if (greatest < PROTOCOL_VERSION || least > PROTOCOL_VERSION) {
    refuseLink(state, id, 'protocol_too_old', hello);
    return;
  }
  const pool = state.pools.get(hello.pool);
  if (pool === undefined) {
    refuseLink(state, id, 'unknown_pool', hello);
    return;
  }
  const offsetMs = hello.wallMs - state.deps.wallMs();
  if (Math.abs(offsetMs) > CLOCK_OFFSET_ALARM_MS) {
    state.log('warn', 'clock_offset', { agent: hello.agentId, offsetMs });
  }
  const { agentId } = hello;
  const link: LinkHolder = {
    ...{ id, agentId, pool, workers, fewSinceMs: null, fewSaid: false, toldIntervalMs: 0 },
    ...{ replicas: new Set(), fenced: new Set(), bounds: newBounds(state.nowMs) },
    tellsOthers: hello.features.includes('others_acked'),
  };
  state.links.set(id, link);
  const resume: ResumeState[] = [];
  for (const engine of enginesWithin(state, hello.engines)) adopt(state, link, { engine, resume });
  const { agentId: agent, software } = hello;
  state.log('info', 'link_up', { agent, software, pool: pool.id, replicas: link.replicas.size });
  greet(state, link, resume);
}

export function linkDown(state: RegionalState, id: LinkId, reason: string | null): void {
  const link = state.links.get(id);
  if (link === undefined) return;
  state.links.delete(id);
  for (const replica of link.replicas) {
    replica.link = null;
    noteLost(state, replica);
    state.log('info', 'link_down', { replica: replica.id, agent: link.agentId, reason });
    recall(state, replica);
  }
}

export function heard(
  state: RegionalState,
  id: LinkId,
  message: Exclude<AgentMessage, Hello>,
): void {
  const link = state.links.get(id);
  if (link === undefined) return;
  const name = message.kind === 'report' ? message.report.replica : message.replica;
  const replica = state.replicas.get(name);
  if (replica === undefined || replica.link !== link) {
    state.limit('foreign_report');
    return;
  }
  if (message.kind === 'bye') {
    noteGone(state, replica);
    state.log('info', 'replica_bye', { replica: replica.id, reason: message.reason });
    recall(state, replica);
    return;
  }
  const rank = message.kind === 'report' ? message.report.rank : message.rank;
  const target = replica.targets[rank];
  if (target === undefined) state.limit('foreign_report');
  else if (message.kind === 'report') {
    if (!isNewest(state, target, message.report)) return;
    watchLinks(state, link, message.report.routers);
    if (message.othersAcked !== undefined) noteOthersAcked(target, message.othersAcked);
    reported(state, target, message.report);
    if (message.echo === true) echo(state, id, message.report);
  } else if (message.seq > 0 || admitsSnapshot(state, link)) prefixes(state, target, message);
}

/** Whom an agent is not linked to knows nothing of its replicas. A restart of a router is no matter. */
function watchLinks(state: RegionalState, link: LinkHolder, links: number): void {
  const least = Math.max(1, state.config.siblings.length) + Math.max(1, link.workers.length) - 1;
  if (links >= least) {
    link.fewSinceMs = null;
    link.fewSaid = false;
    return;
  }
  link.fewSinceMs ??= state.nowMs;
  if (link.fewSaid || state.nowMs - link.fewSinceMs < FEW_LINKS_MS) return;
  link.fewSaid = true;
  state.log('warn', 'few_links', { agent: link.agentId, links, siblings: least });
}

/** Everything sent to the agent so far goes before this. */
function echo(state: RegionalState, link: LinkId, report: ReplicaReport): void {
  const { replica, rank, seq } = report;
  state.emit({ kind: 'send', link, message: { kind: 'heard', replica, rank, reportSeq: seq } });
}

function refuseLink(
  state: RegionalState,
  link: LinkId,
  reason: 'protocol_too_old' | 'unknown_pool',
  hello: Hello,
): void {
  state.log('warn', 'link_refused', { reason, agent: hello.agentId, pool: hello.pool });
  state.emit({ kind: 'close', link, reason });
}

/** The link takes over the engine; what an agent process before it knew goes into `resume`. */
function adopt(
  state: RegionalState,
  link: LinkHolder,
  from: { engine: HelloEngine; resume: ResumeState[] },
): void {
  const { engine, resume } = from;
  let replica = state.replicas.get(engine.replica);
  if (replica !== undefined && replica.pool !== link.pool) {
    const busy = replica.targets.some((target) => target.leases.size > 0);
    if (replica.link !== null || busy) return keepInPool(state, link, replica);
    noteGone(state, replica);
    dropReplica(state, replica);
    replica = undefined;
  }
  if (replica === undefined) {
    if (state.replicas.size >= REPLICAS_MAX) {
      state.limit('replicas');
      return;
    }
    replica = newReplica(state, link.pool, { engine, agentId: link.agentId });
  } else if (replica.agentId !== link.agentId) {
    resume.push(...resumeOf(state, replica));
  }
  if (replica.link !== null) fence(state, replica.link, replica);
  replica.url = engine.advertiseUrl;
  replica.agentId = link.agentId;
  replica.gone = false;
  replica.pool.roster.changed();
  replica.leftMs = null;
  replica.link = link;
  link.replicas.add(replica);
  setRanks(state, replica, engine.ranks);
}

/**
 * It belongs to another pool, whose agents stand for it, or has requests of it: the newcomer is fenced until that is
 * over. A credential of one pool takes nothing from another.
 */
function keepInPool(state: RegionalState, link: LinkHolder, replica: ReplicaState): void {
  state.limit('pool_move');
  state.log('warn', 'agent_fenced', { replica: replica.id, agent: link.agentId });
  if (replica.link !== null) link.fenced.add(replica);
  else {
    noteGone(state, replica);
    state.emit({ kind: 'close', link: link.id, reason: 'fenced' });
  }
}

function fence(state: RegionalState, older: LinkHolder, replica: ReplicaState): void {
  older.replicas.delete(replica);
  older.fenced.add(replica);
  state.emit({ kind: 'send', link: older.id, message: { kind: 'fence', replica: replica.id } });
  state.log('warn', 'agent_fenced', { replica: replica.id, agent: older.agentId });
}

/** The newer agent is gone: an older one that still stands by links anew, and takes the replica back. */
function recall(state: RegionalState, replica: ReplicaState): void {
  for (const link of state.links.values()) {
    if (!link.fenced.delete(replica)) continue;
    state.emit({ kind: 'close', link: link.id, reason: 'fenced' });
  }
}

function greet(state: RegionalState, link: LinkHolder, resume: ResumeState[]): void {
  const { settings, siblings } = state.config;
  link.toldIntervalMs = reportIntervalMs(settings.minReportIntervalMs, state.links.size);
  state.emit({
    kind: 'send',
    link: link.id,
    message: {
      kind: 'welcome',
      protocol: PROTOCOL_VERSION,
      features: ROUTER_FEATURES,
      routerId: state.deps.routerId,
      software: state.deps.software,
      siblings: [...siblings, ...link.workers],
      minReportIntervalMs: link.toldIntervalMs,
      resume,
      wallMs: state.deps.wallMs(),
    },
  });
  for (const { id: replica } of link.fenced) {
    state.emit({ kind: 'send', link: link.id, message: { kind: 'fence', replica } });
  }
  for (const replica of link.replicas) {
    for (const target of replica.targets) {
      target.others?.forgetAcks();
      tellLeases(state, target, true);
    }
  }
  if (link.pool.told.requests === 0) return;
  state.emit({ kind: 'send', link: link.id, message: queuedMessage(state, link.pool) });
}

function reported(state: RegionalState, target: TargetState, report: ReplicaReport): void {
  const { replica } = target;
  const { pool } = replica;
  if (report.incarnation !== null && report.incarnation !== target.incarnation) {
    newIncarnation(state, target, report.incarnation);
  }
  const before = target.report?.phase ?? null;
  alarmUnknown(state, target, report);
  lookForRoom(state, target, report);
  const sinceMs = state.nowMs - target.receivedMs;
  if (report.waitingPrefillMs !== null) {
    pool.sight.heard(report.waitingPrefillMs, sinceMs, pool.roster.targets.length);
  }
  target.report = report;
  target.receivedMs = state.nowMs;
  pool.roster.touch(target);
  target.released = { requests: 0, prefillMs: 0 };
  const ackedSeq = credibleAck(state, target, report);
  acknowledge(target, ackedSeq, state.nowMs);
  noteIdle(state, target);
  if (report.incarnation !== null && target.leasesFor !== report.incarnation) {
    // An agent that acknowledges has the leases; one that met another engine life has dropped them.
    if (ackedSeq < 0) tellLeases(state, target, false);
    target.leasesFor = report.incarnation;
  }
  notePeak(target, state.nowMs);
  noteFresh(state, replica);
  noteNames(state, pool, report);
  pool.dirty = true;
  if (before !== report.phase) {
    const { phase, rank, degradedFor } = report;
    state.log('info', 'replica_phase', {
      replica: replica.id,
      rank,
      phase,
      before,
      ...(degradedFor === null ? {} : { degradedFor }),
    });
  }
}

/** Served with bounded concurrency from here on: somebody should know. */
function alarmUnknown(state: RegionalState, target: TargetState, report: ReplicaReport): void {
  const { replica, rank } = target;
  const before = target.report;
  const wasKnown = before === null || !isLoadUnknown(before);
  if (isLoadUnknown(report) && wasKnown) {
    state.log('warn', 'load_unknown', { replica: replica.id, rank });
  }
}

function isLoadUnknown(report: ReplicaReport): boolean {
  const { phase, waitingPrefillMs, waitingPrefillTokens } = report;
  return phase === 'ready' && waitingPrefillMs === null && waitingPrefillTokens === null;
}

function newIncarnation(
  state: RegionalState,
  target: TargetState,
  incarnation: NonNullable<ReplicaReport['incarnation']>,
): void {
  const first = target.incarnation === null;
  target.incarnation = incarnation;
  if (first) return;
  orphanLeases(state, target, incarnation);
  target.others = null;
  target.breaker.reset();
  target.pausedUntilMs = Number.NEGATIVE_INFINITY;
  target.replica.pool.roster.touch(target);
  if (state.index.incarnation(target.slot) !== incarnation) renewSlot(state, target);
  state.log('info', 'new_incarnation', { replica: target.replica.id, rank: target.rank });
}

function prefixes(state: RegionalState, target: TargetState, message: PrefixMessage): void {
  if (message.seq === 0) renewSlot(state, target);
  const outcome = state.index.apply(target.slot, message);
  const { replica, rank } = target;
  if (outcome === 'resync' && replica.link !== null) {
    state.limit('prefix_gap');
    state.emit({
      kind: 'send',
      link: replica.link.id,
      message: { kind: 'resync', replica: replica.id, rank },
    });
  }
  if (message.seq !== 0) {
    if (message.continues !== true) noteTurnEnds(state, target, message);
    return;
  }
  // A snapshot may be older than what was sent since: those prompts are expected there too.
  for (const lease of target.leases.values()) {
    if (lease.orphan) continue;
    for (const chain of chainsOf(lease.request)) state.index.hope(target.slot, chain);
  }
}

function notePeak(target: TargetState, nowMs: number): void {
  const { peakRunning } = target;
  if (nowMs - peakRunning.sinceMs >= PEAK_WINDOW_MS) {
    peakRunning.previous = peakRunning.current;
    peakRunning.current = 0;
    peakRunning.sinceMs = nowMs;
  }
  peakRunning.current = Math.max(peakRunning.current, target.report?.running ?? 0);
}

function noteNames(state: RegionalState, pool: PoolState, report: ReplicaReport): void {
  if (report.models.length === 0) return;
  pool.reported = true;
  if (addNames(pool, report) === 0) return;
  if (state.nowMs - pool.namesSortedMs < SORT_NAMES_MS) return state.limit('model_names');
  pool.namesSortedMs = state.nowMs;
  // Adapters come and go: of those that nobody reports any more enough was known.
  pool.names.clear();
  let left = 0;
  for (const { report: each } of pool.roster.targets)
    if (each !== null) left += addNames(pool, each);
  if (left > 0) state.limit('model_names');
}

/** How many of its names there was no room for. */
function addNames({ names }: PoolState, { models }: ReplicaReport): number {
  let left = 0;
  for (const { id, loras } of models) {
    for (const name of [id, ...loras]) {
      if (names.has(name)) continue;
      if (names.size >= NAMES_MAX) left += 1;
      else names.add(name);
    }
  }
  return left;
}
