import { describe, expect, test } from 'vitest';
import { createMetrics } from './metrics.ts';

const TABLE = [
  { name: 'things_total', type: 'counter', help: 'Things.', labels: ['kind'] },
  { name: 'seen_total', type: 'counter', help: 'Counted elsewhere.', labels: ['who'] },
  { name: 'depth', type: 'gauge', help: 'Depth.', labels: ['pool'] },
  { name: 'wait_seconds', type: 'histogram', help: 'Wait.', labels: [], buckets: [1, 2] },
] as const;

const make = () => createMetrics<(typeof TABLE)[number]['name']>('x_', TABLE);

describe('metrics', () => {
  test('appear with prefix, help and type from the table', async () => {
    const metrics = make();
    metrics.add('things_total', { kind: 'a' });
    metrics.add('things_total', { kind: 'a' }, 2);
    metrics.observe('wait_seconds', 1.5);
    metrics.set('depth', 3, { pool: 'p' });
    const text = await metrics.text();
    expect(text).toContain('# HELP x_things_total Things.\n# TYPE x_things_total counter');
    expect(text).toContain('x_things_total{kind="a"} 3');
    expect(text).toContain('x_wait_seconds_bucket{le="2"} 1');
    expect(text).toContain('x_depth{pool="p"} 3');
  });

  test('that are replaced lose the rows that are gone, and unknown rows are left out', async () => {
    const metrics = make();
    for (const name of ['depth', 'seen_total'] as const) {
      const label = name === 'depth' ? 'pool' : 'who';
      const row = (value: string, amount: number | null) => ({
        labels: { [label]: value },
        value: amount,
      });
      metrics.replace(name, [row('a', 5), row('b', 1)]);
      metrics.replace(name, [row('a', 7), row('c', null), row('d', 0)]);
      const text = await metrics.text();
      expect(text).toContain(`x_${name}{${label}="a"} 7`);
      expect(text).toContain(`x_${name}{${label}="d"} 0`);
      expect(text).not.toMatch(new RegExp(`x_${name}\\{${label}="[bc]"`));
    }
  });

  test('that are asked for by the same labels again are those that stand now', async () => {
    const metrics = make();
    const labels = { who: 'a' };
    metrics.add('seen_total', labels, 5);
    metrics.add('seen_total', { who: 'b' });
    metrics.add('seen_total', labels, 2);
    expect(await metrics.text()).toContain('x_seen_total{who="a"} 7');
    metrics.replace('seen_total', [{ labels: { who: 'b' }, value: 1 }]);
    metrics.add('seen_total', labels, 3);
    expect(await metrics.text()).toContain('x_seen_total{who="a"} 3');
  });

  test('count a value in every bucket that it fits in, one that equals a bound in its own', async () => {
    const metrics = make();
    for (const value of [-1, 1, 1.5, 7]) metrics.observe('wait_seconds', value);
    expect(await metrics.text()).toContain(
      [
        'x_wait_seconds_bucket{le="1"} 2',
        'x_wait_seconds_bucket{le="2"} 3',
        'x_wait_seconds_bucket{le="+Inf"} 4',
        'x_wait_seconds_sum 8.5',
        'x_wait_seconds_count 4\n',
      ].join('\n'),
    );
  });

  test('keep rows apart whose label values are the same in another order', async () => {
    const metrics = createMetrics('x_', [
      { name: 'pairs_total', type: 'counter', help: 'Pairs.', labels: ['a', 'b'] },
    ]);
    metrics.add('pairs_total', { a: '1', b: '' });
    metrics.add('pairs_total', { a: '', b: '1' }, 2);
    const text = await metrics.text();
    expect(text).toContain('x_pairs_total{a="1",b=""} 1\n');
    expect(text).toContain('x_pairs_total{a="",b="1"} 2\n');
  });

  test('outside the table are a bug', () => {
    const metrics = createMetrics<string>('x_', TABLE);
    expect(() => metrics.add('other_total')).toThrow("'other_total'");
    expect(() => metrics.set('things_total', 1)).toThrow("'things_total'");
    expect(() => metrics.add('things_total', { sort: 'a' })).toThrow("'sort'");
    expect(() => metrics.add('things_total', { kind: 'a' }, -1)).toThrow('cannot fall');
    expect(() => metrics.observe('wait_seconds', Number.NaN)).toThrow('NaN');
  });
});
