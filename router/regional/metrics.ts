// What a regional router measures. The table makes the instruments, `/metrics` and the reference page.

import { ERROR_CODES } from '../../shared/errors.ts';
import { SHED_REASONS } from '../../shared/model/decision.ts';
import { LIMITS } from '../../shared/model/limit.ts';
import type { MetricDefinition } from '../../shared/runtime/metrics.ts';
import { REFUSED_CREDENTIALS } from '../gateway/client-door.ts';
import { ABORT_STAGES } from '../gateway/request-log.ts';
import { TIER_REFUSALS } from '../gateway/tier-door.ts';

export const METRICS_PREFIX = 'spillway_';

const SECONDS = [0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 20, 40, 80, 160];
const TOKEN_SECONDS = [0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5];
const ERROR_SECONDS = [
  -10, -3, -1, -0.5, -0.2, -0.1, -0.05, -0.02, 0, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 3, 10,
];

const ERROR_RATIO = [-0.8, -0.5, -0.3, -0.2, -0.1, -0.05, 0, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5];

const REPLICA = ['pool', 'replica', 'rank'] as const;

export const METRICS = [
  {
    name: 'build_info',
    type: 'gauge',
    help: 'Always 1; the labels name what runs.',
    labels: ['version', 'region'],
    workers: 'parent',
  },
  {
    name: 'requests_total',
    type: 'counter',
    help: 'Requests that have ended, by route and outcome.',
    labels: ['route', 'pool', 'outcome'],
  },
  {
    name: 'errors_total',
    type: 'counter',
    help: 'Errors that clients were answered by the router itself, by code (docs/errors.md): what is no HTTP counts too.',
    labels: ['code'],
    values: ERROR_CODES,
  },
  {
    name: 'ttft_seconds',
    type: 'histogram',
    help: 'From the arrival of a streamed request to its first data event.',
    labels: ['pool'],
    buckets: SECONDS,
  },
  {
    name: 'inter_token_seconds',
    type: 'histogram',
    help: 'Between two data events of a stream.',
    labels: ['pool'],
    buckets: TOKEN_SECONDS,
  },
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
    name: 'queue_wait_seconds',
    type: 'histogram',
    help: 'From arrival to the first attempt.',
    labels: ['pool'],
    buckets: SECONDS,
  },
  {
    name: 'decisions_total',
    type: 'counter',
    help: 'Routing decisions by kind and reason.',
    labels: ['kind', 'reason'],
  },
  {
    name: 'retries_total',
    type: 'counter',
    help: 'Second and later attempts, by how the one before ended.',
    labels: ['pool', 'cause'],
  },
  {
    name: 'sheds_total',
    type: 'counter',
    help: 'Requests refused for want of capacity, by reason.',
    labels: ['reason'],
    values: SHED_REASONS,
  },
  {
    name: 'client_aborts_total',
    type: 'counter',
    help: 'Clients that left before their answer was complete, by where the request was.',
    labels: ['stage'],
    values: ABORT_STAGES,
  },
  {
    name: 'late_errors_total',
    type: 'counter',
    help: 'Errors sent as events because keep-alive comments had sent the status before.',
    labels: ['code'],
  },
  {
    name: 'interrupted_streams_total',
    type: 'counter',
    help: 'Answers that failed after their first data event, by cause.',
    labels: ['pool', 'cause'],
  },
  {
    name: 'open_requests',
    type: 'gauge',
    help: 'Requests that have arrived and not ended.',
    labels: [],
    workers: 'sum',
  },
  {
    name: 'connections',
    type: 'gauge',
    help: 'Open connections of clients and operators, idle ones included, by listener.',
    labels: ['listener'],
    workers: 'sum',
  },
  {
    name: 'leases',
    type: 'gauge',
    help: 'Attempts under way.',
    labels: [],
    workers: 'sum',
  },
  {
    name: 'limit_hits_total',
    type: 'counter',
    help: 'Times that a limit was reached.',
    labels: ['limit'],
    values: LIMITS,
  },
  {
    name: 'body_bytes',
    type: 'gauge',
    help: 'Request bodies in memory.',
    labels: [],
    workers: 'sum',
  },
  {
    name: 'bugs_total',
    type: 'counter',
    help: 'Failed assertions and unexpected exceptions. Never expected to move.',
    labels: [],
  },
  {
    name: 'config_generation',
    type: 'gauge',
    help: 'Configuration generation that runs.',
    labels: [],
    workers: 'parent',
  },
  {
    name: 'config_last_reload_ok',
    type: 'gauge',
    help: '1 while the last configuration change was taken, 0 while it was refused.',
    labels: [],
    workers: 'parent',
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
    name: 'client_refusals_total',
    type: 'counter',
    help: 'Requests refused at the door: no key, a key that is none of ours, no valid certificate.',
    labels: ['credential'],
    values: REFUSED_CREDENTIALS,
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
    name: 'tls_certificate_not_after_seconds',
    type: 'gauge',
    help: 'When a certificate of this router expires, in seconds since 1970.',
    labels: ['file'],
    workers: 'min',
  },
  {
    name: 'tls_handshake_failures_total',
    type: 'counter',
    help: 'TLS handshakes that failed, by listener: clients without TLS, or that do not trust our certificate.',
    labels: ['listener'],
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
    name: 'prefix_predicted_tokens_total',
    type: 'counter',
    help: 'Prompt tokens that were predicted to be cached, of requests whose engine reported its own figure.',
    labels: ['pool'],
  },
  {
    name: 'prefix_reported_tokens_total',
    type: 'counter',
    help: 'Prompt tokens that the engines reported as cached.',
    labels: ['pool'],
  },
  {
    name: 'prompt_tokens_total',
    type: 'counter',
    help: 'Prompt tokens of completed requests, as engines counted them.',
    labels: ['pool'],
  },
  {
    name: 'completion_tokens_total',
    type: 'counter',
    help: 'Generated tokens of completed requests.',
    labels: ['pool'],
  },
  {
    name: 'ttft_prediction_error_seconds',
    type: 'histogram',
    help: 'Measured less predicted time from sending to the first data event.',
    labels: ['pool'],
    buckets: ERROR_SECONDS,
  },
  {
    name: 'ttft_prediction_error_ratio',
    type: 'histogram',
    help: 'Predicted over measured time from sending to the first data event, less 1: below 0 where it took longer.',
    labels: ['pool'],
    buckets: ERROR_RATIO,
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
