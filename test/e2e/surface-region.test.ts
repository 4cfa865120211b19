// The rest of the surface in a whole region: real router, real agents, two simulated engines with a pooling model beside
// each, the official SDK.

import OpenAI from 'openai';
import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startAgent } from '../../agent/start.ts';
import { startRegionalRouter, type RunningRouter } from '../../router/regional/start.ts';
import type { Candidate, Decision } from '../../shared/model/decision.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { startEngineServer } from '../../sim/engine/http/server.ts';
import { ENGINE_PROFILES, type EngineProfile } from '../../sim/engine/profiles.ts';
import { agentOptions } from './agent-options.ts';
import { startPoolingFront, type PoolingFront } from './pooling-front.ts';
import { captureLog, routerOptions } from './shell-harness.ts';
import { until } from './until.ts';

const ALIAS = 'team/chat:latest';
const TUNED = 'team/tuned';
const POOL = {
  models: [ALIAS, TUNED, 'sim-model', 'adapter'],
  aliases: { [ALIAS]: 'sim-model', [TUNED]: 'adapter' },
};
const { lines, log } = captureLog();
const runtime: RoleRuntime = {
  clock: systemClock,
  timers: systemTimers,
  random: seededRandom(3),
  log,
};
const close: (() => Promise<void>)[] = [];
const fronts: PoolingFront[] = [];
let router: RunningRouter;

beforeAll(async () => {
  const options = routerOptions({ pool: POOL, surface: { explain: true } });
  router = await startRegionalRouter(options, runtime);
  close.push(() => router.close());
  const profile = { ...(ENGINE_PROFILES['demo'] as EngineProfile), jitterRatio: 0 };
  for (let k = 0; k < 2; k += 1) {
    const given = {
      ...{ host: '127.0.0.1', port: 0, model: 'sim-model', profile, loadingMs: 0 },
      vllm: { enableLora: true, loraModules: [{ name: 'adapter', path: '/adapter' }] },
    };
    const engine = await startEngineServer(given, runtime);
    const front = await startPoolingFront(engine.url);
    fronts.push(front);
    const agent = await startAgent(
      agentOptions(front.url, `ws://127.0.0.1:${router.linksPort}`),
      runtime,
    );
    close.push(
      () => engine.close(),
      () => front.close(),
      () => agent.close(),
    );
  }
  await until(() => router.status().pools[0]?.ready === 2);
});

afterAll(async () => {
  for (const each of close.toReversed()) await each();
});

