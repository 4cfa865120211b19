// Those who are turned away, and come back exactly when they were told to: most are served then, and were not sent away
// for much longer than it took. Controls: the same without what makes it so.

import { expect, test } from 'vitest';
import { Inflow } from '../../router/policy/inflow.ts';
import {
  PER_S_AT_CAPACITY,
  returnFailures,
  returnFigures,
  runReturns,
  SHAPE,
  waitedInVain,
  worldOf,
} from '../proofs/overload.ts';
import { FlowClients } from './overload.ts';
import { without } from './without.ts';

test.each([
  [1, 1, 0.95],
  [2, 1, 0.95],
  [1, 4, 0.7],
])(
  'seed %i, %i routers at 1.5 of capacity: who comes back when told is served, and was not told too long',
  (seed, routers, share) => {
    const figures = returnFigures([runReturns(seed, { routers, load: 1.5 })]);
    expect(returnFailures(figures, { share, told: 2.2 })).toEqual([]);
  },
);

test('clients that do not say that they come again find no room kept', () => {
  const run = runReturns(1, { routers: 1, load: 1.5, flow: { unmarked: true } });
  const { servedRatio } = returnFigures([run]);
  expect(servedRatio).toBeLessThan(0.75);
});

test('a less urgent request is told of what keeps coming ahead of it', () => {
  const inVain = (): number => {
    const world = worldOf(3, { routers: 1, queueMaxWaitMs: 8_000 });
    const clients = new FlowClients(world);
    clients.start(
      { name: 'urgent', perS: 0.6 * PER_S_AT_CAPACITY, priority: -1, ...SHAPE },
      { name: 'low', perS: 0.7 * PER_S_AT_CAPACITY, priority: 3, tries: 2, ...SHAPE },
    );
    world.run(45_000);
    return clients.rows.filter(waitedInVain).length;
  };
  const told = inVain();
  let untold = 0;
  without(
    Inflow.prototype,
    { name: 'before', make: () => () => ({ requestsPerMs: 0, workPerMs: 0 }) },
    () => (untold = inVain()),
  );
  expect(untold).toBeGreaterThan(50);
  expect(told).toBeLessThan(untold / 3);
});
