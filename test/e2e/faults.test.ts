// Faults with real processes under a load of real clients, at two routers that share four replicas. After each: what looked
// complete was, nothing failed that had not begun to answer, the replica was out and is back; and at the end nothing is left.

import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { request } from 'undici';
import { FaultRegion, MODEL, POOL } from './fault-region.ts';
import type { RouterStatus } from '../../router/regional/status.ts';
import { poolOf, replicaOf, type RouterProcess } from './fleet.ts';
import { Load, type Outcome } from './load.ts';
import { until } from './until.ts';

/** Each asks in all ways in turn. */
const CLIENTS = 4;

// A fault takes seconds; on a busy machine many of them.
vi.setConfig({ testTimeout: 90_000, hookTimeout: 90_000 });

let region: FaultRegion;
let load: Load | null = null;

beforeAll(async () => {
  region = await FaultRegion.open();
});

afterAll(async () => {
  await load?.stop();
  await region.close();
});

interface Told {
  readonly text: string;
  readonly header: (name: string) => string | null;
}

async function ask(router: RouterProcess, messages: object[], maxTokens = 8): Promise<Told> {
  const answer = await request(`${router.clients}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: MODEL, messages, max_tokens: maxTokens }),
  });
  const { choices } = (await answer.body.json()) as { choices: { message: { content: string } }[] };
  const header = (name: string) => String(answer.headers[`x-spillway-${name}`] ?? '') || null;
  return { text: choices[0]?.message.content ?? '', header };
}

function router(at: number): RouterProcess {
  const found = region.routers[at];
  if (found === undefined) throw new Error(`no router ${at}`);
  return found;
}

const user = (content: string) => ({ role: 'user', content });
const words = (tokens: number) => 'lorem ipsum dolor sit '.repeat(tokens / 5);

describe('two routers', () => {
  test('share what the replicas hold: a turn through the other one goes to its prefix', async () => {
    const first = user(`shared: ${words(3_000)}`);
    const one = await ask(router(0), [first]);
    const turn = [first, { role: 'assistant', content: one.text }, user('and then?')];
    // The agent's index reaches the other router with its next delta.
    await until(async () => {
      const { decision } = await explain(router(1), turn);
      return decision.candidates.some(({ cachedTokens }) => (cachedTokens ?? 0) > 1_000);
    });
    const two = await ask(router(1), turn);
    expect(two.header('replica')).toBe(one.header('replica'));
    expect(two.header('route-reason')).toBe('prefix');
  });

  test('see each other’s work: in what waits, and in the leases of the agent', async () => {
    // What the other has sent waits in a replica where this one has no lease.
    const other = (status: RouterStatus) =>
      (poolOf(status, POOL)?.replicas ?? []).some(({ targets }) =>
        targets.some(({ leases, report }) => leases === 0 && (report?.waitingPrefillMs ?? 0) > 0),
      );
    // What was asked before is over, in what each of them has heard too.
    for (const each of region.routers) await each.whenStatus((status) => !other(status));
    const one = ask(router(0), [user(`one: ${words(20_000)}`)]);
    await router(1).whenStatus(other);
    const two = ask(router(1), [user(`two: ${words(20_000)}`)]);
    await router(0).whenStatus(other);
    await until(async () => (await openLeases()) === 2);
    const replicas = (await Promise.all([one, two])).map(({ header }) => header('replica'));
    expect(new Set(replicas).size).toBe(2);
    await region.nothingLeft();
  });
});

/** As the agents know of them, of all routers together. */
async function openLeases(): Promise<number> {
  const statuses = await Promise.all(region.agents.map((agent) => agent.status()));
  const targets = statuses.flatMap(({ engines }) => engines.flatMap((each) => each.targets));
  return targets.reduce((sum, target) => sum + target.openLeases, 0);
}

interface Explained {
  readonly decision: {
    readonly candidates: { target: { replica: string }; cachedTokens: number | null }[];
  };
}

async function explain(at: RouterProcess, messages: object[]): Promise<Explained> {
  const answer = await request(`${at.admin}/v1/route/explain`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: MODEL, messages, max_tokens: 8 }),
  });
  return (await answer.body.json()) as Explained;
}

describe('under load', () => {
  let all: Load;
  let mark = 0;

  beforeAll(() => {
    all = new Load({
      model: MODEL,
      urls: region.routers.map((each) => () => each.clients),
      clientsPerUrl: CLIENTS / 2,
      retries: 0,
    });
    load = all;
  });

  /** Requests that ended since the last time that this was asked; none of them was answered wrongly. */
  function ended(): readonly Outcome[] {
    const outcomes = all.since(mark);
    mark = all.mark();
    expect(outcomes.filter(({ end }) => end === 'wrong')).toEqual([]);
    return outcomes;
  }

  /** Nobody was refused who had not seen a token; who had was told. */
  function noneFailed(): readonly Outcome[] {
    const outcomes = ended();
    expect(outcomes.filter(({ end }) => end === 'failed')).toEqual([]);
    return outcomes;
  }

  /** Every client has ended so many requests since. */
  async function served(times = 2): Promise<void> {
    const from = all.mark();
    await until(
      () => {
        const counts = new Map<number, number>();
        for (const { client } of all.since(from)) counts.set(client, (counts.get(client) ?? 0) + 1);
        return counts.size === CLIENTS && [...counts.values()].every((count) => count >= times);
      },
      { timeoutMs: 40_000, pollMs: 50 },
    );
  }

  /** New requests of every router go to the others. */
  async function avoided(at: readonly number[]): Promise<void> {
    await served();
    const from = all.mark();
    await served();
    const names = at.map((each) => region.engine(each).replica);
    expect(all.since(from).filter(({ replica }) => names.includes(replica ?? ''))).toEqual([]);
  }

  test('all is well', async () => {
    await served();
    expect(ended().filter(({ end }) => end !== 'complete')).toEqual([]);
  });

  test('a replica that crashes is left before the first token, and comes back as another life', async () => {
    const before = await incarnation(0);
    await region.crash(0);
    await region.everyRouter([0], ({ targets }) => targets[0]?.phase !== 'ready');
    await avoided([0]);
    noneFailed();
    await region.revive(0);
    await region.allReady();
    expect(await incarnation(0)).not.toBe(before);
    await served();
    expect(ended().filter(({ end }) => end !== 'complete')).toEqual([]);
  });

  test('a core that dies takes its server with it, and no request', async () => {
    await region.sim(1, 'kill-core');
    await region.everyRouter([1], ({ targets }) => targets[0]?.phase !== 'ready');
    await avoided([1]);
    noneFailed();
    await until(() => region.engine(1).running.child.exitCode !== null, { timeoutMs: 30_000 });
    await region.revive(1);
    await region.allReady();
  });

  test('a core that freezes is found by its silence, and is back when it thaws', async () => {
    ended();
    await region.sim(2, 'freeze');
    await region.everyRouter([2], ({ targets }) => targets[0]?.phase === 'degraded');
    await avoided([2]);
    noneFailed();
    await region.sim(2, 'thaw');
    await region.allReady();
  });

  test('a replica that is ten times slower fails nobody', async () => {
    ended();
    await region.sim(3, 'slow', { factor: 10 });
    await served(3);
    await region.sim(3, 'slow', { factor: 1 });
    noneFailed();
    await region.allReady();
  });

  test('links that are cut come back, with the leases of both routers', async () => {
    ended();
    region.trouble([0, 1], { kind: 'cut' }, [0]);
    await region.everyRouter([0, 1], ({ link }) => link !== 'fresh', [router(0)]);
    await served();
    region.trouble([0, 1], { kind: 'none' }, [0]);
    await region.allReady();
    await served();
    expect(ended().filter(({ end }) => end !== 'complete')).toEqual([]);
  });

  test('a link that swallows all is as good as cut', async () => {
    region.trouble([2], { kind: 'hole' });
    await region.everyRouter([2], ({ link }) => link === 'out');
    await avoided([2]);
    region.trouble([2], { kind: 'none' });
    await region.allReady();
    expect(ended().filter(({ end }) => end !== 'complete')).toEqual([]);
  });

  test('links that are two seconds late are used', async () => {
    region.trouble([0, 1, 2, 3], { kind: 'late', ms: 2_000 });
    await served(3);
    await region.everyRouter([0, 1, 2, 3], ({ link }) => link === 'fresh');
    region.trouble([0, 1, 2, 3], { kind: 'none' });
    expect(ended().filter(({ end }) => end !== 'complete')).toEqual([]);
  });

  test('most agents lost at once: their engines are used as they were', async () => {
    await region.allReady();
    for (const at of [1, 2, 3]) await region.killAgent(at);
    await region.everyRouter([1, 2, 3], ({ link }) => link === 'static');
    const from = all.mark();
    await served();
    const used = new Set(all.since(from).map(({ replica }) => replica));
    expect([1, 2, 3].some((at) => used.has(region.engine(at).replica))).toBe(true);
    expect(ended().filter(({ end }) => end !== 'complete')).toEqual([]);
  });

  test('agents that come back beside living engines go on where the others were', async () => {
    const before = await Promise.all([1, 2, 3].map(incarnation));
    const agents = await Promise.all([1, 2, 3].map((at) => region.startAgent(at)));
    await region.allReady();
    const after = await Promise.all([1, 2, 3].map(incarnation));
    // One that waits in vain for a router's memory, on a machine that is too busy, begins a life of its own.
    const resumed = agents.map(({ running }) =>
      running.lines.some((line) => line.includes('engine_resumed')),
    );
    expect(resumed).toContain(true);
    expect(after.map((life, at) => !resumed[at] || life === before[at])).not.toContain(false);
    await served();
    expect(ended().filter(({ end }) => end !== 'complete')).toEqual([]);
  });

  test('a rack that is lost, engines and agents, is out, and the rest serves', async () => {
    await Promise.all([2, 3].flatMap((at) => [region.crash(at), region.killAgent(at)]));
    await region.everyRouter([2, 3], ({ link }) => link === 'out');
    await avoided([2, 3]);
    noneFailed();
    await Promise.all([2, 3].map((at) => region.revive(at)));
    await Promise.all([2, 3].map((at) => region.startAgent(at)));
    await region.allReady();
  });

  test('a router that is killed takes its own streams alone, and its leases go', async () => {
    await served(1);
    ended();
    await router(1).running?.end('SIGKILL');
    await until(() => all.since(mark).some(({ url }) => url === router(1).clients));
    const others = () => all.since(mark).filter(({ url }) => url === router(0).clients);
    await until(() => others().length >= CLIENTS);
    expect(others().filter(({ end }) => end !== 'complete')).toEqual([]);
    // The agents know of no more than what the living router has open.
    await until(async () => {
      const { routers } = (await region.agents[0]?.status())?.engines[0]?.targets[0]?.report ?? {};
      return routers === 1;
    });
    ended();
    await router(1).start();
    await region.allReady();
    await served();
    ended();
  });

  test('and at the end nothing is left', async () => {
    await all.stop();
    load = null;
    await region.nothingLeft();
    for (const each of region.routers) {
      expect(await each.metrics()).toMatch(/^spillway_leases 0$/m);
    }
    expect(all.outcomes.filter(({ end }) => end === 'wrong')).toEqual([]);
  });
});

/** Of an engine's life, as the first router has it. */
async function incarnation(at: number): Promise<string | null> {
  const seen = replicaOf(await router(0).status(), region.engine(at).replica);
  return seen?.targets[0]?.incarnation ?? null;
}
