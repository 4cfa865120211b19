// One metric: a row for each set of label values, and how its rows read in Prometheus' text format.
//
// Rows are plain numbers, found by their label values alone, because some are counted with every chunk of a stream:
// whatever costs (names, escapes, sums of buckets) waits until somebody reads them.

export type LabelValues = Readonly<Record<string, string>>;

interface Figures {
  /** Lines of the exposition: `name` with the labels, rendered. */
  lines(name: string, labels: string): readonly string[];
}

export class MetricRows<Row extends Figures> {
  private readonly names: readonly string[];
  private readonly make: () => Row;
  private readonly rows = new Map<string, { readonly labels: string; readonly row: Row }>();

  /** `names` of the labels; `make` makes a row at 0. */
  constructor(names: readonly string[], make: () => Row) {
    this.names = names;
    this.make = make;
    this.clear();
  }

  /** The row of these label values, made where there is none. A label outside the table is a bug. */
  of(labels: LabelValues): Row {
    const key = this.keyOf(labels);
    const found = this.rows.get(key);
    if (found !== undefined) return found.row;
    const row = this.make();
    this.rows.set(key, { labels: this.rendered(labels), row });
    return row;
  }

  /** Without labels one row stays, at 0. */
  clear(): void {
    this.rows.clear();
    if (this.names.length === 0) this.of({});
  }

  lines(name: string): string[] {
    return [...this.rows.values()].flatMap(({ labels, row }) => row.lines(name, labels));
  }

  private keyOf(labels: LabelValues): string {
    const { names } = this;
    if (names.length === 1) return labels[names[0] as string] ?? '';
    let key = '';
    for (const name of names) key += `${labels[name] ?? ''}\u0000`;
    return key;
  }

  private rendered(labels: LabelValues): string {
    const other = Object.keys(labels).find((name) => !this.names.includes(name));
    if (other !== undefined) throw new Error(`label '${other}' is not in the table`);
    return this.names
      .filter((name) => labels[name] !== undefined)
      .map((name) => `${name}="${escaped(labels[name] ?? '')}"`)
      .join(',');
  }
}

/** Of a counter or a gauge. */
export class NumberRow implements Figures {
  private value = 0;

  add(by: number): void {
    this.value += finite(by);
  }

  set(value: number): void {
    this.value = finite(value);
  }

  lines(name: string, labels: string): readonly string[] {
    return [line(name, labels, this.value)];
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

  lines(name: string, labels: string): readonly string[] {
    const rest = labels === '' ? '' : `,${labels}`;
    let count = 0;
    const buckets = [...this.bounds, '+Inf'].map((bound, index) => {
      count += this.counts[index] as number;
      return line(`${name}_bucket`, `le="${bound}"${rest}`, count);
    });
    return [
      ...buckets,
      line(`${name}_sum`, labels, this.sum),
      line(`${name}_count`, labels, count),
    ];
  }
}

function line(name: string, labels: string, value: number): string {
  return labels === '' ? `${name} ${value}` : `${name}{${labels}} ${value}`;
}

function escaped(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('"', '\\"');
}

function finite(value: number): number {
  if (!Number.isFinite(value)) throw new Error(`a metric cannot be ${value}`);
  return value;
}
