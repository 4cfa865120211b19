import { describe, expect, test } from 'vitest';
import { isUnfound, kvRoom, type RoomFigures } from './working-set.ts';

const FIGURES: RoomFigures = {
  capacityTokens: 100_000,
  workingSetTokens: 80_000,
  ownTokens: 0,
  ownNew: 0,
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
  test('takes its share of the room between two reports', () => {
    const eight = { routers: 8, workingSetTokens: 10_000, neededTokens: 5_000 };
    expect(stateOf({ ...eight, ownTokens: 5_000, ownNew: 1 })).toBe('room');
    expect(stateOf({ ...eight, ownTokens: 5_001, ownNew: 1 })).toBe('full');
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
