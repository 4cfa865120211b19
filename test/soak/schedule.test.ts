import { expect, test } from 'vitest';
import { seededRandom } from '../../shared/lib/random.ts';
import { drawn, ENDING_UNTIL } from './schedule.ts';

const TROUBLES = ['a', 'b', 'c', 'd'].map((name) => ({ name, ends: name === 'c' }));

function take(seed: number, count: number, progress: (drawn: number) => number): string[] {
  const names: string[] = [];
  const troubles = drawn(TROUBLES, seededRandom(seed), () => progress(names.length));
  while (names.length < count) names.push(troubles.next().value.name);
  return names;
}

test('each comes once a round, in an order that the seed alone decides', () => {
  const names = take(7, 40, () => 0);
  expect(names).toEqual(take(7, 40, () => 0));
  expect(names).not.toEqual(take(8, 40, () => 0));
  for (let at = 0; at < names.length; at += 4) {
    expect(names.slice(at, at + 4).toSorted()).toEqual(['a', 'b', 'c', 'd']);
  }
});

test('none ends a process from the share of the run on from which memory may be judged', () => {
  const names = take(7, 100, (count) => count / 100);
  expect(names.slice(0, ENDING_UNTIL * 100)).toContain('c');
  expect(names.slice(ENDING_UNTIL * 100 + 1)).not.toContain('c');
});

test('control: where all of them end one, there is nothing to go on with', () => {
  const all = TROUBLES.filter(({ ends }) => ends);
  expect(() => drawn(all, seededRandom(1), () => 0).next()).toThrow(/left/);
});
