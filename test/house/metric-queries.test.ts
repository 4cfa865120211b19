// Alerts, dashboard and scaling ask for metrics that exist, with labels that they have and values that can occur: a
// dashboard over a metric that nobody emits is empty, and an alert over it is silent for ever.

import { parse } from 'yaml';
import { describe, expect, it } from 'vitest';
import { METRICS as AGENT, METRICS_PREFIX as AGENT_PREFIX } from '../../agent/metrics.ts';
import {
  METRICS as ROUTER,
  METRICS_PREFIX as ROUTER_PREFIX,
} from '../../router/regional/metrics.ts';
import { METRICS as GLOBAL, METRICS_PREFIX as GLOBAL_PREFIX } from '../../router/global/metrics.ts';
import { OUTCOMES } from '../../router/gateway/request-log.ts';
import { DECISION_KINDS, DECISION_REASONS } from '../../shared/model/decision.ts';
import { DEGRADED_REASONS, PHASES } from '../../shared/model/phase.ts';
import type { MetricDefinition } from '../../shared/runtime/metrics.ts';
import { documents, text } from './kubernetes.ts';
import { queryOf } from './metric-queries.ts';
import { runbookAnchors } from './runbook.ts';

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly annotations: { readonly summary: string; readonly runbook: string };
}

interface Dashboard {
  readonly templating: {
    readonly list: readonly { readonly name: string; readonly query: string }[];
  };
  readonly panels: readonly {
    readonly id: number;
    readonly title: string;
    readonly gridPos: {
      readonly x: number;
      readonly y: number;
      readonly w: number;
      readonly h: number;
    };
    readonly targets: readonly { readonly expr: string; readonly legendFormat: string }[];
  }[];
}

/** Put on by Prometheus; `pool` on agents only, by the PodMonitor. */
const OF_THE_TARGET = ['job', 'instance', 'namespace', 'pod'];

const known = new Map<string, readonly string[]>();
const closed = new Map<string, readonly string[]>();
list(ROUTER_PREFIX, ROUTER, []);
list(GLOBAL_PREFIX, GLOBAL, []);
list(AGENT_PREFIX, AGENT, ['pool']);

function list(prefix: string, metrics: readonly MetricDefinition[], more: readonly string[]): void {
  for (const { name, type, labels, values } of metrics) {
    const all = [...labels, ...more, ...OF_THE_TARGET];
    known.set(prefix + name, all);
    if (values !== undefined) closed.set(`${prefix}${name} ${labels[0]}`, values);
    if (type !== 'histogram') continue;
    known.set(`${prefix}${name}_bucket`, [...all, 'le']);
    for (const suffix of ['_sum', '_count']) known.set(prefix + name + suffix, all);
  }
}

for (const metric of ['spillway_replica_phase', 'spillway_agent_replica_phase']) {
  closed.set(`${metric} phase`, PHASES);
}
closed.set('spillway_agent_replica_degraded reason', DEGRADED_REASONS);
closed.set('spillway_agent_replica_gpus state', ['present', 'lost']);
closed.set('spillway_requests_total outcome', OUTCOMES);
closed.set('spillway_decisions_total kind', DECISION_KINDS);
closed.set('spillway_decisions_total reason', DECISION_REASONS);
const FREE = ['region', 'pool', 'replica', 'rank'];

/** What is wrong with an expression; `text` around it may name labels too (a legend, a summary). */
function problems(expression: string, around = ''): string[] {
  const { metrics, labels } = queryOf(expression);
  const found = metrics.length === 0 ? ['no metric of ours'] : [];
  const all = new Set<string>();
  for (const { name, matchers } of metrics) {
    const own = known.get(name);
    if (own === undefined) {
      found.push(`no metric ${name}`);
      continue;
    }
    for (const label of own) all.add(label);
    for (const { label, values } of matchers) {
      if (!own.includes(label)) found.push(`${name} has no label ${label}`);
      if (FREE.includes(label)) continue;
      const possible = closed.get(`${name} ${label}`);
      if (possible === undefined) found.push(`which values has ${name}{${label}}?`);
      for (const value of values) {
        if (possible?.includes(value) === false) found.push(`${name}{${label}} is never ${value}`);
      }
    }
  }
  for (const label of [...labels, ...queryOf(around).labels]) {
    if (!all.has(label)) found.push(`nothing has the label ${label}`);
  }
  return found;
}

