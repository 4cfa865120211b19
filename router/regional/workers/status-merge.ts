// One status out of those of several workers: each is a whole router that knows every replica, so what they know of the
// same thing is put together by what it is.
//
//   own work        leases, queues, bodies, connections, what was sent since the last report: of one worker each, summed
//   own totals      attempts, oddities of links: summed, those of workers that are gone included, so that none falls
//   the replica's   one report, which reached each worker at another moment: that of the worker that heard last
//   own judgement   full, breaker, pause, wait: the worst that any of them has
//   links           agents and siblings: the least that any worker has, since who lacks one knows less than the others
//   index           memory, which each of them uses: summed

import type { LinkServerStats } from '../../../shared/runtime/link-server.ts';
import type {
  GlobalSight,
  PoolStatus,
  ReplicaStatus,
  SiblingSight,
  TargetStatus,
} from '../core.ts';
import type { RouterStatus } from '../status.ts';

/** What a status of several workers has of theirs; the rest is the parent's own. */
export type WorkerFacts = Omit<RouterStatus, 'router' | 'ready' | 'config' | 'workers'>;

export function mergeStatuses(
  all: readonly RouterStatus[],
  gone: GoneTotals,
  nowMs: number,
): WorkerFacts {
  const sum = sumOver(all);
  const known = all.flatMap(({ pools }) => pools);
  const pools = byName([known, gone.missing(known, nowMs)]);
  return {
    pools: pools.map((each) => mergePools(each, gone)),
    links: all.length === 0 ? 0 : Math.min(...all.map(({ links }) => links)),
    openRequests: sum((each) => each.openRequests),
    leases: sum((each) => each.leases),
    draining: all.length > 0 && all.every(({ draining }) => draining),
    siblings: mergeSiblings(all.map(({ siblings }) => siblings)),
    global: mergeGlobal(all.flatMap(({ global }) => global ?? [])),
    index: {
      bytes: sum(({ index }) => index.bytes),
      chunks: sum(({ index }) => index.chunks),
      evictions: sum(({ index }) => index.evictions),
    },
    bodyBytes: sum((each) => each.bodyBytes),
    connections: sumByName(all.map(({ connections }) => connections)),
    linkTotals: addTotals([gone.linkTotals, ...all.map(({ linkTotals }) => linkTotals)]),
  };
}

/** What siblings send all workers hear. */
function mergeSiblings(all: readonly SiblingSight[]): SiblingSight {
  if (all.length === 0) return { heard: 0, told: 0, sends: 0 };
  return {
    heard: Math.min(...all.map(({ heard }) => heard)),
    told: Math.min(...all.map(({ told }) => told)),
    sends: Math.max(...all.map(({ sends }) => sends)),
  };
}

/** Null where none reports to a global router. */
function mergeGlobal(all: readonly GlobalSight[]): GlobalSight | null {
  if (all.length === 0) return null;
  const links = Math.min(...all.map((each) => each.links));
  return { links, away: all.reduce((sum, { away }) => sum + away, 0) };
}

/**
 * What workers that are gone had counted and known. A replica that no living worker knows stays for `KEPT_MS` as they knew
 * it, since those that start are linked with its agent in a moment; then its counts leave with it.
 */
export class GoneTotals {
  readonly #targets = new Map<string, GoneTarget>();
  readonly #replicas = new Map<string, GoneReplica>();
  #linkTotals: LinkServerStats | null = null;

  get linkTotals(): LinkServerStats | null {
    return this.#linkTotals;
  }

  of(pool: string, replica: string, rank: number): GoneTarget | null {
    return this.#targets.get(`${pool} ${replica} ${rank}`) ?? null;
  }

  /** The last status of a worker that has ended. */
  add({ pools, linkTotals }: RouterStatus, nowMs: number): void {
    this.#linkTotals = addTotals([this.#linkTotals, linkTotals]);
    for (const [key, { attempts, report }] of targetsOf(pools)) {
      const before = this.#targets.get(key)?.attempts ?? 0;
      this.#targets.set(key, { attempts: before + attempts, report });
    }
    for (const pool of pools) {
      for (const replica of pool.replicas) {
        this.#replicas.set(`${pool.id} ${replica.id}`, { pool, replica, sinceMs: nowMs });
      }
    }
  }

