// What comes in at a global router and what of it goes on to a region: bodies in every framing, headers that are ours, keys;
// pages of browsers, HEAD, paths of other listeners. Regions verify what they are told as real ones do.

import { once } from 'node:events';
import { connect } from 'node:net';
import type { ServerResponse } from 'node:http';
import { createHash } from 'node:crypto';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { request } from 'undici';
import { afterEach, describe, expect, test } from 'vitest';
import type { TenantFacts } from '../../router/global/events.ts';
import type { TenancyOptions, TenantOptions } from '../../router/gateway/tenants.ts';
import { signContext } from '../../router/gateway/tier-context.ts';
import type { RegionId } from '../../shared/model/ids.ts';
import { MODEL, ScriptedRegion, startTier, type GlobalTier } from './global-tier.ts';
import { answerOf, chunk, DONE, statusOf, streamHead, streamOf } from './scripted-engine.ts';
import { until } from './until.ts';

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const each of open.splice(0).toReversed()) await each.close();
});

const PATH = '/v1/chat/completions';
const CHAT = JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'hello' }] });
const KEY = 'sk-spillway-of-this-test-alone';

async function two(
  changes: Parameters<typeof startTier>[1] = {},
  more: Parameters<typeof ScriptedRegion.open>[1] = {},
) {
  const home = await ScriptedRegion.open('home');
  const far = await ScriptedRegion.open('far', { rollout: 'failover', ...more });
  for (const region of [home, far]) region.script = answerOf('hello');
  const tier = await startTier([home, far], changes);
  open.push(tier);
  return { home, far, tier };
}

/** One tenant, by its key. */
function tenanted(more: Partial<TenantOptions> = {}) {
  const tenant: TenantOptions = {
    name: 'bank',
    keys: [{ name: 'bank-1', sha256: createHash('sha256').update(KEY).digest('hex') }],
    ...{ residency: null, ingress: 'any', models: null, certifications: [], tier: null },
    saltGroup: 'bank',
    ...more,
  };
  const place = { region: null, zone: null, zones: {}, clientsUrls: {} };
  const tenancy: TenancyOptions = { clientKeys: [], tenants: [tenant], place };
  const tenants = new Map<string, TenantFacts>([[tenant.name, tenant]]);
  return { tenancy, tenants };
}

async function ask(
  tier: GlobalTier,
  body: Buffer | string | AsyncIterable<Buffer>,
  headers: Record<string, string> = {},
) {
  const answer = await request(`${tier.url}${PATH}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' || Buffer.isBuffer(body) ? body : (body as never),
  });
  return { status: answer.statusCode, headers: answer.headers, text: await answer.body.text() };
}

/** All that is written into one connection, and what comes back. */
async function rawly(port: number, pieces: readonly string[], awaited: RegExp): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  let received = '';
  socket.on('data', (piece: Buffer) => (received += piece.toString()));
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  for (const piece of pieces) {
    socket.write(piece);
    await new Promise((resolve) => setImmediate(resolve));
  }
  await until(() => awaited.test(received), { says: () => received });
  socket.destroy();
  return received;
}

async function* inPieces(text: string): AsyncGenerator<Buffer> {
  for (const byte of Buffer.from(text)) yield Buffer.from([byte]);
}

describe('a body reaches a region as it was meant, and signed as that', () => {
  test.each([
    ['gzip', () => gzipSync(CHAT)],
    ['deflate', () => deflateSync(CHAT)],
    ['br', () => brotliCompressSync(CHAT)],
  ] as const)('compressed: %s', async (encoding, body) => {
    const { home, tier } = await two();
    expect((await ask(tier, body(), { 'content-encoding': encoding })).status).toBe(200);
    expect(home.refused).toEqual([]);
    expect(home.told[0]?.body.toString()).toBe(CHAT);
    expect(home.told[0]?.headers).not.toHaveProperty('content-encoding');
  });

  test('in chunks of a byte', async () => {
    const { home, tier } = await two();
    expect((await ask(tier, inPieces(CHAT))).status).toBe(200);
    expect(home.refused).toEqual([]);
    expect(home.told[0]?.body.toString()).toBe(CHAT);
    expect(home.told[0]?.headers).not.toHaveProperty('transfer-encoding');
  });

  test('asked for first (Expect: 100-continue), by a client that names the whole URL', async () => {
    const { home, tier } = await two();
    const head = [
      `POST http://elsewhere.example${PATH}?a=b HTTP/1.1`,
      ...['host: elsewhere.example', 'content-type: application/json', 'expect: 100-continue'],
      `content-length: ${CHAT.length}`,
      '\r\n',
    ];
    const received = await rawly(tier.router.clientsPort, [head.join('\r\n'), CHAT], /hello/);
    expect(received).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 /);
    expect(home.refused).toEqual([]);
    expect(home.told.map(({ path }) => path)).toEqual([PATH]);
  });

  test('sent again elsewhere it is signed anew: for that region, as another attempt', async () => {
    const { home, far, tier } = await two();
    home.script = statusOf(500, '{}');
    expect((await ask(tier, gzipSync(CHAT), { 'content-encoding': 'gzip' })).status).toBe(200);
    expect([home.refused, far.refused]).toEqual([[], []]);
    const [first, second] = [home.told[0]?.context, far.told[0]?.context];
    expect(first?.attempt).not.toBe(second?.attempt);
  });
});

