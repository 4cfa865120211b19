// A region as the tier before it meets it: the listener for signed contexts, and the links on which it reports. Real router,
// real agent, simulated engine; the global router is a script of the test's own.

import { connect } from 'node:net';
import OpenAI from 'openai';
import { Agent, request } from 'undici';
import { afterAll, afterEach, describe, expect, test } from 'vitest';
import { startAgent } from '../../agent/start.ts';
import { signContext, type TierContext } from '../../router/gateway/tier-context.ts';
import type { TenancyOptions } from '../../router/gateway/tenants.ts';
import type { RouterOptions } from '../../router/regional/options.ts';
import { startRegionalRouter, type RunningRouter } from '../../router/regional/start.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import type { RegionId, RouterId } from '../../shared/model/ids.ts';
import type {
  RegionChildMessage,
  RegionHello,
  RegionParentMessage,
} from '../../shared/protocol/region-messages.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import { startLinkServer, type LinkServer } from '../../shared/runtime/link-server.ts';
import { REGION_LINK_LIMITS, ROUTER_OF_REGIONS } from '../../shared/runtime/region-link.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { startEngineServer } from '../../sim/engine/http/server.ts';
import { engineProfile } from '../../sim/engine/profiles.ts';
import { makeAuthority } from '../tls/certificates.ts';
import { CertificateFolder } from '../tls/files.ts';
import { agentOptions } from './agent-options.ts';
import { captureLog, routerOptions } from './shell-harness.ts';
import { until } from './until.ts';

const open: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).toReversed()) await close();
});

const KEY = { id: 'g-test', secret: 'secret-of-the-pair' };
const PATH = '/v1/chat/completions';
const LOCAL = { host: '127.0.0.1', port: 0 };
const BODY = JSON.stringify({
  model: 'sim-model',
  messages: [{ role: 'user', content: 'hello' }],
  max_tokens: 4,
});
const CONTEXT: TierContext = {
  attempt: 'req.1',
  from: 'g1' as RouterId,
  seq: 1,
  tenant: 'clinic',
  saltGroup: 'clinic',
  residency: { allow: ['test'], fallback: [] },
  conversation: 'key-1',
  away: true,
  awayForMs: 0,
  zones: null,
  deadlineInMs: null,
};

interface Region {
  readonly router: RunningRouter;
  readonly lines: Record<string, unknown>[];
}

async function region(changes: Partial<RouterOptions> = {}): Promise<Region> {
  const { lines, log } = captureLog();
  const runtime: RoleRuntime = {
    ...{ clock: systemClock, timers: systemTimers, random: seededRandom(7), log },
  };
  const options = routerOptions({});
  const router = await startRegionalRouter(
    {
      ...options,
      admin: LOCAL,
      tier: LOCAL,
      ...changes,
      reloadable: { ...options.reloadable, tierKeys: [KEY], ...changes.reloadable },
    },
    runtime,
  );
  open.push(() => router.close());
  const profile = engineProfile('demo');
  if (profile === null) throw new Error('no profile');
  const engine = await startEngineServer(
    { ...LOCAL, model: 'sim-model', profile, loadingMs: 0, apiKey: null },
    runtime,
  );
  open.push(() => engine.close());
  const agent = await startAgent(
    agentOptions(engine.url, `ws://127.0.0.1:${router.linksPort}`),
    runtime,
  );
  open.push(() => agent.close());
  await until(() => router.status().ready);
  return { router, lines };
}

/** A region that knows the tenant itself. */
function tenancyOf(allow: readonly string[]): Partial<TenancyOptions> {
  const residency = { allow: allow as readonly RegionId[], fallback: [] };
  return {
    place: {
      region: { id: 'test' as RegionId, certifications: null, tiers: null },
      ...{ zone: null, zones: {}, clientsUrls: {} },
    },
    tenants: [
      {
        ...{ name: 'clinic', keys: [], residency, ingress: 'any', models: null },
        ...{ certifications: [], tier: null, saltGroup: 'clinic' },
      },
    ],
  };
}

function sentToEngines(router: RunningRouter): number {
  const targets = router
    .status()
    .pools.flatMap(({ replicas }) => replicas.flatMap((r) => r.targets));
  return targets.reduce((sum, { attempts: sent }) => sum + sent, 0);
}

let attempts = 0;
/** A context of its own for each request. */
function signed(
  more: Partial<TierContext> = {},
  to: { region?: string; body?: string; path?: string; key?: typeof KEY; wallMs?: number } = {},
): string {
  attempts += 1;
  const context = { ...CONTEXT, attempt: `req-${attempts}.1`, seq: attempts, ...more };
  const body = Buffer.from(to.body ?? BODY);
  const bound = { method: 'POST', path: to.path ?? PATH, body };
  const where = { region: (to.region ?? 'test') as RegionId, key: to.key ?? KEY, bound };
  return signContext(context, where, to.wallMs ?? Date.now());
}

