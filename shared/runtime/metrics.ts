// Metrics from a table: each role lists what it measures, and the table makes the instruments, the
// exposition and the reference page. Base units, a fixed label set each, label values from closed lists or
// configuration, never from clients.

import { HistogramRow, type LabelValues, MetricRows, NumberRow } from './metric-rows.ts';

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

const CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** Instruments of one process (or one role in it). */
export function createMetrics<Name extends string>(
  prefix: string,
  definitions: readonly (MetricDefinition & { readonly name: Name })[],
): Metrics<Name> {
  const counters = new Map<string, MetricRows<NumberRow>>();
  const gauges = new Map<string, MetricRows<NumberRow>>();
  const histograms = new Map<string, MetricRows<HistogramRow>>();
  for (const { name, type, labels, values = [], buckets = [] } of definitions) {
    if (type === 'histogram') {
      histograms.set(name, new MetricRows(labels, () => new HistogramRow(buckets)));
      continue;
    }
    const rows = new MetricRows(labels, () => new NumberRow());
    for (const value of values) rows.of({ [labels[0] ?? '']: value });
    (type === 'counter' ? counters : gauges).set(name, rows);
  }
  const rowsOf = (name: string) =>
    counters.get(name) ?? gauges.get(name) ?? known(histograms, name);
  return {
    add(name, labels = {}, by = 1) {
      if (by < 0) throw new Error(`counter '${name}' cannot fall`);
      known(counters, name).of(labels).add(by);
    },
    observe(name, value, labels = {}) {
      known(histograms, name).of(labels).observe(value);
    },
    set(name, value, labels = {}) {
      known(gauges, name).of(labels).set(value);
    },
    replace(name, rows) {
      const instrument = gauges.get(name) ?? known(counters, name);
      instrument.clear();
      for (const { labels, value } of rows) {
        if (value !== null) instrument.of(labels).add(value);
      }
    },
    text: () =>
      Promise.resolve(
        `${definitions.map((each) => exposed(prefix, each, rowsOf(each.name))).join('\n\n')}\n`,
      ),
    contentType: CONTENT_TYPE,
  };
}

function exposed(
  prefix: string,
  { name, type, help }: MetricDefinition,
  rows: { lines(name: string): readonly string[] },
): string {
  const full = prefix + name;
  const said = help.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
  return [`# HELP ${full} ${said}`, `# TYPE ${full} ${type}`, ...rows.lines(full)].join('\n');
}

function known<Instrument>(instruments: ReadonlyMap<string, Instrument>, name: string): Instrument {
  const instrument = instruments.get(name);
  if (instrument === undefined) throw new Error(`metric '${name}' is not in the table`);
  return instrument;
}
