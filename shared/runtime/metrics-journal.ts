// What a worker process measures, on its way to the process that answers `/metrics`.
//
// A worker keeps no instruments: what it adds and observes is gathered and sent after `FLUSH_MS`, and the parent counts it in
// its own. So a counter of the parent's is the sum over all workers that there ever were, each event exactly once, and
// cannot fall when one of them dies; lost is what a killed worker gathered in its last `FLUSH_MS`.
//
// One flush is under way at a time. While the parent takes none, what is gathered grows by distinct label sets only, and
// by at most `VALUES_MAX` values of each histogram: further ones are left out.

import type { GaugeRow, LabelValues, Metrics } from './metrics.ts';
import type { Timers } from './timers.ts';

/** ms from something gathered to its being sent. */
export const FLUSH_MS = 20;
const VALUES_MAX = 65_536;

export type JournalEntry<Name extends string> =
  | {
      readonly kind: 'add';
      readonly name: Name;
      readonly labels: LabelValues;
      readonly by: number;
    }
  | {
      readonly kind: 'observe';
      readonly name: Name;
      readonly labels: LabelValues;
      readonly values: readonly number[];
    }
  /** All rows of a gauge, as the worker has them now. */
  | { readonly kind: 'rows'; readonly name: Name; readonly rows: readonly GaugeRow[] };

/** Resolves when the entries have left the process. */
export type SendJournal<Name extends string> = (
  entries: readonly JournalEntry<Name>[],
) => Promise<void>;

interface Gathered<Name extends string> {
  readonly name: Name;
  readonly labels: LabelValues;
  by: number;
  readonly values: number[];
}

export class MetricsJournal<Name extends string> implements Metrics<Name> {
  readonly contentType = 'text/plain';
  readonly #send: SendJournal<Name>;
  readonly #timers: Timers;
  #gathered = new Map<string, Gathered<Name>>();
  /** By name, where it was found last: who counts with every chunk asks with the same labels again. */
  readonly #last = new Map<Name, Gathered<Name>>();
  #rows = new Map<Name, readonly GaugeRow[]>();
  #due: (() => void) | null = null;
  #sending: Promise<void> | null = null;

  constructor(send: SendJournal<Name>, timers: Timers) {
    this.#send = send;
    this.#timers = timers;
  }

  add(name: Name, labels: LabelValues = {}, by = 1): void {
    this.#of(name, labels).by += by;
  }

  observe(name: Name, value: number, labels: LabelValues = {}): void {
    const { values } = this.#of(name, labels);
    if (values.length < VALUES_MAX) values.push(value);
  }

  set(name: Name, value: number, labels: LabelValues = {}): void {
    this.replace(name, [{ labels, value }]);
  }

  replace(name: Name, rows: readonly GaugeRow[]): void {
    this.#rows.set(name, rows);
    this.#soon();
  }

  /** A worker is not asked: its parent answers. */
  text(): Promise<string> {
    return Promise.resolve('');
  }

  /** Sends what is gathered now; resolves when it has left. */
  async flush(): Promise<void> {
    while (this.#sending !== null) await this.#sending;
    if (this.#gathered.size === 0 && this.#rows.size === 0) return;
    this.#due?.();
    this.#due = null;
    this.#sending = this.#send(this.#take()).finally(() => {
      this.#sending = null;
      if (this.#gathered.size > 0 || this.#rows.size > 0) this.#soon();
    });
    await this.#sending;
  }

  #of(name: Name, labels: LabelValues): Gathered<Name> {
    const last = this.#last.get(name);
    if (last?.labels === labels) return last;
    const key = `${name} ${JSON.stringify(labels)}`;
    let gathered = this.#gathered.get(key);
    if (gathered === undefined) {
      gathered = { name, labels, by: 0, values: [] };
      this.#gathered.set(key, gathered);
      this.#soon();
    }
    // Of other labels that say the same, those that it was made with count.
    if (gathered.labels === labels) this.#last.set(name, gathered);
    return gathered;
  }

  #soon(): void {
    if (this.#due !== null || this.#sending !== null) return;
    this.#due = this.#timers.after(FLUSH_MS, () => {
      this.#due = null;
      void this.flush();
    });
  }

  #take(): JournalEntry<Name>[] {
    const entries: JournalEntry<Name>[] = [];
    for (const { name, labels, by, values } of this.#gathered.values()) {
      if (values.length > 0) entries.push({ kind: 'observe', name, labels, values });
      else entries.push({ kind: 'add', name, labels, by });
    }
    for (const [name, rows] of this.#rows) entries.push({ kind: 'rows', name, rows });
    this.#gathered = new Map();
    this.#last.clear();
    this.#rows = new Map();
    return entries;
  }
}

/** Counts what a worker has sent; the rows of its gauges go to `rows`. */
export function countJournal<Name extends string>(
  metrics: Metrics<Name>,
  entries: readonly JournalEntry<Name>[],
  rows: (name: Name, rows: readonly GaugeRow[]) => void,
): void {
  for (const entry of entries) {
    if (entry.kind === 'add') metrics.add(entry.name, entry.labels, entry.by);
    else if (entry.kind === 'rows') rows(entry.name, entry.rows);
    else for (const value of entry.values) metrics.observe(entry.name, value, entry.labels);
  }
}
