import { expect, test } from 'vitest';
import { controlOf, failuresOf, rowsOf } from './scale.ts';
import { measureVolume } from './scale-volume.ts';

const SHAPE = { replicas: 280, routers: 1, warmMs: 1_000, forMs: 1_000, requestsPerS: 4 };

test('what a router of many agents hears and says stays within its bounds', () => {
  const figures = measureVolume({ ...SHAPE, seed: 1 });
  expect(failuresOf(SHAPE, figures)).toEqual([]);
  const rows = rowsOf(SHAPE, figures);
  expect(rows.map(({ kind }) => kind)).toEqual(
    expect.arrayContaining(['report', 'prefix', 'heard', 'sent', 'firstToken', 'ended', 'all']),
  );
  expect(figures.requests).toBeGreaterThan(50);
});

test('control: agents that keep the pace of a small region pass the bound on reports', () => {
  expect(failuresOf(SHAPE, controlOf(SHAPE)).join()).toContain('reports a second');
});
