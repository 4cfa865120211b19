// What a request says beside its text, of its conversation and of the model that it wants: two global routers, two regions with real routers, agents and simulated engines,
// and the OpenAI library as applications use it. `near` is home; what it cannot take, since the way to its tier listener is
// cut, goes to `far`.

import { createHash } from 'node:crypto';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startAgent } from '../../agent/start.ts';
import { globalOptions, globalReloadable } from '../../bin/cli/global-options.ts';
import { routerOptions } from '../../bin/cli/router-options.ts';
import { startGlobalRouter, type RunningGlobalRouter } from '../../router/global/start.ts';
import { startRegionalRouter } from '../../router/regional/start.ts';
import { parseFleet } from '../../shared/config/load.ts';
import type { FleetConfig } from '../../shared/config/schema.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { startEngineServer } from '../../sim/engine/http/server.ts';
import { engineProfile } from '../../sim/engine/profiles.ts';
import { agentOptions } from './agent-options.ts';
import { LinkProxy } from './link-proxy.ts';
import { captureLog } from './shell-harness.ts';
import { until } from './until.ts';

const MODEL = 'sim-model';
const REGIONS = ['near', 'far'] as const;
type Region = (typeof REGIONS)[number];
const REVISION = { near: 'r1', far: 'r2' } as const;
/** Tokens that `near` takes; `far` takes more. */
const NEAR_TOKENS = 6_000;
const FRONTS = ['A', 'B'] as const;
type Front = (typeof FRONTS)[number];
const OLD = 'the-secret-of-before';
const NEW = 'the-secret-of-today';
/** `shop` may be served everywhere; `lab` in one revision; `bank` is bound, so that routers without a zone are told nothing of it. */
const TENANTS = ['shop', 'club', 'lab', 'bank'] as const;
type Tenant = (typeof TENANTS)[number];

const runtime: RoleRuntime = {
  ...{ clock: systemClock, timers: systemTimers, random: seededRandom(5) },
  log: captureLog().log,
};
const close: (() => Promise<unknown>)[] = [];
const fronts = new Map<Front, RunningGlobalRouter>();
const tierPorts = new Map<Region, number>();
/** Before each tier listener, and before each global router's links as each region dials them. */
const ways = new Map<string, LinkProxy>();

function parsed(content: object): FleetConfig {
  const text = JSON.stringify(content);
  const result = parseFleet({ file: 'fleet.yaml', text, environment: {}, overlays: [] });
  if (!result.ok) throw new Error(result.error);
  return result.config;
}

const hashOf = (key: string): string => `sha256:${createHash('sha256').update(key).digest('hex')}`;
const way = (name: string): LinkProxy => ways.get(name) as LinkProxy;
const regionsOfFile = () =>
  REGIONS.map((name) => ({
    ...{ name, zone: name, linkSecrets: [`link-secret-of-${name}`] },
    baseUrl: `http://127.0.0.1:${ways.get(name)?.port ?? 1}`,
    tierKey: { id: name, secret: `tier-secret-of-${name}` },
  }));

function globalConfig(secrets: { affinitySecret: string; affinityOldSecrets?: string[] }) {
  return parsed({
    regions: regionsOfFile(),
    tenants: TENANTS.map((name) => ({
      ...{ name, keys: [{ name, hash: hashOf(`key-of-${name}`) }] },
      ...(name === 'bank' ? { residency: { allow: REGIONS } } : {}),
      ...(name === 'lab' ? { models: [`${MODEL}@r2`] } : {}),
    })),
    global: {
      ...{ clients: { listen: '127.0.0.1:0' }, links: { listen: '127.0.0.1:0' } },
      ...{ admin: { listen: '127.0.0.1:0' }, probes: null },
      // What is cut stays eligible, so that it is home all the while.
      routing: { breakerFailures: 1_000, reportIntervalMs: 250, retryBudgetRatio: 1 },
      ...secrets,
    },
  });
}

async function startRegion(name: Region): Promise<void> {
  const config = parsed({
    region: name,
    router: {
      ...{ clients: { listen: '127.0.0.1:0' }, links: { listen: '127.0.0.1:0' } },
      admin: { listen: '127.0.0.1:0' },
      tier: { listen: '127.0.0.1:0', keys: [{ id: name, secret: `tier-secret-of-${name}` }] },
      global: {
        urls: FRONTS.map((front) => way(`${name} to ${front}`).url),
        secret: `link-secret-of-${name}`,
      },
    },
  });
  const router = await startRegionalRouter(routerOptions(config), runtime);
  tierPorts.set(name, router.tierPort ?? 0);
  const demo = engineProfile('demo');
  if (demo === null) throw new Error('no profile');
  const profile = name === 'near' ? { ...demo, maxModelLen: NEAR_TOKENS } : demo;
  const engine = await startEngineServer(
    { host: '127.0.0.1', port: 0, model: MODEL, profile, loadingMs: 0 },
    runtime,
  );
  const link = `ws://127.0.0.1:${router.linksPort}`;
  const settings = { revision: REVISION[name] };
  const agent = await startAgent(agentOptions(engine.url, link, { settings }), runtime);
  close.push(
    () => engine.close(),
    () => router.close(),
    () => agent.close(),
  );
}

