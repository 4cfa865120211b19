// What a soak does to its region, one thing at a time: each trouble breaks something, says what that may cost the requests
// under way, and mends it again. Whatever is broken, at least one replica is whole and has room.

import { readFile, writeFile } from 'node:fs/promises';
import type { Random } from '../../shared/lib/random.ts';
import { REPLICAS, type FaultRegion } from '../e2e/fault-region.ts';
import type { LinkTrouble } from '../e2e/link-proxy.ts';
import type { Planned } from './schedule.ts';
import type { Breaks } from './verdict.ts';

export interface Trouble extends Planned {
  readonly name: string;
  /** Where a router is ended, which one is drawn: `run` is given it. */
  readonly breaks: 'nothing' | 'engines' | 'router';
  run(region: FaultRegion, wait: Wait): Promise<void>;
}

interface Wait {
  readonly random: Random;
  /** Lets the load go on for a while. */
  readonly lasts: () => Promise<void>;
  /** Drawn for those that break one. */
  readonly router: number;
}

/** Of the requests under way, as `router` was drawn. */
export function broken({ breaks }: Trouble, router: number): Breaks {
  return breaks === 'router' ? { router } : breaks;
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
    breaks: 'engines',
    ends: false,
    async run(region, wait) {
      const at = one(wait.random);
      await region.crash(at);
      await wait.lasts();
      await region.revive(at);
    },
  },
  {
    name: 'core dead',
    breaks: 'engines',
    ends: false,
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
    breaks: 'engines',
    ends: false,
    run: (region, wait) =>
      onEngine({ engine: one(wait.random), region, wait }, ['freeze', {}, 'thaw', {}]),
  },
  {
    name: 'ten times slower',
    breaks: 'nothing',
    ends: false,
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
    breaks: 'nothing',
    ends: true,
    async run(region, wait) {
      const agents = some(wait.random, 3);
      await Promise.all(agents.map((at) => region.killAgent(at)));
      await wait.lasts();
      await Promise.all(agents.map((at) => region.startAgent(at)));
    },
  },
  {
    name: 'agents restarted',
    breaks: 'nothing',
    ends: true,
    async run(region, { random }) {
      for (const at of some(random, 2)) {
        await region.killAgent(at, 'SIGTERM');
        await region.goneFrom(at);
        await region.startAgent(at);
      }
    },
  },
  {
    name: 'configuration read again, good and bad',
    breaks: 'nothing',
    ends: false,
    run: reload,
  },
  {
    name: 'rack lost',
    breaks: 'engines',
    ends: true,
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
    breaks: 'router',
    ends: true,
    async run(region, wait) {
      const router = region.routers[wait.router];
      await router?.running?.end('SIGKILL');
      await wait.lasts();
      await router?.start();
    },
  },
  {
    name: 'router restarted',
    breaks: 'router',
    ends: true,
    async run(region, wait) {
      const router = region.routers[wait.router];
      await router?.running?.end('SIGTERM');
      await router?.start();
    },
  },
  {
    name: 'engine restarted behind a drain',
    breaks: 'nothing',
    ends: false,
    async run(region, { random }) {
      const at = one(random);
      await region.drain(at);
      await region.engine(at).running.end('SIGTERM');
      await region.revive(at);
      await region.undrain(at);
    },
  },
];

/** Another setting, then what cannot be read, then what was there; both routers follow. */
async function reload(region: FaultRegion, { lasts }: Wait): Promise<void> {
  const { config } = region.fleet;
  const before = await readFile(config, 'utf8');
  const told = await Promise.all(region.routers.map((router) => router.status()));
  await writeFile(config, before.replace('stallMinMs: 4000', 'stallMinMs: 4100'));
  await Promise.all(
    region.routers.map((router, at) => {
      const old = told[at]?.config?.generation ?? 0;
      return router.whenStatus((status) => (status.config?.generation ?? 0) > old);
    }),
  );
  await writeFile(config, 'pools: [');
  await reloaded(region, false);
  await lasts();
  await writeFile(config, before);
  await reloaded(region, true);
}

async function reloaded(region: FaultRegion, ok: boolean): Promise<void> {
  await Promise.all(
    region.routers.map((router) =>
      router.whenStatus((status) => status.config?.lastReloadOk === ok),
    ),
  );
}

/** Something wrong with the links of so many agents, for a while. */
function onLinks(name: string, count: number, trouble: LinkTrouble): Trouble {
  return {
    name,
    breaks: 'nothing',
    ends: false,
    async run(region, wait) {
      const agents = some(wait.random, count);
      region.trouble(agents, trouble);
      await wait.lasts();
      region.trouble(agents, { kind: 'none' });
    },
  };
}
