// What a region's router tells the global tier of a pool. A rank counts as a replica: each has a queue of its own.
//
//   waiting    of all ready replicas, whoever sent it: what is left of their reports now. Where some do not tell, those
//              that do stand for them
//   queued     what this router holds back, for whatever reason; others' queues are in their own reports
//   headroom   as `spill-credit.ts` says, and no more than what there is KV room for; the queues of this region's other
//              routers count as their agents tell them

import { prefillMs, type CostCurve } from '../../shared/model/cost-curve.ts';
import type { ModelInfo, ReplicaReport } from '../../shared/model/report.ts';
import type {
  PendingCapacity,
  RegionModelReport,
  RegionPoolReport,
} from '../../shared/protocol/region-messages.ts';
import { ejected } from '../policy/breaker.ts';
import { kvLifetimeMs } from '../policy/kv-fill.ts';
import { regionQueueMs } from '../policy/region-estimate.ts';
import { headroomMs as loadHeadroomMs } from '../policy/spill-credit.ts';
import { backlogNowMs } from '../policy/sight.ts';
import { medianKnown } from '../policy/unknown.ts';
import { curveOf, poolCurve, reportedWaitMs, unackedMs, viewOf } from './core-load.ts';
import { freshest, routersOf } from './core-outlook.ts';
import { namesOf } from './core-requests.ts';
import type { PoolState, RegionalState, TargetState } from './core-state.ts';
import { isReady, slowOut, targetsOf } from './core-ready.ts';
import { roomTokens } from './core-working-set.ts';

/** A prompt of fewer tokens to its bytes is none. */
const BYTES_PER_TOKEN_MAX = 1e6;

type Figure = (target: TargetState) => number | null;

/** `models` as `modelsOf` has them: they change seldom, and take longer than all else. */
export function poolReport(
  state: RegionalState,
  pool: PoolState,
  models: readonly RegionModelReport[],
): RegionPoolReport {
  const ready = readyTargets(state, pool);
  const { queue } = pool;
  const { oldestMs } = queue;
  return {
    pool: pool.id,
    observedAgoMs: observedAgoMs(state, pool),
    readyReplicas: ready.length,
    waitingPrefillMs: sumOver(ready, (target) => waitingMs(state, target)),
    waitingPrefillTokens: sumOver(ready, ({ report }) => report?.waitingPrefillTokens ?? null),
    prefillCost: pool.roster.medianCurve(),
    prefillTps: sumOver(ready, ({ report }) => report?.prefillTps ?? null),
    slotWaitMs: leastOf(ready, ({ report }) => report?.slotWaitMs ?? null),
    kvUsageRatio: medianKnown(ready.map(({ report }) => report?.kvUsageRatio ?? null)),
    preemptionsPerS: sumOver(ready, ({ report }) => perSecond(report?.preemptionsPerMin ?? null)),
    kvLifetimeMs: lifetimeMs(state, pool, ready),
    kvRoomTokens: roomTokens(state, pool, ready),
    pending: pendingOf(pool),
    models,
    // Replicas name none; a region's are in the global routers' configuration.
    tiers: [],
    queuedPrefillMs: queue.prefillMs,
    queuedRequests: queue.size,
    oldestQueuedMs: oldestMs === null ? null : Math.max(0, state.nowMs - oldestMs),
    kvRoomWaitMs: roomWaitMs(state, pool),
    unacknowledgedMs: sentMs(ready, pool),
  };
}

/** Prefill ms that others may send here; null where that is unknown. */
export function headroomMs(
  state: RegionalState,
  pool: PoolState,
  report: RegionPoolReport,
): number | null {
  const { uplink } = state.config;
  if (uplink === undefined || state.draining) return 0;
  if (!readyTargets(state, pool).some((target) => isOpen(state, target))) return 0;
  const queueMs = regionQueueMs({ ...report, queuedPrefillMs: [queuedHereMs(pool)] });
  const inflow = pool.inflow.before(Number.POSITIVE_INFINITY, state.nowMs);
  const inflowPerMs = inflow.workPerMs * routersOf(pool);
  const load = { readyReplicas: report.readyReplicas, queueMs, inflowPerMs };
  const headroom = loadHeadroomMs(load, uplink.settings.spillStartMs);
  return headroom === null ? null : Math.min(headroom, roomMs(pool, report) ?? headroom);
}

