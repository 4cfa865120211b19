// Metrics from a table: each role lists what it measures, and the table makes the instruments, the
// exposition and the reference page. Base units, a fixed label set each, label values from closed lists or
// configuration, never from clients.

import { Gauge, Registry, type Metric } from 'prom-client';
import {
  CounterRow,
  HistogramRow,
  type LabelValues,
  MetricRows,
  type Sample,
} from './metric-rows.ts';

export type { LabelValues } from './metric-rows.ts';

export interface MetricDefinition {
  /** Without prefix. Counters end in `_total`, units are base units. */
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  /** One sentence, with the unit where the name has none. */
  readonly help: string;
  readonly labels: readonly string[];
  /** All values of a counter's only label: rows that are there, at 0, from the start. */
  readonly values?: readonly string[];
  /**
   * What becomes of it where a router is several workers: gauges, and counters that somebody else counts. `freshest`: of
   * the worker that has heard last of whom it is about; `parent`: the parent's own. Other counters and histograms are
   * sums over all workers that there ever were.
   */
  readonly workers?: 'sum' | 'max' | 'min' | 'freshest' | 'parent';
  /** Upper bounds of a histogram. */
  readonly buckets?: readonly number[];
}

export interface GaugeRow {
  readonly labels: LabelValues;
  /** Null leaves the row out: unknown is not 0. */
  readonly value: number | null;
}

export interface Metrics<Name extends string> {
  /** Adds to a counter. */
  add(name: Name, labels?: LabelValues, by?: number): void;
  /** Observes in a histogram. */
  observe(name: Name, value: number, labels?: LabelValues): void;
  /** Sets one row of a gauge. */
  set(name: Name, value: number, labels?: LabelValues): void;
  /** Replaces all rows of a gauge, or of a counter that somebody else counts: what is gone leaves. */
  replace(name: Name, rows: readonly GaugeRow[]): void;
  /** Prometheus text exposition. */
  text(): Promise<string>;
  readonly contentType: string;
}

/** Instruments of one process (or one role in it) in a registry of their own. */
export function createMetrics<Name extends string>(
  prefix: string,
  definitions: readonly (MetricDefinition & { readonly name: Name })[],
): Metrics<Name> {
  const registry = new Registry();
  const counters = new Map<string, MetricRows<CounterRow>>();
  const gauges = new Map<string, Gauge>();
  const histograms = new Map<string, MetricRows<HistogramRow>>();
  for (const definition of definitions) {
    const { name, type, help, labels, values = [], buckets = [] } = definition;
    if (type === 'gauge') {
      const labelNames = [...labels];
      gauges.set(name, new Gauge({ name: prefix + name, help, labelNames, registers: [registry] }));
    } else if (type === 'counter') {
      const rows = new MetricRows(labels, () => new CounterRow());
      for (const value of values) rows.of({ [labels[0] ?? '']: value });
      counters.set(name, rows);
      registry.registerMetric(exposed(prefix, definition, rows));
    } else {
      const rows = new MetricRows(labels, () => new HistogramRow(buckets));
      histograms.set(name, rows);
      registry.registerMetric(exposed(prefix, definition, rows));
    }
  }
  return {
    add(name, labels = {}, by = 1) {
      known(counters, name).of(labels).add(by);
    },
    observe(name, value, labels = {}) {
      known(histograms, name).of(labels).observe(value);
    },
    set(name, value, labels = {}) {
      known(gauges, name).set(labels, value);
    },
    replace(name, rows) {
      const present = rows.filter(
        (row): row is GaugeRow & { readonly value: number } => row.value !== null,
      );
      const gauge = gauges.get(name);
      if (gauge === undefined) {
        const counter = known(counters, name);
        counter.clear();
        for (const { labels, value } of present) counter.of(labels).add(value);
        return;
      }
      gauge.reset();
      for (const { labels, value } of present) gauge.set(labels, value);
    },
    text: () => registry.metrics(),
    contentType: registry.contentType,
  };
}

/** Rows of ours as the registry asks for them. Its types know its own instruments only; it reads a name and what `get` says. */
function exposed(
  prefix: string,
  { name, type, help }: MetricDefinition,
  rows: { samples(name: string): readonly Sample[] },
): Metric {
  const full = prefix + name;
  const get = () =>
    Promise.resolve({ name: full, help, type, aggregator: 'sum', values: rows.samples(full) });
  return { name: full, get } as unknown as Metric;
}

function known<Instrument>(instruments: ReadonlyMap<string, Instrument>, name: string): Instrument {
  const instrument = instruments.get(name);
  if (instrument === undefined) throw new Error(`metric '${name}' is not in the table`);
  return instrument;
}