const base = () => `http://127.0.0.1:${router.clientsPort}`;
const openai = () => new OpenAI({ baseURL: `${base()}/v1`, apiKey: 'k', maxRetries: 0 });
const post = (path: string, body: object, headers: Record<string, string> = {}) =>
  request(`${base()}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
const targets = () =>
  router.status().pools.flatMap(({ replicas }) => replicas.flatMap((replica) => replica.targets));
const isIdle = () =>
  until(
    () =>
      router.status().leases === 0 &&
      targets().every(
        ({ report, waitMs }) =>
          report?.waitingPrefillTokens === 0 && report.running === 0 && waitMs === 0,
      ),
  );

describe('embeddings in a region', () => {
  test('weigh on their replica until they are answered, in router and agent alike', async () => {
    await isIdle();
    const gate = Promise.withResolvers<void>();
    for (const front of fronts) front.gate = gate.promise;
    const text = 'x'.repeat(4_000);
    const answer = openai().embeddings.create({ model: 'sim-model', input: [text, text] });
    await until(() => targets().some(({ report }) => (report?.waitingPrefillTokens ?? 0) >= 2_000));
    const [busy, ...others] = targets().filter(({ leases }) => leases > 0);
    expect(others).toEqual([]);
    expect(busy?.waitMs).toBeGreaterThan(0);
    gate.resolve();
    for (const front of fronts) front.gate = null;
    expect((await answer).data.map(({ index }) => index)).toEqual([0, 1]);
    await isIdle();
    expect(targets().map(({ indexChunks }) => indexChunks)).toEqual([0, 0]);
  });

  test('are spread by load and tried elsewhere where a replica fails them', async () => {
    await isIdle();
    for (const front of fronts) front.embedded.length = 0;
    const many = Array.from({ length: 24 }, (_, k) => `document ${k} ${'x'.repeat(2_000)}`);
    await Promise.all(many.map((input) => openai().embeddings.create({ model: ALIAS, input })));
    expect(fronts.every(({ embedded }) => embedded.length >= 4)).toBe(true);
    const [first] = fronts;
    if (first === undefined) throw new Error('no front');
    first.failing = true;
    const answers = await Promise.all(
      many.slice(0, 2).map((input) => openai().embeddings.create({ model: ALIAS, input })),
    );
    first.failing = false;
    // The answer is the engine's own: it names what the alias stands for.
    expect(new Set(answers.map(({ model }) => model))).toEqual(new Set(['sim-model']));
    await isIdle();
  });
});

test('tokenising goes to engines that tokenise, and weighs on none', async () => {
  await isIdle();
  const replicas = new Set<string>();
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => post('/tokenize', { model: ALIAS, prompt: 'some text' })),
  );
  for (const { statusCode, headers, body } of answers) {
    expect(statusCode).toBe(200);
    const told = (await body.json()) as { count: number; tokens: number[] };
    expect(told.tokens).toHaveLength(told.count);
    expect(headers['x-spillway-predicted-ttft-ms']).toBeUndefined();
    replicas.add(String(headers['x-spillway-replica']));
  }
  expect(replicas.size).toBe(2);
  expect(targets().map(({ leases, waitMs }) => [leases, waitMs])).toEqual([
    [0, 0],
    [0, 0],
  ]);
  const unknown = await post('/tokenize', { model: 'none', prompt: 'a' });
  expect(unknown.statusCode).toBe(404);
  expect(router.status().openRequests).toBe(0);
});

test('aliases are listed, found and asked', async () => {
  const models = await openai().models.list();
  expect(models.data).toMatchObject([
    { id: ALIAS, root: 'sim-model', parent: null },
    { id: TUNED, root: 'adapter', parent: 'sim-model' },
    { id: 'sim-model', root: 'sim-model' },
    { id: 'adapter', root: 'adapter', parent: 'sim-model' },
  ]);
  const one = (await openai().models.retrieve(ALIAS)) as { id: string; max_model_len?: number };
  expect(one.id).toBe(ALIAS);
  expect(one.max_model_len).toBeGreaterThan(0);
  const answer = await openai().chat.completions.create({
    model: ALIAS,
    messages: [{ role: 'user', content: 'hello' }],
    max_tokens: 2,
  });
  expect(answer.model).toBe('sim-model');
});

test('an alias of an adapter shares the cache of the adapter, never that of its base model', async () => {
  const messages = [{ role: 'user' as const, content: `tuned ${'words '.repeat(500)}` }];
  const ask = (model: string) =>
    openai().chat.completions.create({ model, messages, max_tokens: 2 }).withResponse();
  const cached = async (model: string): Promise<number> => {
    await isIdle();
    const asked = await post('/v1/route/explain', { model, messages });
    const { decision } = (await asked.body.json()) as { decision: Decision };
    return Math.max(...decision.candidates.map(({ cachedTokens }) => cachedTokens ?? 0));
  };
  await ask(ALIAS);
  expect(await cached('sim-model')).toBeGreaterThan(500);
  expect(await cached(TUNED)).toBe(0);
  const { data } = await ask(TUNED);
  expect(data.model).toBe('adapter');
  expect(data.usage?.prompt_tokens_details?.cached_tokens ?? 0).toBe(0);
  expect(await cached('adapter')).toBeGreaterThan(500);
  expect(await cached(TUNED)).toBeGreaterThan(500);
});

test('origins and explanations are given and taken back while it runs', async () => {
  const page = { origin: 'https://app.example.com', 'x-spillway-explain': '1' };
  const seen = async (): Promise<unknown[]> => {
    const { headers, body } = await post('/tokenize', { model: ALIAS, prompt: 'a' }, page);
    await body.dump();
    return [headers['access-control-allow-origin'], headers['x-spillway-explain'] !== undefined];
  };
  expect(await seen()).toEqual([undefined, true]);
  const cors = { origins: ['*'], maxAgeS: 1 };
  router.reload(routerOptions({ pool: POOL, surface: { cors } }).reloadable);
  expect(await seen()).toEqual(['*', false]);
  const operators = await request(`${base()}/status`, { headers: page });
  expect(operators.headers['access-control-allow-origin']).toBeUndefined();
  await operators.body.dump();
  router.reload(routerOptions({ pool: POOL, surface: { explain: true } }).reloadable);
  expect(await seen()).toEqual([undefined, true]);
});

describe('explain', () => {
  interface Told {
    readonly kind: string;
    readonly candidates: {
      target: string;
      tokens: number;
      cached: number;
      costMs: number;
      p: number;
    }[];
  }

  const shown = ({ kind, candidates }: Decision): Told => ({
    kind,
    candidates: candidates.map((c: Candidate) => ({
      target: `${c.target.replica}#${c.target.rank}`,
      tokens: c.promptTokens ?? 0,
      cached: c.cachedTokens ?? 0,
      costMs: Math.round((c.costMs ?? 0) * 10) / 10,
      p: Math.round(c.drawProbability * 1_000) / 1_000,
    })),
  });

  /** What operators are told of a request, and then what its own answer tells. */
  async function toldTwice(body: object): Promise<{ before: Told; served: Told }> {
    await isIdle();
    const asked = await post('/v1/route/explain', body);
    const { decision } = (await asked.body.json()) as { decision: Decision };
    const answer = await post('/v1/chat/completions', body, { 'x-spillway-explain': '1' });
    await answer.body.dump();
    const { kind, candidates } = JSON.parse(String(answer.headers['x-spillway-explain'])) as Told;
    const served = candidates.map(({ target, tokens, cached, costMs, p }) => ({
      ...{ target, tokens, cached, costMs, p },
    }));
    return { before: shown(decision), served: { kind, candidates: served } };
  }

  test('for operators and in the answer say the same of the same region', async () => {
    let tries = 0;
    let last: unknown = null;
    // A report between the two questions changes what is asked about: then both are asked anew.
    await until(
      async () => {
        tries += 1;
        const content = `try ${tries} ${'long '.repeat(400)} prompt`;
        const body = { model: ALIAS, messages: [{ role: 'user', content }], max_tokens: 2 };
        const first = await toldTwice(body);
        // Now one replica holds the prompt: the two differ in all that a decision looks at.
        const second = await toldTwice(body);
        for (const { before } of [first, second]) {
          expect(before.candidates.reduce((sum, { p }) => sum + p, 0)).toBeCloseTo(1, 2);
        }
        const holding = [first, second].map(
          ({ before }) => before.candidates.filter(({ cached }) => cached > 100).length,
        );
        last = { holding, first, second };
        const same = [first, second].every(
          ({ before, served }) => JSON.stringify(before) === JSON.stringify(served),
        );
        return same && holding[0] === 0 && holding[1] === 1;
      },
      { says: () => JSON.stringify(last, null, 1) },
    );
  });

  test('takes every route that goes to engines', async () => {
    for (const [route, body, work] of [
      [null, { input: 'abcd' }, 'prefill'],
      ['score', { text_1: 'a', text_2: ['b', 'c'] }, 'prefill'],
      ['tokenize', { prompt: 'a' }, 'light'],
    ] as const) {
      const query = route === null ? '' : `?route=${route}`;
      const answer = await post(`/v1/route/explain${query}`, { model: ALIAS, ...body });
      expect(await answer.body.json()).toMatchObject({
        request: { work },
        decision: { kind: 'send' },
      });
    }
    const none = await post('/v1/route/explain?route=nothing', { model: ALIAS });
    expect(none.statusCode).toBe(400);
  });
});

test('one line of the log for each of them, none of a bug', () => {
  const routes = lines.filter(({ msg }) => msg === 'request').map(({ route }) => route);
  for (const route of ['embeddings', 'tokenize', 'chat', 'models', '/v1/route/explain']) {
    expect(routes).toContain(route);
  }
  expect(lines.filter(({ msg }) => msg === 'bug')).toEqual([]);
});