async function startFronts(): Promise<void> {
  const config = globalConfig({ affinitySecret: OLD });
  const part = config.global;
  if (part === undefined) throw new Error('no global part');
  for (const front of FRONTS) {
    await fronts.get(front)?.close();
    fronts.set(front, await startGlobalRouter(globalOptions(config, part), runtime));
  }
  await until(() => [...fronts.values()].every(seesBoth), {
    timeoutMs: 60_000,
    says: () => JSON.stringify([...fronts.values()].map((front) => front.status().regions)),
  });
}

/** Both serve, and `near` is nearer. */
function seesBoth(front: RunningGlobalRouter): boolean {
  const { regions } = front.status();
  const serve = regions.every(
    ({ seen, rttMs, pools }) =>
      seen && rttMs !== null && pools.some((pool) => (pool.readyReplicas ?? 0) > 0),
  );
  const [near, far] = regions.map(({ rttMs }) => rttMs ?? 0);
  return serve && (near ?? 0) + 10 < (far ?? 0);
}

beforeAll(async () => {
  for (const name of REGIONS) {
    ways.set(name, await LinkProxy.open(() => tierPorts.get(name) ?? 0));
    for (const front of FRONTS) {
      const links = await LinkProxy.open(() => fronts.get(front)?.linksPort ?? 1);
      ways.set(`${name} to ${front}`, links);
      if (name === 'far') links.set({ kind: 'late', ms: 15 });
    }
  }
  await Promise.all(REGIONS.map(startRegion));
  await startFronts();
}, 90_000);

afterAll(async () => {
  for (const front of fronts.values()) await front.close();
  for (const each of close.toReversed()) await each();
  for (const proxy of ways.values()) await proxy.close();
});

/** Runs while the way to `near` is cut: what is asked meanwhile goes to `far`, and is away from home there. */
async function whileCut(work: () => Promise<void>): Promise<void> {
  way('near').set({ kind: 'cut' });
  try {
    await work();
  } finally {
    way('near').set({ kind: 'none' });
  }
}

interface Asking {
  readonly tenant?: Tenant;
  readonly headers?: Record<string, string>;
  readonly body?: object;
  /** Absent: whatever runs. */
  readonly model?: string;
}

const LONG = 'a long story that is told again from its beginning each time. '.repeat(60);

interface Told {
  readonly region: string | null;
  readonly reason: string | null;
  readonly hint: string | null;
  readonly answer: string;
}

function clientOf(front: Front, tenant: Tenant = 'shop'): OpenAI {
  const port = fronts.get(front)?.clientsPort ?? 0;
  const baseURL = `http://127.0.0.1:${port}/v1`;
  return new OpenAI({ baseURL, apiKey: `key-of-${tenant}`, maxRetries: 0 });
}

async function ask(
  front: Front,
  messages: OpenAI.ChatCompletionMessageParam[],
  { tenant = 'shop', headers = {}, body = {}, model = MODEL }: Asking = {},
): Promise<Told> {
  const { data, response } = await clientOf(front, tenant)
    .chat.completions.create({ model, max_tokens: 4, messages, ...body }, { headers })
    .withResponse();
  return {
    region: response.headers.get('x-spillway-region'),
    reason: response.headers.get('x-spillway-route-reason'),
    hint: response.headers.get('x-spillway-hint'),
    answer: data.choices[0]?.message.content ?? '',
  };
}

let told = 0;
/** One message that begins as every other does, and is the end of no turn. */
const story = (): OpenAI.ChatCompletionMessageParam[] => [
  { role: 'user', content: `${LONG}(${(told += 1)})` },
];

