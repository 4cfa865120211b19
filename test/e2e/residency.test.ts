// Where a prompt goes, byte for byte: a global router before two real regions, every socket towards them recorded and searched.
// All of it from one fleet.yaml, as an operator would write it.

import { createHash } from 'node:crypto';
import { connect } from 'node:net';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startAgent } from '../../agent/start.ts';
import { globalOptions, globalReloadable } from '../../bin/cli/global-options.ts';
import { routerOptions, routerReloadable } from '../../bin/cli/router-options.ts';
import { adminRoutes } from '../../router/gateway/admin-routes.ts';
import { API_ROUTES } from '../../router/gateway/api-routes.ts';
import { BodyBudget } from '../../router/gateway/body-budget.ts';
import { startGlobalRouter, type RunningGlobalRouter } from '../../router/global/start.ts';
import { startRegionalRouter, type RunningRouter } from '../../router/regional/start.ts';
import { parseFleet } from '../../shared/config/load.ts';
import type { FleetConfig, GlobalConfig } from '../../shared/config/schema.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { startEngineServer } from '../../sim/engine/http/server.ts';
import { engineProfile } from '../../sim/engine/profiles.ts';
import { agentOptions } from './agent-options.ts';
import { RecordingProxy } from './recording-proxy.ts';
import { captureLog, LIMITS } from './shell-harness.ts';
import { until } from './until.ts';

const MODEL = 'sim-model';
const NAMES = ['fra', 'tyo'] as const;
type Name = (typeof NAMES)[number];

interface Region {
  readonly tier: RecordingProxy;
  /** Towards the region: what a global router says on its links. */
  readonly links: RecordingProxy;
  readonly router: RunningRouter;
}

const { log, lines } = captureLog();
const runtime: RoleRuntime = {
  ...{ clock: systemClock, timers: systemTimers, random: seededRandom(5), log },
};
const close: (() => Promise<void>)[] = [];
const regions = new Map<Name, Region>();
let tiers: ReadonlyMap<Name, RecordingProxy>;
let global: RunningGlobalRouter;

const region = (name: Name): Region => regions.get(name) as Region;
const hash = (key: string): string => `sha256:${createHash('sha256').update(key).digest('hex')}`;

/** `changes` of the tenants; the rest is the same for all. */
function fleet(changes: { readonly shop?: object; readonly own?: object } = {}): FleetConfig {
  const tenant = (name: string, rules: object) => ({
    ...{ name, keys: [{ name, hash: hash(`key-of-${name}`) }] },
    ...rules,
  });
  const text = JSON.stringify({
    tenants: [
      tenant('bank', { residency: { allow: ['fra'] } }),
      tenant('shop', changes.shop ?? { residency: { allow: ['tyo'] } }),
      tenant('clinic', { residency: { allow: ['fra'] }, ingress: 'inZone' }),
      tenant('model', { models: ['another'] }),
      tenant('ours', { operator: true }),
    ],
    zones: { eu: { clientsUrl: 'https://eu.example' } },
    regions: NAMES.map((name) => ({
      name,
      zone: name === 'fra' ? 'eu' : 'apac',
      baseUrl: `http://127.0.0.1:${tiers.get(name)?.port ?? 0}`,
      linkSecrets: [`link-secret-of-${name}`],
      tierKey: { id: name, secret: `tier-secret-of-${name}` },
    })),
    ...changes.own,
  });
  const parsed = parseFleet({ file: 'fleet.yaml', text, environment: {}, overlays: [] });
  if (!parsed.ok) throw new Error(parsed.error);
  return parsed.config;
}

const globalFleet = (shop?: object) =>
  fleet({
    ...(shop === undefined ? {} : { shop }),
    own: {
      global: {
        zone: 'apac',
        clients: { listen: '127.0.0.1:0' },
        links: { listen: '127.0.0.1:0' },
        admin: null,
        probes: null,
        routing: { staleGraceMs: 3_000, connectTimeoutMs: 500 },
      },
    },
  });

