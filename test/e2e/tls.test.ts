// A region whose every connection is encrypted: clients with keys, agents with certificates, an engine behind TLS.

import { createHash } from 'node:crypto';
import { connect as connectPlain } from 'node:net';
import { createServer, type Server, type TLSSocket } from 'node:tls';
import { Agent as HttpAgent, request, type Dispatcher } from 'undici';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { AgentOptions } from '../../agent/options.ts';
import { startAgent } from '../../agent/start.ts';
import { API_ROUTES } from '../../router/gateway/api-routes.ts';
import type { ListenTls } from '../../router/gateway/gateway-options.ts';
import type { PoolOptions, RouterOptions } from '../../router/regional/options.ts';
import { startRegionalRouter, type RunningRouter } from '../../router/regional/start.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import { processRandom } from '../../shared/runtime/entropy.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { startEngineServer } from '../../sim/engine/http/server.ts';
import { engineProfile } from '../../sim/engine/profiles.ts';
import { makeAuthority } from '../tls/certificates.ts';
import { CertificateFolder, paths } from '../tls/files.ts';
import { agentOptions } from './agent-options.ts';
import { captureLog, routerOptions } from './shell-harness.ts';
import { until } from './until.ts';

const folder = new CertificateFolder();
const authority = makeAuthority('region ca');
const stranger = makeAuthority('another ca');
const ca = folder.put('region.crt', authority.cert);
const otherCa = folder.put('another.crt', stranger.cert);
const HERE = { names: ['127.0.0.1'] };
const KEY = 'sk-spillway-the-key-of-the-chat-team';
const HASHED = { name: 'chat-team', sha256: createHash('sha256').update(KEY).digest('hex') };

const { lines, log } = captureLog();
const runtime = { clock: systemClock, timers: systemTimers, random: processRandom(), log };
const open: (() => Promise<unknown> | void)[] = [];
beforeEach(() => void (lines.length = 0));
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});
afterAll(() => folder.remove());

const serverTls = (name: string, changes: Partial<ListenTls> = {}): ListenTls => {
  const files = folder.write(name, authority.issue({ commonName: name, ...HERE }));
  return { ...files, ca, clientAuth: 'none', ...changes };
};

/** An https engine: TLS in front of a simulated one. */
async function engine(): Promise<string> {
  const profile = engineProfile('demo');
  if (profile === null) throw new Error('no profile');
  const plain = await startEngineServer(
    { host: '127.0.0.1', port: 0, model: 'sim-model', profile, loadingMs: 0 },
    runtime,
  );
  const made = authority.issue({ commonName: 'engine', ...HERE });
  const sockets = new Set<TLSSocket>();
  const front: Server = createServer(made, (socket) => {
    sockets.add(socket);
    const inner = connectPlain(Number(new URL(plain.url).port), '127.0.0.1');
    for (const [from, to] of [
      [socket, inner],
      [inner, socket],
    ] as const) {
      from.on('error', () => to.destroy());
      from.once('close', () => to.destroy());
      from.pipe(to);
    }
  });
  await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve));
  const { port } = front.address() as { port: number };
  open.push(async () => {
    for (const socket of sockets) socket.destroy();
    front.close();
    await plain.close();
  });
  return `https://127.0.0.1:${port}`;
}

async function router(
  changes: Partial<RouterOptions> = {},
  more: Parameters<typeof routerOptions>[0] = {},
): Promise<RunningRouter> {
  const engineTls = { ...paths({ ca }), serverName: null };
  const options = routerOptions({
    clientKeys: [HASHED],
    ...more,
    pool: { engineTls, ...more.pool },
  });
  const running = await startRegionalRouter(
    {
      ...options,
      clients: { ...options.clients, tls: serverTls('clients') },
      links: { ...options.links, tls: serverTls('links', { clientAuth: 'required' }) },
      addressProof: true,
      ...changes,
    },
    runtime,
  );
  open.push(() => running.close());
  return running;
}

async function agent(
  url: string,
  { linksPort }: RunningRouter,
  changes: Partial<AgentOptions> = {},
) {
  const own = folder.write('agent', authority.issue({ commonName: 'agent-1', names: ['agent-1'] }));
  const running = await startAgent(
    agentOptions(url, `wss://127.0.0.1:${linksPort}`, {
      routerTls: { ...own, ca, serverName: null },
      engineTls: { ...paths({ ca }), serverName: null },
      ...changes,
    }),
    runtime,
  );
  open.push(() => running.close());
}

/** A client's connections, which trust the region's CA. */
function client(own: { cert?: string; key?: string } = {}, trusted = authority.cert): HttpAgent {
  const dispatcher = new HttpAgent({ connections: 1, connect: { ca: trusted, ...own } });
  open.push(() => dispatcher.destroy());
  return dispatcher;
}