describe('a model', () => {
  const failureOf = (asked: Promise<unknown>): Promise<unknown> =>
    asked.then(
      () => null,
      (error: unknown) => error,
    );

  test('in one revision is served where that runs, and by its name wherever it is nearest', async () => {
    expect((await ask('A', story(), { model: `${MODEL}@r2` })).region).toBe('far');
    expect((await ask('A', story(), { model: `${MODEL}@r1` })).region).toBe('near');
    expect((await ask('A', story())).region).toBe('near');
    const none = await failureOf(ask('A', story(), { model: `${MODEL}@r3` }));
    expect(none).toMatchObject({ status: 404, code: 'model_not_found' });
  });

  test('is served in the revision that a tenant may use, and in no other', async () => {
    expect((await ask('A', story(), { tenant: 'lab' })).region).toBe('far');
    const other = ask('A', story(), { tenant: 'lab', model: `${MODEL}@r1` });
    expect(await failureOf(other)).toMatchObject({ status: 404, code: 'model_not_found' });
    expect((await clientOf('A', 'lab').models.list()).data.map(({ id }) => id)).toEqual([MODEL]);
  });

  test('that is too short for a prompt in the nearest region serves it elsewhere', async () => {
    const complete = async (tokens: number): Promise<string | null> => {
      const prompt = Array.from({ length: tokens }, (_, k) => k % 1_000);
      const { response } = await clientOf('A')
        .completions.create({ model: MODEL, prompt, max_tokens: 4 })
        .withResponse();
      return response.headers.get('x-spillway-region');
    };
    expect(await complete(NEAR_TOKENS - 4)).toBe('near');
    expect(await complete(NEAR_TOKENS - 3)).toBe('far');
    expect(await failureOf(complete(200_000))).toMatchObject({
      ...{ status: 400, code: 'context_length_exceeded' },
    });
  });
});

describe('an id that a client sends', () => {
  /** Of the ends of three turns, and of the id. */
  const allTold = (): Promise<void> =>
    until(() => [...fronts.values()].every((front) => front.status().conversations.away >= 4));
  const named: Asking = { headers: { 'x-session-id': 'chat-1' } };

  beforeAll(async () => {
    // The second turn finds the cache of the first, so that the third one's end is told of by its id too.
    await whileCut(async () => {
      for (let n = 0; n < 3; n += 1) expect((await ask('A', story(), named)).region).toBe('far');
    });
    // `far` tells of it with its next report.
    await allTold();
  });

  test('leads another router, and whoever has just started, to where the conversation lives', async () => {
    expect(await ask('B', story(), named)).toMatchObject({ region: 'far', reason: 'affinity' });
    await startFronts();
    await allTold();
    for (const front of FRONTS) {
      expect(await ask(front, story(), named)).toMatchObject({ region: 'far', reason: 'affinity' });
    }
  }, 90_000);

  test('may stand in the body too', async () => {
    const body = { prompt_cache_key: 'chat-1' };
    expect((await ask('A', story(), { body })).region).toBe('far');
  });

  test('is its tenant’s own, and without it nothing is known', async () => {
    expect((await ask('A', story(), { ...named, tenant: 'club' })).region).toBe('near');
    expect((await ask('A', story())).region).toBe('near');
    expect((await ask('A', story(), { body: { user: 'chat-1' } })).region).toBe('near');
  });
});

describe('a hint', () => {
  const bank = (hint: string): Asking => ({
    ...{ tenant: 'bank', headers: { 'x-spillway-hint': hint } },
  });
  let messages: OpenAI.ChatCompletionMessageParam[];
  let hint = '';

  beforeAll(async () => {
    await whileCut(async () => {
      const first = story();
      const { region, hint: given, answer } = await ask('A', first, bank('1'));
      expect(region).toBe('far');
      messages = [
        ...first,
        { role: 'assistant', content: answer },
        { role: 'user', content: 'and then?' },
      ];
      hint = given ?? '';
    });
    await startFronts();
  }, 90_000);

  test('is given where it is asked for, and nowhere else', async () => {
    expect(hint).toMatch(/^h1\.[\w-]+\.[\w-]{22}$/);
    expect((await ask('A', story())).hint).toBeNull();
  });

  test('leads routers that were told nothing to where the conversation lives', async () => {
    expect((await ask('B', messages, { tenant: 'bank' })).region).toBe('near');
    await startFronts();
    for (const front of FRONTS) {
      const answer = await ask(front, messages, bank(hint));
      expect(answer).toMatchObject({ region: 'far', reason: 'affinity' });
      expect(answer.hint).not.toBe(hint);
    }
  }, 90_000);

  test('counts for nothing with another conversation, for another tenant, or forged', async () => {
    await startFronts();
    expect((await ask('A', story(), bank(hint))).region).toBe('near');
    const forged = `${hint.slice(0, -1)}${hint.endsWith('A') ? 'B' : 'A'}`;
    expect((await ask('A', messages, bank(forged))).region).toBe('near');
    const foreign = { tenant: 'club', headers: { 'x-spillway-hint': hint } } as const;
    expect((await ask('A', messages, foreign)).region).toBe('near');
  }, 90_000);

  test('outlives a change of the secret while the old one is known', async () => {
    await startFronts();
    const reload = (front: Front, config: FleetConfig): void => {
      if (config.global !== undefined)
        fronts.get(front)?.reload(globalReloadable(config, config.global));
    };
    reload('A', globalConfig({ affinitySecret: NEW, affinityOldSecrets: [OLD] }));
    reload('B', globalConfig({ affinitySecret: NEW }));
    expect((await ask('A', messages, bank(hint))).region).toBe('far');
    expect((await ask('B', messages, bank(hint))).region).toBe('near');
  }, 90_000);
});
