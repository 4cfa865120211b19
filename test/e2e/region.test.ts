// One region in this process: real router, real agents, simulated engines over HTTP. What operators see and do.

import OpenAI from 'openai';
import { request } from 'undici';
import { afterEach, describe, expect, test } from 'vitest';
import { startAgent, type RunningAgent } from '../../agent/start.ts';
import type { AgentOptions } from '../../agent/options.ts';
import { METRICS, METRICS_PREFIX } from '../../router/regional/metrics.ts';
import { RESPONSE_HEADERS } from '../../router/gateway/headers.ts';
import type { PoolOptions, RouterOptions } from '../../router/regional/options.ts';
import { startRegionalRouter, type RunningRouter } from '../../router/regional/start.ts';
import { AGENT_DEFAULTS } from '../../shared/model/settings.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { startEngineServer, type RunningEngine } from '../../sim/engine/http/server.ts';
import { engineProfile } from '../../sim/engine/profiles.ts';
import { agentOptions } from './agent-options.ts';
import { captureLog, routerOptions } from './shell-harness.ts';
import { until } from './until.ts';

const open: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).toReversed()) await close();
});

const { lines, log } = captureLog();
const runtime: RoleRuntime = {
  clock: systemClock,
  timers: systemTimers,
  random: seededRandom(7),
  log,
};
const ADMIN = { host: '127.0.0.1', port: 0 };

async function router(
  changes: Partial<RouterOptions> = {},
  pool: Partial<PoolOptions> = {},
  more: Parameters<typeof routerOptions>[0] = {},
) {
  const running = await startRegionalRouter(
    { ...routerOptions({ pool, ...more }), addressProof: true, ...changes },
    runtime,
  );
  open.push(() => running.close());
  return running;
}

async function engine(apiKey: string | null = null): Promise<RunningEngine> {
  const profile = engineProfile('demo');
  if (profile === null) throw new Error('no profile');
  const running = await startEngineServer(
    { host: '127.0.0.1', port: 0, model: 'sim-model', profile, loadingMs: 0, apiKey },
    runtime,
  );
  open.push(() => running.close());
  return running;
}

async function agent(
  beside: RunningEngine,
  { linksPort }: RunningRouter,
  changes: Partial<AgentOptions> = {},
): Promise<RunningAgent> {
  const running = await startAgent(
    agentOptions(beside.url, `ws://127.0.0.1:${linksPort}`, changes),
    runtime,
  );
  open.push(() => running.close());
  return running;
}

const isReady = (running: RunningRouter) => until(() => running.status().ready);
const openai = (running: RunningRouter) =>
  new OpenAI({
    baseURL: `http://127.0.0.1:${running.clientsPort}/v1`,
    apiKey: 'client-secret',
    maxRetries: 0,
  });
const ask = (running: RunningRouter, changes: object = {}) =>
  openai(running).chat.completions.create({
    model: 'sim-model',
    messages: [{ role: 'user', content: 'hello' }],
    max_tokens: 4,
    ...changes,
  });
const get = (port: number, path: string, headers: Record<string, string> = {}) =>
  request(`http://127.0.0.1:${port}${path}`, { headers });

