// What a soak does to its region, one thing at a time: each trouble breaks something, says how many requests it may cost,
// and mends it again.

import type { Random } from '../../shared/lib/random.ts';
import { REPLICAS, type FaultRegion } from '../e2e/fault-region.ts';
import type { LinkTrouble } from '../e2e/link-proxy.ts';

export interface Trouble {
  readonly name: string;
  /** Requests may fail before their first token: their router is gone. */
  readonly costs: 'nothing' | 'router';
  run(region: FaultRegion, wait: Wait): Promise<void>;
}

interface Wait {
  readonly random: Random;
  /** Lets the load go on for a while. */
  readonly lasts: () => Promise<void>;
}

function one(random: Random, of = REPLICAS): number {
  return Math.floor(random.next() * of);
}

/** So many different ones. */
function some(random: Random, count: number): number[] {
  const all = Array.from({ length: REPLICAS }, (_, at) => at);
  const keys = new Map(all.map((at) => [at, random.next()]));
  return all.toSorted((a, b) => (keys.get(a) ?? 0) - (keys.get(b) ?? 0)).slice(0, count);
}

async function onEngine(
  { engine, region, wait }: { engine: number; region: FaultRegion; wait: Wait },
  [what, body, back, after]: readonly [string, object, string, object],
): Promise<void> {
  await region.sim(engine, what, body);
  await wait.lasts();
  await region.sim(engine, back, after);
}

export const TROUBLES: readonly Trouble[] = [
  {
    name: 'engine killed',
    costs: 'nothing',
    async run(region, wait) {
      const at = one(wait.random);
      await region.crash(at);
      await wait.lasts();
      await region.revive(at);
    },
  },
  {
    name: 'core dead',
    costs: 'nothing',
    async run(region, wait) {
      const at = one(wait.random);
      await region.sim(at, 'kill-core');
      await wait.lasts();
      await region.crash(at);
      await region.revive(at);
    },
  },
  {
    name: 'core frozen',
    costs: 'nothing',
    run: (region, wait) =>
      onEngine({ engine: one(wait.random), region, wait }, ['freeze', {}, 'thaw', {}]),
  },
  {
    name: 'ten times slower',
    costs: 'nothing',
    run: (region, wait) =>
      onEngine({ engine: one(wait.random), region, wait }, [
        'slow',
        { factor: 10 },
        'slow',
        { factor: 1 },
      ]),
  },
  onLinks('links cut', 2, { kind: 'cut' }),
  onLinks('links that swallow', 1, { kind: 'hole' }),
  onLinks('links 2 s late', 3, { kind: 'late', ms: 2_000 }),
  {
    name: 'agents killed',
    costs: 'nothing',
    async run(region, wait) {
      const agents = some(wait.random, 3);
      await Promise.all(agents.map((at) => region.killAgent(at)));
      await wait.lasts();
      await Promise.all(agents.map((at) => region.startAgent(at)));
    },
  },
  {
    name: 'rack lost',
    costs: 'nothing',
    async run(region, wait) {
      const rack = some(wait.random, 2);
      await Promise.all(rack.flatMap((at) => [region.crash(at), region.killAgent(at)]));
      await wait.lasts();
      await Promise.all(rack.map((at) => region.revive(at)));
      await Promise.all(rack.map((at) => region.startAgent(at)));
    },
  },
  {
    name: 'router killed',
    costs: 'router',
    async run(region, wait) {
      const router = region.routers[one(wait.random, region.routers.length)];
      await router?.running?.end('SIGKILL');
      await wait.lasts();
      await router?.start();
    },
  },
  {
    name: 'router restarted',
    costs: 'router',
    async run(region, { random }) {
      const router = region.routers[one(random, region.routers.length)];
      await router?.running?.end('SIGTERM');
      await router?.start();
    },
  },
  {
    name: 'engine restarted behind a drain',
    costs: 'nothing',
    async run(region, { random }) {
      const at = one(random);
      await region.drain(at);
      await region.engine(at).running.end('SIGTERM');
      await region.revive(at);
      await region.undrain(at);
    },
  },
];

/** Something wrong with the links of so many agents, for a while. */
function onLinks(name: string, count: number, trouble: LinkTrouble): Trouble {
  return {
    name,
    costs: 'nothing',
    async run(region, wait) {
      const agents = some(wait.random, count);
      region.trouble(agents, trouble);
      await wait.lasts();
      region.trouble(agents, { kind: 'none' });
    },
  };
}
