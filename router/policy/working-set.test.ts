import { describe, expect, test } from 'vitest';
import type { CostCurve } from '../../shared/model/cost-curve.ts';
import { isUnfound, kvRoom, RecentTurns, servedAnew, type RoomFigures } from './working-set.ts';

const FIGURES: RoomFigures = {
  capacityTokens: 100_000,
  workingSetTokens: 80_000,
  ownTokens: 0,
  othersTokens: 0,
  ownNew: 0,
  claimedTokens: 0,
  neededTokens: 10_000,
  routers: 1,
};
const stateOf = (more: Partial<RoomFigures>, bound = 0.9) =>
  kvRoom({ ...FIGURES, ...more }, bound).state;

test('a prompt of which less than half is found is none that the replica holds', () => {
  expect([isUnfound(499, 1_000), isUnfound(500, 1_000)]).toEqual([true, false]);
});

describe('a replica has room', () => {
  test('while working set, own and needed together are within the bound', () => {
    expect(stateOf({})).toBe('room');
    expect(stateOf({ neededTokens: 10_001 })).toBe('full');
    expect(stateOf({ ownTokens: 1 })).toBe('full');
    expect(stateOf({ ownTokens: 4_000, ownNew: 1, neededTokens: 6_000 })).toBe('room');
    expect(stateOf({}, 0.8)).toBe('full');
  });

  test('for a conversation that is larger than half of the bound once half is free', () => {
    expect(stateOf({ workingSetTokens: 45_000, neededTokens: 500_000 })).toBe('room');
    expect(stateOf({ workingSetTokens: 45_001, neededTokens: 500_000 })).toBe('full');
  });
});

test.each([{ capacityTokens: null }, { workingSetTokens: null }])(
  'where a figure is unknown the rule does not act: %o',
  (unknown) => {
    expect(stateOf(unknown)).toBe('unknown');
    expect(stateOf({ ...unknown, ownTokens: 1e9 })).toBe('unknown');
  },
);

describe('one of several routers', () => {
  test('counts what the others say that they have sent, and no report includes', () => {
    expect(stateOf({ routers: 2, othersTokens: 1 })).toBe('full');
    expect(stateOf({ routers: 2, workingSetTokens: 75_000, othersTokens: 5_000 })).toBe('room');
    expect(kvRoom({ ...FIGURES, ownTokens: 2, othersTokens: 3 }, 0.9).ownTokens).toBe(5);
  });

  test('takes its share of the room between two reports', () => {
    const eight = { routers: 8, workingSetTokens: 10_000, neededTokens: 5_000 };
    expect(stateOf({ ...eight, ownTokens: 5_000, ownNew: 1 })).toBe('room');
    expect(stateOf({ ...eight, ownTokens: 5_001, ownNew: 1 })).toBe('full');
  });

  test('takes no share of what a report leaves that includes its own part alone', () => {
    // Of 80,000 it has sent 40,000, which the report includes: the other half may be under way from the other router.
    const two = { routers: 2, workingSetTokens: 50_000, neededTokens: 5_000 };
    expect(stateOf({ ...two, ownNew: 1 })).toBe('room');
    expect(stateOf({ ...two, claimedTokens: 40_000, ownNew: 1 })).toBe('full');
    expect(stateOf({ ...two, claimedTokens: 30_000, ownNew: 1 })).toBe('room');
  });

  test('takes one at least where there is room for it', () => {
    expect(stateOf({ routers: 8 })).toBe('room');
    expect(stateOf({ routers: 8, ownTokens: 1, ownNew: 1, neededTokens: 9_000 })).toBe('full');
    expect(stateOf({ routers: 8, neededTokens: 10_001 })).toBe('full');
  });
});

test('what it decided by is shown', () => {
  expect(kvRoom(FIGURES, 0.9)).toEqual({
    state: 'room',
    boundRatio: 0.9,
    capacityTokens: 100_000,
    workingSetTokens: 80_000,
    ownTokens: 0,
    neededTokens: 10_000,
  });
});

describe('what a replica can serve without its cache', () => {
  /** 5 tokens a ms. */
  const curve: CostCurve = {
    baseMs: 0,
    frontMsPerToken: 0,
    linearMsPerToken: 0.2,
    contextMsPerToken2: 0,
    stepTokens: 2_048,
  };
  const figures = { capacityTokens: 30_000, gapMs: 20_000, promptTokens: 2_000, curve };

  test('are as many conversations as prompts fit into most of the time in which each comes back', () => {
    // 20 s in prompts of 0.4 s, 0.8 of them.
    expect(servedAnew(figures)).toBeCloseTo(40);
  });

  test('is nobody where the cache serves about as much: a small gap or a large cache', () => {
    expect(servedAnew({ ...figures, gapMs: 8_000 })).toBe(0);
    expect(servedAnew({ ...figures, gapMs: 8_100 })).toBeGreaterThan(0);
    expect(servedAnew({ ...figures, capacityTokens: 75_000 })).toBe(0);
  });

  test('is nobody while gap or capacity is unknown', () => {
    expect(servedAnew({ ...figures, gapMs: null })).toBe(0);
    expect(servedAnew({ ...figures, capacityTokens: null })).toBe(0);
    expect(servedAnew({ ...figures, gapMs: 0 })).toBe(0);
  });

  test('turns of lately are about one of each conversation that comes back once a gap', () => {
    const turns = new RecentTurns();
    for (let atMs = 0; atMs < 100_000; atMs += 500) turns.sent(atMs, 10_000);
    expect(turns.count(100_000, 10_000)).toBeGreaterThan(18);
    expect(turns.count(100_000, 10_000)).toBeLessThan(22);
    expect(turns.count(160_000, 10_000)).toBeLessThan(0.1);
    expect(turns.count(100_000, 10_000)).toBeGreaterThan(18);
  });
});
