// What `/status` says, as JSON and as a few lines for people. No keys, no content; ages instead of times.

import type { ConfigView } from '../../shared/config/state.ts';
import type { LinkServerStats } from '../../shared/runtime/link-server.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import { configLines } from '../gateway/config-lines.ts';
import type { Readiness } from '../gateway/readiness.ts';
import type { PoolStatus, RegionalStatus, ReplicaStatus, TargetStatus } from './core.ts';

export interface RouterStatus extends RegionalStatus {
  readonly router: {
    readonly id: string;
    readonly region: string;
    readonly software: string;
    readonly upForS: number;
  };
  readonly ready: boolean;
  /** Null where the process has no configuration file. */
  readonly config: ConfigView | null;
  /** Request bodies in memory. */
  readonly bodyBytes: number;
  /** Open connections by listener of HTTP. */
  readonly connections: Readonly<Record<string, number>>;
  /** Totals of the link listener since the start; null before it listens. */
  readonly linkTotals: LinkServerStats | null;
  /** The processes that the router consists of; absent where it is one. All else is then theirs together. */
  readonly workers?: readonly WorkerStatus[];
}

export interface WorkerStatus {
  /** From 1 on. */
  readonly number: number;
  /** Null while there is none. */
  readonly pid: number | null;
  readonly state: 'starting' | 'up' | 'leaving' | 'down';
  readonly ready: boolean;
  readonly linksPort: number;
  /** Its own; null: it has not said. */
  readonly links: number | null;
  readonly openRequests: number | null;
  /** Connections of clients that it has been handed and not ended. */
  readonly connections: number;
  /** Times that it ended without being told. */
  readonly deaths: number;
  /** It did not say in time: what it said before counts. */
  readonly silent: boolean;
  /** What of the limits is its share. */
  readonly limits: {
    readonly bodyBytesMax: number;
    readonly openRequests: number;
    readonly queueMaxRequests: number;
    readonly queueMaxBytes: number;
    readonly prefixIndexBytes: number;
  };
}

/** Ready = not leaving, and some pool has a replica that a live report calls ready. */
export function readinessOf(status: RegionalStatus, leaving: boolean): Readiness {
  const readyReplicas = status.pools.reduce((sum, pool) => sum + pool.ready, 0);
  const known = status.pools.reduce((sum, pool) => sum + pool.replicas.length, 0);
  const checks = [
    { name: 'configuration', ok: true, says: 'loaded' },
    { name: 'accepting', ok: !leaving, says: leaving ? 'draining' : 'yes' },
    {
      name: 'replicas',
      ok: readyReplicas > 0,
      says: `${readyReplicas} of ${known} ready`,
    },
  ];
  return { ready: checks.every((check) => check.ok), checks };
}

/** What is known of the engine now: the last figures of one that is dead, or of which nobody tells, are none. */
export function engineReport(
  { link }: Pick<ReplicaStatus, 'link'>,
  { phase, report }: Pick<TargetStatus, 'phase' | 'report'>,
): ReplicaReport | null {
  return link === 'out' || phase === 'dead' ? null : report;
}

/** A screen's width of text for one look. */
export function statusText(status: RouterStatus): string {
  const { router } = status;
  const state = status.draining ? 'draining' : status.ready ? 'ready' : 'not ready';
  const lines = [
    `${router.software}, region ${router.region}: ${state}, up ${router.upForS} s, ` +
      `${status.links} links, ${status.openRequests} open requests`,
    ...siblingLines(status),
    ...globalLines(status),
  ];
  for (const worker of status.workers ?? []) lines.push(workerLine(worker));
  lines.push(...configLines(status.config));
  for (const pool of status.pools) lines.push('', ...poolLines(pool));
  return `${lines.join('\n')}\n`;
}

function siblingLines({ siblings: { heard, told, sends } }: RouterStatus): string[] {
  if (heard === 0 && told === 0) return [];
  return [`hears ${heard} routers of its region (${sends} sends under way), tells ${told}`];
}

function globalLines({ global }: RouterStatus): string[] {
  if (global === null) return [];
  const { links, away } = global;
  const here = away === 0 ? '' : `; ${away} conversations live here from afar`;
  return [`reports to ${links === 0 ? 'no' : links} global routers${here}`];
}

function workerLine(worker: WorkerStatus): string {
  const { number, pid, state, ready, links, openRequests, deaths, silent } = worker;
  const says = [
    `${state}${state === 'up' && !ready ? ', not ready' : ''}`,
    `${links ?? '?'} links`,
    `${openRequests ?? '?'} open requests`,
    `${worker.connections} connections`,
    ...(deaths === 0 ? [] : [`died ${deaths} times`]),
    ...(silent ? ['does not answer'] : []),
  ];
  return `worker ${number} (${pid ?? 'no process'}): ${says.join(', ')}`;
}