describe('a region', () => {
  test('turns ready with its first replica, serves, and shows what it did', async () => {
    const running = await router({ admin: ADMIN });
    const adminPort = running.adminPort ?? 0;
    expect((await get(adminPort, '/livez')).statusCode).toBe(200);
    const before = await get(adminPort, '/readyz?verbose');
    expect(before.statusCode).toBe(503);
    expect(await before.body.text()).toContain('[-] replicas: 0 of 0 ready');

    await agent(await engine(), running);
    await isReady(running);
    expect((await get(adminPort, '/readyz')).statusCode).toBe(200);

    const { data, response } = await ask(running).withResponse();
    expect(data.choices[0]?.message.content).not.toBe('');
    await until(() => lines.some((line) => line['outcome'] === 'complete'));
    const line = lines.find(({ outcome }) => outcome === 'complete');
    expect(line).toMatchObject({
      region: 'test',
      pool: 'default',
      model: 'sim-model',
      attempts: 1,
    });
    const known = new Set<string>(RESPONSE_HEADERS.map(({ name }) => name));
    const ours = [...response.headers.keys()].filter((name) => name.startsWith('x-'));
    for (const name of ours) expect(known).toContain(name);
    expect(ours).toContain('x-spillway-pool');

    const models = await openai(running).models.list();
    expect(models.data.map(({ id }) => id)).toEqual(['sim-model']);
    expect((await openai(running).models.retrieve('sim-model')).id).toBe('sim-model');

    const text = await (await get(adminPort, '/status', { accept: 'text/plain' })).body.text();
    expect(text).toMatch(/pool default \(sim-model\): 1 of 1 ready/);
    const status = (await (await get(adminPort, '/status')).body.json()) as object;
    expect(status).toMatchObject({ ready: true, router: { region: 'test' }, openRequests: 0 });
  });

  test('measures exactly what its table says', async () => {
    const running = await router();
    await agent(await engine(), running);
    await isReady(running);
    await ask(running, { stream: true });
    const text = await (await get(running.clientsPort, '/metrics')).body.text();
    const types = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(
      ([, name, type]) => `${name} ${type}`,
    );
    const table = METRICS.map(({ name, type }) => `${METRICS_PREFIX}${name} ${type}`);
    expect(new Set(types)).toEqual(new Set<string>(table));
    expect(text).toContain('spillway_replica_phase{');
    expect(text).toContain('spillway_ttft_seconds_count{pool="default"} 1');
    expect(text).toContain('spillway_bugs_total 0');
  });

  test('moves every metric with what it counts, and shows no other figure than it has', async () => {
    const changed = routerOptions({ settings: { queueMaxRequests: 0, holdMs: 1 } }).reloadable;
    const running = await router({ reloadable: changed });
    const settings = { ...AGENT_DEFAULTS, calibrationBudgetTokens: 2_500 };
    await agent(await engine(), running, { settings });
    await isReady(running);
    const long = (word: string) => [{ role: 'user', content: `${word} `.repeat(2_000) }];
    const streamed = async (messages: object[], tokens = 8): Promise<void> => {
      const stream = await openai(running).chat.completions.create({
        model: 'sim-model',
        messages: messages as { role: 'user'; content: string }[],
        max_tokens: tokens,
        stream: true,
      });
      for await (const _part of stream) if (tokens > 1_000) return stream.controller.abort();
    };
    const target = () => running.status().pools[0]?.replicas[0]?.targets[0];
    const hasRoom = () => until(() => target()?.full === false && target()?.leases === 0);
    await streamed(long('one'));
    await hasRoom();
    await streamed(long('one'));
    await hasRoom();
    await streamed(long('two'), 20_000);
    await hasRoom();
    const ends = await Promise.allSettled(['three', 'four', 'five'].map((w) => streamed(long(w))));
    const shed = ends.filter(({ status }) => status === 'rejected').length;
    expect(shed).toBeGreaterThan(0);

    const text = await (await get(running.clientsPort, '/metrics')).body.text();
    const figure = (row: string): number => {
      const line = text.split('\n').find((each) => each.startsWith(`spillway_${row} `));
      return line === undefined ? Number.NaN : Number(line.split(' ').at(-1));
    };
    const pool = '{pool="default"}';
    const replica = `{pool="default",replica="${running.status().pools[0]?.replicas[0]?.id ?? ''}",rank="0"}`;
    const complete = 5 - shed;
    expect(figure('build_info{version="0.1.0",region="test"}')).toBe(1);
    expect(figure('requests_total{route="chat",pool="default",outcome="complete"}')).toBe(complete);
    expect(figure('requests_total{route="chat",pool="default",outcome="client_gone"}')).toBe(1);
    expect(figure('requests_total{route="chat",pool="none",outcome="refused"}')).toBe(shed);
    expect(figure(`ttft_seconds_count${pool}`)).toBe(complete + 1);
    expect(figure(`ttft_prediction_error_seconds_count${pool}`)).toBe(complete + 1);
    expect(figure(`inter_token_seconds_count${pool}`)).toBeGreaterThan(complete);
    expect(figure(`queue_wait_seconds_count${pool}`)).toBe(complete + 1);
    expect(figure(`queue_depth${pool}`)).toBe(0);
    expect(figure('decisions_total{kind="send",reason="only_candidate"}')).toBe(complete + 1);
    expect(figure('decisions_total{kind="shed",reason="queue_full"}')).toBe(shed);
    expect(figure('sheds_total{reason="queue_full"}')).toBe(shed);
    expect(figure('limit_hits_total{limit="queue"}')).toBe(shed);
    expect(figure('client_aborts_total{stage="streaming"}')).toBe(1);
    expect([figure('open_requests'), figure('leases'), figure('body_bytes')]).toEqual([0, 0, 0]);
    expect([figure('config_generation'), figure('bugs_total')]).toEqual([1, 0]);
    expect(figure(`prefix_reported_tokens_total${pool}`)).toBeGreaterThan(1_000);
    expect(figure(`prefix_predicted_tokens_total${pool}`)).toBeGreaterThan(1_000);
    expect(figure(`replica_attempts_total${replica}`)).toBe(complete + 1);
    expect(figure(`report_age_seconds${replica}`)).toBeLessThan(2);
    expect(figure(`replica_preemptions_total${replica}`)).toBe(0);
    expect(figure(`replica_kv_usage_ratio${replica}`)).toBeGreaterThanOrEqual(0);
    expect(figure(`replica_waiting_prefill_tokens${replica}`)).toBeGreaterThanOrEqual(0);
  });

  test('keeps what operators ask away from clients when it has an admin listener', async () => {
    const running = await router({ admin: ADMIN });
    for (const path of ['/status', '/metrics', '/readyz', '/livez', '/v1/route/explain']) {
      expect((await get(running.clientsPort, path)).statusCode).toBe(404);
      expect((await get(running.adminPort ?? 0, '/v1/models')).statusCode).toBe(404);
    }
  });

  test('explains without sending anything', async () => {
    const running = await router();
    const beside = await engine();
    await agent(beside, running);
    await isReady(running);
    const before = beside.received().length;
    const answer = await request(`http://127.0.0.1:${running.clientsPort}/v1/route/explain`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'sim-model', prompt: 'hello' }),
    });
    expect(await answer.body.json()).toMatchObject({
      request: { model: 'sim-model', prompts: [{ keySpace: 'text/1' }] },
      decision: { kind: 'send', candidates: [{ removed: null }] },
    });
    expect(running.status().openRequests).toBe(0);
    expect(beside.received().length).toBe(before);
  });

  test("an engine's key reaches the engine, a client's never", async () => {
    const running = await router({}, { engineApiKey: 'engine-secret' });
    const beside = await engine('engine-secret');
    await agent(beside, running, { engineApiKey: 'engine-secret' });
    await isReady(running);
    await ask(running);
    const received = JSON.stringify(beside.received());
    expect(received).not.toContain('client-secret');
    expect(received).toContain('engine-secret');
  });
});

