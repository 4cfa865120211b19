import { expect, test } from 'vitest';
import { machineWatch, type ProcessorTime } from './host-machine.ts';

function watchOf(...times: readonly ProcessorTime[]): ReturnType<typeof machineWatch> {
  const left = [...times];
  return machineWatch({
    processorTime: () => left.shift() ?? { busyMs: 0, allMs: 0 },
    totalBytes: () => 100,
    freeBytes: () => 60,
  });
}

test('the share of busy time is of what passed between two looks, unknown at the first', () => {
  const look = watchOf({ busyMs: 900, allMs: 1_000 }, { busyMs: 950, allMs: 1_200 });
  expect(look()).toEqual({ cpuRatio: null, memoryTotalBytes: 100, memoryUsedBytes: 40 });
  expect(look().cpuRatio).toBe(0.25);
});

test('it is unknown where no time has passed or the counts have begun anew', () => {
  const still = watchOf({ busyMs: 900, allMs: 1_000 }, { busyMs: 900, allMs: 1_000 });
  expect([still(), still()].map(({ cpuRatio }) => cpuRatio)).toEqual([null, null]);
  const anew = watchOf({ busyMs: 900, allMs: 1_000 }, { busyMs: 10, allMs: 1_500 });
  expect([anew(), anew()].map(({ cpuRatio }) => cpuRatio)).toEqual([null, null]);
});

test('this machine has processors and memory', () => {
  const look = machineWatch();
  look();
  const facts = look();
  expect(facts.memoryTotalBytes).toBeGreaterThan(0);
  expect(facts.memoryUsedBytes).toBeLessThanOrEqual(facts.memoryTotalBytes ?? 0);
  expect(facts.cpuRatio ?? 0).toBeLessThanOrEqual(1);
});
