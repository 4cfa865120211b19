// A tenant at the door of a region: every route of clients asks whose a request is before anything else, and what follows from
// that is settled on headers alone. The routes are enumerated, so that one that is added is asked too.

import { createHash } from 'node:crypto';
import { request } from 'undici';
import { describe, expect, test } from 'vitest';
import { API_ROUTES } from '../../router/gateway/api-routes.ts';
import { clientRoutes } from '../../router/gateway/client-routes.ts';
import type { TenantOptions } from '../../router/gateway/tenants.ts';
import type { RegionId } from '../../shared/model/ids.ts';
import { openGateways, rawly } from './gateways.ts';
import { chunk, streamHead } from './scripted-engine.ts';
import type { Harness } from './shell-harness.ts';
import { until } from './until.ts';

const { engineWith, gateway } = openGateways();

const FRA = 'fra' as RegionId;
const TYO = 'tyo' as RegionId;
const sha256 = (key: string): string => createHash('sha256').update(key).digest('hex');

function tenant(name: string, changes: Partial<TenantOptions> = {}): TenantOptions {
  return {
    ...{ name, residency: null, ingress: 'any', models: null, certifications: [], tier: null },
    keys: [{ name: `${name}-key`, sha256: sha256(`key-of-${name}`) }],
    saltGroup: name,
    ...changes,
  };
}

/** A region in Tokyo, with a tenant that may be there, one that may not, and one that must come in at home. */
const TENANCY = {
  tenants: [
    tenant('here'),
    tenant('small', { models: ['org/m:1'] }),
    tenant('bound', { residency: { allow: [FRA], fallback: [] } }),
    tenant('inside', { residency: { allow: [FRA], fallback: [TYO] }, ingress: 'inZone' }),
  ],
  place: {
    region: { id: TYO, certifications: [], tiers: [] },
    zone: 'apac',
    zones: { fra: 'eu', tyo: 'apac' },
    clientsUrls: { eu: 'https://eu.example' },
  },
};

const ROUTES = clientRoutes({
  requests: { forward: () => Promise.resolve() },
  unserved: { answered: () => undefined },
  served: () => [],
}).map(({ method, path }) => ({ method, path: path === '/v1/models/' ? '/v1/models/m' : path }));

const answering = () =>
  engineWith(async (_received, response) => {
    streamHead(response);
    response.end(`${chunk('a')}data: [DONE]\n\n`);
  });

const region = async () => {
  const engine = await answering();
  return { engine, harness: await gateway([engine], { tenancy: TENANCY }) };
};

/** The head of a request whose body is told of and never sent. */
async function headAlone(
  harness: Harness,
  { method, path }: (typeof ROUTES)[number],
  key: string | null,
) {
  const lines = [
    `${method} ${path} HTTP/1.1`,
    'host: x',
    ...(key === null ? [] : [`authorization: Bearer ${key}`]),
    ...(method === 'POST' ? ['content-type: application/json', 'content-length: 1000'] : []),
  ];
  const { socket, received } = rawly(harness, `${lines.join('\r\n')}\r\n\r\n`);
  await until(() => /\r\n\r\n[^]*\}/.test(received()));
  socket.destroy();
  return received();
}

function ask(harness: Harness, key: string, model = 'm', headers: Record<string, string> = {}) {
  const body = JSON.stringify({ model, stream: true, messages: [{ role: 'user', content: 'a' }] });
  return request(`${harness.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${key}`, ...headers },
    body,
  });
}