describe('an agent', () => {
  test('whose engine lies outside the networks of its pool is refused', async () => {
    const running = await router({}, { engineCidrs: ['10.0.0.0/8'] });
    await agent(await engine(), running);
    await until(() => lines.some(({ msg }) => msg === 'engine address refused'));
    expect(running.status()).toMatchObject({ links: 0, pools: [{ replicas: [] }] });
    running.reload(routerOptions({ pool: { engineCidrs: ['127.0.0.0/8'] } }).reloadable);
    await isReady(running);
  });

  test('that has the wrong secret is refused and counted', async () => {
    const running = await router({}, {}, { linkSecrets: ['secret'] });
    await agent(await engine(), running, { linkSecret: 'guess' });
    const refused = async () => {
      const text = await (await get(running.clientsPort, '/metrics')).body.text();
      return Number(/link_oddities_total\{kind="refused"\} (\d+)/.exec(text)?.[1] ?? 0);
    };
    await until(() => (running.status().linkTotals?.refusedUpgrades ?? 0) > 0);
    expect(await refused()).toBeGreaterThan(0);
    expect(running.status().links).toBe(0);
  });

  test('that shuts down and starts again is ready at once: nothing is learned a second time', async () => {
    const running = await router();
    const beside = await engine();
    const settings = { ...AGENT_DEFAULTS, calibrationBudgetTokens: 2_500 };
    const first = await agent(beside, running, { settings });
    await isReady(running);
    const calibrations = () =>
      beside.received().filter(({ body }) => body?.includes('"max_tokens":1,') === true).length;
    const before = running.status().pools[0]?.replicas[0]?.targets[0]?.report;
    const sent = calibrations();
    await first.close();
    await until(() => running.status().pools[0]?.replicas.length === 0);

    await agent(beside, running, { settings });
    await isReady(running);
    const after = running.status().pools[0]?.replicas[0]?.targets[0]?.report;
    expect(after).toMatchObject({ incarnation: before?.incarnation, kappa: before?.kappa });
    expect(after?.prefillCost).toEqual(before?.prefillCost);
    expect(lines.findLast(({ msg }) => msg === 'engine_resumed')).toMatchObject({
      calibrated: true,
    });
    expect(sent).toBeGreaterThan(0);
    expect(calibrations()).toBe(sent);
  });

  test('proves itself with the secret of the links', async () => {
    const running = await router({}, {}, { linkSecrets: ['new-secret', 'old-secret'] });
    await agent(await engine(), running, { linkSecret: 'old-secret' });
    await isReady(running);
    expect(running.status().links).toBe(1);
  });
});

