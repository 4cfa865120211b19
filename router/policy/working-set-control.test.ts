import { describe, expect, test } from 'vitest';
import { WorkingSetControl, type BoundSettings } from './working-set-control.ts';

const SETTINGS: BoundSettings = {
  workingSetBound: 0.9,
  workingSetBoundMin: 0.5,
  workingSetBoundMax: 1.2,
};

interface Load {
  readonly hits: number;
  /** Share of the looks at which somebody waits. */
  readonly waiting: number;
  readonly windows: number;
  readonly routers?: number;
}

/** A control and its clock. */
class Rig {
  readonly control = new WorkingSetControl();
  readonly settings: BoundSettings;
  nowMs = 0;

  constructor(settings: BoundSettings = SETTINGS) {
    this.settings = settings;
    this.control.step(settings, 0);
  }

  get bound(): number | null {
    return this.control.bound(this.settings);
  }

  /** Windows of 100 turns and 10 s; the bound after each. */
  run({ hits, waiting, windows, routers = 1 }: Load): (number | null)[] {
    return Array.from({ length: windows }, () => {
      for (let k = 0; k < 100; k += 1) {
        this.control.look({ waiting: k < 100 * waiting, routers });
        this.control.observe({ found: 1_000 * hits, could: 1_000 });
      }
      this.nowMs += 10_000;
      this.control.step(this.settings, this.nowMs);
      return this.bound;
    });
  }
}

describe('where somebody waits now and then', () => {
  test('the bound is eased step by step while turns find what they left', () => {
    expect(new Rig().run({ hits: 0.97, waiting: 0.4, windows: 3 })).toEqual([0.95, 1, 1.05]);
  });

  test('it stays where nobody waits, and where hits are between fair and poor', () => {
    const idle = new Rig();
    expect(idle.run({ hits: 1, waiting: 0, windows: 3 })).toEqual([0.9, 0.9, 0.9]);
    expect(idle.run({ hits: 0.85, waiting: 0.4, windows: 2 })).toEqual([0.9, 0.9]);
  });

  test('what has waited in windows before eases it no further once nobody waits', () => {
    const rig = new Rig();
    expect(rig.run({ hits: 0.97, waiting: 0.6, windows: 1 })).toEqual([0.95]);
    expect(rig.run({ hits: 0.97, waiting: 0, windows: 3 })).toEqual([0.95, 0.95, 0.95]);
  });

  test('a window in which all waited eases nothing, however few waited before', () => {
    const rig = new Rig();
    expect(rig.run({ hits: 0.97, waiting: 0.1, windows: 1 })).toEqual([0.95]);
    expect(rig.run({ hits: 0.97, waiting: 1, windows: 1 })).toEqual([0.95]);
  });

  test('it never passes the greatest, nor falls below the least', () => {
    const rig = new Rig();
    expect(rig.run({ hits: 0.97, waiting: 0.4, windows: 20 }).at(-1)).toBe(1.2);
    expect(rig.run({ hits: 0.1, waiting: 0.4, windows: 40 }).at(-1)).toBe(0.5);
  });
});

describe('where somebody always waits', () => {
  test('the bound stands at its start however good the hits are', () => {
    expect(new Rig().run({ hits: 1, waiting: 1, windows: 4 })).toEqual([0.9, 0.9, 0.9, 0.9]);
  });

  test('a bound that was eased in vain comes back', () => {
    const rig = new Rig();
    rig.run({ hits: 0.97, waiting: 0.4, windows: 3 });
    const after = rig.run({ hits: 0.97, waiting: 1, windows: 12 });
    expect(after.at(-1)).toBe(0.9);
  });

  test('one that was tightened comes back to its start, and no further', () => {
    const rig = new Rig();
    expect(rig.run({ hits: 0.5, waiting: 1, windows: 1 })).toEqual([0.8]);
    expect(rig.run({ hits: 0.97, waiting: 1, windows: 20 }).at(-1)).toBe(0.9);
  });
});

test('poor hits tighten it by two steps, and the window after is not judged', () => {
  expect(new Rig().run({ hits: 0.2, waiting: 1, windows: 4 })).toEqual([0.8, 0.8, 0.7, 0.7]);
  expect(new Rig().run({ hits: 0.81, waiting: 1, windows: 2 })).toEqual([0.9, 0.9]);
});

test('it does not swing: a bound from which it stepped down is not tried again for two minutes', () => {
  const rig = new Rig();
  rig.run({ hits: 0.97, waiting: 0.4, windows: 4 });
  expect(rig.bound).toBe(1.1);
  rig.run({ hits: 0.5, waiting: 0.1, windows: 2 });
  expect(rig.bound).toBe(1);
  const next = rig.run({ hits: 0.97, waiting: 0.4, windows: 10 });
  expect(Math.max(...next.map((bound) => bound ?? 0))).toBe(1.05);
  expect(rig.run({ hits: 0.97, waiting: 0.4, windows: 3 }).at(-1)).toBeGreaterThan(1.05);
});

test('of several routers it is enough that one of them holds somebody back', () => {
  const alone = new Rig();
  const eight = new Rig();
  alone.run({ hits: 0.97, waiting: 0.3, windows: 2 });
  eight.run({ hits: 0.97, waiting: 0.3, windows: 2, routers: 8 });
  expect([alone.bound, eight.bound]).toEqual([1, 0.9]);
});

test('a few turns or a moment judge nothing', () => {
  const rig = new Rig();
  for (let k = 0; k < 95; k += 1) rig.control.observe({ found: 0, could: 1_000 });
  rig.control.step(SETTINGS, 60_000);
  expect([rig.bound, rig.control.hits]).toEqual([0.9, null]);
  rig.control.observe({ found: 0, could: 1_000 });
  rig.control.step(SETTINGS, 60_000);
  expect([rig.bound, rig.control.hits]).toEqual([0.8, 0]);
});

test('it follows its settings: off, or still where least and greatest are the same', () => {
  const rig = new Rig();
  rig.run({ hits: 0.2, waiting: 1, windows: 1 });
  expect(rig.control.bound({ ...SETTINGS, workingSetBound: null })).toBeNull();
  const still = { workingSetBound: 0.9, workingSetBoundMin: 0.9, workingSetBoundMax: 0.9 };
  expect(rig.control.bound(still)).toBe(0.9);
});
