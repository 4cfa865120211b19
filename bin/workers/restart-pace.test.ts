import { expect, test } from 'vitest';
import { RestartPace } from './restart-pace.ts';

test('waits twice as long after each young death, 10 s at most, and says once that it goes on', () => {
  const pace = new RestartPace();
  const restarts = Array.from({ length: 10 }, () => pace.died(1_000));
  expect(restarts.map(({ delayMs }) => delayMs)).toEqual([
    100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000, 10_000,
  ]);
  expect(restarts.filter(({ alarm }) => alarm)).toHaveLength(1);
  expect(restarts[4]?.alarm).toBe(true);
});

test('begins anew after a life of a minute', () => {
  const pace = new RestartPace();
  for (let k = 0; k < 6; k += 1) pace.died(0);
  expect(pace.died(60_000)).toEqual({ delayMs: 100, alarm: false });
  expect(pace.died(0).delayMs).toBe(200);
});
