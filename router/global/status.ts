// What `/status` says, as JSON and as a few lines for people. No keys, no content; ages instead of times.

import type { ConfigView } from '../../shared/config/state.ts';
import type { LinkServerStats } from '../../shared/runtime/link-server.ts';
import { configLines } from '../gateway/config-lines.ts';
import type { Readiness } from '../gateway/readiness.ts';
import type { GlobalStatus, RegionPoolStatus, RegionStatus } from './core.ts';

export interface GlobalRouterStatus extends GlobalStatus {
  readonly router: {
    readonly id: string;
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
}

/** Ready = not leaving, and some region is seen. */
export function readinessOf(status: GlobalStatus, leaving: boolean): Readiness {
  const seen = status.regions.filter((region) => region.seen).length;
  const checks = [
    { name: 'configuration', ok: true, says: 'loaded' },
    { name: 'accepting', ok: !leaving, says: leaving ? 'draining' : 'yes' },
    { name: 'regions', ok: seen > 0, says: `${seen} of ${status.regions.length} seen` },
  ];
  return { ready: checks.every((check) => check.ok), checks };
}

/** A screen's width of text for one look. */
export function statusText(status: GlobalRouterStatus): string {
  const { router, zone, conversations, queued } = status;
  const state = status.draining ? 'draining' : status.ready ? 'ready' : 'not ready';
  const lines = [
    `${router.software}, global, ${zone === null ? 'in no zone' : `zone ${zone}`}: ${state}, ` +
      `up ${router.upForS} s, ${status.openRequests} open requests, ${queued.requests} queued`,
    `${conversations.own} conversations known, ${conversations.away} more as regions tell`,
    ...configLines(status.config),
  ];
  for (const region of status.regions) lines.push('', ...regionLines(region));
  return `${lines.join('\n')}\n`;
}

function regionLines(region: RegionStatus): string[] {
  const { links, routers, rttMs, warm, breaker } = region;
  const says = [
    ...(region.rollout === 'active' ? [] : [`rollout ${region.rollout}`]),
    region.seen ? 'seen' : 'not seen',
    ...(region.silent ? ['silent'] : []),
    ...(region.leaving ? ['leaves'] : []),
    `${links.length} of ${routers ?? '?'} routers linked`,
    `round trip ${rttMs === null ? '?' : tenth(rttMs)} ms${warm ? ', warm' : ''}`,
    ...(breaker === 'closed' ? [] : [`breaker ${breaker}`]),
    ...probeText(region.probe),
  ];
  const head = `region ${region.region} (${region.zone}): ${says.join(', ')}`;
  return [head, ...region.pools.map((pool) => poolLine(pool, region.seen))];
}

function probeText(probe: RegionStatus['probe']): string[] {
  if (probe === null) return [];
  const age = `${Math.round(probe.agoMs / 1_000)} s ago`;
  if (probe.kind === 'busy') return [`too busy for a probe ${age}`];
  if (probe.kind === 'failed') return [`probe failed ${age}: ${probe.detail}`];
  const held = probe.buffered === true ? ', HELD BACK on the way: its pieces came together' : '';
  return [`probe ${whole(probe.ttftMs)} ms ${age}${held}`];
}

/** What was told last of a region that is not seen is not known any more. */
function poolLine(pool: RegionPoolStatus, seen: boolean): string {
  const { spill, pausedForMs, queueMs, reportAgoMs } = pool;
  const figures = [
    `${seen ? (pool.readyReplicas ?? '?') : '?'} ready`,
    `queue ${seen && queueMs !== null ? whole(queueMs) : '?'} ms`,
    `${seen ? (pool.queuedRequests ?? '?') : '?'} queued there`,
    `spills ${percent(spill.share)}`,
    `${spill.out} out, ${spill.in} in, credit ${whole(spill.creditMs)} ms`,
    ...(pausedForMs === null ? [] : [`paused for ${whole(pausedForMs)} ms`]),
    ...(pool.resumes === null ? [] : [`taken up again, ${pool.resumes} at a time`]),
    ...(pool.held === 0 ? [] : [`${pool.held} wait for it here`]),
    `report ${reportAgoMs === null ? '?' : whole(reportAgoMs)} ms old`,
  ];
  return `  ${pool.pool.padEnd(16)} ${figures.join(', ')}`;
}

function whole(ms: number): string {
  return String(Math.round(ms));
}

function tenth(ms: number): string {
  return String(Math.round(ms * 10) / 10);
}

function percent(ratio: number): string {
  return `${Math.round(ratio * 100)} %`;
}
