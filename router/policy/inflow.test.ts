import { expect, test } from 'vitest';
import { Inflow } from './inflow.ts';

test('tells the rate of what is more urgent, in requests and in work', () => {
  const inflow = new Inflow();
  for (let ms = 0; ms <= 60_000; ms += 100) {
    inflow.note(-1, 50, ms);
    if (ms % 200 === 0) inflow.note(3, 400, ms);
  }
  expect(inflow.before(0, 60_000).requestsPerMs).toBeCloseTo(0.01, 3);
  expect(inflow.before(0, 60_000).workPerMs).toBeCloseTo(0.5, 1);
  expect(inflow.before(4, 60_000).workPerMs).toBeCloseTo(2.5, 1);
  expect(inflow.before(-1, 60_000)).toEqual({ requestsPerMs: 0, workPerMs: 0 });
});

test('is right from its first seconds on, and forgets what no longer comes', () => {
  const inflow = new Inflow();
  for (let ms = 0; ms <= 4_000; ms += 100) inflow.note(0, 50, ms);
  const early = inflow.before(1, 4_000).workPerMs;
  expect(early).toBeGreaterThan(0.45);
  expect(early).toBeLessThan(0.6);
  expect(inflow.before(1, 120_000).workPerMs).toBeLessThan(0.001);
  // Looking changes nothing.
  expect(inflow.before(1, 4_000).workPerMs).toBe(early);
});

test('says little of a single request', () => {
  const inflow = new Inflow();
  inflow.note(0, 100, 0);
  expect(inflow.before(1, 1).workPerMs).toBeLessThan(0.06);
});
