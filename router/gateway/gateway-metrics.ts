// What both tiers measure of the way of a request, in the same words. Each tier's table has these rows, by where it sends
// requests, and its own.

import { ERROR_CODES } from '../../shared/errors.ts';
import { LIMITS } from '../../shared/model/limit.ts';
import type { MetricDefinition } from '../../shared/runtime/metrics.ts';
import { REFUSED_CREDENTIALS } from './client-door.ts';
import { ABORT_STAGES } from './request-log.ts';

const SECONDS = [0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 20, 40, 80, 160];
const TOKEN_SECONDS = [0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5];
const ERROR_SECONDS = [
  -10, -3, -1, -0.5, -0.2, -0.1, -0.05, -0.02, 0, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 3, 10,
];

const ERROR_RATIO = [-0.8, -0.5, -0.3, -0.2, -0.1, -0.05, 0, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5];

/** `place`: the labels that say where a request went; `shedReasons`: why one may be refused for want of capacity. */
export function gatewayMetrics<const Place extends readonly string[]>(
  place: Place,
  shedReasons: readonly string[],
) {
  return [
    {
      name: 'requests_total',
      type: 'counter',
      help: 'Requests that have ended, by route and outcome.',
      labels: ['route', ...place, 'outcome'],
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
      labels: place,
      buckets: SECONDS,
    },
    {
      name: 'inter_token_seconds',
      type: 'histogram',
      help: 'Between two data events of a stream.',
      labels: place,
      buckets: TOKEN_SECONDS,
    },
    {
      name: 'queue_wait_seconds',
      type: 'histogram',
      help: 'From arrival to the first attempt.',
      labels: place,
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
      labels: [...place, 'cause'],
    },
    {
      name: 'sheds_total',
      type: 'counter',
      help: 'Requests refused for want of capacity, by reason.',
      labels: ['reason'],
      values: shedReasons,
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
      labels: [...place, 'cause'],
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
      name: 'client_refusals_total',
      type: 'counter',
      help: 'Requests refused at the door: no key, a key that is none of ours, no valid certificate.',
      labels: ['credential'],
      values: REFUSED_CREDENTIALS,
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
      name: 'prefix_predicted_tokens_total',
      type: 'counter',
      help: 'Prompt tokens that were predicted to be cached, of requests whose engine reported its own figure.',
      labels: place,
    },
    {
      name: 'prefix_reported_tokens_total',
      type: 'counter',
      help: 'Prompt tokens that the engines reported as cached.',
      labels: place,
    },
    {
      name: 'prompt_tokens_total',
      type: 'counter',
      help: 'Prompt tokens of completed requests, as engines counted them.',
      labels: place,
    },
    {
      name: 'completion_tokens_total',
      type: 'counter',
      help: 'Generated tokens of completed requests.',
      labels: place,
    },
    {
      name: 'ttft_prediction_error_seconds',
      type: 'histogram',
      help: 'Measured less predicted time from sending to the first data event.',
      labels: place,
      buckets: ERROR_SECONDS,
    },
    {
      name: 'ttft_prediction_error_ratio',
      type: 'histogram',
      help: 'Predicted over measured time from sending to the first data event, less 1: below 0 where it took longer.',
      labels: place,
      buckets: ERROR_RATIO,
    },
  ] as const satisfies readonly MetricDefinition[];
}

export type GatewayMetric = ReturnType<typeof gatewayMetrics>[number]['name'];
