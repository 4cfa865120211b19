// What a regional router measures. The table makes the instruments, `/metrics` and the reference page.

import { SHED_REASONS } from '../../shared/model/decision.ts';
import type { MetricDefinition } from '../../shared/runtime/metrics.ts';
import { gatewayMetrics } from '../gateway/gateway-metrics.ts';
import { TIER_REFUSALS } from '../gateway/tier-door.ts';

export const METRICS_PREFIX = 'spillway_';

const REPLICA = ['pool', 'replica', 'rank'] as const;

export const METRICS = [
  {
    name: 'build_info',
    type: 'gauge',
    help: 'Always 1; the labels name what runs.',
    labels: ['version', 'region'],
    workers: 'parent',
  },
  ...gatewayMetrics(['pool'], SHED_REASONS),
  {
    name: 'queue_depth',
    type: 'gauge',
    help: 'Requests waiting in this router.',
    labels: ['pool'],
    workers: 'sum',
  },
  {
    name: 'kv_held_requests',
    type: 'gauge',
    help: 'Of those that wait in this router, conversations that wait for KV room.',
    labels: ['pool'],
    workers: 'sum',
  },
  {
    name: 'working_set_bound_ratio',
    type: 'gauge',
    help: 'Share of its KV cache that the live conversations of a replica may take before new ones wait. Absent while the rule is off.',
    labels: ['pool'],
    workers: 'min',
  },
  {
    name: 'turn_hit_ratio',
    type: 'gauge',
    help: 'Of the tokens of the turns that conversations lately went on from, the share that engines found cached. Absent while unknown.',
    labels: ['pool'],
    workers: 'min',
  },
  {
    name: 'queue_prefill_seconds',
    type: 'gauge',
    help: 'Predicted prefill of what waits in this router, in seconds of one replica.',
    labels: ['pool'],
    workers: 'sum',
  },
  {
    name: 'queue_oldest_seconds',
    type: 'gauge',
    help: 'How long the request that waits longest in this router has waited. Absent while nothing waits.',
    labels: ['pool'],
    workers: 'max',
  },
  {
    name: 'queue_predicted_wait_seconds',
    type: 'gauge',
    help: 'What a request of priority 0 that has to wait for prefill, and for no KV room, would wait now. Absent while nothing is ready or on its way.',
    labels: ['pool'],
    workers: 'max',
  },
  {
    name: 'leases',
    type: 'gauge',
    help: 'Attempts under way.',
    labels: [],
    workers: 'sum',
  },
  {
    name: 'links',
    type: 'gauge',
    help: 'Agents connected.',
    labels: [],
    workers: 'min',
  },
  {
    name: 'link_ends_total',
    type: 'counter',
    help: 'Links of agents that ended, by reason.',
    labels: ['reason'],
  },
  {
    name: 'link_oddities_total',
    type: 'counter',
    help: 'Links refused before their hello, malformed frames, and kinds and fields of newer agents and global routers that were ignored.',
    labels: ['kind'],
    workers: 'sum',
  },
  {
    name: 'tier_refusals_total',
    type: 'counter',
    help: 'Requests refused on the tier listener, by what is wrong with their signed context; `residency`: the tenant may not be served here.',
    labels: ['reason'],
    values: TIER_REFUSALS,
  },
  {
    name: 'global_links',
    type: 'gauge',
    help: 'Global routers that have welcomed this router. Absent where it reports to none (`router.global`).',
    labels: [],
    workers: 'min',
  },
  {
    name: 'global_link_ends_total',
    type: 'counter',
    help: 'Links to global routers that ended, by reason.',
    labels: ['reason'],
  },
  {
    name: 'credit_granted_seconds_total',
    type: 'counter',
    help: 'Prefill that global routers were allowed to spill here.',
    labels: ['pool'],
  },
  {
    name: 'away_conversations',
    type: 'gauge',
    help: 'Conversations that live here though another region is nearer to them.',
    labels: [],
    workers: 'sum',
  },
  {
    name: 'report_age_seconds',
    type: 'gauge',
    help: "Age of a replica's last report.",
    labels: REPLICA,
    workers: 'freshest',
  },
  {
    name: 'replica_phase',
    type: 'gauge',
    help: '1 for the phase that the replica is in. Absent, as all its own figures, while it is out: its last report is history.',
    labels: [...REPLICA, 'phase'],
    workers: 'freshest',
  },
  {
    name: 'replica_attempts_total',
    type: 'counter',
    help: 'Attempts that this router has sent to the replica: how the pool shares its work.',
    labels: REPLICA,
    workers: 'sum',
  },
  {
    name: 'replica_waiting_prefill_tokens',
    type: 'gauge',
    help: 'Tokens sent to the replica and not yet prefilled. Absent while unknown.',
    labels: REPLICA,
    workers: 'freshest',
  },
  {
    name: 'replica_prefill_tokens_per_second',
    type: 'gauge',
    help: 'Uncached prompt tokens per second of busy time. Absent while unknown.',
    labels: REPLICA,
    workers: 'freshest',
  },
  {
    name: 'replica_preemptions_total',
    type: 'counter',
    help: "The engine's own count of preemptions. Absent while unknown.",
    labels: REPLICA,
    workers: 'freshest',
  },
  {
    name: 'replica_kv_usage_ratio',
    type: 'gauge',
    help: 'Share of KV cache in use, 0 to 1. Absent while unknown.',
    labels: REPLICA,
    workers: 'freshest',
  },
  {
    name: 'replica_running_requests',
    type: 'gauge',
    help: 'Requests inside the engine. Absent while unknown.',
    labels: REPLICA,
    workers: 'freshest',
  },
  {
    name: 'worker_up',
    type: 'gauge',
    help: '1 while a worker has a process, 0 while its next one waits to be started. Absent, as all of these, without workers.',
    labels: ['worker'],
    workers: 'parent',
  },
  {
    name: 'worker_silent',
    type: 'gauge',
    help: '1 where a worker did not answer in time: what it said before stands in its place.',
    labels: ['worker'],
    workers: 'parent',
  },
  {
    name: 'worker_links',
    type: 'gauge',
    help: 'Agents connected to a worker. Less than the others have: those agents do not reach its link port.',
    labels: ['worker'],
    workers: 'parent',
  },
  {
    name: 'worker_open_requests',
    type: 'gauge',
    help: 'Requests that have arrived at a worker and not ended.',
    labels: ['worker'],
    workers: 'parent',
  },
  {
    name: 'worker_connections',
    type: 'gauge',
    help: 'Connections of clients that a worker was handed and has not ended.',
    labels: ['worker'],
    workers: 'parent',
  },
  {
    name: 'worker_deaths_total',
    type: 'counter',
    help: 'Times that a worker ended without being told.',
    labels: ['worker'],
  },
] as const satisfies readonly MetricDefinition[];

export type MetricName = (typeof METRICS)[number]['name'];
