import { expect, test } from 'vitest';
import { TurnGaps } from './turn-gaps.ts';

test('the mean gap is of the last ones, and unknown while there are few', () => {
  const gaps = new TurnGaps();
  for (let k = 0; k < 7; k += 1) gaps.observe(1_000);
  expect(gaps.meanMs).toBeNull();
  gaps.observe(9_000);
  expect(gaps.meanMs).toBeCloseTo(2_000);
  for (let k = 0; k < 256; k += 1) gaps.observe(3_000);
  expect(gaps.meanMs).toBeCloseTo(3_000);
});
