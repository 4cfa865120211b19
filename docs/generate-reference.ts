// `docs/metrics.md` and `docs/headers.md` out of the tables that the code itself works from.

import {
  METRICS as AGENT_METRICS,
  METRICS_PREFIX as AGENT_METRICS_PREFIX,
} from '../agent/metrics.ts';
import { REQUEST_HEADERS, RESPONSE_HEADERS } from '../router/gateway/headers.ts';
import { METRICS, METRICS_PREFIX } from '../router/regional/metrics.ts';
import type { MetricDefinition } from '../shared/runtime/metrics.ts';
import { table } from './generate-table.ts';

export function metricsPage(): string {
  return `# Metrics

<!-- Made by \`npm run docs\` from the tables in router/regional/metrics.ts and agent/metrics.ts. -->

Prometheus text at \`GET /metrics\`: of a router on its admin listener (on the client listener where it has none, as in
the demo and in \`spillway up\`), of an agent on its own listener. Base units; label values come from closed lists or from
the configuration, never from clients. What is unknown is left out, not zero.

## Router

${metricsTable(METRICS_PREFIX, METRICS)}

## Agent

${metricsTable(AGENT_METRICS_PREFIX, AGENT_METRICS)}
`;
}

function metricsTable(prefix: string, definitions: readonly MetricDefinition[]): string {
  return table(
    ['metric', 'type', 'labels', 'what it is'],
    definitions.map(({ name, type, labels, values, help }) => [
      `\`${prefix}${name}\``,
      type,
      code(labels),
      values === undefined ? help : `${help} One of ${code(values)}.`,
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
