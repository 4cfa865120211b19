// Gauges are read from the core's status when somebody looks, not kept up to date all the time.

import type { GaugeRow, Metrics } from '../../shared/runtime/metrics.ts';
import type { RegionPoolStatus, RegionStatus } from './core.ts';
import type { MetricName } from './metrics.ts';
import type { GlobalRouterStatus } from './status.ts';

/** Sets every gauge from one status. Regions and pools that are gone leave the exposition. */
export function setGauges(metrics: Metrics<MetricName>, status: GlobalRouterStatus): void {
  const { config, conversations } = status;
  metrics.set('open_requests', status.openRequests);
  metrics.set('queued_requests', status.queued.requests);
  metrics.set('attempts', status.attempts);
  metrics.set('body_bytes', status.bodyBytes);
  metrics.set('conversations', conversations.own, { known: 'own' });
  metrics.set('conversations', conversations.away, { known: 'away' });
  for (const [listener, open] of Object.entries(status.connections)) {
    metrics.set('connections', open, { listener });
  }
  metrics.set('config_generation', config?.generation ?? 1);
  metrics.set('config_last_reload_ok', config === null || config.lastReloadOk ? 1 : 0);
  setLinkTotals(metrics, status.linkTotals);
  setRegionGauges(metrics, status.regions);
  setPoolGauges(metrics, status.regions);
}

function setLinkTotals(
  metrics: Metrics<MetricName>,
  totals: GlobalRouterStatus['linkTotals'],
): void {
  if (totals === null) return;
  metrics.replace('link_oddities_total', [
    { labels: { kind: 'refused' }, value: totals.refusedUpgrades },
    { labels: { kind: 'malformed' }, value: totals.malformed },
    { labels: { kind: 'unknown_kind' }, value: totals.unknownKinds },
    { labels: { kind: 'unknown_field' }, value: totals.unknownFields },
  ]);
}

function setRegionGauges(metrics: Metrics<MetricName>, regions: readonly RegionStatus[]): void {
  const replace = (name: MetricName, read: (region: RegionStatus) => number | null): void => {
    metrics.replace(
      name,
      regions.map((region) => ({ labels: { region: region.region }, value: read(region) })),
    );
  };
  replace('region_seen', ({ seen }) => Number(seen));
  replace('region_silent', ({ silent }) => Number(silent));
  replace('region_links', ({ links }) => links.length);
  replace('region_rtt_seconds', ({ rttMs }) => seconds(rttMs));
  replace('region_warm', ({ warm }) => Number(warm));
  replace('region_breaker_open', ({ breaker }) => Number(breaker === 'open'));
  replace('region_unacknowledged_requests', ({ unacknowledged }) => unacknowledged);
}

function setPoolGauges(metrics: Metrics<MetricName>, regions: readonly RegionStatus[]): void {
  const rows = regions.flatMap(({ region, pools }) =>
    pools.map((pool) => ({ labels: { region, pool: pool.pool }, pool })),
  );
  const replace = (name: MetricName, read: (pool: RegionPoolStatus) => number | null): void => {
    metrics.replace(
      name,
      rows.map(({ labels, pool }): GaugeRow => ({ labels, value: read(pool) })),
    );
  };
  replace('report_age_seconds', ({ reportAgoMs }) => seconds(reportAgoMs));
  replace('pool_ready_replicas', ({ readyReplicas }) => readyReplicas);
  replace('pool_queue_seconds', ({ queueMs }) => seconds(queueMs));
  replace('pool_paused_seconds', ({ pausedForMs }) => seconds(pausedForMs));
  replace('pool_held_requests', ({ held }) => held);
  replace('pool_resume_requests', ({ resumes }) => resumes);
  replace('spill_share_ratio', ({ spill }) => spill.share);
  replace('spill_turns_total', ({ spill }) => spill.turns);
  replace('spill_credit_seconds', ({ spill }) => seconds(spill.creditMs));
  replace('spilled_out_total', ({ spill }) => spill.out);
  replace('spilled_in_total', ({ spill }) => spill.in);
}

function seconds(ms: number | null): number | null {
  return ms === null ? null : ms / 1_000;
}