/** Of all routers of the region, ms: this one's own now, the others' as agents were told. */
function queuedHereMs(pool: PoolState): number {
  const told = freshest(pool)?.queued.prefillMs ?? 0;
  return pool.queue.prefillMs + Math.max(0, told - pool.told.prefillMs);
}

/** Prefill of as many new conversations as the KV caches have room for. */
function roomMs(pool: PoolState, { kvRoomTokens }: RegionPoolReport): number | null {
  if (kvRoomTokens === null) return null;
  const { meanPromptTokens, meanOutputTokens } = pool;
  const conversations = kvRoomTokens / Math.max(1, meanPromptTokens + meanOutputTokens);
  return conversations * prefillMs(poolCurve(pool).curve, meanPromptTokens, 0);
}

/** Those that take new requests now; where all of them ask for time, those that will: a queue is no loss of capacity. */
function readyTargets(state: RegionalState, pool: PoolState): readonly TargetState[] {
  const slow = slowOut(pool);
  const ready = targetsOf(pool).filter((target) => isReady(target, slow));
  const broken = pool.roster.breakers.tripped === 0 ? null : ejected(ready, state.nowMs);
  const sound = broken === null ? ready : ready.filter((target) => !broken.has(target));
  const open = sound.filter((target) => isOpen(state, target));
  return open.length > 0 ? open : sound;
}

function isOpen({ nowMs }: RegionalState, { pausedUntilMs }: TargetState): boolean {
  return pausedUntilMs <= nowMs;
}

function observedAgoMs({ nowMs }: RegionalState, pool: PoolState): number | null {
  let youngest: number | null = null;
  for (const { report, receivedMs } of targetsOf(pool)) {
    if (report !== null) youngest = Math.max(youngest ?? receivedMs, receivedMs);
  }
  return youngest === null ? null : Math.max(0, nowMs - youngest);
}

/** What is left of its report; null where it does not tell, or nobody knows how long it takes. */
function waitingMs(state: RegionalState, target: TargetState): number | null {
  const { pool, lostMs } = target.replica;
  const { curve, learned } = curveOf(target, () => poolCurve(pool));
  const reported = reportedWaitMs(target, curve);
  if (reported === null || (!learned && target.report?.waitingPrefillMs === null)) return null;
  const ageMs = state.nowMs - target.receivedMs;
  // What was seen before the link was lost says less with every ms.
  if (lostMs !== null) return Math.max(0, reported - ageMs);
  return backlogNowMs(viewOf(state, pool), reported, ageMs);
}

function sentMs(ready: readonly TargetState[], pool: PoolState): number {
  const curve = (target: TargetState): CostCurve => curveOf(target, () => poolCurve(pool)).curve;
  return ready.reduce((sum, target) => sum + unackedMs(target, curve(target)), 0);
}

/** Those that do not tell are taken to be as those that do; null where none does. */
function sumOver(targets: readonly TargetState[], figure: Figure): number | null {
  let sum = 0;
  let known = 0;
  for (const target of targets) {
    const value = figure(target);
    if (value === null) continue;
    sum += value;
    known += 1;
  }
  return known === 0 ? null : (sum * targets.length) / known;
}

function leastOf(targets: readonly TargetState[], figure: Figure): number | null {
  let least: number | null = null;
  for (const target of targets) {
    const value = figure(target);
    if (value !== null) least = Math.min(least ?? value, value);
  }
  return least;
}

function perSecond(perMin: number | null): number | null {
  return perMin === null ? null : perMin / 60;
}

function lifetimeMs(
  { nowMs }: RegionalState,
  pool: PoolState,
  ready: readonly TargetState[],
): number | null {
  const capacity = sumOver(ready, ({ report }) => report?.kvCapacityTokens ?? null);
  return kvLifetimeMs(capacity, pool.kvFill.perMs(nowMs) * routersOf(pool));
}