async function startRegion(name: Name): Promise<void> {
  const tier = tiers.get(name) as RecordingProxy;
  // Its own side dials: what comes back on the link is what goes towards the region.
  const links = await new RecordingProxy().listen();
  links.target = global.linksPort;
  const config = regionFleet(name, links.port);
  const router = await startRegionalRouter(routerOptions(config), runtime);
  tier.target = router.tierPort;
  const profile = engineProfile('demo');
  if (profile === null) throw new Error('no profile');
  const engine = await startEngineServer(
    { host: '127.0.0.1', port: 0, model: MODEL, profile, loadingMs: 0 },
    runtime,
  );
  const agent = await startAgent(
    agentOptions(engine.url, `ws://127.0.0.1:${router.linksPort}`),
    runtime,
  );
  regions.set(name, { tier, links, router });
  close.push(
    () => links.close(),
    () => engine.close(),
    () => agent.close(),
    () => router.close(),
  );
}

/** A region's own file, with the same tenants. */
function regionFleet(name: Name, linksPort: number, shop?: object): FleetConfig {
  return fleet({
    ...(shop === undefined ? {} : { shop }),
    own: {
      region: name,
      models: { [MODEL]: { pool: 'default' } },
      router: {
        clients: { listen: '127.0.0.1:0' },
        links: { listen: '127.0.0.1:0' },
        admin: null,
        tier: { listen: '127.0.0.1:0', keys: [{ id: name, secret: `tier-secret-of-${name}` }] },
        global: { urls: [`ws://127.0.0.1:${linksPort}`], secret: `link-secret-of-${name}` },
      },
    },
  });
}

beforeAll(async () => {
  tiers = new Map(
    await Promise.all(
      NAMES.map(async (name) => [name, await new RecordingProxy().listen()] as const),
    ),
  );
  for (const tier of tiers.values()) close.push(() => tier.close());
  const config = globalFleet();
  global = await startGlobalRouter(globalOptions(config, config.global as GlobalConfig), runtime);
  close.push(() => global.close());
  await Promise.all(NAMES.map(startRegion));
  await until(() =>
    global
      .status()
      .regions.every(({ pools }) => pools.some((pool) => (pool.readyReplicas ?? 0) > 0)),
  );
}, 30_000);

afterAll(async () => {
  for (const each of close.splice(0).toReversed()) await each();
});

let prompts = 0;
/** A prompt that stands nowhere else. */
function secretPrompt(): string {
  prompts += 1;
  return `the secret of turn ${prompts} is ${createHash('sha256').update(String(prompts)).digest('hex')}`;
}

const clientOf = (tenant: string, base = global.clientsPort) =>
  new OpenAI({
    baseURL: `http://127.0.0.1:${base}/v1`,
    apiKey: `key-of-${tenant}`,
    maxRetries: 0,
  });

async function answerTo(tenant: string, content: string, base?: number): Promise<string> {
  const stream = await clientOf(tenant, base).chat.completions.create({
    model: MODEL,
    messages: [{ role: 'user', content }],
    max_tokens: 4,
    stream: true,
  });
  let text = '';
  for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
  return text;
}

interface Refusal {
  readonly status: number | undefined;
  readonly code: string | null | undefined;
}

async function refusalOf(tenant: string, content: string, base?: number): Promise<Refusal> {
  try {
    await answerTo(tenant, content, base);
  } catch (error) {
    if (error instanceof OpenAI.APIError) return { status: error.status, code: error.code };
    throw error;
  }
  throw new Error('it was answered');
}

/** The global router, and these regions, take other rules for `shop`. */
function takes(shop: object, own: readonly Name[]): void {
  for (const name of own) {
    const { links, router } = region(name);
    router.reload(routerReloadable(regionFleet(name, links.port, shop)));
  }
  if (own.length < NAMES.length) return;
  const config = globalFleet(shop);
  global.reload(globalReloadable(config, config.global as GlobalConfig));
}

/** On which of the regions' sockets it was seen. */
function seenAt(text: string): Name[] {
  return NAMES.filter((name) => region(name).tier.saw(text) || region(name).links.saw(text));
}