describe('headers that are ours', () => {
  test('count for nothing where a client sends them: not a context that is good, not twice, not in other letters', async () => {
    const { home, tier } = await two();
    const stolen = signContext(
      {
        ...{ attempt: 'mine', from: 'somebody' as never, seq: 7, tenant: 'other' },
        ...{ saltGroup: 'other', residency: null, conversation: null, away: true, awayForMs: 0 },
        ...{ zones: null, deadlineInMs: 1 },
      },
      {
        region: 'home' as RegionId,
        key: home.options.tierKey,
        bound: { method: 'POST', path: PATH, body: Buffer.from(CHAT) },
      },
      Date.now(),
    );
    const head = [
      `POST ${PATH} HTTP/1.1`,
      ...['host: x', 'content-type: application/json', `content-length: ${CHAT.length}`],
      ...[`X-Spillway-Context: ${stolen}`, `x-spillway-context: ${stolen}`],
      ...['X-SPILLWAY-TENANT: other', 'x-spillway-region: far', 'x-spillway-attempts: 9'],
      ...['x-forwarded-for: 1.2.3.4', 'authorization: Bearer mine', 'x-api-key: mine'],
      '\r\n',
    ];
    await rawly(tier.router.clientsPort, [head.join('\r\n'), CHAT], /hello/);
    expect(home.refused).toEqual([]);
    const [told] = home.told;
    expect(told?.context).toMatchObject({ tenant: 'default', saltGroup: 'default', away: false });
    expect(Object.keys(told?.headers ?? {}).toSorted()).toEqual([
      ...['connection', 'content-length', 'content-type', 'host'],
      ...['x-request-id', 'x-spillway-context'],
    ]);
  });

  test('of a region’s answer go on where they say who served, and no others', async () => {
    const { home, tier } = await two();
    home.script = (received, response) => {
      response.setHeader('set-cookie', 'a=b');
      response.setHeader('x-spillway-context', 'mine');
      response.setHeader('x-spillway-region', 'another');
      response.setHeader('x-spillway-pool', 'p');
      return answerOf('hello')(received, response);
    };
    const { headers } = await ask(tier, CHAT);
    expect(headers).toMatchObject({ 'x-spillway-region': 'home', 'x-spillway-pool': 'p' });
    expect(headers).not.toHaveProperty('set-cookie');
    expect(headers).not.toHaveProperty('x-spillway-context');
  });
});

test('keys and secrets stand in no log line, status, metric, explanation or error', async () => {
  const { home, far, tier } = await two({ reloadable: tenanted() });
  const bearer = { authorization: `Bearer ${KEY}`, 'x-spillway-explain': '1' };
  const answers = [
    await ask(tier, CHAT, bearer),
    await ask(tier, CHAT, { 'x-api-key': 'wrong-key' }),
  ];
  expect(answers.map(({ status }) => status)).toEqual([200, 401]);
  home.script = statusOf(401, '{"error":{"code":"context_refused"}}');
  far.script = statusOf(500, '{}');
  answers.push(await ask(tier, CHAT, bearer), await ask(tier, 'no JSON', bearer));
  const pages = await Promise.all(
    ['/status', '/metrics', '/readyz?verbose'].map(async (path) =>
      (await request(`http://127.0.0.1:${tier.router.adminPort}${path}`)).body.text(),
    ),
  );
  const said = JSON.stringify([answers, pages, tier.lines]);
  expect(said).toContain('bank-1');
  for (const { options, told } of [home, far]) {
    for (const secret of [KEY, 'wrong-key', options.tierKey.secret, ...options.linkSecrets]) {
      expect(said).not.toContain(secret);
    }
    for (const { headers, body } of told)
      expect(JSON.stringify([headers, body])).not.toContain(KEY);
    const tokens = told.map(({ headers }) => String(headers['x-spillway-context']));
    for (const token of tokens) expect(said).not.toContain(token);
  }
  expect(said).not.toContain('affinity secret');
});