/** Replicas on their way, soonest first. */
function pendingOf(pool: PoolState): readonly PendingCapacity[] {
  const etas = new Map<number | null, number>();
  for (const { report, replica } of targetsOf(pool)) {
    if (replica.state !== 'fresh' || report === null) continue;
    if (report.phase !== 'loading' && report.phase !== 'warming') continue;
    etas.set(report.etaMs, (etas.get(report.etaMs) ?? 0) + 1);
  }
  const late = Number.POSITIVE_INFINITY;
  return [...etas]
    .map(([etaMs, replicas]) => ({ replicas, etaMs }))
    .toSorted((a, b) => (a.etaMs ?? late) - (b.etaMs ?? late));
}

/** Public names, each with the revisions that its replicas run. */
export function modelsOf(pool: PoolState): readonly RegionModelReport[] {
  const { models, aliases } = pool.config;
  const names = models.length > 0 ? models : [...namesOf(pool)];
  const publics = Map.groupBy(names, (name) =>
    Object.hasOwn(aliases, name) ? (aliases[name] ?? name) : name,
  );
  const rows = new Map<string, RegionModelReport>();
  for (const { report } of targetsOf(pool)) {
    if (report === null) continue;
    for (const model of report.models) {
      for (const root of [model.id, ...model.loras]) {
        for (const name of publics.get(root) ?? []) {
          if (standsFor(pool, name, report)) addRow(rows, { name, report }, model);
        }
      }
    }
  }
  return [...rows.values()];
}

/** A name that stands for one revision is not served by the others. */
function standsFor({ config }: PoolState, name: string, { revision }: ReplicaReport): boolean {
  const { revisions = {} } = config;
  return !Object.hasOwn(revisions, name) || revisions[name] === revision;
}

/** What its replicas are to serve, before any of them has said so; none: that is up to them. */
export function configuredModels({ config }: PoolState): readonly RegionModelReport[] {
  return config.models.map((name) => ({ name, revision: 'unknown', maxModelLen: null }));
}

function addRow(
  rows: Map<string, RegionModelReport>,
  { name, report }: { readonly name: string; readonly report: ReplicaReport },
  { maxModelLen }: ModelInfo,
): void {
  const { revision, bytesPerToken } = report;
  const key = JSON.stringify([name, revision]);
  const learned = bytesPerToken?.p95 ?? 0;
  const most = learned > 0 ? Math.min(learned, BYTES_PER_TOKEN_MAX) : null;
  const row = { name, revision, maxModelLen };
  const own = { ...row, longestModelLen: maxModelLen, bytesPerTokenMost: most };
  const before = rows.get(key);
  rows.set(key, before === undefined ? own : merged(before, own));
}

/** What all of them can take, and what any of them can. */
function merged(a: RegionModelReport, b: RegionModelReport): RegionModelReport {
  return {
    ...a,
    maxModelLen: bothKnown(a.maxModelLen, b.maxModelLen, Math.min),
    longestModelLen: bothKnown(a.longestModelLen, b.longestModelLen, Math.max),
    bytesPerTokenMost: bothKnown(a.bytesPerTokenMost, b.bytesPerTokenMost, Math.max),
  };
}

function bothKnown(
  a: number | null | undefined,
  b: number | null | undefined,
  of: (a: number, b: number) => number,
): number | null {
  return typeof a === 'number' && typeof b === 'number' ? of(a, b) : null;
}

/** What a new conversation waits for KV room: as fast as it has come, and as long as others have waited at least. */
function roomWaitMs(state: RegionalState, { queue, heldPace }: PoolState): number | null {
  const { requests } = queue.held;
  if (requests === 0) return null;
  const pace = heldPace.msPerRelease(state.nowMs);
  const oldest = queue.oldestMs ?? state.nowMs;
  return pace === null ? Math.max(0, state.nowMs - oldest) : requests * pace;
}
