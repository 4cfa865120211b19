// Sets every gauge of an agent from what is known when the exposition is asked for. Unknown figures have no row: absent
// is not 0.

import { PHASES } from '../shared/model/phase.ts';
import type { ReplicaReport } from '../shared/model/report.ts';
import type { LinkClient } from '../shared/runtime/link-client.ts';
import type { GaugeRow } from '../shared/runtime/metrics.ts';
import type { AgentStatus } from './core.ts';
import type { AgentTargetStatus } from './core-status.ts';
import type { HostFacts } from './host.ts';
import type { AgentMetricName, AgentMetrics } from './metrics.ts';
import { refreshHost, refreshPhases } from './metrics-host.ts';

const SECONDS = 1 / 1_000;

/** Gauges of a report: name, value, factor to the base unit. */
const OF_REPORT: readonly (readonly [
  AgentMetricName,
  (report: ReplicaReport) => number | null,
  number,
])[] = [
  ['replica_slow_ratio', (report) => report.slowRatio, 1],
  ['replica_waiting_prefill_seconds', (report) => report.waitingPrefillMs, SECONDS],
  ['replica_waiting_prefill_tokens', (report) => report.waitingPrefillTokens, 1],
  ['replica_unattributed_tokens', (report) => report.unattributedTokens, 1],
  ['replica_prefill_tokens_per_second', (report) => report.prefillTps, 1],
  ['replica_slot_wait_seconds', (report) => report.slotWaitMs, SECONDS],
  ['replica_inter_token_seconds', (report) => report.itlMs, SECONDS],
  ['replica_running', (report) => report.running, 1],
  ['replica_running_max', (report) => report.runningMax, 1],
  ['replica_kv_usage_ratio', (report) => report.kvUsageRatio, 1],
  ['replica_kv_capacity_tokens', (report) => report.kvCapacityTokens, 1],
  ['replica_kv_cached_tokens', (report) => report.kvCachedTokens, 1],
  ['replica_working_set_tokens', (report) => report.workingSetTokens, 1],
  ['replica_preemptions', (report) => report.preemptionsTotal, 1],
  ['replica_cache_correction_ratio', (report) => report.kappa, 1],
  ['replica_scrape_age_seconds', (report) => report.scrapeAgoMs, SECONDS],
];

function absentRows({ labels, target }: LabelledTarget): GaugeRow[] {
  return target.report.absent.map((figure) => ({ labels: { ...labels, figure }, value: 1 }));
}

interface LabelledTarget {
  readonly labels: Readonly<Record<string, string>>;
  readonly target: AgentTargetStatus;
}

/** Sets every gauge from what is known now: called when the exposition is asked for. */
export function refreshGauges(
  metrics: AgentMetrics,
  now: { readonly status: AgentStatus; readonly host: HostFacts; readonly links: LinkClient },
): void {
  const { status, host, links } = now;
  const targets = status.engines.flatMap((engine) =>
    engine.targets.map((target) => ({
      labels: { replica: engine.replica, rank: String(target.rank) },
      target,
    })),
  );
  for (const [name, read, factor] of OF_REPORT) {
    const rows = targets.map(({ labels, target }): GaugeRow => {
      const value = read(target.report);
      return { labels, value: value === null ? null : value * factor };
    });
    metrics.replace(name, rows);
  }
  metrics.replace('replica_prefill_error_ratio', targets.flatMap(errorRows));
  metrics.replace('replica_kv_event_gaps', targets.flatMap(gapRows));
  const leases = targets.map(({ labels, target }) => ({ labels, value: target.openLeases }));
  metrics.replace('replica_open_leases', leases);
  metrics.replace('replica_figure_absent', targets.flatMap(absentRows));
  metrics.replace('replica_phase', phaseRows(status));
  refreshPhases(metrics, status);
  refreshHost(metrics, host);
  refreshLinks(metrics, links);
}

function errorRows({ labels, target }: LabelledTarget): GaugeRow[] {
  const { costError } = target.report;
  if (costError === null) return [];
  return (['p50', 'p90', 'bias'] as const).map((figure) => ({
    labels: { ...labels, figure },
    value: costError[figure],
  }));
}

/** None before anything was heard. */
function gapRows({ labels, target }: LabelledTarget): GaugeRow[] {
  const { lastSeq, gaps, lostGaps } = target.kvEvents;
  if (lastSeq === null && gaps === 0) return [];
  return [
    { labels: { ...labels, outcome: 'filled' }, value: Math.max(0, gaps - lostGaps) },
    { labels: { ...labels, outcome: 'lost' }, value: lostGaps },
  ];
}

function phaseRows(status: AgentStatus): GaugeRow[] {
  return status.engines.flatMap(({ replica, phase }) =>
    PHASES.map((each) => ({ labels: { replica, phase: each }, value: each === phase ? 1 : 0 })),
  );
}

function refreshLinks(metrics: AgentMetrics, links: LinkClient): void {
  const live = links.links();
  const welcomed = live.filter((view) => view.routerId !== null).length;
  metrics.set('links', welcomed, { state: 'welcomed' });
  metrics.set('links', live.length - welcomed, { state: 'greeting' });
  const { attempts, malformed, unknownKinds, unknownFields } = links.stats();
  metrics.set('link_attempts', attempts);
  metrics.set('link_oddities', malformed, { kind: 'malformed' });
  metrics.set('link_oddities', unknownKinds, { kind: 'unknown_kind' });
  metrics.set('link_oddities', unknownFields, { kind: 'unknown_field' });
}