describe('every route of clients', () => {
  test('is enumerated here', () => {
    const api = Object.values(API_ROUTES).flatMap(({ paths }) => paths);
    expect(ROUTES.map(({ path }) => path)).toEqual(expect.arrayContaining([...api]));
    expect(ROUTES.length).toBe(api.length + 2);
  });

  test('asks whose a request is before its body', async () => {
    const { engine, harness } = await region();
    for (const route of ROUTES) {
      const answer = await headAlone(harness, route, null);
      expect(answer, route.path).toMatch(/^HTTP\/1.1 401 /);
      expect(answer, route.path).toContain('"code":"invalid_api_key"');
      expect(await headAlone(harness, route, 'guess'), route.path).toMatch(/^HTTP\/1.1 401 /);
    }
    expect(engine.received).toEqual([]);
  });

  test('refuses a tenant that must come in elsewhere before its body, and says where', async () => {
    const { engine, harness } = await region();
    for (const route of ROUTES) {
      const answer = await headAlone(harness, route, 'key-of-inside');
      expect(answer, route.path).toMatch(/^HTTP\/1.1 421 /);
      expect(answer, route.path).toMatch(/^x-spillway-ingress: https:\/\/eu.example\r$/m);
      expect(answer, route.path).toMatch(/^x-should-retry: false/m);
      expect(answer, route.path).toContain('"code":"misdirected_request"');
    }
    expect(engine.received).toEqual([]);
  });

  test('refuses a tenant that may not be served in this region before its body', async () => {
    const { engine, harness } = await region();
    for (const route of ROUTES) {
      const answer = await headAlone(harness, route, 'key-of-bound');
      expect(answer, route.path).toMatch(/^HTTP\/1.1 403 /);
      expect(answer, route.path).toContain('"code":"residency_violation"');
    }
    expect(engine.received).toEqual([]);
  });
});

describe('a tenant', () => {
  test('is served, and named in the log', async () => {
    const { harness } = await region();
    const answer = await ask(harness, 'key-of-here');
    expect(await answer.body.text()).toContain('[DONE]');
    expect(answer.statusCode).toBe(200);
    await until(() => harness.lines.some(({ msg }) => msg === 'request'));
    expect(harness.lines.find(({ msg }) => msg === 'request')).toMatchObject({
      client: 'here-key',
      tenant: 'here',
    });
  });

  test('finds no model that it may not use: not in the list, not by name, not in a request', async () => {
    const { engine, harness } = await region();
    const headers = { authorization: 'Bearer key-of-small' };
    const list = await request(`${harness.url}/v1/models`, { headers });
    expect(await list.body.json()).toMatchObject({ data: [{ id: 'org/m:1' }] });
    const one = await request(`${harness.url}/v1/models/m`, { headers });
    expect(one.statusCode).toBe(404);
    await one.body.dump();
    const refused = await ask(harness, 'key-of-small', 'm');
    expect(refused.statusCode).toBe(404);
    expect(await refused.body.json()).toMatchObject({
      error: { code: 'model_not_found', param: 'model', message: 'The model `m` does not exist.' },
    });
    expect(engine.received).toEqual([]);
    const served = await ask(harness, 'key-of-small', 'org/m:1');
    expect(served.statusCode).toBe(200);
    await served.body.dump();
  });

  test('cannot give itself another’s name: internal headers count for nothing and go no further', async () => {
    const { engine, harness } = await region();
    const forged = {
      'x-spillway-context': 'eyJhbGciOiJub25lIn0.e30.',
      'x-spillway-tenant': 'here',
      'x-spillway-region': 'fra',
    };
    const refused = await ask(harness, 'key-of-bound', 'm', forged);
    expect(refused.statusCode).toBe(403);
    await refused.body.dump();
    const served = await ask(harness, 'key-of-here', 'm', { ...forged, cookie: 'c=1' });
    expect(served.statusCode).toBe(200);
    await served.body.dump();
    // Engines keep its cache apart by the name of its group.
    expect(JSON.parse(String(engine.received[0]?.body))).toMatchObject({ cache_salt: 'here' });
    const sent = Object.keys(engine.received[0]?.headers ?? {});
    expect(sent.filter((name) => name.startsWith('x-spillway-'))).toEqual([]);
    expect(sent).not.toContain('authorization');
    expect(sent).not.toContain('cookie');
  });
});