async function send(port: number | null, context: string | null, body = BODY, dispatcher?: Agent) {
  const scheme = dispatcher === undefined ? 'http' : 'https';
  const answer = await request(`${scheme}://127.0.0.1:${port}${PATH}`, {
    ...(dispatcher === undefined ? {} : { dispatcher }),
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(context === null ? {} : { 'x-spillway-context': context }),
    },
    body,
  });
  const text = await answer.body.text();
  const code = /"code":\s*"(\w+)"/.exec(text)?.[1] ?? null;
  return { status: answer.statusCode, code, text, headers: answer.headers };
}

async function refusals(router: RunningRouter): Promise<Record<string, number>> {
  const { body } = await request(`http://127.0.0.1:${router.adminPort}/metrics`);
  const rows = (await body.text()).matchAll(
    /^spillway_tier_refusals_total\{reason="(\w+)"\} (\d+)/gm,
  );
  return Object.fromEntries(
    Array.from(rows, ([, reason = '', count]) => [reason, Number(count)] as const).filter(
      ([, count]) => count > 0,
    ),
  );
}

describe('the tier listener', () => {
  test('serves a stream to the SDK where each request is signed, as the tenant that is named', async () => {
    const { router, lines } = await region();
    const client = new OpenAI({
      baseURL: `http://127.0.0.1:${router.tierPort}/v1`,
      apiKey: 'not for this region',
      maxRetries: 0,
      fetch: (url, init) => {
        const headers = new Headers(init?.headers);
        headers.set('x-spillway-context', signed({}, { body: init?.body as string }));
        return fetch(url, { ...init, headers });
      },
    });
    const stream = await client.chat.completions.create({
      model: 'sim-model',
      messages: [{ role: 'user', content: 'hello' }],
      max_tokens: 4,
      stream: true,
    });
    let pieces = 0;
    for await (const { choices } of stream) pieces += choices.length;
    expect(pieces).toBeGreaterThan(1);
    const served = (): Record<string, unknown> | undefined =>
      lines.find(({ outcome }) => outcome === 'complete');
    await until(() => served() !== undefined);
    expect(served()).toMatchObject({ client: 'g1', tenant: 'clinic' });
  });

  test('answers with what the tier before reads, and nothing that it says itself', async () => {
    const { router } = await region();
    const { status, headers } = await send(router.tierPort, signed());
    expect([status, Object.keys(headers).toSorted()]).toEqual([
      200,
      [
        ...['connection', 'content-length', 'content-type', 'keep-alive', 'server-timing'],
        ...['x-spillway-cached-tokens', 'x-spillway-pool', 'x-spillway-prompt-tokens'],
        'x-spillway-replica',
      ],
    ]);
  });

  test('is known for one of ours by what it does not find: a model, and a path', async () => {
    const { router } = await region();
    const body = JSON.stringify({ model: 'none', messages: [{ role: 'user', content: 'hello' }] });
    const unknown = await send(router.tierPort, signed({}, { body }), body);
    expect([unknown.status, unknown.headers['server-timing'] !== undefined]).toEqual([404, true]);
    const nowhere = await fetch(`http://127.0.0.1:${router.tierPort}/v1/nowhere`, {
      method: 'POST',
    });
    expect([nowhere.status, nowhere.headers.has('x-spillway-request-id')]).toEqual([404, true]);
    const wrong = await fetch(`http://127.0.0.1:${router.tierPort}/v1/chat/completions`);
    expect([wrong.status, wrong.headers.has('x-spillway-request-id')]).toEqual([405, true]);
  });

  test('refuses what is not rightly signed: nothing of it reaches an engine, each is counted by its reason', async () => {
    const { router, lines } = await region();
    const port = router.tierPort;
    const used = signed();
    expect((await send(port, used)).status).toBe(200);
    const now = Date.now();
    const cases: [string, string | null, string?][] = [
      ['missing', null],
      ['malformed', 'a.b.c'],
      ['unknown_key', signed({}, { key: { ...KEY, id: 'another' } })],
      ['signature', signed({}, { key: { ...KEY, secret: 'guessed' } })],
      ['audience', signed({}, { region: 'osaka' })],
      ['expired', signed({}, { wallMs: now - 36_000 })],
      ['clock_ahead', signed({}, { wallMs: now + 20_000 })],
      ['replayed', used],
      ['other_request', signed({}, { path: '/v1/completions' })],
      ['other_body', signed(), BODY.replace('hello', 'other')],
    ];
    for (const [reason, context, body] of cases) {
      const { status, code } = await send(port, context, body);
      expect([reason, status, code]).toEqual([reason, 401, 'context_refused']);
    }
    const counted = Object.fromEntries(cases.map(([reason]) => [reason, 1]));
    expect(await refusals(router)).toEqual(counted);
    expect(sentToEngines(router)).toBe(1);
    const said = lines
      .filter(({ msg }) => msg === 'context_refused')
      .map(({ reason }) => String(reason));
    expect(said.toSorted()).toEqual(Object.keys(counted).toSorted());
  });

  test('refuses a tenant that may not be served in this region, and alarms', async () => {
    const { router, lines } = await region();
    const elsewhere = { allow: ['paris'], fallback: ['berlin'] };
    const { status, code } = await send(router.tierPort, signed({ residency: elsewhere }));
    expect([status, code]).toEqual([421, 'region_not_allowed']);
    expect(await refusals(router)).toEqual({ residency: 1 });
    expect(lines.find(({ msg }) => msg === 'region_not_allowed')).toMatchObject({
      level: 50,
      tenant: 'clinic',
      from: 'g1',
    });
    const fallback = { allow: ['paris'], fallback: ['test'] };
    expect((await send(router.tierPort, signed({ residency: fallback }))).status).toBe(200);
  });

  test("refuses whom this region's own rules keep out, and what waits of theirs when the rules change", async () => {
    const { router } = await region();
    const { reloadable } = routerOptions({ tenancy: tenancyOf(['paris']) });
    const outcome = {
      keptOut: [421, 'region_not_allowed'],
      withdrawn: [403, 'residency_violation'],
    };
    const long = BODY.replace('hello', 'hello '.repeat(20_000));
    const waiting = send(router.tierPort, signed({}, { body: long }), long);
    await until(() => sentToEngines(router) === 1);
    router.reload({ ...reloadable, tierKeys: [KEY] });
    const { status, code } = await waiting;
    expect([status, code]).toEqual(outcome.withdrawn);
    await until(() => router.status().openRequests === 0);

    const next = await send(router.tierPort, signed());
    expect([next.status, next.code]).toEqual(outcome.keptOut);
    const allowed = routerOptions({ tenancy: tenancyOf(['paris', 'test']) }).reloadable;
    router.reload({ ...allowed, tierKeys: [KEY] });
    expect((await send(router.tierPort, signed())).status).toBe(200);
  });

  test('is no page’s business, whatever pages the configuration allows elsewhere', async () => {
    const cors = { origins: ['*'], maxAgeS: 60 };
    const { reloadable } = routerOptions({ surface: { cors } });
    const { router } = await region({ reloadable: { ...reloadable, tierKeys: [KEY] } });
    const asked = { origin: 'https://app.example', 'access-control-request-method': 'POST' };
    const of = async (port: number | null) =>
      (await request(`http://127.0.0.1:${port}${PATH}`, { method: 'OPTIONS', headers: asked }))
        .statusCode;
    expect([await of(router.clientsPort), await of(router.tierPort)]).toEqual([204, 405]);
  });

  test('refuses by the head alone: no body need come', async () => {
    const { router } = await region();
    const socket = connect({ host: '127.0.0.1', port: router.tierPort ?? 0 });
    open.push(async () => void socket.destroy());
    let got = '';
    socket.on('data', (piece) => (got += String(piece)));
    socket.write(
      `POST ${PATH} HTTP/1.1\r\nhost: region\r\ncontent-type: application/json\r\n` +
        `content-length: 1000000\r\nexpect: 100-continue\r\nx-spillway-context: none\r\n\r\n`,
    );
    await until(() => got.includes('context_refused'));
    expect(got).toMatch(/^HTTP\/1\.1 401 /);
  });

  test('takes a key that is added while it runs, and no longer one that is gone', async () => {
    const { router } = await region();
    const { reloadable } = routerOptions({});
    const next = { id: 'g-next', secret: 'secret-of-next' };
    const status = async (key: typeof KEY): Promise<number> =>
      (await send(router.tierPort, signed({}, { key }))).status;
    router.reload({ ...reloadable, tierKeys: [KEY, next] });
    expect([await status(KEY), await status(next)]).toEqual([200, 200]);
    router.reload({ ...reloadable, tierKeys: [next] });
    expect([await status(KEY), await status(next)]).toEqual([401, 200]);
  });
});

