// Gauges of phases, and of the machine that the engines run on. Unknown figures have no row: absent is not 0.

import type { GaugeRow } from '../shared/runtime/metrics.ts';
import type { AgentStatus } from './core.ts';
import type { HostFacts } from './host.ts';
import type { AgentMetrics } from './metrics.ts';
import type { GpuFacts } from './policy/gpu-presence.ts';

/** Why replicas are degraded, how far loads have come, which GPUs are there. */
export function refreshPhases(metrics: AgentMetrics, { engines }: AgentStatus): void {
  const firsts = engines.map(({ replica, loadDeaths, targets }) => ({
    labels: { replica },
    loadDeaths,
    report: targets[0]?.report ?? null,
  }));
  metrics.replace(
    'replica_degraded',
    engines.flatMap(({ replica, targets }) =>
      targets.flatMap(({ rank, report: { degradedFor: reason } }) =>
        reason === null ? [] : [{ labels: { replica, rank: String(rank), reason }, value: 1 }],
      ),
    ),
  );
  metrics.replace(
    'replica_load_progress_ratio',
    firsts.flatMap(({ labels, report }) => {
      const { stage, ratio } = report?.progress ?? { stage: '', ratio: null };
      return stage === '' ? [] : [{ labels: { ...labels, stage }, value: ratio }];
    }),
  );
  metrics.replace(
    'replica_eta_seconds',
    firsts.map(({ labels, report }) => {
      const etaMs = report?.etaMs ?? null;
      return { labels, value: etaMs === null ? null : etaMs / 1_000 };
    }),
  );
  metrics.replace(
    'replica_load_deaths',
    firsts.map(({ labels, loadDeaths }) => ({ labels, value: loadDeaths })),
  );
  metrics.replace(
    'replica_gpus',
    firsts.flatMap(({ labels, report }) => [
      { labels: { ...labels, state: 'present' }, value: report?.gpus?.count ?? null },
      { labels: { ...labels, state: 'lost' }, value: report?.gpus?.lost ?? null },
    ]),
  );
}

/** Of the machine; the same for all its engines. */
export function refreshHost(metrics: AgentMetrics, { machine, gpus }: HostFacts): void {
  const rows = (read: (gpu: GpuFacts) => number | null): GaugeRow[] =>
    gpus.map((gpu) => ({ labels: gpuLabels(gpu), value: read(gpu) }));
  metrics.replace(
    'gpu_temperature_celsius',
    rows((gpu) => gpu.temperatureC),
  );
  metrics.replace(
    'gpu_utilisation_ratio',
    rows((gpu) => gpu.utilisationRatio),
  );
  metrics.replace(
    'gpu_power_watts',
    rows((gpu) => gpu.powerW),
  );
  metrics.replace(
    'gpu_throttled',
    rows(({ throttled }) => (throttled === null ? null : Number(throttled))),
  );
  metrics.replace(
    'gpu_memory_bytes',
    gpus.flatMap((gpu) => memoryRows(gpu, gpuLabels(gpu))),
  );
  metrics.replace('host_memory_bytes', memoryRows(machine, {}));
  metrics.replace('host_cpu_ratio', [{ labels: { state: 'busy' }, value: machine.cpuRatio }]);
}

function gpuLabels({ index, uuid, name }: GpuFacts): Record<string, string> {
  return { index: String(index), uuid, model: name ?? 'unknown' };
}

function memoryRows(
  memory: { readonly memoryTotalBytes: number | null; readonly memoryUsedBytes: number | null },
  labels: Record<string, string>,
): GaugeRow[] {
  return [
    { labels: { ...labels, state: 'total' }, value: memory.memoryTotalBytes },
    { labels: { ...labels, state: 'used' }, value: memory.memoryUsedBytes },
  ];
}
