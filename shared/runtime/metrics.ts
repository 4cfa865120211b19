// Metrics from a table: each role lists what it measures, and the table makes the instruments, the
// exposition and the reference page. Base units, a fixed label set each, label values from closed lists or
// configuration, never from clients.

import { Counter, Gauge, Histogram, Registry } from 'prom-client';

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

export type LabelValues = Readonly<Record<string, string>>;

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
  const counters = new Map<string, Counter>();
  const gauges = new Map<string, Gauge>();
  const histograms = new Map<string, Histogram>();
  for (const definition of definitions) {
    const base = {
      name: prefix + definition.name,
      help: definition.help,
      labelNames: [...definition.labels],
      registers: [registry],
    };
    if (definition.type === 'counter') counters.set(definition.name, counter(base, definition));
    else if (definition.type === 'gauge') gauges.set(definition.name, new Gauge(base));
    else {
      const buckets = [...(definition.buckets ?? [])];
      histograms.set(definition.name, new Histogram({ ...base, buckets }));
    }
  }
  return {
    add(name, labels = {}, by = 1) {
      known(counters, name).inc(labels, by);
    },
    observe(name, value, labels = {}) {
      known(histograms, name).observe(labels, value);
    },
    set(name, value, labels = {}) {
      known(gauges, name).set(labels, value);
    },
    replace(name, rows) {
      const instrument = gauges.get(name) ?? known(counters, name);
      instrument.reset();
      for (const { labels, value } of rows) {
        if (value !== null) instrument.inc(labels, value);
      }
    },
    text: () => registry.metrics(),
    contentType: registry.contentType,
  };
}

function counter(
  base: ConstructorParameters<typeof Counter>[0],
  { labels, values = [] }: MetricDefinition,
): Counter {
  const made = new Counter(base);
  for (const value of values) made.inc({ [labels[0] ?? '']: value }, 0);
  return made;
}

function known<Instrument>(instruments: ReadonlyMap<string, Instrument>, name: string): Instrument {
  const instrument = instruments.get(name);
  if (instrument === undefined) throw new Error(`metric '${name}' is not in the table`);
  return instrument;
}