  /** Replicas that none of `pools` has, as they were last known. */
  missing(pools: readonly PoolStatus[], nowMs: number): readonly PoolStatus[] {
    const known = new Set(
      pools.flatMap(({ id, replicas }) => replicas.map((r) => `${id} ${r.id}`)),
    );
    const missing: PoolStatus[] = [];
    for (const [key, gone] of this.#replicas) {
      const { pool, replica, sinceMs } = gone;
      if (known.has(key)) gone.sinceMs = nowMs;
      else if (nowMs - sinceMs <= KEPT_MS) {
        missing.push({ ...poolOfNone(pool), replicas: [asLeft(replica, nowMs - sinceMs)] });
      } else {
        this.#replicas.delete(key);
        for (const { rank } of replica.targets) this.#targets.delete(`${key} ${rank}`);
      }
    }
    return missing;
  }
}

const KEPT_MS = 60_000;

interface GoneTarget {
  readonly attempts: number;
  /** The last that the worker had heard. */
  readonly report: TargetStatus['report'];
}

interface GoneReplica {
  readonly pool: PoolStatus;
  readonly replica: ReplicaStatus;
  /** Since when nobody knows it. */
  sinceMs: number;
}

/** The pool without what its worker had in it. */
function poolOfNone(pool: PoolStatus): PoolStatus {
  return {
    ...pool,
    ready: 0,
    queue: { requests: 0, bytes: 0, prefillMs: 0, oldestMs: null, predictedWaitMs: null },
    workingSet: { boundRatio: null, held: 0, aged: 0, hitRatio: null },
  };
}

/** A replica without an agent, and without what its worker had sent there: that is in the counts. */
function asLeft(replica: ReplicaStatus, agoMs: number): ReplicaStatus {
  return {
    ...replica,
    link: 'stale',
    connected: false,
    lostForMs: agoMs,
    targets: replica.targets.map((target) => ({
      ...target,
      used: false,
      reportAgeMs: target.reportAgeMs === null ? null : target.reportAgeMs + agoMs,
      scrapeAgeMs: target.scrapeAgeMs === null ? null : target.scrapeAgeMs + agoMs,
      leases: 0,
      attempts: 0,
      unacked: { requests: 0, uncachedTokens: 0, prefillMs: 0 },
      waitMs: 0,
      full: false,
    })),
  };
}

function targetsOf(pools: readonly PoolStatus[]): [string, TargetStatus][] {
  return pools.flatMap(({ id, replicas }) =>
    replicas.flatMap((replica) =>
      replica.targets.map((target): [string, TargetStatus] => [
        `${id} ${replica.id} ${target.rank}`,
        target,
      ]),
    ),
  );
}

function mergePools(pools: Some<PoolStatus>, gone: GoneTotals): PoolStatus {
  const [first] = pools;
  const sum = sumOver(pools);
  const ages = pools.flatMap(({ queue }) => queue.oldestMs ?? []);
  const waits = pools.flatMap(({ queue }) => queue.predictedWaitMs ?? []);
  return {
    id: first.id,
    models: [...new Set(pools.flatMap(({ models }) => models))],
    replicas: byName(pools.map(({ replicas }) => replicas)).map((replicas) =>
      mergeReplicas(replicas, (rank) => gone.of(first.id, replicas[0].id, rank)),
    ),
    ready: Math.max(...pools.map(({ ready }) => ready)),
    queue: {
      requests: sum(({ queue }) => queue.requests),
      bytes: sum(({ queue }) => queue.bytes),
      prefillMs: sum(({ queue }) => queue.prefillMs),
      oldestMs: ages.length === 0 ? null : Math.max(...ages),
      predictedWaitMs: waits.length === 0 ? null : Math.max(...waits),
    },
    workingSet: {
      boundRatio: least(pools.map(({ workingSet }) => workingSet.boundRatio)),
      held: sum(({ workingSet }) => workingSet.held),
      aged: sum(({ workingSet }) => workingSet.aged),
      hitRatio: least(pools.map(({ workingSet }) => workingSet.hitRatio)),
    },
    meanPromptTokens: sum(({ meanPromptTokens }) => meanPromptTokens) / pools.length,
    meanOutputTokens: sum(({ meanOutputTokens }) => meanOutputTokens) / pools.length,
  };
}

