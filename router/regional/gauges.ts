// Gauges are read from the core's status when somebody looks, not kept up to date all the time. Of a replica that is
// out (its reports stopped, nobody is sent there) only the age of the last report is shown, of one that is dead its phase
// too: figures that have no future would be summed up as capacity.

import { PHASES } from '../../shared/model/phase.ts';
import type { GaugeRow, Metrics } from '../../shared/runtime/metrics.ts';
import type { PoolStatus, TargetStatus } from './core.ts';
import type { MetricName } from './metrics.ts';
import { engineReport, type RouterStatus } from './status.ts';

interface Row {
  readonly labels: { readonly pool: string; readonly replica: string; readonly rank: string };
  readonly target: TargetStatus;
}

/** Sets every gauge from one status. Replicas that are gone leave the exposition. */
export function setGauges(metrics: Metrics<MetricName>, status: RouterStatus): void {
  const { config } = status;
  metrics.set('open_requests', status.openRequests);
  metrics.set('leases', status.leases);
  metrics.set('links', status.links);
  metrics.set('siblings', status.siblings.heard);
  metrics.set('siblings_told', status.siblings.told);
  metrics.set('sibling_sends', status.siblings.sends);
  if (status.global !== null) metrics.set('global_links', status.global.links);
  metrics.set('away_conversations', status.global?.away ?? 0);
  metrics.set('body_bytes', status.bodyBytes);
  for (const [listener, open] of Object.entries(status.connections)) {
    metrics.set('connections', open, { listener });
  }
  metrics.set('config_generation', config?.generation ?? 1);
  metrics.set('config_last_reload_ok', config === null || config.lastReloadOk ? 1 : 0);
  setQueueGauges(metrics, status.pools);
  setWorkingSet(metrics, status.pools);
  setLinkTotals(metrics, status.linkTotals);
  setReplicaGauges(metrics, rowsOf(status));
}

function setWorkingSet(metrics: Metrics<MetricName>, pools: RouterStatus['pools']): void {
  const replace = (
    name: MetricName,
    read: (set: RouterStatus['pools'][number]['workingSet']) => number | null,
  ): void => {
    const rows = pools.map(({ id, workingSet }) => ({
      labels: { pool: id },
      value: read(workingSet),
    }));
    metrics.replace(name, rows);
  };
  replace('kv_held_requests', ({ held }) => held);
  replace('working_set_bound_ratio', ({ boundRatio }) => boundRatio);
  replace('turn_hit_ratio', ({ hitRatio }) => hitRatio);
}

function setQueueGauges(metrics: Metrics<MetricName>, pools: readonly PoolStatus[]): void {
  const replace = (name: MetricName, read: (queue: PoolStatus['queue']) => number | null): void => {
    metrics.replace(
      name,
      pools.map(({ id, queue }) => ({ labels: { pool: id }, value: read(queue) })),
    );
  };
  replace('queue_depth', ({ requests }) => requests);
  replace('queue_prefill_seconds', ({ prefillMs }) => prefillMs / 1_000);
  replace('queue_oldest_seconds', ({ oldestMs }) => seconds(oldestMs));
  replace('queue_predicted_wait_seconds', ({ predictedWaitMs }) => seconds(predictedWaitMs));
}

function seconds(ms: number | null): number | null {
  return ms === null ? null : ms / 1_000;
}

function setLinkTotals(metrics: Metrics<MetricName>, totals: RouterStatus['linkTotals']): void {
  if (totals === null) return;
  metrics.replace('link_oddities_total', [
    { labels: { kind: 'refused' }, value: totals.refusedUpgrades },
    { labels: { kind: 'malformed' }, value: totals.malformed },
    { labels: { kind: 'unknown_kind' }, value: totals.unknownKinds },
    { labels: { kind: 'unknown_field' }, value: totals.unknownFields },
  ]);
}

function setReplicaGauges(metrics: Metrics<MetricName>, rows: readonly Row[]): void {
  const replace = (name: MetricName, read: (target: TargetStatus) => number | null): void => {
    metrics.replace(
      name,
      rows.map(({ labels, target }) => ({ labels, value: read(target) })),
    );
  };
  replace('report_age_seconds', ({ reportAgeMs }) =>
    reportAgeMs === null ? null : reportAgeMs / 1_000,
  );
  replace('replica_attempts_total', ({ attempts }) => attempts);
  replace('replica_waiting_prefill_tokens', ({ report }) => report?.waitingPrefillTokens ?? null);
  replace('replica_prefill_tokens_per_second', ({ report }) => report?.prefillTps ?? null);
  replace('replica_preemptions_total', ({ report }) => report?.preemptionsTotal ?? null);
  replace('replica_kv_usage_ratio', ({ report }) => report?.kvUsageRatio ?? null);
  replace('replica_running_requests', ({ report }) => report?.running ?? null);
  metrics.replace('replica_phase', rows.flatMap(phaseRows));
}

function phaseRows({ labels, target }: Row): GaugeRow[] {
  return PHASES.map((phase) => ({
    labels: { ...labels, phase },
    value: target.phase === null ? null : Number(target.phase === phase),
  }));
}

function rowsOf(status: RouterStatus): Row[] {
  return status.pools.flatMap((pool) =>
    pool.replicas.flatMap((replica) =>
      replica.targets.map((target) => ({
        labels: { pool: pool.id, replica: replica.id, rank: String(target.rank) },
        target: {
          ...target,
          phase: replica.link === 'out' ? null : target.phase,
          report: engineReport(replica, target),
        },
      })),
    ),
  );
}
