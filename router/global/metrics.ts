// What a global router measures. The table makes the instruments, `/metrics` and the reference page.

import { ERROR_CODES } from '../../shared/errors.ts';
import { CONVERSATION_SIGHTS } from '../../shared/model/global-decision.ts';
import { LIMITS } from '../../shared/model/limit.ts';
import type { MetricDefinition } from '../../shared/runtime/metrics.ts';
import { REFUSED_CREDENTIALS } from '../gateway/client-door.ts';
import { ABORT_STAGES } from '../gateway/request-log.ts';
import { HINT_RESULTS } from './core-conversation.ts';

/** Requests through both tiers are counted in both: the prefix keeps them apart. */
export const METRICS_PREFIX = 'spillway_global_';

const SECONDS = [0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 20, 40, 80, 160];
const TOKEN_SECONDS = [0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5];
const ERROR_SECONDS = [
  -10, -3, -1, -0.5, -0.2, -0.1, -0.05, -0.02, 0, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 3, 10,
];
const ERROR_RATIO = [-0.8, -0.5, -0.3, -0.2, -0.1, -0.05, 0, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5];

/** Where a request went. */
const PLACE = ['region', 'pool'] as const;

export const METRICS = [
  {
    name: 'build_info',
    type: 'gauge',
    help: 'Always 1; the labels name what runs.',
    labels: ['version', 'zone'],
  },
  {
    name: 'requests_total',
    type: 'counter',
    help: 'Requests that have ended, by route and outcome.',
    labels: ['route', ...PLACE, 'outcome'],
  },
  {
    name: 'errors_total',
    type: 'counter',
    help: 'Errors that clients were answered by this router itself, by code (docs/errors.md): what is no HTTP counts too.',
    labels: ['code'],
    values: ERROR_CODES,
  },
  {
    name: 'ttft_seconds',
    type: 'histogram',
    help: 'From the arrival of a streamed request to its first data event.',
    labels: PLACE,
    buckets: SECONDS,
  },
  {
    name: 'inter_token_seconds',
    type: 'histogram',
    help: 'Between two data events of a stream.',
    labels: PLACE,
    buckets: TOKEN_SECONDS,
  },
  {
    name: 'queue_wait_seconds',
    type: 'histogram',
    help: 'From arrival to the first attempt.',
    labels: PLACE,
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
    labels: [...PLACE, 'cause'],
  },
  {
    name: 'sheds_total',
    type: 'counter',
    help: 'Requests refused for want of capacity, by reason.',
    labels: ['reason'],
    values: ['wait_limit', 'deadline_unreachable'],
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
    labels: [...PLACE, 'cause'],
  },
  {
    name: 'ttft_prediction_error_seconds',
    type: 'histogram',
    help: 'Measured less estimated time from sending to the first data event.',
    labels: PLACE,
    buckets: ERROR_SECONDS,
  },
  {
    name: 'ttft_prediction_error_ratio',
    type: 'histogram',
    help: 'Estimated over measured time from sending to the first data event, less 1: below 0 where it took longer.',
    labels: PLACE,
    buckets: ERROR_RATIO,
  },
  {
    name: 'prompt_tokens_total',
    type: 'counter',
    help: 'Prompt tokens of completed requests, as engines counted them.',
    labels: PLACE,
  },
  {
    name: 'completion_tokens_total',
    type: 'counter',
    help: 'Generated tokens of completed requests.',
    labels: PLACE,
  },
  {
    name: 'prefix_predicted_tokens_total',
    type: 'counter',
    help: 'Prompt tokens that were expected to be cached, of requests whose engine reported its own figure.',
    labels: PLACE,
  },
  {
    name: 'prefix_reported_tokens_total',
    type: 'counter',
    help: 'Prompt tokens that the engines reported as cached.',
    labels: PLACE,
  },
  {
    name: 'open_requests',
    type: 'gauge',
    help: 'Requests that have arrived and not ended.',
    labels: [],
  },
  {
    name: 'queued_requests',
    type: 'gauge',
    help: 'Of those, how many wait because every region that may serve them asks for time.',
    labels: [],
  },
  {
    name: 'attempts',
    type: 'gauge',
    help: 'Attempts under way.',
    labels: [],
  },
  {
    name: 'connections',
    type: 'gauge',
    help: 'Open connections of clients and operators, idle ones included, by listener.',
    labels: ['listener'],
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
  },
  {
    name: 'config_last_reload_ok',
    type: 'gauge',
    help: '1 while the last configuration change was taken, 0 while it was refused.',
    labels: [],
  },
  {
    name: 'link_ends_total',
    type: 'counter',
    help: 'Links of regions that ended, by reason.',
    labels: ['reason'],
  },
  {
    name: 'link_oddities_total',
    type: 'counter',
    help: 'Links refused before their hello, malformed frames, and kinds and fields of newer regions that were ignored.',
    labels: ['kind'],
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
    help: 'Attempts and probes that a region refused as none of its own (401, 403, 421): keys, clocks or residency of the two tiers do not agree.',
    labels: ['region', 'status'],
  },
  {
    name: 'tls_certificate_not_after_seconds',
    type: 'gauge',
    help: 'When a certificate of this router expires, in seconds since 1970.',
    labels: ['file'],
  },
  {
    name: 'tls_handshake_failures_total',
    type: 'counter',
    help: 'TLS handshakes that failed, by listener: clients without TLS, or that do not trust our certificate.',
    labels: ['listener'],
  },
  {
    name: 'conversations',
    type: 'gauge',
    help: 'Conversations whose place is known: `own` of this router, `away` as regions tell.',
    labels: ['known'],
  },
  {
    name: 'conversations_placed_total',
    type: 'counter',
    help: 'Requests by what was known of their conversation at their first attempt: it is `new`, `unknown` to everybody, found by its `text`, its `id` or a `hint`, or there is `none`.',
    labels: ['known'],
    values: CONVERSATION_SIGHTS,
  },
  {
    name: 'hints_total',
    type: 'counter',
    help: 'Hints that clients brought, by what came of them.',
    labels: ['result'],
    values: HINT_RESULTS,
  },
  {
    name: 'region_seen',
    type: 'gauge',
    help: '1 while a report of the region is young enough to be used: a region that is not seen gets no traffic.',
    labels: ['region'],
  },
  {
    name: 'region_silent',
    type: 'gauge',
    help: '1 while nothing comes from the region for three reports’ time, though its connections may be open: one request at a time tries it, others go elsewhere where they may.',
    labels: ['region'],
  },
  {
    name: 'region_links',
    type: 'gauge',
    help: "The region's routers that are connected.",
    labels: ['region'],
  },
  {
    name: 'region_rtt_seconds',
    type: 'gauge',
    help: 'Round trip to the region, the least of late. Absent while unknown.',
    labels: ['region'],
  },
  {
    name: 'region_warm',
    type: 'gauge',
    help: '1 while a connection to the region stands ready for a request.',
    labels: ['region'],
  },
  {
    name: 'region_breaker_open',
    type: 'gauge',
    help: '1 while failures keep the region out.',
    labels: ['region'],
  },
  {
    name: 'region_unacknowledged_requests',
    type: 'gauge',
    help: "Sends that no report of the region's includes yet.",
    labels: ['region'],
  },
  {
    name: 'region_probes_total',
    type: 'counter',
    help: 'Synthetic generations through the whole path, by what came of them.',
    labels: ['region', 'result'],
  },
  {
    name: 'region_probe_ttft_seconds',
    type: 'gauge',
    help: 'First token of the last good one. Absent before any.',
    labels: ['region'],
  },
  {
    name: 'region_probe_buffered',
    type: 'gauge',
    help: '1 where the pieces of the last good one came together: something on the way holds streams back. Absent while unknown.',
    labels: ['region'],
  },
  {
    name: 'report_age_seconds',
    type: 'gauge',
    help: 'Age of the last report of the pool.',
    labels: PLACE,
  },
  {
    name: 'pool_ready_replicas',
    type: 'gauge',
    help: 'Replicas of the pool that take requests, as the region reports. Absent while unknown.',
    labels: PLACE,
  },
  {
    name: 'pool_queue_seconds',
    type: 'gauge',
    help: 'What a new request would wait in the pool, as estimated here: replicas, queues of its routers and own sends together. Absent while unknown.',
    labels: PLACE,
  },
  {
    name: 'pool_paused_seconds',
    type: 'gauge',
    help: 'For how much longer the pool asks to be left alone. Absent while it does not.',
    labels: PLACE,
  },
  {
    name: 'spill_share_ratio',
    type: 'gauge',
    help: 'Share of the new conversations of the pool that goes abroad.',
    labels: PLACE,
  },
  {
    name: 'spill_turns_total',
    type: 'counter',
    help: 'Times that the share began to move the other way.',
    labels: PLACE,
  },
  {
    name: 'spill_credit_seconds',
    type: 'gauge',
    help: 'Prefill that this router may send to the pool beyond what lives there.',
    labels: PLACE,
  },
  {
    name: 'spilled_out_total',
    type: 'counter',
    help: 'New conversations of the pool that were sent abroad.',
    labels: PLACE,
  },
  {
    name: 'spilled_in_total',
    type: 'counter',
    help: 'New conversations of other regions that were sent to the pool.',
    labels: PLACE,
  },
] as const satisfies readonly MetricDefinition[];

export type MetricName = (typeof METRICS)[number]['name'];
