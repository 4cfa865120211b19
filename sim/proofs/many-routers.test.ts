// Eight routers before one pool place requests as one does; each thing that lets them is taken away once. In full:
// `npm run prove -- many-routers`.

import { expect, test, vi } from 'vitest';
import { failuresOf, figuresOf, herd, serve } from './many-routers.ts';

vi.setConfig({ testTimeout: 120_000 });

/** About three quarters of what one router brings out of the pool, conversations a second. */
const PER_S = 14;
const FOR_MS = 20_000;
const ONE = figuresOf([serve({ seed: 2, routers: 1, perS: PER_S, forMs: FOR_MS })]);

test('eight routers answer as soon as one, and find as much in the caches', () => {
  const many = figuresOf([serve({ seed: 2, routers: 8, perS: PER_S, forMs: FOR_MS })]);
  expect(failuresOf(ONE, many, 1.15)).toEqual([]);
});

test('nor do reports that are a second late part them, where they tell each other what they send', () => {
  const plan = { seed: 2, perS: PER_S, forMs: FOR_MS, age: 'late' } as const;
  const one = figuresOf([serve({ ...plan, routers: 1 })]);
  const told = figuresOf([serve({ ...plan, routers: 8 })]);
  expect(failuresOf(one, told, 1.3)).toEqual([]);
  const cut = figuresOf([serve({ ...plan, routers: 8, cut: true })]);
  expect(failuresOf(one, cut, 1.5)).not.toEqual([]);
});

test.each(['random_pick', 'private_index'] as const)('they do not with %s', (control) => {
  const many = figuresOf([serve({ seed: 2, routers: 8, perS: PER_S, forMs: FOR_MS, control })]);
  expect(failuresOf(ONE, many, 1.15)).not.toEqual([]);
});

test('equal requests at one instant spread over idle replicas', () => {
  expect(herd(1).most).toBeLessThanOrEqual(9);
  expect(herd(1, 'own_sends_off').most).toBeGreaterThan(9);
});
