import { expect, it } from 'vitest';
import type { Arm } from './arms.ts';
import { LOADS } from './loads.ts';
import { planCells } from './plan.ts';

const arms = ['a', 'b', 'c', 'd'].map((name) => ({ name }) as Arm);
const cells = planCells(LOADS, arms, [1, 2, 3, 4]);
const name = ({ load, arm, seed }: (typeof cells)[number]): string =>
  `${load.name} ${arm.name} ${seed}`;

it('measures every arm once with every load and seed', () => {
  expect(new Set(cells.map(name)).size).toBe(LOADS.length * arms.length * 4);
  expect(cells).toHaveLength(LOADS.length * arms.length * 4);
});

it('ends a seed before it begins the next, and within it a load', () => {
  const seeds = cells.map(({ seed }) => seed);
  expect(seeds).toEqual(seeds.toSorted((a, b) => a - b));
  const first = cells.slice(0, arms.length).map(({ load }) => load.name);
  expect(new Set(first).size).toBe(1);
});

it('lets each arm begin a load as often as any other', () => {
  const begins = cells.filter((_, index) => index % arms.length === 0).map(({ arm }) => arm.name);
  for (const { name: arm } of arms) {
    expect(begins.filter((each) => each === arm)).toHaveLength(LOADS.length);
  }
});