describe('where the tier listener demands certificates', () => {
  const folder = new CertificateFolder();
  afterAll(() => folder.remove());
  const authority = makeAuthority('mesh ca');
  const ca = folder.put('mesh.crt', authority.cert);
  const HERE = { commonName: 'region', names: ['127.0.0.1'] };
  const globalOne = authority.issue({ commonName: 'global', names: ['global.mesh'] });

  const dispatcher = (own: object): Agent => {
    const agent = new Agent({ connect: { ca: authority.cert, ...own } });
    open.push(() => agent.destroy());
    return agent;
  };

  test('a context alone opens nothing, nor does a certificate', async () => {
    const files = folder.write('region', authority.issue(HERE));
    const tls = { ...files, ca, clientAuth: 'required' } as const;
    const { router } = await region({ tier: { ...LOCAL, tls } });
    const without = dispatcher({});
    const shows = dispatcher({ cert: globalOne.cert, key: globalOne.key });
    const of = async (context: string | null, by: Agent) => {
      const { status, code } = await send(router.tierPort, context, BODY, by);
      return [status, code];
    };
    expect(await of(signed(), without)).toEqual([403, 'certificate_required']);
    expect(await of(null, shows)).toEqual([401, 'context_refused']);
    expect(await of(signed(), shows)).toEqual([200, null]);
  });
});

