import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ManualTime } from './manual-time.ts';
import { createMetrics, type GaugeRow, type MetricDefinition } from './metrics.ts';
import { countJournal, FLUSH_MS, MetricsJournal, type JournalEntry } from './metrics-journal.ts';

const METRICS = [
  { name: 'asked_total', type: 'counter', help: 'Asked.', labels: ['route'] },
  { name: 'took_seconds', type: 'histogram', help: 'Took.', labels: ['route'], buckets: [1, 2] },
  { name: 'files', type: 'gauge', help: 'Files.', labels: ['file'] },
] as const satisfies readonly MetricDefinition[];
type Name = (typeof METRICS)[number]['name'];

/** A worker and the parent that counts what comes of it; `open()` lets what was sent arrive. */
function pair() {
  const time = new ManualTime();
  const metrics = createMetrics<Name>('', METRICS);
  const rows = new Map<string, readonly GaugeRow[]>();
  const waiting: { entries: readonly JournalEntry<Name>[]; arrived: () => void }[] = [];
  const journal = new MetricsJournal<Name>(
    (entries) => new Promise((arrived) => waiting.push({ entries, arrived })),
    time,
  );
  const open = async (): Promise<void> => {
    for (const { entries, arrived } of waiting.splice(0)) {
      countJournal(metrics, entries, (name, its) => rows.set(name, its));
      arrived();
    }
    // The next flush waits for this one's end.
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { time, metrics, rows, waiting, journal, open };
}

describe('what a worker measures', () => {
  test('counts under labels that are the same object every time, across flushes', async () => {
    const { time, metrics, journal, open } = pair();
    const [a, b] = [{ route: 'a' }, { route: 'b' }];
    for (let round = 0; round < 3; round += 1) {
      for (const labels of [a, a, b, { route: 'a' }, a]) journal.observe('took_seconds', 1, labels);
      time.advance(FLUSH_MS);
      await open();
    }
    const text = await metrics.text();
    expect(text).toContain('took_seconds_count{route="a"} 12');
    expect(text).toContain('took_seconds_count{route="b"} 3');
  });

  test('is in the instruments of its parent, each time once, however it was sent', async () => {
    const event = fc.record({
      route: fc.constantFrom('a', 'b'),
      seconds: fc.option(fc.integer({ min: 0, max: 3 })),
      passMs: fc.integer({ min: 0, max: 2 * FLUSH_MS }),
      opens: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(event, { maxLength: 60 }), async (events) => {
        const { time, metrics, journal, open } = pair();
        const plain = createMetrics<Name>('', METRICS);
        for (const { route, seconds, passMs, opens } of events) {
          for (const each of [plain, journal]) {
            if (seconds === null) each.add('asked_total', { route });
            else each.observe('took_seconds', seconds, { route });
          }
          time.advance(passMs);
          if (opens) await open();
        }
        for (let k = 0; k < 3; k += 1) {
          time.advance(FLUSH_MS);
          await open();
        }
        const sorted = async (of: typeof plain) => (await of.text()).split('\n').toSorted();
        expect(await sorted(metrics)).toEqual(await sorted(plain));
      }),
      { numRuns: 50 },
    );
  });

  test('leaves the process within 20 ms, in one message', () => {
    const { time, journal, waiting } = pair();
    for (let k = 0; k < 100; k += 1) journal.add('asked_total', { route: 'a' });
    time.advance(FLUSH_MS - 1);
    expect(waiting).toHaveLength(0);
    time.advance(1);
    expect(waiting.map(({ entries }) => entries)).toEqual([
      [{ kind: 'add', name: 'asked_total', labels: { route: 'a' }, by: 100 }],
    ]);
  });

  test('is gathered in one place while the parent takes nothing', async () => {
    const { time, journal, waiting, open, metrics } = pair();
    for (let k = 0; k < 1_000; k += 1) {
      journal.add('asked_total', { route: 'a' });
      time.advance(FLUSH_MS);
    }
    expect(waiting).toHaveLength(1);
    await open();
    time.advance(FLUSH_MS);
    await open();
    expect(await metrics.text()).toContain('asked_total{route="a"} 1000');
  });

  test('is bounded in the values of a histogram too', async () => {
    const { journal, open, metrics } = pair();
    for (let k = 0; k < 65_536 + 100; k += 1) journal.observe('took_seconds', 1, { route: 'a' });
    void journal.flush();
    await open();
    expect(await metrics.text()).toContain('took_seconds_count{route="a"} 65536');
  });

  test('waits while a flush is under way, whoever asks for another', async () => {
    const { journal, open, waiting } = pair();
    journal.add('asked_total', { route: 'a' });
    const first = journal.flush();
    journal.add('asked_total', { route: 'b' });
    let over = false;
    const second = journal.flush().then(() => (over = true));
    await Promise.resolve();
    expect(waiting).toHaveLength(1);
    await open();
    await first;
    expect([waiting.length, over]).toEqual([1, false]);
    await open();
    await second;
  });

  test('of a gauge is all its rows, the last of them', async () => {
    const { time, journal, rows, open } = pair();
    journal.replace('files', [{ labels: { file: 'a' }, value: 1 }]);
    journal.set('files', 2, { file: 'b' });
    time.advance(FLUSH_MS);
    await open();
    expect(rows.get('files')).toEqual([{ labels: { file: 'b' }, value: 2 }]);
  });

  test('has left when a flush is over that was asked for', async () => {
    const { journal, open, metrics } = pair();
    journal.add('asked_total', { route: 'a' });
    const flushed = journal.flush();
    await open();
    await flushed;
    expect(await metrics.text()).toContain('asked_total{route="a"} 1');
  });
});
