import { expect, test } from 'vitest';
import { CHECK_INTERVAL_MS, Deadlines } from './deadlines.ts';

test('one interval looks at everything that is open, and runs only while something is', () => {
  let now = 0;
  const running = new Set<() => void>();
  const timers = {
    after: () => () => undefined,
    every: (intervalMs: number, task: () => void) => {
      expect(intervalMs).toBe(CHECK_INTERVAL_MS);
      running.add(task);
      return () => void running.delete(task);
    },
  };
  const deadlines = new Deadlines({ nowMs: () => now, wallMs: () => now }, timers);
  const seen: string[] = [];
  const a = { check: (nowMs: number) => seen.push(`a${nowMs}`) };
  const b = {
    check: (nowMs: number) => {
      seen.push(`b${nowMs}`);
      deadlines.remove(b);
    },
  };
  expect(running.size).toBe(0);
  deadlines.add(a);
  deadlines.add(b);
  expect(running.size).toBe(1);
  for (now of [50, 100]) for (const task of running) task();
  expect(seen).toEqual(['a50', 'b50', 'a100']);
  deadlines.remove(a);
  expect(running.size).toBe(0);
  deadlines.add(b);
  expect(running.size).toBe(1);
});
