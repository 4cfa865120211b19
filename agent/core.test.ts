import { expect, test } from 'vitest';
import { Harness } from './core.harness.ts';

test('is ready only after a generation has succeeded and calibration is over', () => {
  const h = new Harness();
  const link = h.link('a');
  h.advance(10_000);
  expect(h.engine.orders[0]?.purpose).toBe('probe');
  expect(h.engine.orders.map((order) => order.purpose)).toContain('calibration');
  const phases = h.sent.flatMap((s) =>
    s.message.kind === 'report' ? [s.message.report.phase] : [],
  );
  expect([...new Set(phases)]).toEqual(['warming', 'ready']);
  expect(h.report(link).prefillCost).not.toBeNull();
  expect(h.wakes).toBeLessThan(200);
});