describe('a prompt', () => {
  test('goes to a region of its tenant, and no byte of it elsewhere', async () => {
    const [bank, shop] = [secretPrompt(), secretPrompt()];
    expect(await answerTo('bank', bank)).not.toBe('');
    expect(await answerTo('shop', shop)).not.toBe('');
    // Also the controls of the search: what went there is found.
    expect(seenAt(bank)).toEqual(['fra']);
    expect(seenAt(shop)).toEqual(['tyo']);
  });

  test('of a tenant that must come in elsewhere leaves the router nowhere', async () => {
    const prompt = secretPrompt();
    expect(await refusalOf('clinic', prompt)).toEqual({ status: 421, code: 'misdirected_request' });
    expect(seenAt(prompt)).toEqual([]);
  });

  test('for a model that is not its tenant’s leaves the router nowhere', async () => {
    const prompt = secretPrompt();
    expect(await refusalOf('model', prompt)).toEqual({ status: 404, code: 'model_not_found' });
    expect(seenAt(prompt)).toEqual([]);
  });

  test('that its client takes to another region itself is refused there too', async () => {
    const tyo = region('tyo').router.clientsPort;
    const refusal = await refusalOf('bank', secretPrompt(), tyo);
    expect(refusal).toEqual({ status: 403, code: 'residency_violation' });
  });

  test('goes where a changed policy says, from its next request on', async () => {
    takes({ residency: { allow: ['fra'] } }, NAMES);
    const prompt = secretPrompt();
    expect(await answerTo('shop', prompt)).not.toBe('');
    expect(seenAt(prompt)).toEqual(['fra']);
    takes({ residency: { allow: ['fra', 'tyo'] } }, NAMES);
    const other = secretPrompt();
    expect(await answerTo('shop', other)).not.toBe('');
    expect(seenAt(other)).toHaveLength(1);
  });

  test('is refused by a region whose own file says so, whatever the global router’s says', async () => {
    takes({ residency: { allow: ['fra'] } }, NAMES);
    takes({ residency: { allow: ['tyo'] } }, ['fra']);
    const prompt = secretPrompt();
    const { status, code } = await refusalOf('shop', prompt);
    // Which of its machines is misled is no client's to know: to it, the region failed.
    expect([status, code]).toEqual([502, 'upstream_failed']);
    expect(seenAt(prompt)).not.toContain('tyo');
    expect(lines.some(({ msg, tenant }) => msg === 'region_not_allowed' && tenant === 'shop')).toBe(
      true,
    );
    takes({ residency: { allow: ['tyo'] } }, NAMES);
  });

  test('stays where it may be when that region dies: a typed error, and no byte of it elsewhere', async () => {
    const { router, tier, links } = region('fra');
    const before = region('tyo').tier.bytes;
    tier.cut();
    links.cut();
    await router.close();
    const asked: string[] = [];
    const refused = async (): Promise<Refusal> => {
      const prompt = secretPrompt();
      asked.push(prompt);
      return refusalOf('bank', prompt);
    };
    const first = await Promise.all(Array.from({ length: 5 }, refused));
    for (const { status, code } of first) {
      expect([502, 503]).toContain(status);
      expect(['upstream_failed', 'no_healthy_region']).toContain(code);
    }
    // As soon as it is known to be gone, the error says so.
    await until(async () => (await refused()).code === 'no_healthy_region');
    expect(asked.filter((prompt) => region('tyo').tier.saw(prompt))).toEqual([]);
    expect(asked.filter((prompt) => region('tyo').links.saw(prompt))).toEqual([]);
    expect(region('tyo').tier.bytes).toBe(before);
    // Nor was the other region gone: it serves those who may be there.
    expect(await answerTo('shop', secretPrompt())).not.toBe('');
  });
});