test('a context counts nothing where clients come in: not for a key, not for a tenant', async () => {
  const sha256 = 'a'.repeat(64);
  const clientKeys = [{ name: 'someone', sha256 }];
  const { router } = await region({
    reloadable: { ...routerOptions({ clientKeys }).reloadable, tierKeys: [KEY] },
  });
  const answer = await send(router.clientsPort, signed());
  expect([answer.status, answer.code]).toEqual([401, 'invalid_api_key']);
  expect(await refusals(router)).toEqual({});
});

interface Parent {
  readonly server: LinkServer<RegionParentMessage>;
  readonly hellos: RegionHello[];
  readonly messages: RegionChildMessage[];
  readonly ends: string[];
}

async function globalRouter(name: string): Promise<Parent> {
  const { log } = captureLog();
  const hellos: RegionHello[] = [];
  const messages: RegionChildMessage[] = [];
  const ends: string[] = [];
  const server = await startLinkServer({
    words: ROUTER_OF_REGIONS,
    ...LOCAL,
    rules: () => ({
      credentials: [{ secret: 'secret-of-test', speaksFor: ['test'] }],
      certificates: [],
      openNearby: false,
    }),
    ...{ clock: systemClock, timers: systemTimers, log, limits: REGION_LINK_LIMITS },
    onHello: () => 'accept',
    onUp: (link, hello) => {
      hellos.push(hello);
      server.send(link, {
        ...{ kind: 'welcome', protocol: 1, features: [], routerId: name as RouterId },
        ...{ software: 'test', region: hello.region, zone: null, reportIntervalMs: 250 },
        wallMs: Date.now(),
      });
    },
    onMessage: (_link, message) => void messages.push(message),
    onDown: (_link, reason) => void ends.push(reason),
  });
  open.push(() => server.close());
  return { server, hellos, messages, ends };
}

test('a region reports to each global router, acknowledges its sends, and serves on without them', async () => {
  const parents = [await globalRouter('g1'), await globalRouter('g2')] as const;
  const urls = parents.map(({ server }) => `ws://127.0.0.1:${server.port}`);
  const { router } = await region({ uplink: { urls, secret: 'secret-of-test', tls: null } });
  const [g1, g2] = parents;
  const seesReady = ({ messages }: Parent): boolean =>
    messages.some((each) => each.kind === 'report' && each.pools[0]?.readyReplicas === 1);
  await until(() => seesReady(g1) && seesReady(g2));
  expect(g1.hellos[0]?.region).toBe('test');
  expect(router.status().global?.links).toBe(2);

  expect((await send(router.tierPort, signed({ seq: 41 }))).status).toBe(200);
  const arrived = ({ messages }: Parent): number[] =>
    messages.flatMap((each) => (each.kind === 'report' ? each.arrived : []));
  const away = ({ messages }: Parent): string[] =>
    messages.flatMap((each) => (each.kind === 'away' ? each.here.map(({ key }) => key) : []));
  await until(() => arrived(g1).includes(41) && away(g1).length > 0 && away(g2).length > 0);
  expect(arrived(g2)).toEqual([]);

  for (const { server } of parents) await server.close();
  await until(() => router.status().global?.links === 0);
  expect((await send(router.clientsPort, null)).status).toBe(200);
});

test('a region whose secret is another one’s never gets a link', async () => {
  const parent = await globalRouter('g1');
  const urls = [`ws://127.0.0.1:${parent.server.port}`];
  const { router, lines } = await region({
    uplink: { urls, secret: 'secret-of-osaka', tls: null },
  });
  await until(() =>
    lines.some(({ reason, tier }) => reason === 'unauthorized' && tier === 'global'),
  );
  expect([parent.hellos, router.status().global?.links]).toEqual([[], 0]);
});
