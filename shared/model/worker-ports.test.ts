import { expect, test } from 'vitest';
import { workerLinkPort } from './worker-ports.ts';

test('the first worker has the configured port, the others follow from 10 above it', () => {
  expect([1, 2, 3, 4].map((number) => workerLinkPort(8_081, number))).toEqual([
    8_081, 8_091, 8_092, 8_093,
  ]);
});

test('where the system chooses, it chooses for each', () => {
  expect([1, 2].map((number) => workerLinkPort(0, number))).toEqual([0, 0]);
});
