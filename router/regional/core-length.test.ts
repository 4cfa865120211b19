// Pools of one model whose replicas take prompts of different length.

import { describe, expect, test } from 'vitest';
import type { PoolId } from '../../shared/model/ids.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import { attemptsIn, chainOf, CoreRig, MODEL, refusalIn } from './core.harness.ts';

const takes = (maxModelLen: number | null) => ({ models: [{ id: MODEL, maxModelLen, loras: [] }] });

/** `a` of the first pool takes 8,192 tokens, `b` of the second 131,072; hardly ever are five bytes less than a token. */
function rigOf(b: Partial<ReplicaReport> = {}, a: Partial<ReplicaReport> = {}): CoreRig {
  const pool = (id: string) => ({ id: id as PoolId, models: [MODEL], aliases: {} });
  const rig = new CoreRig({ pools: [pool('short'), pool('long')] });
  rig.link('a', { pool: 'short' });
  rig.report('a', { ...takes(8_192), ...a });
  rig.link('b', { pool: 'long' });
  rig.report('b', { ...takes(131_072), ...b });
  return rig;
}

const tokens = (tokenIds: number) => ({ prompts: [chainOf([1, 2], { tokenIds })] });
const text = (bytes: number) => ({ prompts: [chainOf([1, 2], { bytes })] });

function servedBy(rig: CoreRig, asked: Parameters<CoreRig['arrive']>[0]): string | undefined {
  return attemptsIn(rig.arrive(asked))[0]?.target.replica;
}

describe('a request of a model that two pools serve', () => {
  test('goes to the first while it fits there', () => {
    expect(servedBy(rigOf(), tokens(8_192))).toBe('a');
    expect(servedBy(rigOf(), text(5 * 8_192))).toBe('a');
  });

  test('goes to the one where it fits, by tokens and by the least that its text can be', () => {
    expect(servedBy(rigOf(), tokens(8_193))).toBe('b');
    expect(servedBy(rigOf(), text(5 * 8_192 + 1))).toBe('b');
  });

  test('goes where its answer fits too, else where the prompt does', () => {
    expect(servedBy(rigOf(), { ...tokens(8_000), maxTokens: 192 })).toBe('a');
    expect(servedBy(rigOf(), { ...tokens(8_000), maxTokens: 193 })).toBe('b');
    expect(servedBy(rigOf(), { ...tokens(8_000), maxTokens: 200_000 })).toBe('a');
    expect(servedBy(rigOf(), { ...tokens(9_000), maxTokens: 200_000 })).toBe('b');
  });

  test('waits for the one where it fits rather than be told that it is too long', () => {
    const rig = rigOf({ phase: 'loading' });
    const effects = rig.arrive(tokens(9_000));
    expect(refusalIn(effects)).toBeNull();
    const queued = effects.find(({ kind }) => kind === 'queued');
    expect(queued).toMatchObject({ decision: { reason: 'no_capacity_yet' } });
  });

  test('fits where a replica does not say how much it takes', () => {
    expect(servedBy(rigOf(takes(null)), tokens(1_000_000))).toBe('b');
  });

  test('is too long where it fits nowhere', () => {
    const effects = rigOf().arrive(tokens(131_073));
    expect(refusalIn(effects)).toMatchObject({
      code: 'context_length_exceeded',
      decision: { reason: 'context_length' },
    });
  });

  test('goes to the first, whatever its length, where what is too long may be cut', () => {
    expect(servedBy(rigOf(), { ...tokens(9_000), truncates: true })).toBe('a');
  });

  test('keeps to its revision before it looks at lengths', () => {
    const rig = rigOf({ revision: 'r2' }, { revision: 'r1' });
    const asked = { ...tokens(9_000), model: `${MODEL}@r1` };
    expect(refusalIn(rig.arrive(asked))).toMatchObject({ code: 'context_length_exceeded' });
  });
});

test('explain shows why the other pool is none for it, and nothing of it where it fits both', () => {
  const rig = rigOf();
  const shown = (asked: Parameters<CoreRig['request']>[0]) =>
    rig.core
      .explain(rig.request(asked), rig.nowMs)
      .candidates.map(({ target, removed }) => [target.replica, removed]);
  expect(shown(tokens(9_000))).toEqual([
    ['b', null],
    ['a', 'context_length'],
  ]);
  expect(shown(tokens(100))).toEqual([['a', null]]);
});
