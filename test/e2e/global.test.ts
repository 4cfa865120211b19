// The two tiers as processes: a global router, the routers of two regions, and clients that go on asking while a region is
// killed, cut off, switched off, and while the global router itself leaves. Engines and agents run in the test's own process.
//
// Without trouble `home` serves everything: the other region is kept for failover.

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';
import { request } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startAgent } from '../../agent/start.ts';
import type { GlobalRouterStatus } from '../../router/global/status.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { startEngineServer } from '../../sim/engine/http/server.ts';
import { engineProfile } from '../../sim/engine/profiles.ts';
import { freePorts } from '../free-ports.ts';
import { agentOptions } from './agent-options.ts';
import { Running } from './fleet.ts';
import { LinkProxy } from './link-proxy.ts';
import { captureLog } from './shell-harness.ts';
import { until } from './until.ts';

const MODEL = 'sim-model';
const CLIENTS = 40;
const NAMES = ['home', 'other'] as const;
type Name = (typeof NAMES)[number];

interface Ports {
  readonly clients: number;
  readonly links: number;
  readonly admin: number;
  readonly tier: number;
}

const runtime: RoleRuntime = {
  ...{ clock: systemClock, timers: systemTimers, random: seededRandom(3) },
  log: captureLog().log,
};
const close: (() => Promise<unknown>)[] = [];
const regions = new Map<Name, { readonly ports: Ports; router: Running }>();
let folder: string;
let ports: Ports;
let global: Running;
let uplink: LinkProxy;

async function write(name: string, content: object): Promise<string> {
  const file = join(folder, `${name}.yaml`);
  await writeFile(file, JSON.stringify(content));
  return file;
}

function globalFile(homeRollout: 'active' | 'off'): Promise<string> {
  return write('global', {
    log: { format: 'json' },
    regions: NAMES.map((name) => ({
      ...{ name, zone: name, rollout: name === 'home' ? homeRollout : 'failover' },
      baseUrl: `http://127.0.0.1:${regions.get(name)?.ports.tier ?? 0}`,
      tierKey: { id: name, secret: `tier-secret-of-${name}` },
      linkSecrets: [`link-secret-of-${name}`],
    })),
    global: {
      clients: { listen: `127.0.0.1:${ports.clients}` },
      links: { listen: `127.0.0.1:${ports.links}` },
      admin: { listen: `127.0.0.1:${ports.admin}` },
      affinitySecret: 'a-secret-of-this-test',
      probes: { intervalMs: 1_000 },
      routing: { staleGraceMs: 1_500 },
      shutdown: { acceptMs: 0, drainMs: 20_000 },
    },
  });
}

/** Starts the region's router, where need be again. */
async function startRouter(name: Name): Promise<void> {
  const region = regions.get(name);
  if (region === undefined) throw new Error(`no region ${name}`);
  const { clients, links, admin, tier } = region.ports;
  const file = await write(name, {
    region: name,
    log: { format: 'json' },
    router: {
      clients: { listen: `127.0.0.1:${clients}` },
      links: { listen: `127.0.0.1:${links}` },
      admin: { listen: `127.0.0.1:${admin}` },
      tier: {
        listen: `127.0.0.1:${tier}`,
        keys: [{ id: name, secret: `tier-secret-of-${name}` }],
      },
      global: {
        urls: [name === 'home' ? uplink.url : `ws://127.0.0.1:${ports.links}`],
        secret: `link-secret-of-${name}`,
      },
    },
  });
  region.router = new Running(['router', '--config', file]);
}

async function startEngine(name: Name): Promise<void> {
  const profile = engineProfile('demo');
  if (profile === null) throw new Error('no profile');
  const engine = await startEngineServer(
    { host: '127.0.0.1', port: 0, model: MODEL, profile, loadingMs: 0 },
    runtime,
  );
  const link = `ws://127.0.0.1:${regions.get(name)?.ports.links ?? 0}`;
  const agent = await startAgent(agentOptions(engine.url, link), runtime);
  close.push(
    () => engine.close(),
    () => agent.close(),
  );
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'spillway-global-'));
  const [a = 0, b = 0, c = 0, ...more] = await freePorts(11);
  ports = { clients: a, links: b, admin: c, tier: 0 };
  uplink = await LinkProxy.open(() => ports.links);
  for (const [k, name] of NAMES.entries()) {
    const [clients = 0, links = 0, admin = 0, tier = 0] = more.slice(4 * k, 4 * k + 4);
    regions.set(name, { ports: { clients, links, admin, tier }, router: null as never });
  }
  await Promise.all(NAMES.map(startRouter));
  await Promise.all(NAMES.map(startEngine));
  global = new Running(['global', '--config', await globalFile('active')]);
  await whenServed(...NAMES);
}, 90_000);

afterAll(async () => {
  for (const { router } of regions.values()) await router.end('SIGKILL');
  await global.end('SIGKILL');
  for (const each of close.toReversed()) await each();
  await uplink.close();
  await rm(folder, { recursive: true });
});

async function status(): Promise<GlobalRouterStatus | null> {
  try {
    const { body } = await request(`http://127.0.0.1:${ports.admin}/status`);
    return (await body.json()) as GlobalRouterStatus;
  } catch {
    return null;
  }
}

