// `docs/metrics.md`, `docs/headers.md` and `docs/errors.md` out of the tables that the code itself works from.

import {
  METRICS as AGENT_METRICS,
  METRICS_PREFIX as AGENT_METRICS_PREFIX,
} from '../agent/metrics.ts';
import {
  METRICS as GLOBAL_METRICS,
  METRICS_PREFIX as GLOBAL_METRICS_PREFIX,
} from '../router/global/metrics.ts';
import { REQUEST_HEADERS, RESPONSE_HEADERS } from '../router/gateway/headers.ts';
import { ERROR_CODES, ERRORS } from '../shared/errors.ts';
import { METRICS, METRICS_PREFIX } from '../router/regional/metrics.ts';
import type { MetricDefinition } from '../shared/runtime/metrics.ts';
import { table } from './generate-table.ts';

export function metricsPage(): string {
  return `# Metrics

<!-- Made by \`npm run docs\` from the tables in router/regional/metrics.ts, router/global/metrics.ts and agent/metrics.ts. -->

Prometheus text at \`GET /metrics\`: of a router on its admin listener (on the client listener where it has none, as in
the demo and in \`spillway up\`), of an agent on its own listener. Base units; label values come from closed lists or from
the configuration, never from clients. What is unknown is left out, not zero.

Of a router with workers, counters and histograms are the sums over all workers that there ever were, and none falls when one
dies. What is no sum of events says after *workers* how those of the workers are put together: \`freshest\` is what the worker
says that has heard last of the replica, \`parent\` is the parent's own.

## Router

${metricsTable(METRICS_PREFIX, METRICS)}

## Global router

${metricsTable(GLOBAL_METRICS_PREFIX, GLOBAL_METRICS)}

## Agent

${metricsTable(AGENT_METRICS_PREFIX, AGENT_METRICS)}
`;
}

function metricsTable(prefix: string, definitions: readonly MetricDefinition[]): string {
  return table(
    ['metric', 'type', 'labels', 'what it is'],
    definitions.map(({ name, type, labels, values, workers, help }) => [
      `\`${prefix}${name}\``,
      type,
      code(labels),
      [
        help,
        ...(values === undefined ? [] : [`One of ${code(values)}.`]),
        ...(workers === undefined ? [] : [`*Workers*: \`${workers}\`.`]),
      ].join(' '),
    ]),
  );
}

function code(words: readonly string[]): string {
  return words.map((word) => `\`${word}\``).join(', ');
}

export function headersPage(): string {
  return `# Headers

<!-- Made by \`npm run docs\` from the tables in router/gateway/headers.ts. -->

## On answers

${table(
  ['header', 'on', 'what it is'],
  RESPONSE_HEADERS.map(({ name, on, help }) => [`\`${name}\``, on, help]),
)}

## Read from requests

Headers that are not listed stay in the router; the client's credentials never reach an engine.

${table(
  ['header', 'what it does'],
  REQUEST_HEADERS.map(({ name, help }) => [`\`${name}\``, help]),
)}
`;
}

export function errorsPage(): string {
  return `# Errors

<!-- Made by \`npm run docs\` from the table in shared/errors.ts. -->

Every error that a router answers a client with has this body, \`x-request-id\`, \`x-spillway-request-id\` and
\`x-should-retry\`; \`retry-after\` where a time is known, 1 to 60 seconds. \`spillway_errors_total\` counts them by code.

\`\`\`json
{ "error": { "message": "…", "type": "…", "param": null, "code": "…" } }
\`\`\`

Once a stream has begun its status is said: the same body is then its last event. No \`[DONE]\` follows, and half
a second later the connection is cut: a client that does not know error events must not take the answer for whole
([clients.md](clients.md)). An answer that is no stream and is cut in the middle ends with its connection. What arrives behind a request that still waits for its answer, and is
no HTTP, ends the connection without a word: an answer would be taken for the request's.

${table(
  ['code', 'status', 'type', 'should retry', 'when'],
  ERROR_CODES.map((code) => {
    const { status, type, retryable, when } = ERRORS[code];
    return [`\`${code}\``, String(status), `\`${type}\``, retryable ? 'yes' : 'no', when];
  }),
)}

## An engine's own words

An engine's 4xx about the request itself (all but 401, 403, 408, 424 and 429) passes with its status. Its body passes byte for
byte where it has an \`error\` with a \`message\`, \`code\` as the engine has it (vLLM: a number); anything else, a page of a proxy
or a body without words, is wrapped with the code \`engine_error\`. All other statuses of engines are failures of theirs: another
replica is asked.

## By route

| routes | errors |
| --- | --- |
| those that go to engines, \`/tokenize\` and \`/detokenize\` among them; \`/v1/models\`; unknown paths | the envelope above |
| operators' routes of a router: \`/status\`, \`/metrics\`, \`/v1/route/explain\` | the same |
| \`/livez\`, \`/readyz\` of a router | text; \`/readyz\` answers 503 with \`not ready\` |
| the link listener | a bare status line, 400, 401, 404, 426 or 503, and the end of the connection; after the upgrade a close code ([runbook.md](runbook.md)) |
| an agent's listener | JSON with a text \`error\` |
`;
}