test('every route of clients asks a global router’s client whose it is, and where it must come in, before its body', async () => {
  const paths = Object.values(API_ROUTES).flatMap(({ paths: some }) => some);
  expect(paths).toContain('/v1/chat/completions');
  const asked = await Promise.all(
    ['/v1/models', '/v1/models/x', ...paths].flatMap((path) => [
      headAlone(path, null).then((answer) => ({ path, answer, wanted: /^HTTP\/1.1 401 / })),
      headAlone(path, 'key-of-clinic').then((answer) => ({
        ...{ path, answer },
        wanted: /^HTTP\/1.1 421 [^]*x-spillway-ingress: https:\/\/eu.example\r\n/,
      })),
    ]),
  );
  for (const { path, answer, wanted } of asked) expect(answer, path).toMatch(wanted);
});

test('what operators ask is none of a tenant’s business where both come to one listener, but of one that is an operator', async () => {
  const routes = adminRoutes({
    exposition: () => Promise.resolve({ text: '', contentType: '' }),
    budget: new BodyBudget(LIMITS),
    bounds: () => LIMITS,
    status: () => ({}),
    statusText: () => '',
    readiness: () => ({ ready: true, checks: [] }),
    explain: () => ({}),
  }).filter(({ open }) => open !== true);
  expect(routes.map(({ path }) => path)).toContain('/status');
  const asked = async (port: number, tenant: string, route: (typeof routes)[number]) => {
    const answer = await fetch(`http://127.0.0.1:${port}${route.path}`, {
      method: route.method,
      headers: { authorization: `Bearer key-of-${tenant}`, 'content-type': 'application/json' },
      ...(route.method === 'GET'
        ? {}
        : { body: `{"model":"${MODEL}","messages":[{"role":"user","content":"a"}]}` }),
    });
    const text = await answer.text();
    // Which regions there are is not to be read from a refusal either.
    if (!answer.ok) expect(text).not.toMatch(/tyo|fra/);
    return [answer.status, /"code":"(\w+)"/.exec(text)?.[1] ?? null];
  };
  for (const port of [global.clientsPort, region('tyo').router.clientsPort]) {
    for (const route of routes) {
      const says = `${port} ${route.path}`;
      expect(await asked(port, 'bank', route), says).toEqual([403, 'operators_only']);
      expect(await asked(port, 'clinic', route), says).toEqual([403, 'operators_only']);
      expect((await asked(port, 'ours', route))[0], says).toBe(200);
    }
  }
});

/** The answer to a head whose body is told of and never sent. */
function headAlone(path: string, key: string | null): Promise<string> {
  const lines = [
    `${path.startsWith('/v1/models') ? 'GET' : 'POST'} ${path} HTTP/1.1`,
    'host: x',
    ...(key === null ? [] : [`authorization: Bearer ${key}`]),
    ...(path.startsWith('/v1/models') ? [] : ['content-length: 1000']),
  ];
  return new Promise((resolve, reject) => {
    const socket = connect(global.clientsPort, '127.0.0.1');
    let received = '';
    socket.on('error', reject);
    socket.on('data', (piece: Buffer) => {
      received += piece.toString();
      if (!/\r\n\r\n[^]*\}/.test(received)) return;
      socket.destroy();
      resolve(received);
    });
    socket.write(`${lines.join('\r\n')}\r\n\r\n`);
  });
}

test('the search finds a text that was sent in pieces, and in base64 at any offset', async () => {
  const text = secretPrompt();
  for (const body of [text, ...['', 'a', 'ab'].map((before) => inBase64(`${before}${text}cd`))]) {
    const proxy = await new RecordingProxy().listen();
    proxy.target = region('tyo').router.clientsPort;
    const pieces = new ReadableStream({
      start(controller) {
        controller.enqueue(Buffer.from(body.slice(0, 20)));
        controller.enqueue(Buffer.from(body.slice(20)));
        controller.close();
      },
    });
    expect(proxy.saw(text)).toBe(false);
    await fetch(`http://127.0.0.1:${proxy.port}/`, {
      ...{ method: 'POST', body: pieces, duplex: 'half' },
      headers: { 'content-length': String(body.length) },
    });
    expect(proxy.saw(text)).toBe(true);
    await proxy.close();
  }
});

function inBase64(text: string): string {
  return Buffer.from(text).toString('base64url');
}