/** Of those that are known. */
function least(all: readonly (number | null)[]): number | null {
  const known = all.filter((each) => each !== null);
  return known.length === 0 ? null : Math.min(...known);
}

function mergeReplicas(
  replicas: Some<ReplicaStatus>,
  goneOf: (rank: number) => GoneTarget | null,
): ReplicaStatus {
  const ranks = Math.max(...replicas.map(({ targets }) => targets.length));
  const targets = Array.from({ length: ranks }, (_, rank) =>
    some(replicas.flatMap((replica) => replica.targets.filter((each) => each.rank === rank))),
  );
  return {
    ...freshest(replicas, (replica) => reportAge(replica)),
    connected: replicas.some(({ connected }) => connected),
    down: replicas.every(({ down }) => down),
    targets: targets.flatMap((each) =>
      each === null ? [] : [mergeTargets(each, goneOf(each[0].rank))],
    ),
  };
}

function mergeTargets(targets: Some<TargetStatus>, gone: GoneTarget | null): TargetStatus {
  const sum = sumOver(targets);
  const pauses = targets.flatMap(({ pausedForMs }) => pausedForMs ?? []);
  const best = freshest(targets, ({ reportAgeMs }) => reportAgeMs);
  return {
    ...best,
    report: noLess(best.report, gone?.report ?? null),
    used: targets.some(({ used }) => used),
    leases: sum(({ leases }) => leases),
    attempts: (gone?.attempts ?? 0) + sum(({ attempts }) => attempts),
    unacked: {
      requests: sum(({ unacked }) => unacked.requests),
      uncachedTokens: sum(({ unacked }) => unacked.uncachedTokens),
      prefillMs: sum(({ unacked }) => unacked.prefillMs),
    },
    waitMs: Math.max(...targets.map(({ waitMs }) => waitMs)),
    full: targets.some(({ full }) => full),
    breaker:
      (['open', 'half_open'] as const).find((state) =>
        targets.some(({ breaker }) => breaker === state),
      ) ?? 'closed',
    pausedForMs: pauses.length === 0 ? null : Math.max(...pauses),
  };
}

/** Who is gone may have heard a later report: a count of the same engine life does not fall for that. */
function noLess(report: TargetStatus['report'], gone: TargetStatus['report']) {
  if (report === null || gone === null || report.incarnation !== gone.incarnation) return report;
  const counts = [report.preemptionsTotal, gone.preemptionsTotal].filter((each) => each !== null);
  const preemptionsTotal = counts.length === 0 ? null : Math.max(...counts);
  return { ...report, preemptionsTotal };
}

function reportAge({ targets }: ReplicaStatus): number | null {
  const ages = targets.flatMap(({ reportAgeMs }) => reportAgeMs ?? []);
  return ages.length === 0 ? null : Math.min(...ages);
}

/** The one that has heard last; the first where none has. */
function freshest<T>(all: Some<T>, ageMs: (each: T) => number | null): T {
  return all.reduce((best, each) =>
    (ageMs(each) ?? Infinity) < (ageMs(best) ?? Infinity) ? each : best,
  );
}

// ── lists ────────────────────────────────────────────────────────────────────────────────────────────────

type Some<T> = readonly [T, ...T[]];

function some<T>(list: readonly T[]): Some<T> | null {
  const [first, ...rest] = list;
  return first === undefined ? null : [first, ...rest];
}

/** What has the same id in several lists, together, in the order in which it is first named. */
function byName<T extends { readonly id: string }>(lists: readonly (readonly T[])[]): Some<T>[] {
  const named = new Map<string, [T, ...T[]]>();
  for (const each of lists.flat()) {
    const before = named.get(each.id);
    if (before === undefined) named.set(each.id, [each]);
    else before.push(each);
  }
  return [...named.values()];
}

function sumOver<T>(all: readonly T[]): (read: (each: T) => number) => number {
  return (read) => all.reduce((total, each) => total + read(each), 0);
}

function sumByName(all: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  const total: Record<string, number> = {};
  for (const each of all) {
    for (const [name, value] of Object.entries(each)) total[name] = (total[name] ?? 0) + value;
  }
  return total;
}

function addTotals(all: readonly (LinkServerStats | null)[]): LinkServerStats | null {
  const known = all.filter((each) => each !== null);
  return known.length === 0 ? null : (sumByName(known.map((each) => ({ ...each }))) as never);
}