const bearer = { authorization: `Bearer ${KEY}` };

function ask(
  port: number,
  path: string,
  options: { dispatcher: HttpAgent; headers?: Record<string, string>; body?: object },
): Promise<Dispatcher.ResponseData> {
  const { dispatcher, headers = {}, body } = options;
  return request(`https://127.0.0.1:${port}${path}`, {
    dispatcher,
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
}

const chat = (changes: object = {}) => ({
  model: 'sim-model',
  messages: [{ role: 'user', content: 'hello' }],
  max_tokens: 4,
  ...changes,
});
const isReady = (running: RunningRouter) => until(() => running.status().ready);

describe('a region over TLS', () => {
  test('serves a client with a key, whose name is in the log and whose key is nowhere', async () => {
    const running = await router();
    await agent(await engine(), running);
    await isReady(running);
    const dispatcher = client();
    const options = { dispatcher, headers: bearer, body: chat() };
    const answer = await ask(running.clientsPort, '/v1/chat/completions', options);
    expect(answer.statusCode).toBe(200);
    await answer.body.dump();
    const asAnthropicDoes = { dispatcher, headers: { 'x-api-key': KEY }, body: chat() };
    const second = await ask(running.clientsPort, '/v1/chat/completions', asAnthropicDoes);
    expect(second.statusCode).toBe(200);
    await second.body.dump();
    await until(() => lines.filter(({ outcome }) => outcome === 'complete').length === 2);
    expect(lines.find(({ outcome }) => outcome === 'complete')).toMatchObject({
      client: 'chat-team',
    });
    expect(JSON.stringify(lines)).not.toContain(KEY);
  });

  test('takes a new certificate while a stream runs on', async () => {
    const running = await router();
    await agent(await engine(), running);
    await isReady(running);
    const body = chat({ stream: true, max_tokens: 200, ignore_eos: true });
    const stream = await ask(running.clientsPort, '/v1/chat/completions', {
      dispatcher: client(),
      headers: bearer,
      body,
    });
    const pieces = stream.body[Symbol.asyncIterator]();
    let text = String((await pieces.next()).value);
    const next = stranger.issue({ commonName: 'next', ...HERE });
    folder.write('clients', next);
    running.reload(
      routerOptions({
        clientKeys: [HASHED],
        pool: { engineTls: { ...paths({ ca }), serverName: null } },
      }).reloadable,
    );
    await expect(
      ask(running.clientsPort, '/v1/models', { dispatcher: client(), headers: bearer }),
    ).rejects.toThrow();
    const renewed = client({}, stranger.cert);
    const models = await ask(running.clientsPort, '/v1/models', {
      dispatcher: renewed,
      headers: bearer,
    });
    expect(models.statusCode).toBe(200);
    await models.body.dump();
    expect(text).not.toContain('[DONE]');
    for (let piece = await pieces.next(); piece.done !== true; piece = await pieces.next()) {
      text += String(piece.value);
    }
    expect(text).toMatch(/data: \[DONE\]\n\n$/);
    expect(text.match(/"content":/g)?.length).toBeGreaterThan(150);
    const expiry = await (
      await ask(running.clientsPort, '/metrics', { dispatcher: renewed, headers: bearer })
    ).body.text();
    expect(expiry).toMatch(
      /spillway_tls_certificate_not_after_seconds\{file=".*clients\.crt"\} 1\.?\d+/,
    );
  });

  test('asks for a key on every route but liveness and readiness', async () => {
    const running = await router();
    const dispatcher = client();
    const posts = [
      ...Object.values(API_ROUTES).flatMap(({ paths: all }) => [...all]),
      '/v1/route/explain',
    ];
    const gets = ['/v1/models', '/v1/models/sim-model', '/status', '/metrics'];
    const asked = [
      ...posts.map((path) => [path, chat()] as const),
      ...gets.map((path) => [path, undefined] as const),
    ];
    for (const [path, body] of asked) {
      for (const headers of [
        {},
        { authorization: 'Bearer guess' },
        { 'x-api-key': `${KEY} ` + 'x' },
      ]) {
        const answer = await ask(running.clientsPort, path, {
          dispatcher,
          headers,
          ...(body === undefined ? {} : { body }),
        });
        expect([path, answer.statusCode]).toEqual([path, 401]);
        expect(await answer.body.json()).toMatchObject({
          error: { code: 'invalid_api_key', type: 'invalid_request_error' },
        });
        expect(answer.headers).toMatchObject({
          'x-should-retry': 'false',
          'www-authenticate': 'Bearer',
        });
      }
    }
    for (const [path, status] of [
      ['/livez', 200],
      ['/readyz', 503],
    ] as const) {
      const answer = await ask(running.clientsPort, path, { dispatcher });
      await answer.body.dump();
      expect(answer.statusCode).toBe(status);
    }
    expect(JSON.stringify(lines)).not.toContain('guess');
  });

  test('a key that is taken away is refused on a connection that stands', async () => {
    const running = await router();
    const dispatcher = client();
    const models = async () => {
      const answer = await ask(running.clientsPort, '/v1/models', { dispatcher, headers: bearer });
      await answer.body.dump();
      return answer.statusCode;
    };
    expect(await models()).toBe(200);
    running.reload(
      routerOptions({ clientKeys: [{ name: 'other', sha256: '0'.repeat(64) }] }).reloadable,
    );
    expect(await models()).toBe(401);
  });

  test('shows operators what they have certificates for', async () => {
    const running = await router({
      admin: { host: '127.0.0.1', port: 0, tls: serverTls('admin', { clientAuth: 'required' }) },
    });
    const port = running.adminPort ?? 0;
    const status = async (own: { cert?: string; key?: string }) => {
      const answer = await ask(port, '/status', { dispatcher: client(own) });
      return [answer.statusCode, await answer.body.text()] as const;
    };
    expect((await status(authority.issue({ commonName: 'operator' })))[0]).toBe(200);
    const [none, said] = await status({});
    expect([none, JSON.parse(said)]).toMatchObject([
      403,
      { error: { code: 'certificate_required' } },
    ]);
    const [expired, why] = await status(
      authority.issue({ commonName: 'old', fromDays: -3, untilDays: -1 }),
    );
    expect(expired).toBe(403);
    expect(why).toMatch(/the certificate CN=old expired on \d{4}-/);
    const live = await ask(port, '/livez', { dispatcher: client() });
    expect(live.statusCode).toBe(200);
    await live.body.dump();
  });

  test('an engine that its pool does not trust is not sent anything, and the log says why', async () => {
    const running = await router(
      {},
      { pool: { engineTls: { ...paths({ ca: otherCa }), serverName: null } } },
    );
    await agent(await engine(), running);
    await isReady(running);
    const answer = await ask(running.clientsPort, '/v1/chat/completions', {
      dispatcher: client(),
      headers: bearer,
      body: chat(),
    });
    expect(answer.statusCode).toBeGreaterThanOrEqual(500);
    await answer.body.dump();
    const said = lines.filter(({ msg }) => msg === 'engine refused: certificate');
    expect(said).toHaveLength(1);
    expect(said[0]?.['problem']).toMatch(
      /^https:\/\/127\.0\.0\.1:\d+: its certificate CN=engine \(until .*\) does not come from a CA of .*another\.crt$/,
    );
    const pool: Partial<PoolOptions> = { engineTls: { ...paths({ ca }), serverName: null } };
    running.reload(routerOptions({ clientKeys: [HASHED], pool }).reloadable);
    await until(async () => {
      const again = await ask(running.clientsPort, '/v1/chat/completions', {
        dispatcher: client(),
        headers: bearer,
        body: chat(),
      });
      await again.body.dump();
      return again.statusCode === 200;
    });
  });

  test('a reload that names files which cannot be used changes nothing', async () => {
    const running = await router();
    const bad = { ...paths({ ca: '/nowhere/ca.crt' }), serverName: null };
    expect(() =>
      running.reload(routerOptions({ clientKeys: [], pool: { engineTls: bad } }).reloadable),
    ).toThrow(/^\/nowhere\/ca\.crt: cannot be read: ENOENT/);
    const answer = await ask(running.clientsPort, '/v1/models', { dispatcher: client() });
    await answer.body.dump();
    expect(answer.statusCode).toBe(401);
  });

  test('a secret is exchanged without a restart of the router', async () => {
    const secrets = (...linkSecrets: string[]) =>
      routerOptions({ linkSecrets, clientKeys: [HASHED] }).reloadable;
    const running = await router(
      { links: { host: '127.0.0.1', port: 0, tls: serverTls('links') } },
      { linkSecrets: ['old-secret'] },
    );
    const url = await engine();
    const routerTls = { ...paths({ ca }), serverName: null };
    await agent(url, running, { routerTls, linkSecret: 'new-secret' });
    await until(() => lines.some(({ reason }) => reason === 'unauthorized'));
    expect(running.status().links).toBe(0);
    running.reload(secrets('old-secret', 'new-secret'));
    await agent(url, running, { routerTls, linkSecret: 'new-secret' });
    await until(() => running.status().links > 0);
    running.reload(secrets('new-secret'));
    expect(running.status().links).toBeGreaterThan(0);
    running.reload(secrets('a-third-secret'));
    await until(() => running.status().links === 0);
  });
});
