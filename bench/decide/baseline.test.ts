// What counts as worse than the baseline, and the exponent of growth.

import { expect, test } from 'vitest';
import { differences } from './baseline.ts';
import { growthExponent } from './timed.ts';

const ROW = { cell: '8x1k', arm: 'spillway', targetReads: 100, bytesPerDecision: 4_000 };

test('more than the slack is worse, less is better, and a figure that is gone is worse', () => {
  const judged = (now: object) =>
    differences([{ ...ROW, ...now }], [ROW]).map(({ figure, worse }) => [figure, worse]);
  expect(judged({})).toEqual([]);
  // One read a replica more of eight; a few objects.
  expect(judged({ targetReads: 108 })).toEqual([['targetReads', true]]);
  expect(judged({ bytesPerDecision: 4_070 })).toEqual([['bytesPerDecision', true]]);
  expect(judged({ bytesPerDecision: 4_060 })).toEqual([]);
  expect(judged({ targetReads: 50 })).toEqual([['targetReads', false]]);
  expect(differences([{ cell: '8x1k', arm: 'spillway', bytesPerDecision: 4_000 }], [ROW])).toEqual([
    { cell: '8x1k', figure: 'targetReads', baseline: 100, now: null, worse: true },
  ]);
});

test('the exponent is that of the power law through the points', () => {
  const points = [8, 64, 1_000].map((n) => [n, 3 * n ** 0.4] as const);
  expect(growthExponent(points)).toBeCloseTo(0.4, 9);
  expect(growthExponent([[8, 1]])).toBe(null);
});
