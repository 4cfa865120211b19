// What a global router measures. The table makes the instruments, `/metrics` and the reference page.

import { CONVERSATION_SIGHTS } from '../../shared/model/global-decision.ts';
import type { MetricDefinition } from '../../shared/runtime/metrics.ts';
import { gatewayMetrics } from '../gateway/gateway-metrics.ts';
import { HINT_RESULTS } from './core-conversation.ts';

/** Requests through both tiers are counted in both: the prefix keeps them apart. */
export const METRICS_PREFIX = 'spillway_global_';

/** Where a request went. */
const PLACE = ['region', 'pool'] as const;

export const METRICS = [
  {
    name: 'build_info',
    type: 'gauge',
    help: 'Always 1; the labels name what runs.',
    labels: ['version', 'zone'],
  },
  ...gatewayMetrics(PLACE, ['wait_limit', 'deadline_unreachable', 'queue_full']),
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
    name: 'tier_refusals_total',
    type: 'counter',
    help: 'Attempts and probes that a region refused as none of its own (401, 403, 421): keys, clocks or residency of the two tiers do not agree. 404, 405, 410: another server than a router of the region answers there.',
    labels: ['region', 'status'],
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
    name: 'pool_held_requests',
    type: 'gauge',
    help: 'Requests that wait here for the pool, which asked for time.',
    labels: PLACE,
  },
  {
    name: 'pool_resume_requests',
    type: 'gauge',
    help: 'Requests that the pool may owe a first token at once, while it is taken up again after it asked for time. Absent while it is not.',
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