describe('a reload', () => {
  test('swaps limits, names and salts at once', async () => {
    const running = await router();
    const beside = await engine();
    await agent(beside, running);
    await isReady(running);
    await ask(running);
    const { reloadable } = routerOptions({
      pool: { models: ['public'], aliases: { public: 'sim-model' }, cacheSalt: 'pepper' },
      limits: { bodyBytes: 200 },
    });
    running.reload(reloadable);
    const answer = await ask(running, { model: 'public' });
    expect(answer.model).toBe('sim-model');
    expect(JSON.stringify(beside.received().findLast(({ method }) => method === 'POST'))).toContain(
      'pepper',
    );
    const long = [{ role: 'user', content: 'x'.repeat(500) }];
    await expect(ask(running, { model: 'public', messages: long })).rejects.toMatchObject({
      status: 413,
    });
    await expect(ask(running)).rejects.toMatchObject({ status: 404, param: 'model' });
  });
});

describe('draining', () => {
  test('lets what runs end, refuses what comes, and is not ready', async () => {
    const running = await router();
    await agent(await engine(), running);
    await isReady(running);
    const stream = await openai(running).chat.completions.create({
      model: 'sim-model',
      messages: [{ role: 'user', content: 'hello' }],
      max_tokens: 100,
      stream: true,
    });
    let drained = false;
    const draining = running.drain({ acceptMs: 0, drainMs: 30_000 }).then(() => (drained = true));
    await until(() => running.status().draining);
    expect((await get(running.clientsPort, '/readyz')).statusCode).toBe(503);
    await expect(ask(running)).rejects.toMatchObject({ status: 503, code: 'draining' });
    expect(drained).toBe(false);
    let parts = 0;
    for await (const _part of stream) parts += 1;
    expect(parts).toBeGreaterThan(100);
    await draining;
  });

  test('that takes too long ends what is left with an error event', async () => {
    const running = await router();
    await agent(await engine(), running);
    await isReady(running);
    const stream = await openai(running).chat.completions.create({
      model: 'sim-model',
      messages: [{ role: 'user', content: 'hello' }],
      max_tokens: 20_000,
      stream: true,
    });
    const read = async (): Promise<void> => {
      for await (const _part of stream) continue;
    };
    const reading = expect(read()).rejects.toMatchObject({ code: 'draining' });
    await running.drain({ acceptMs: 0, drainMs: 50 });
    await running.close();
    await reading;
  });
});
