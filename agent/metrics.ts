// What an agent measures of its engines, its own scrapes and generations, and its links. The table is the source of
// the instruments and of the reference page; metrics-gauges.ts sets the gauges.

import { createMetrics, type MetricDefinition, type Metrics } from '../shared/runtime/metrics.ts';
import { VERSION } from '../shared/runtime/version.ts';
import { AGENT_LIMITS } from './events.ts';

export const METRICS_PREFIX = 'spillway_agent_';

const TARGET = ['replica', 'rank'];
const GPU = ['index', 'uuid', 'model'];

export const METRICS = [
  {
    name: 'build_info',
    type: 'gauge',
    help: '1, with the version as a label.',
    labels: ['version'],
  },
  {
    name: 'scrapes_total',
    type: 'counter',
    help: "Scrapes of the engine's figures by result: ok, refused, unready (it loads or stops, by its own words), failed.",
    labels: ['replica', 'result'],
  },
  {
    name: 'scrape_seconds',
    type: 'histogram',
    help: 'Time of a good scrape.',
    labels: ['replica'],
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
  },
  {
    name: 'generations_total',
    type: 'counter',
    help: "The agent's own generations by purpose and result: ok, refused, timeout, status, broken.",
    labels: ['replica', 'purpose', 'result'],
  },
  {
    name: 'generation_ttft_seconds',
    type: 'histogram',
    help: "Time to the first token of the agent's own good generations.",
    labels: ['replica', 'purpose'],
    buckets: [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30],
  },
  {
    name: 'links',
    type: 'gauge',
    help: 'Live links by state: welcomed by a router, or still greeting.',
    labels: ['state'],
  },
  {
    name: 'link_messages_total',
    type: 'counter',
    help: 'Messages on links by direction (in, out) and kind.',
    labels: ['direction', 'kind'],
  },
  {
    name: 'link_ends_total',
    type: 'counter',
    help: 'Links that ended, by reason.',
    labels: ['reason'],
  },
  {
    name: 'limit_hits_total',
    type: 'counter',
    help: 'Times that a limit was reached.',
    labels: ['limit'],
    values: AGENT_LIMITS,
  },
  {
    name: 'kv_batches_total',
    type: 'counter',
    help: "Messages of the engine's KV events by result: batch, replayed, malformed, dropped (more than the agent takes), unknown_event (a batch with events that it does not know).",
    labels: [...TARGET, 'result'],
  },
  {
    name: 'tls_certificate_not_after_seconds',
    type: 'gauge',
    help: 'When the certificate that the agent shows expires, in seconds since 1970.',
    labels: ['file'],
  },
  {
    name: 'link_attempts',
    type: 'gauge',
    help: 'Connections to routers tried since the start.',
    labels: [],
  },
  {
    name: 'link_oddities',
    type: 'gauge',
    help: 'Since the start: malformed frames, and kinds and fields of a newer router that were ignored.',
    labels: ['kind'],
  },
  {
    name: 'replica_phase',
    type: 'gauge',
    help: '1 for the phase that the replica is in, 0 for the others.',
    labels: ['replica', 'phase'],
  },
  {
    name: 'replica_degraded',
    type: 'gauge',
    help: '1 for why a rank is degraded: probe, slow or host; no row for one that is not.',
    labels: [...TARGET, 'reason'],
  },
  {
    name: 'replica_slow_ratio',
    type: 'gauge',
    help: 'Time of the last prefills over what calibration had measured, median.',
    labels: TARGET,
  },
  {
    name: 'replica_load_progress_ratio',
    type: 'gauge',
    help: 'How far the stage of the load has come that the log named last.',
    labels: ['replica', 'stage'],
  },
  {
    name: 'replica_eta_seconds',
    type: 'gauge',
    help: 'Expected time to the end of loading or warm-up, where there is ground to say.',
    labels: ['replica'],
  },
  {
    name: 'replica_load_deaths',
    type: 'gauge',
    help: 'Times that the engine has died in load since it last served.',
    labels: ['replica'],
  },
  {
    name: 'replica_gpus',
    type: 'gauge',
    help: 'GPUs of the engine by state: present, or lost (seen before and missing).',
    labels: ['replica', 'state'],
  },
  {
    name: 'gpu_memory_bytes',
    type: 'gauge',
    help: 'Memory of a GPU by state: total, used.',
    labels: [...GPU, 'state'],
  },
  { name: 'gpu_temperature_celsius', type: 'gauge', help: 'Temperature of a GPU.', labels: GPU },
  {
    name: 'gpu_utilisation_ratio',
    type: 'gauge',
    help: 'Share of time in which a GPU computed.',
    labels: GPU,
  },
  { name: 'gpu_power_watts', type: 'gauge', help: 'Power that a GPU draws.', labels: GPU },
  {
    name: 'gpu_throttled',
    type: 'gauge',
    help: '1 while heat or the hardware itself lowers the clocks of a GPU.',
    labels: GPU,
  },
  {
    name: 'host_cpu_ratio',
    type: 'gauge',
    help: "Use of the machine's processors by state: busy.",
    labels: ['state'],
  },
  {
    name: 'host_memory_bytes',
    type: 'gauge',
    help: "The machine's memory by state: total, used.",
    labels: ['state'],
  },
  {
    name: 'replica_waiting_prefill_seconds',
    type: 'gauge',
    help: 'Prefill work sent and not yet done.',
    labels: TARGET,
  },
  {
    name: 'replica_waiting_prefill_tokens',
    type: 'gauge',
    help: 'Uncached prompt tokens sent and not yet prefilled.',
    labels: TARGET,
  },
  {
    name: 'replica_unattributed_tokens',
    type: 'gauge',
    help: 'Estimated prompt tokens waiting that no router has told of.',
    labels: TARGET,
  },
  {
    name: 'replica_prefill_tokens_per_second',
    type: 'gauge',
    help: 'Uncached prompt tokens per second of busy time.',
    labels: TARGET,
  },
  {
    name: 'replica_slot_wait_seconds',
    type: 'gauge',
    help: 'Wait for a batch slot or KV room, where that is the limit.',
    labels: TARGET,
  },
  {
    name: 'replica_inter_token_seconds',
    type: 'gauge',
    help: 'Time between tokens of a stream.',
    labels: TARGET,
  },
  {
    name: 'replica_running',
    type: 'gauge',
    help: 'Requests inside the engine.',
    labels: TARGET,
  },
  { name: 'replica_running_max', type: 'gauge', help: 'Batch slots.', labels: TARGET },
  {
    name: 'replica_kv_usage_ratio',
    type: 'gauge',
    help: 'Share of the KV cache that running requests hold.',
    labels: TARGET,
  },
  {
    name: 'replica_kv_capacity_tokens',
    type: 'gauge',
    help: 'Tokens that the KV cache holds.',
    labels: TARGET,
  },
  {
    name: 'replica_kv_cached_tokens',
    type: 'gauge',
    help: 'Tokens in the findable blocks of the KV cache, as its KV events tell.',
    labels: TARGET,
  },
  {
    name: 'replica_kv_event_gaps',
    type: 'gauge',
    help: 'Gaps in the KV events since the agent listens, by outcome: filled by a replay, or lost.',
    labels: [...TARGET, 'outcome'],
  },
  {
    name: 'replica_working_set_tokens',
    type: 'gauge',
    help: 'Tokens of live conversations that the KV cache has to keep.',
    labels: TARGET,
  },
  {
    name: 'replica_preemptions',
    type: 'gauge',
    help: "Preemptions since the engine's start, as it counts them.",
    labels: TARGET,
  },
  {
    name: 'replica_cache_correction_ratio',
    type: 'gauge',
    help: 'Reported over predicted cached tokens, learned (κ).',
    labels: TARGET,
  },
  {
    name: 'replica_prefill_error_ratio',
    type: 'gauge',
    help: 'Predicted over measured time of the last prefills, less 1: of its size the median (p50) and p90, with its sign the median (bias).',
    labels: [...TARGET, 'figure'],
  },
  {
    name: 'replica_figure_absent',
    type: 'gauge',
    help: '1 for each figure that the engine does not tell: neither zero nor full stands for it.',
    labels: [...TARGET, 'figure'],
  },
  {
    name: 'replica_open_leases',
    type: 'gauge',
    help: 'Requests of routers in the engine.',
    labels: TARGET,
  },
  {
    name: 'replica_scrape_age_seconds',
    type: 'gauge',
    help: 'Age of the last good scrape.',
    labels: TARGET,
  },
] as const satisfies readonly MetricDefinition[];

export type AgentMetricName = (typeof METRICS)[number]['name'];
export type AgentMetrics = Metrics<AgentMetricName>;

export function createAgentMetrics(): AgentMetrics {
  const metrics = createMetrics<AgentMetricName>(METRICS_PREFIX, METRICS);
  metrics.set('build_info', 1, { version: VERSION });
  return metrics;
}
