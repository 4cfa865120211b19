import { describe, expect, it } from 'vitest';
import {
  figuresOf,
  groupOrder,
  runGroup,
  timesTogether,
  ttft,
  type Block,
  type Group,
} from './compare.ts';

function block(cpuS: number, changes: Partial<Block> = {}): Block {
  return { cpuS, completed: 100, ttftMs: [1, 2, 3], wrong: 0, fault: null, ...changes };
}

function group(base: readonly number[], arm: readonly number[]): Group {
  const pair = ([one = 0, two = 0]: readonly number[]): readonly [Block, Block] => [
    block(one),
    block(two),
  ];
  return { direct: block(0), base: pair(base), arms: [pair(arm)] };
}

describe('the order of a group', () => {
  it('puts both blocks of every arm evenly about the middle of the base’s', () => {
    expect(groupOrder(1)).toEqual(['direct', 'base', 0, 0, 'base']);
    const order = groupOrder(3).slice(1);
    expect(order).toEqual(['base', 0, 1, 2, 2, 1, 0, 'base']);
    for (const [at, turn] of order.entries()) expect(order[order.length - 1 - at]).toBe(turn);
  });

  it('keeps the blocks of each arm in the order in which they were measured', async () => {
    let measured = 0;
    const seen = await runGroup(2, async () => block((measured += 1)));
    const cpu = (blocks: readonly Block[] | undefined) => blocks?.map(({ cpuS }) => cpuS);
    expect([seen.direct.cpuS, cpu(seen.base)]).toEqual([1, [2, 7]]);
    expect(seen.arms.map(cpu)).toEqual([
      [3, 6],
      [4, 5],
    ]);
  });
});

describe('figures of an arm', () => {
  it('are free of a drift that falls on all blocks alike', async () => {
    // The machine slows by a tenth of the first block's speed with each block; the arm costs twice the base.
    let at = 0;
    const drifting = await runGroup(1, async (turn) => {
      at += 1;
      return block((turn === 'base' ? 1 : 2) * (1 + at / 10));
    });
    expect(figuresOf([drifting], 0).timesNginx).toBeCloseTo(2, 9);
  });

  it('tell the median of the ratios by group, not the ratio of the medians', () => {
    const groups = [group([1, 1], [2, 2]), group([1, 1], [3, 3]), group([4, 4], [4, 4])];
    expect(figuresOf(groups, 0)).toMatchObject({
      timesNginx: 2,
      timesNginxMin: 1,
      timesNginxMax: 3,
      cpuUsPerRequest: 30_000,
    });
  });

  it('are 1 × itself for the base', () => {
    expect(figuresOf([group([1, 3], [2, 2])], 'base')).toMatchObject({
      timesNginx: 1,
      timesNginxMin: 1,
      timesNginxMax: 1,
    });
  });

  it('take the added time from all first tokens together, less the direct ones', () => {
    const slow = block(1, { ttftMs: [5, 6, 7] });
    const seen: Group = {
      direct: block(0, { ttftMs: [1, 1, 1] }),
      base: [block(1), block(1)],
      arms: [[block(1, { ttftMs: [5] }), slow]],
    };
    expect(figuresOf([seen], 0).addedTtftMsP50).toBe(4.5);
    expect(ttft([slow], 0.5)).toBe(6);
  });

  it('say when an arm was still being compiled in its first block', () => {
    const groups = [group([1, 1], [4, 2]), group([1, 1], [2, 2])];
    expect(figuresOf(groups, 0).settling).toBe(2);
  });

  it('count wrong answers of all blocks and name the first fault', () => {
    const bad = block(1, { wrong: 2, fault: 'status 502: ' });
    const seen: Group = { direct: block(0), base: [block(1), block(1)], arms: [[block(1), bad]] };
    expect(figuresOf([seen], 0)).toMatchObject({ wrong: 2, fault: 'status 502: ' });
  });
});

describe('what several arms cost together', () => {
  it('is their sum over the base, by group', () => {
    const of = (base: number, one: number, two: number): Group => ({
      ...group([base, base], [one, one]),
      arms: [
        [block(one), block(one)],
        [block(two), block(two)],
      ],
    });
    const times = timesTogether([of(1, 1, 1), of(2, 1, 2), of(1, 2, 2)], [0, 1]);
    expect(times).toEqual({ median: 2, least: 1.5, greatest: 4 });
  });
});
