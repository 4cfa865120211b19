import { describe, expect, test } from 'vitest';
import { BurstRoom } from './working-set-burst.ts';

const SETTINGS = { workingSetBoundMax: 1.2 };

/** Looks once a second; the bound beyond 0.9 at the end. */
function after(seconds: number, seen: { waiting: boolean; routers?: number }, burst: BurstRoom) {
  const { waiting, routers = 1 } = seen;
  const from = burstSeconds.get(burst) ?? 0;
  for (let k = 0; k <= seconds; k += 1) {
    burst.look({ waiting, crowd: false, routers }, 1_000 * (from + k));
  }
  burstSeconds.set(burst, from + seconds);
  return burst.beyond(0.9, SETTINGS);
}

const burstSeconds = new WeakMap<BurstRoom, number>();

describe('room for a burst', () => {
  test('is whole while nobody waits', () => {
    expect(new BurstRoom().beyond(0.9, SETTINGS)).toBeCloseTo(1);
    expect(after(60, { waiting: false }, new BurstRoom())).toBeCloseTo(1);
  });

  test('is still there some seconds into a burst, and gone where somebody always waits', () => {
    const burst = new BurstRoom();
    expect(after(10, { waiting: true }, burst)).toBeGreaterThan(0.96);
    expect(after(110, { waiting: true }, burst)).toBeLessThan(0.905);
  });

  test('comes back when nobody waits any more', () => {
    const burst = new BurstRoom();
    after(120, { waiting: true }, burst);
    expect(after(60, { waiting: false }, burst)).toBeGreaterThan(0.98);
  });

  test('is the smaller, the more routers hold somebody back', () => {
    const [alone, eight] = [new BurstRoom(), new BurstRoom()];
    expect(after(10, { waiting: true, routers: 8 }, eight)).toBeLessThan(
      after(10, { waiting: true }, alone) - 0.05,
    );
  });

  test('is gone at once where a crowd waits', () => {
    const burst = new BurstRoom();
    burst.look({ waiting: true, crowd: true, routers: 1 }, 0);
    expect(burst.beyond(0.9, SETTINGS)).toBe(0.9);
    expect(after(120, { waiting: false }, burst)).toBeGreaterThan(0.98);
  });

  test('is none where the bound stands still', () => {
    expect(new BurstRoom().beyond(0.9, { workingSetBoundMax: 0.9 })).toBe(0.9);
    expect(new BurstRoom().beyond(0.95, { workingSetBoundMax: 0.9 })).toBe(0.95);
  });
});