const rules = documents('monitoring/alerts.yaml').flatMap(({ spec }) =>
  (spec as { groups: { rules: Rule[] }[] }).groups.flatMap((group) => group.rules),
);
const dashboards = (
  [
    ['pool', 'spillway-dashboard'],
    ['region', 'spillway-global-dashboard'],
  ] as const
).map(([variable, name]) => ({
  ...{ variable, name },
  dashboard: JSON.parse(text(`monitoring/${name}.json`)) as Dashboard,
}));

describe('expressions', () => {
  it('that name what does not exist are found', () => {
    expect(problems('sum(spillway_active_workers)')).toEqual(['no metric spillway_active_workers']);
    expect(problems('sum by (tenant) (spillway_leases)')).toEqual(['nothing has the label tenant']);
    expect(problems('spillway_replica_phase{phase="sleepy"}')).toEqual([
      'spillway_replica_phase{phase} is never sleepy',
    ]);
    expect(problems('spillway_leases{pool="x"}')).toEqual(['spillway_leases has no label pool']);
    expect(problems('spillway_leases', '{{ $labels.pool }}')).toEqual([
      'nothing has the label pool',
    ]);
    expect(problems('spillway_leases_bucket')).toEqual(['no metric spillway_leases_bucket']);
    expect(problems('sum by (le, pool) (rate(spillway_ttft_seconds_bucket[5m]))')).toEqual([]);
  });
});

describe('alerts', () => {
  it.each(rules.map((rule) => [rule.alert, rule] as const))('%s', (_, rule) => {
    expect(problems(rule.expr, rule.annotations.summary)).toEqual([]);
    const [page, anchor] = rule.annotations.runbook.split('#');
    expect(page).toBe('docs/runbook.md');
    expect(runbookAnchors()).toContain(anchor);
  });

  it('have names of their own', () => {
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length);
  });
});

describe.each(dashboards)('the dashboard $name', ({ variable, dashboard }) => {
  it.each(dashboard.panels.map((panel) => [panel.title, panel] as const))('%s', (_, panel) => {
    expect(panel.targets.length).toBeGreaterThan(0);
    for (const { expr, legendFormat } of panel.targets) {
      const plain = expr.replaceAll(`"$${variable}|none"`, `"$${variable}"`);
      expect(problems(plain, legendFormat)).toEqual([]);
    }
  });

  it('lets nothing lie on anything else', () => {
    const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) => {
      expect(x + w).toBeLessThanOrEqual(24);
      return Array.from({ length: w * h }, (_, at) => `${x + (at % w)},${y + Math.floor(at / w)}`);
    });
    expect(new Set(cells).size).toBe(cells.length);
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
  });

  it('finds what it shows in a metric that has it', () => {
    const query = dashboard.templating.list.find(({ name }) => name === variable)?.query ?? '';
    const [, metric = '', label = ''] = /^label_values\((\w+), (\w+)\)$/.exec(query) ?? [];
    expect(known.get(metric)).toContain(label);
    expect(label).toBe(variable);
  });
});

describe('autoscaling', () => {
  it('asks for metrics that exist', () => {
    const scaled = parse(text('autoscaling/scaled-object.yaml')) as {
      spec: { triggers: { metadata: { query: string } }[] };
    };
    for (const { metadata } of scaled.spec.triggers) expect(problems(metadata.query)).toEqual([]);
  });
});
