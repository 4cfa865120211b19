// Those who are turned away, and come back exactly when they were told to: most are served then, and were not sent away
// for much longer than it took. Controls: the same without what makes it so.

import { expect, test } from 'vitest';
import { Inflow } from '../../router/policy/inflow.ts';
import { FlowClients, returnsOf, type Flow, type FlowRow } from './overload.ts';
import { quantile } from './recorder.ts';
import { DEMO } from './test-worlds.ts';
import { without } from './without.ts';
import { World } from './world.ts';

const REPLICAS = 3;
const TOKENS_PER_MS = REPLICAS * 4.75;
const PER_S_AT_CAPACITY = (1_000 * TOKENS_PER_MS) / 900;
const LIMIT_MS = 8_000;
const SHAPE = { promptTokens: [300, 1_500], answerTokens: [5, 20] } as const;

function run(seed: number, routers: number, ...flows: Flow[]): FlowRow[] {
  const world = new World({
    seed,
    profile: DEMO,
    replicas: REPLICAS,
    routers,
    router: { queueMaxWaitMs: LIMIT_MS, workingSetBound: null },
  });
  world.runUntilReady();
  const clients = new FlowClients(world);
  clients.start(...flows);
  world.run(45_000);
  return clients.rows;
}

function overloadedFlow(more: Partial<Flow> = {}): Flow {
  return { name: 'usual', perS: 1.5 * PER_S_AT_CAPACITY, tries: 2, ...SHAPE, ...more };
}

/** Of the second tries that have been decided. */
function servedAgain(rows: readonly FlowRow[]): number {
  const second = rows.filter(
    ({ tryNumber, sentMs, end }) => tryNumber === 2 && (sentMs ?? end) !== null,
  );
  expect(second.length).toBeGreaterThan(80);
  return second.filter(({ sentMs }) => sentMs !== null).length / second.length;
}

function toldTooLong(rows: readonly FlowRow[]): number {
  const returns = returnsOf(rows, { tokensPerMs: TOKENS_PER_MS, limitMs: LIMIT_MS });
  return quantile(
    returns.map(({ toldMs, neededMs }) => toldMs / neededMs),
    0.5,
  );
}

test.each([
  [1, 1, 0.95],
  [2, 1, 0.95],
  [1, 4, 0.7],
])(
  'seed %i, %i routers at 1.5 of capacity: who comes back when told is served, and was not told too long',
  (seed, routers, share) => {
    const rows = run(seed, routers, overloadedFlow());
    expect(servedAgain(rows)).toBeGreaterThan(share);
    expect(toldTooLong(rows)).toBeLessThan(2.2);
    const wronglyLetIn = rows.filter(
      ({ end }) => end?.kind === 'refused' && end.code === 'queue_timeout',
    );
    expect(wronglyLetIn.length).toBeLessThan(0.01 * rows.length);
  },
);

test('clients that do not say that they come again find no room kept', () => {
  expect(servedAgain(run(1, 1, overloadedFlow({ unmarked: true })))).toBeLessThan(0.75);
});

test('a less urgent request is told of what keeps coming ahead of it', () => {
  const flows: Flow[] = [
    { name: 'urgent', perS: 0.6 * PER_S_AT_CAPACITY, priority: -1, ...SHAPE },
    { name: 'low', perS: 0.7 * PER_S_AT_CAPACITY, priority: 3, tries: 2, ...SHAPE },
  ];
  const inVain = (): number =>
    run(3, 1, ...flows).filter(({ end }) => end?.kind === 'refused' && end.code === 'queue_timeout')
      .length;
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