/** Until the global router sees these regions, with a replica that is ready and without a grudge, and no other. */
async function whenServed(...names: readonly Name[]): Promise<void> {
  let last: GlobalRouterStatus | null = null;
  await until(
    async () => {
      last = await status();
      return (
        last?.regions.every(({ region, seen, breaker, pools }) => {
          const serves =
            seen && breaker === 'closed' && pools.some((pool) => (pool.readyReplicas ?? 0) > 0);
          return serves === names.includes(region as string as Name);
        }) === true
      );
    },
    { timeoutMs: 40_000, says: () => JSON.stringify(last?.regions) },
  );
}

const client = (port = ports.clients) =>
  new OpenAI({ baseURL: `http://127.0.0.1:${port}/v1`, apiKey: 'unused', maxRetries: 0 });

interface Answer {
  readonly region: string | null;
  readonly began: boolean;
  /** Null: it was whole. */
  readonly error: string | null;
}

async function ask(tokens = 20, onFirst: () => void = () => undefined): Promise<Answer> {
  let began = false;
  let region: string | null = null;
  try {
    const { data, response } = await client()
      .chat.completions.create({
        ...{ model: MODEL, stream: true, max_tokens: tokens },
        messages: [{ role: 'user', content: `say something, ${Math.random()}` }],
      })
      .withResponse();
    region = response.headers.get('x-spillway-region');
    for await (const _ of data) {
      if (!began) onFirst();
      began = true;
    }
    return { region, began, error: null };
  } catch (error) {
    return { region, began, error: String(error) };
  }
}

/** Clients that ask one request after the other until they are told to stop. */
function load(): { readonly answers: Answer[]; stop(): Promise<void> } {
  const answers: Answer[] = [];
  let running = true;
  const clients = Array.from({ length: CLIENTS }, async (_, k) => {
    // Some of them are always in the midst of an answer.
    while (running) answers.push(await ask(k % 2 === 0 ? 8 : 200));
  });
  return {
    answers,
    async stop() {
      running = false;
      await Promise.all(clients);
    },
  };
}

test('a region that is killed under load costs no client an error before its first token', async () => {
  const busy = load();
  const { answers } = busy;
  await until(() => answers.length > CLIENTS);
  await regions.get('home')?.router.end('SIGKILL');
  const before = answers.length;
  await until(() => answers.length > before + 3 * CLIENTS, { timeoutMs: 60_000 });
  await busy.stop();
  const failed = answers.filter(({ error }) => error !== null);
  expect(failed.filter(({ began }) => !began)).toEqual([]);
  // What had begun says that it is not whole.
  expect(failed.length).toBeLessThanOrEqual(CLIENTS);
  for (const { error } of failed) expect(error).toMatch(/incomplete/);
  expect(answers.slice(0, CLIENTS).map(({ region }) => region)).toContain('home');
  expect(answers.at(-1)).toEqual({ region: 'other', began: true, error: null });
  await startRouter('home');
  await whenServed('home', 'other');
  expect(await ask()).toMatchObject({ region: 'home', error: null });
}, 120_000);

test('a region whose router is frozen under load costs no client anything: others are served elsewhere, its streams go on after', async () => {
  const busy = load();
  const { answers } = busy;
  await until(() => answers.length > CLIENTS);
  regions.get('home')?.router.child.kill('SIGSTOP');
  await until(() => answers.slice(-CLIENTS).every(({ region }) => region === 'other'), {
    timeoutMs: 30_000,
    says: () => JSON.stringify(answers.slice(-5)),
  });
  regions.get('home')?.router.child.kill('SIGCONT');
  await whenServed('home', 'other');
  await until(() => answers.at(-1)?.region === 'home', { timeoutMs: 30_000 });
  await busy.stop();
  expect(answers.filter(({ error }) => error !== null)).toEqual([]);
}, 120_000);

test('a region whose link is cut off is used no more, and again when it is back', async () => {
  uplink.set({ kind: 'hole' });
  await whenServed('other');
  expect(await ask()).toMatchObject({ region: 'other', error: null });
  uplink.set({ kind: 'none' });
  await whenServed('home', 'other');
  expect(await ask()).toMatchObject({ region: 'home', error: null });
}, 90_000);

test('a change of the file counts at once, and a broken one changes nothing', async () => {
  await globalFile('off');
  await until(async () => (await status())?.config?.generation === 2);
  expect(await ask()).toMatchObject({ region: 'other', error: null });
  await write('global', { global: { routing: { spillStartMs: 'soon' } } });
  await until(async () => (await status())?.config?.lastReloadOk === false);
  expect(await ask()).toMatchObject({ region: 'other', error: null });
  await globalFile('active');
  await until(async () => (await status())?.config?.lastReloadOk === true);
  expect(await ask()).toMatchObject({ region: 'home', error: null });
}, 60_000);

test('a global router that is told to end lets its streams end; regions serve their own clients without it', async () => {
  let begun = (): void => undefined;
  const hasBegun = new Promise<void>((resolve) => (begun = resolve));
  const running = ask(200, begun);
  await hasBegun;
  await global.end('SIGTERM');
  expect(await running).toMatchObject({ region: 'home', error: null });
  expect(global.child.exitCode).toBe(0);
  const own = await client(regions.get('home')?.ports.clients).chat.completions.create({
    ...{ model: MODEL, max_tokens: 4 },
    messages: [{ role: 'user', content: 'hello' }],
  });
  expect(own.usage?.completion_tokens).toBe(4);
}, 60_000);
