import { expect, test } from 'vitest';
import { METRICS } from '../metrics.ts';
import { GaugeRows } from './gauge-rows.ts';

test('rows of workers go together by the rule of the metric, and leave with their worker', () => {
  const rows = new GaugeRows(METRICS);
  const file = { file: '/tls.crt' };
  const name = 'tls_certificate_not_after_seconds';
  rows.take(0, name, [{ labels: file, value: 300 }]);
  rows.take(1, name, [{ labels: file, value: 100 }]);
  rows.take(2, name, [
    { labels: file, value: 200 },
    { labels: { file: '/ca' }, value: null },
  ]);
  expect(rows.merged()).toEqual([[name, [{ labels: file, value: 100 }]]]);
  rows.forget(1);
  expect(rows.merged()).toEqual([[name, [{ labels: file, value: 200 }]]]);
});
