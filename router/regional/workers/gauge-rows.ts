// Gauges that workers set themselves, put together by the rule that the table of metrics gives each: what is not additive
// is never summed in silence.

import type { GaugeRow, MetricDefinition } from '../../../shared/runtime/metrics.ts';
import type { MetricName } from '../metrics.ts';

type Rule = NonNullable<MetricDefinition['workers']>;

export class GaugeRows {
  readonly #rules: ReadonlyMap<string, Rule>;
  readonly #rows = new Map<MetricName, Map<number, readonly GaugeRow[]>>();

  constructor(definitions: readonly MetricDefinition[]) {
    this.#rules = new Map(
      definitions.flatMap(({ name, workers }) => (workers === undefined ? [] : [[name, workers]])),
    );
  }

  /** All rows of one gauge, as a worker has them now; 0 is the parent itself. */
  take(worker: number, name: MetricName, rows: readonly GaugeRow[]): void {
    let ofWorkers = this.#rows.get(name);
    if (ofWorkers === undefined) {
      ofWorkers = new Map();
      this.#rows.set(name, ofWorkers);
    }
    ofWorkers.set(worker, rows);
  }

  forget(worker: number): void {
    for (const ofWorkers of this.#rows.values()) ofWorkers.delete(worker);
  }

  merged(): [MetricName, GaugeRow[]][] {
    return [...this.#rows].map(([name, ofWorkers]) => [
      name,
      mergeRows([...ofWorkers.values()].flat(), this.#rules.get(name) ?? 'max'),
    ]);
  }
}

function mergeRows(rows: readonly GaugeRow[], rule: Rule): GaugeRow[] {
  const merged = new Map<string, GaugeRow>();
  for (const row of rows) {
    if (row.value === null) continue;
    const key = JSON.stringify(row.labels);
    const before = merged.get(key)?.value ?? null;
    const value = before === null ? row.value : merge(before, row.value, rule);
    merged.set(key, { labels: row.labels, value });
  }
  return [...merged.values()];
}

function merge(a: number, b: number, rule: Rule): number {
  if (rule === 'sum') return a + b;
  return rule === 'min' ? Math.min(a, b) : Math.max(a, b);
}
