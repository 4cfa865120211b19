// One counter or histogram: a row for each set of label values. Rows are plain numbers, found by their label values alone,
// because some are counted with every chunk of a stream: whatever costs (names, sums of buckets) waits until they are read.

export type LabelValues = Readonly<Record<string, string>>;

export interface Sample {
  readonly metricName: string;
  readonly labels: LabelValues;
  readonly value: number;
}

interface Figures {
  /** What is exposed of it, under `name` and with `labels` at least. */
  samples(name: string, labels: LabelValues): readonly Sample[];
}

export class MetricRows<Row extends Figures> {
  private readonly names: readonly string[];
  private readonly make: () => Row;
  private readonly rows = new Map<string, { readonly labels: LabelValues; readonly row: Row }>();
  /** Who counts with every chunk asks with the same object again. */
  private lastLabels: LabelValues | null = null;
  private lastRow: Row | null = null;

  /** `names` of the labels; `make` makes a row at 0. */
  constructor(names: readonly string[], make: () => Row) {
    this.names = names;
    this.make = make;
    this.clear();
  }

  /** The row of these label values, which stay as they are; made where there is none. A label outside the table is a bug. */
  of(labels: LabelValues): Row {
    if (this.lastRow !== null && this.lastLabels === labels) return this.lastRow;
    const key = this.keyOf(labels);
    let row = this.rows.get(key)?.row;
    if (row === undefined) {
      row = this.make();
      this.rows.set(key, { labels: this.known(labels), row });
    }
    this.lastLabels = labels;
    this.lastRow = row;
    return row;
  }

  /** Without labels one row stays, at 0. */
  clear(): void {
    this.rows.clear();
    this.lastRow = null;
    if (this.names.length === 0) this.of({});
  }

  samples(name: string): Sample[] {
    return [...this.rows.values()].flatMap(({ labels, row }) => row.samples(name, labels));
  }

  private keyOf(labels: LabelValues): string {
    const { names } = this;
    if (names.length === 1) return labels[names[0] as string] ?? '';
    let key = '';
    for (const name of names) key += `${labels[name] ?? ''}\u0000`;
    return key;
  }

  /** A copy: the caller may go on to use its own. */
  private known(labels: LabelValues): LabelValues {
    const other = Object.keys(labels).find((name) => !this.names.includes(name));
    if (other !== undefined) throw new Error(`label '${other}' is not in the table`);
    return { ...labels };
  }
}

export class CounterRow implements Figures {
  private value = 0;

  add(by: number): void {
    if (by < 0) throw new Error('a counter cannot fall');
    this.value += finite(by);
  }

  samples(metricName: string, labels: LabelValues): readonly Sample[] {
    return [{ metricName, labels, value: this.value }];
  }
}

export class HistogramRow implements Figures {
  private readonly bounds: readonly number[];
  /** Of each bucket alone; the last one has no upper bound. */
  private readonly counts: Float64Array;
  private sum = 0;

  /** `bounds` ascend; a value that equals one lies below it. */
  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = new Float64Array(bounds.length + 1);
  }

  observe(value: number): void {
    this.sum += finite(value);
    let bucket = 0;
    while (bucket < this.bounds.length && value > (this.bounds[bucket] as number)) bucket += 1;
    this.counts[bucket] = (this.counts[bucket] as number) + 1;
  }

  samples(name: string, labels: LabelValues): readonly Sample[] {
    let count = 0;
    const buckets = [...this.bounds, '+Inf'].map((bound, index) => {
      count += this.counts[index] as number;
      const le = String(bound);
      return { metricName: `${name}_bucket`, labels: { le, ...labels }, value: count };
    });
    const sum = { metricName: `${name}_sum`, labels, value: this.sum };
    return [...buckets, sum, { metricName: `${name}_count`, labels, value: count }];
  }
}

function finite(value: number): number {
  if (!Number.isFinite(value)) throw new Error(`a metric cannot be ${value}`);
  return value;
}