function poolLines(pool: PoolStatus): string[] {
  const { queue } = pool;
  const models = pool.models.length === 0 ? 'no models yet' : pool.models.join(', ');
  const head =
    `pool ${pool.id} (${models}): ${pool.ready} of ${pool.replicas.length} ready, ` +
    `${queue.requests} queued (${whole(queue.prefillMs)} ms of prefill${waitText(pool)})`;
  return [head, ...heldLines(pool), ...pool.replicas.flatMap(replicaLines)];
}

function waitText({ queue, workingSet }: PoolStatus): string {
  const { requests, oldestMs, predictedWaitMs } = queue;
  if (requests === 0) return '';
  const [oldest, wait] = [oldestMs, predictedWaitMs].map((ms) => (ms === null ? '?' : whole(ms)));
  const who = workingSet.held === 0 ? 'a new one' : 'one that needs no KV room';
  return `, the oldest for ${oldest} ms; ${who} would wait ${wait} ms`;
}

/** Why requests wait before replicas that are idle. */
function heldLines({ workingSet: { held, boundRatio, hitRatio } }: PoolStatus): string[] {
  if (held === 0) return [];
  const found = hitRatio === null ? '' : `; turns find ${percent(hitRatio)} of theirs`;
  const bound = `bound ${percent(boundRatio)} of each cache${found}`;
  return [`  ${held} of them wait for KV room, live conversations fill it (${bound})`];
}

function replicaLines(replica: ReplicaStatus): string[] {
  const several = replica.targets.length > 1;
  return replica.targets.map((target) => {
    const name = several ? `${replica.id}#${target.rank}` : replica.id;
    return `  ${name.padEnd(24)} ${targetText(replica, target)}`;
  });
}

function targetText(replica: ReplicaStatus, target: TargetStatus): string {
  const report = engineReport(replica, target);
  const link = replica.link === 'fresh' ? '' : `, ${replica.link}`;
  const breaker = target.breaker === 'closed' ? '' : `, breaker ${target.breaker}`;
  const figures = [
    `${target.leases} ours`,
    `running ${report?.running ?? '?'} of ${report?.runningMax ?? '?'}`,
    `waiting ${isWaitKnown(report) ? whole(target.waitMs) : '?'} ms`,
    `KV ${percent(report?.kvUsageRatio ?? null)}`,
    ...workingSetText(report),
    `${report?.prefillTps === null || report === null ? '?' : whole(report.prefillTps)} tokens/s`,
    ...foretoldText(report),
    `report ${target.reportAgeMs === null ? '?' : whole(target.reportAgeMs)} ms old`,
  ];
  return `${phaseText(target)}${link}${breaker}: ${figures.join(', ')}`;
}

/** Of the KV cache, what conversations that are expected to go on have in it. */
function workingSetText(report: ReplicaReport | null): string[] {
  const { workingSetTokens: tokens = null, kvCapacityTokens: capacity = null } = report ?? {};
  if (tokens === null || capacity === null || capacity === 0) return [];
  return [`live ${percent(tokens / capacity)}`];
}

/** How far off half of the last predicted prefills were. */
function foretoldText(report: ReplicaReport | null): string[] {
  const error = report?.costError ?? null;
  return error === null ? [] : [`prefill foretold within ${percent(error.p50)}`];
}

/** The phase, and what there is to say about it. */
function phaseText({ phase, used, report }: TargetStatus): string {
  const says: string[] = [];
  if (phase === 'degraded' && report !== null) says.push(...degradedText(report, used));
  const { progress = null, etaMs = null, gpus = null } = report ?? {};
  if (progress !== null) says.push(`${progress.stage}${ratioText(progress.ratio)}`);
  if (etaMs !== null) says.push(`${Math.ceil(etaMs / 1_000)} s left`);
  if (gpus !== null && gpus.lost > 0) says.push(`${gpus.lost} GPU missing`);
  return `${phase ?? 'unknown'}${says.length === 0 ? '' : ` (${says.join(', ')})`}`;
}

function degradedText({ degradedFor, slowRatio }: ReplicaReport, used: boolean): string[] {
  if (degradedFor !== 'slow') return degradedFor === null ? [] : [degradedFor];
  const times = slowRatio === null ? '' : ` ${slowRatio.toFixed(1)}×`;
  return [`slow${times}${used ? ', in use' : ''}`];
}

function ratioText(ratio: number | null): string {
  return ratio === null ? '' : ` ${percent(ratio)}`;
}

function isWaitKnown(report: TargetStatus['report']): boolean {
  return (report?.waitingPrefillMs ?? report?.waitingPrefillTokens ?? null) !== null;
}

function whole(value: number): string {
  return String(Math.round(value));
}

function percent(ratio: number | null): string {
  return ratio === null ? '?' : `${Math.round(ratio * 100)} %`;
}