describe('a tenant', () => {
  const modelsFor = async (tier: GlobalTier): Promise<string[]> => {
    const headers = { authorization: `Bearer ${KEY}` };
    const { body } = await request(`${tier.url}/v1/models`, { headers });
    const { data } = (await body.json()) as { data: { id: string }[] };
    return data.map(({ id }) => id);
  };

  test.each([
    ['nothing of it is asked', {}, ['in-both', 'in-far']],
    ['a list', { residency: { allow: ['home' as RegionId], fallback: [] } }, ['in-both']],
    ['a certification', { certifications: ['c5'] }, ['in-both', 'in-far']],
    ['a certification that none has', { certifications: ['c6'] }, []],
    ['a tier', { tier: 'gold' }, ['in-both', 'in-far']],
  ] as const)(
    'sees the models of regions that may serve it alone: %s',
    async (_name, more, models) => {
      const { home, far, tier } = await two(
        { reloadable: tenanted(more) },
        { certifications: ['c5'], tiers: ['gold'] },
      );
      const named = (...names: string[]) =>
        names.map((name) => ({ name, revision: 'unknown', maxModelLen: 8_192 }));
      home.report({ models: named('in-both') });
      far.report({ models: named('in-both', 'in-far') });
      await until(async () => (await modelsFor(tier)).toSorted().join() === models.join());
    },
  );
});

describe('a page of a browser', () => {
  const cors = { origins: ['https://app.example'], maxAgeS: 60 };
  const asks = {
    origin: 'https://app.example',
    'access-control-request-method': 'POST',
    'access-control-request-headers': 'authorization, x-spillway-context',
  };

  test('is told what it may send where the file allows it, which is no header of ours', async () => {
    const surface = { cors, explain: false };
    const { tier } = await two({ reloadable: { surface } });
    const { statusCode, headers } = await request(`${tier.url}${PATH}`, {
      ...{ method: 'OPTIONS', headers: asks },
    });
    expect(statusCode).toBe(204);
    expect(headers['access-control-allow-headers']).toBe('authorization');
    const refused = await ask(tier, 'no JSON', { origin: 'https://app.example' });
    expect(refused.status).toBe(400);
    expect(refused.headers['access-control-allow-origin']).toBe('https://app.example');
    const from = await ask(tier, CHAT, { origin: 'https://other.example' });
    expect(from.headers['access-control-allow-origin']).toBeUndefined();
  });

  test('is told nothing where it does not, nor on an operator’s listener', async () => {
    const { tier } = await two();
    const of = async (port: number | null, path: string) => {
      const { statusCode, headers } = await request(`http://127.0.0.1:${port}${path}`, {
        ...{ method: 'OPTIONS', headers: asks },
      });
      return [statusCode, headers['access-control-allow-origin']];
    };
    expect(await of(tier.router.clientsPort, PATH)).toEqual([405, undefined]);
    expect(await of(tier.router.adminPort, '/status')).toEqual([405, undefined]);
  });
});

test('each listener has its own paths alone, and HEAD is answered as GET is', async () => {
  const { tier } = await two();
  const of = async (port: number | null, method: 'GET' | 'HEAD' | 'POST', path: string) => {
    const { statusCode, body } = await request(`http://127.0.0.1:${port}${path}`, { method });
    return [statusCode, (await body.text()).length > 0];
  };
  const { clientsPort, adminPort } = tier.router;
  expect(await of(clientsPort, 'HEAD', '/v1/models')).toEqual([200, false]);
  expect(await of(clientsPort, 'GET', PATH)).toEqual([405, true]);
  for (const path of ['/status', '/metrics', '/v1/route/explain', '/v1/drain', '//v1/models']) {
    expect(await of(clientsPort, 'GET', path)).toEqual([404, true]);
  }
  for (const path of ['/v1/chat/../chat/completions', `${PATH}/`, `${PATH}%2f`, `/${PATH}`]) {
    const head = `POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n`;
    expect(await rawly(clientsPort, [head], /error/)).toMatch(/^HTTP\/1\.1 404 /);
  }
  expect(await of(adminPort, 'POST', PATH)).toEqual([404, true]);
});

test('a router that leaves under load lets what streams and what waits end, also by way of another region', async () => {
  const { home, far, tier } = await two();
  const held: ServerResponse[] = [];
  home.script = (_received, response) => {
    streamHead(response);
    if (held.push(response) % 2 === 0) response.write(chunk('one '));
  };
  far.script = streamOf('one ', 'two');
  const body = JSON.stringify({ ...(JSON.parse(CHAT) as object), stream: true });
  const running = Array.from({ length: 20 }, () => ask(tier, body));
  await until(() => held.length === 20);
  const drained = tier.router.drain({ acceptMs: 0, drainMs: 20_000 });
  const late = await ask(tier, CHAT);
  expect([late.status, late.headers.connection]).toEqual([503, 'close']);
  for (const [k, response] of held.entries()) {
    if (k % 2 === 0) response.destroy();
    else response.end(`${chunk('two')}${DONE}`);
  }
  for (const { status, text } of await Promise.all(running)) {
    expect([status, /"one "[^]*"two"[^]*\[DONE\]/.test(text)]).toEqual([200, true]);
  }
  await drained;
  expect(far.told).toHaveLength(10);
});
