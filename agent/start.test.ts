import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { request } from 'undici';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { AGENT_DEFAULTS, type AgentSettings } from '../shared/model/settings.ts';
import type { AgentMessage } from '../shared/protocol/messages.ts';
import { addressProof } from '../shared/runtime/address-proof.ts';
import { fakeRouter, testRuntime, type FakeRouter } from '../shared/runtime/link-fakes.ts';
import {
  startEngineServer,
  type EngineServerOptions,
  type RunningEngine,
} from '../sim/engine/http/server.ts';
import { ENGINE_PROFILES } from '../sim/engine/profiles.ts';
import type { AgentOptions } from './options.ts';
import { replicaOf, startAgent, type RunningAgent } from './start.ts';

const running: (() => Promise<void> | void)[] = [];

afterEach(async () => {
  for (const stop of running.splice(0).reverse()) await stop();
});

const fixture = new URL('../test/fixtures/vllm-0.32.0/metrics-dp2-fresh.prom', import.meta.url);
const twoRanks = readFileSync(fixture, 'utf8');

const QUICK: AgentSettings = {
  ...AGENT_DEFAULTS,
  scrapeIntervalMs: 50,
  reportMaxIntervalMs: 100,
  calibration: false,
};

async function engine(overrides: Partial<EngineServerOptions> = {}): Promise<RunningEngine> {
  const started = await startEngineServer(
    {
      host: '127.0.0.1',
      port: 0,
      model: 'tiny',
      profile: ENGINE_PROFILES['cpu-tiny-llama']!,
      loadingMs: 0,
      ...overrides,
    },
    testRuntime(),
  );
  running.push(() => started.close());
  return started;
}

async function router(): Promise<FakeRouter> {
  const started = await fakeRouter();
  running.push(() => started.server.close());
  return started;
}

async function agent(
  engines: readonly { url: string; pidFile?: string }[],
  routers: readonly FakeRouter[],
  overrides: Partial<AgentOptions> = {},
  runtime = testRuntime(),
): Promise<RunningAgent> {
  const started = await startAgent(
    {
      pool: 'llama',
      engines: engines.map(({ url, pidFile }) => ({
        url,
        advertiseUrl: url,
        pidFile: pidFile ?? null,
      })),
      routers: routers.map(({ port }) => `ws://127.0.0.1:${port}`),
      linkSecret: null,
      engineApiKey: null,
      listen: { host: '127.0.0.1', port: 0 },
      settings: QUICK,
      ...overrides,
    },
    runtime,
    { listProcesses: () => Promise.resolve([]) },
  );
  running.push(() => started.close());
  return started;
}

async function until(condition: () => boolean): Promise<void> {
  await vi.waitFor(() => expect(condition()).toBe(true), { timeout: 8_000, interval: 10 });
}

function phaseOf(started: RunningAgent, index = 0): string | undefined {
  return started.status().engines[index]?.phase;
}

function lastReport(
  fleet: FakeRouter,
  replica: string,
): Extract<AgentMessage, { kind: 'report' }> | undefined {
  return fleet.messages.findLast(
    (message): message is Extract<AgentMessage, { kind: 'report' }> =>
      message.kind === 'report' && message.report.replica === replica,
  );
}

async function get(started: RunningAgent, path: string): Promise<{ status: number; text: string }> {
  const { statusCode, body } = await request(`http://127.0.0.1:${started.port}${path}`);
  return { status: statusCode, text: await body.text() };
}

async function drain(
  started: RunningAgent,
  method: 'GET' | 'POST' | 'DELETE',
  more: { readonly query?: string; readonly headers?: Record<string, string> } = {},
): Promise<{ status: number; state: Record<string, unknown> }> {
  const url = `http://127.0.0.1:${started.port}/v1/drain${more.query ?? ''}`;
  const { statusCode, body } = await request(url, { method, headers: more.headers ?? {} });
  return { status: statusCode, state: (await body.json()) as Record<string, unknown> };
}

describe('an operator', () => {
  it('marks one engine or all, and takes the mark off', async () => {
    const fleet = await router();
    const [one, two] = [await engine(), await engine()];
    const started = await agent([one, two], [fleet]);
    await until(() => phaseOf(started) === 'ready' && phaseOf(started, 1) === 'ready');
    const replica = replicaOf(two.url);
    const marked = await drain(started, 'POST', { query: `?replica=${replica}` });
    expect(marked).toMatchObject({ status: 200, state: { draining: true, open: 0 } });
    await until(() => lastReport(fleet, replica)?.report.phase === 'draining');
    expect(lastReport(fleet, replicaOf(one.url))?.report.phase).toBe('ready');
    await until(() => phaseOf(started) === 'ready');
    // The router of this test answers no echo: it is waited for by time.
    await vi.waitFor(
      async () => expect((await drain(started, 'GET')).state).toMatchObject({ drained: true }),
      { timeout: 8_000, interval: 20 },
    );
    expect((await drain(started, 'DELETE')).state).toMatchObject({ draining: false });
    await until(() => lastReport(fleet, replica)?.report.phase === 'ready');
  });

  it('is nobody with a page in a browser, and names an engine that is there', async () => {
    const started = await agent([await engine()], [await router()]);
    const page = await drain(started, 'POST', { headers: { origin: 'http://somewhere' } });
    expect(page).toMatchObject({
      status: 403,
      state: { error: expect.stringContaining('browsers') as string },
    });
    expect((await drain(started, 'POST', { query: '?replica=10.0.0.9:1' })).status).toBe(404);
    expect((await drain(started, 'GET')).state).toMatchObject({ draining: false, drained: false });
  });
});

describe('an agent beside a simulated engine', () => {
  it('becomes ready and reports to every router what the engine is', async () => {
    const [one, two] = [await router(), await fakeRouter({ routerId: 'router-b' })];
    running.push(() => two.server.close());
    const { url } = await engine();
    const started = await agent([{ url }], [one, two]);
    await until(() => phaseOf(started) === 'ready');
    const replica = replicaOf(url);
    for (const fleet of [one, two]) {
      await until(() => lastReport(fleet, replica)?.report.phase === 'ready');
      expect(lastReport(fleet, replica)?.report).toMatchObject({
        rank: 0,
        engine: { kind: 'vllm', version: '0.32.0' },
        models: [{ id: 'tiny' }],
        routers: 2,
        running: 0,
      });
      expect(fleet.hellos[0]).toMatchObject({
        pool: 'llama',
        engines: [{ replica, advertiseUrl: url, ranks: 1 }],
        proofPort: started.port,
      });
    }
  }, 20_000);

  it('says that the engine is gone when it crashes, and gives its return a new incarnation', async () => {
    const fleet = await router();
    const beside = await engine();
    const started = await agent([{ url: beside.url }], [fleet]);
    await until(() => phaseOf(started) === 'ready');
    const before = started.status().engines[0]?.incarnation;
    await beside.crash({});
    await until(() => ['starting', 'dead'].includes(phaseOf(started) ?? ''));
    const replica = replicaOf(beside.url);
    await until(() => lastReport(fleet, replica)?.report.phase === phaseOf(started));
    beside.restart();
    await until(() => phaseOf(started) === 'ready');
    const after = started.status().engines[0]?.incarnation;
    expect(after).not.toBeNull();
    expect(after).not.toBe(before);
    await until(() => lastReport(fleet, replica)?.report.incarnation === after);
  }, 30_000);

  it('waits for an engine that is not up yet', async () => {
    const fleet = await router();
    const beside = await engine({ loadingMs: 400 });
    const started = await agent([{ url: beside.url }], [fleet]);
    expect(phaseOf(started)).toBe('starting');
    await until(() => phaseOf(started) === 'ready');
  }, 20_000);

  it('takes a pid file as evidence: a living process that refuses is loading, a gone one dead', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'spillway-agent-'));
    const pidFile = join(directory, 'engine.pid');
    await writeFile(pidFile, `${process.pid}\n`);
    const fleet = await router();
    const beside = await engine({ loadingMs: 3_600_000 });
    const started = await agent([{ url: beside.url, pidFile }], [fleet]);
    await until(() => phaseOf(started) === 'loading');
    // No process has this number: it is above the kernel's limit.
    await writeFile(pidFile, '4194999\n');
    await until(() => phaseOf(started) === 'dead');
  }, 20_000);

  it('says once which of an engine’s files are not there, when the engine answers', async () => {
    const pidFile = join(await mkdtemp(join(tmpdir(), 'spillway-agent-')), 'typo.pid');
    const { url } = await engine();
    const runtime = testRuntime();
    const started = await agent([{ url, pidFile }], [await router()], {}, runtime);
    await until(() => phaseOf(started) === 'ready');
    const said = runtime.lines.filter((line) => JSON.stringify(line).includes('no such file'));
    expect(said).toMatchObject([{ file: pidFile, replica: replicaOf(url) }]);
  }, 20_000);

  it('begins anew when an engine turns out to have more ranks than the hello said', async () => {
    const fleet = await router();
    const serving = createServer(({ url }, response) => {
      const ranks = url === '/metrics' ? twoRanks : '';
      response.writeHead(ranks === '' ? 404 : 200).end(ranks);
    });
    running.push(() => void serving.close());
    const reserved = createServer().listen(0, '127.0.0.1');
    await once(reserved, 'listening');
    const { port } = reserved.address() as AddressInfo;
    await new Promise((resolve) => reserved.close(resolve));
    await agent([{ url: `http://127.0.0.1:${port}` }], [fleet]);
    await until(() => fleet.hellos.length === 1);
    serving.listen(port, '127.0.0.1');
    await until(() => fleet.hellos.length === 2);
    const [before, after] = fleet.hellos;
    expect([before?.engines[0]?.ranks, after?.engines[0]?.ranks]).toEqual([1, 2]);
    expect(after?.agentId).not.toBe(before?.agentId);
    await until(() => fleet.up.size === 1);
  }, 20_000);

  it('begins anew once at a time where two engines turn out to have more ranks together', async () => {
    const fleet = await router();
    const asked = new Map<number, ServerResponse[]>();
    let ranks = '';
    const serve = async (): Promise<string> => {
      const server = createServer(({ url, socket }, response) => {
        if (url !== '/metrics' || ranks === '') return void response.writeHead(404).end();
        const { localPort = 0 } = socket;
        asked.set(localPort, [...(asked.get(localPort) ?? []), response]);
        if (asked.size < 2) return undefined;
        for (const waiting of asked.values()) for (const each of waiting.splice(0)) each.end(ranks);
      });
      await once(server.listen(0, '127.0.0.1'), 'listening');
      running.push(() => server.close().closeAllConnections());
      return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    };
    const engines = [{ url: await serve() }, { url: await serve() }];
    const started = await agent(engines, [fleet]);
    await until(() => fleet.hellos.length === 1);
    ranks = twoRanks;
    const said = () =>
      fleet.hellos
        .at(-1)
        ?.engines.map((each) => each.ranks)
        .join(' ');
    await until(() => said() === '2 2' && fleet.up.size === 1);
    const { agentId } = started.status();
    expect(fleet.hellos.at(-1)?.agentId).toBe(agentId);
    const before = fleet.messages.length;
    await until(() => fleet.messages.length > before + 20);
    expect(fleet.up.size).toBe(1);
  }, 20_000);

  it('begins anew when an engine has come back with fewer ranks, and never calls the lost one ready', async () => {
    const fleet = await router();
    const two = await engine({ dataParallelSize: 2 });
    const started = await agent([{ url: two.url }], [fleet]);
    const phases = (): (string | undefined)[] | undefined =>
      started.status().engines[0]?.targets.map(({ report }) => report.phase);
    await until(() => phases()?.every((phase) => phase === 'ready') === true);
    await two.close();
    await until(() => phases()?.includes('ready') === false);
    const before = fleet.messages.length;
    await engine({ dataParallelSize: 1, port: Number(new URL(two.url).port) });
    await until(() => phases()?.length === 1 && phases()?.[0] === 'ready');
    expect(fleet.hellos.map(({ engines }) => engines[0]?.ranks)).toEqual([2, 1]);
    const lost = fleet.messages
      .slice(before)
      .filter((message) => message.kind === 'report' && message.report.rank === 1)
      .map((message) => (message.kind === 'report' ? message.report.phase : ''));
    expect(lost).not.toContain('ready');
  }, 20_000);

  it('serves several engines, each with its own replica', async () => {
    const fleet = await router();
    const [one, two] = [await engine(), await engine()];
    const started = await agent([{ url: one.url }, { url: two.url }], [fleet]);
    await until(() => phaseOf(started, 0) === 'ready' && phaseOf(started, 1) === 'ready');
    expect(fleet.hellos).toHaveLength(1);
    await until(() => lastReport(fleet, replicaOf(two.url))?.report.phase === 'ready');
  }, 20_000);

  it('gives the engine its key, and marks its own requests', async () => {
    const fleet = await router();
    const beside = await engine({ apiKey: 'engine-key' });
    const started = await agent([{ url: beside.url }], [fleet], { engineApiKey: 'engine-key' });
    await until(() => phaseOf(started) === 'ready');
    const completions = beside.received().filter(({ path }) => path === '/v1/completions');
    expect(completions.length).toBeGreaterThan(0);
    for (const completion of completions) {
      const headers = new Map(completion.headers);
      expect(headers.get('x-request-id')).toMatch(/^agent-/);
      expect(headers.get('authorization')).toBe('Bearer engine-key');
    }
  }, 20_000);

  it('says bye for every engine when it closes', async () => {
    const fleet = await router();
    const beside = await engine();
    const started = await agent([{ url: beside.url }], [fleet]);
    await until(() => phaseOf(started) === 'ready');
    await started.close();
    await until(() => fleet.ends.length === 1);
    expect(fleet.messages.at(-1)).toMatchObject({ kind: 'bye', replica: replicaOf(beside.url) });
  }, 20_000);
});

describe("the agent's listener", () => {
  it('is ready when a router is linked and an engine is ready', async () => {
    const fleet = await router();
    const beside = await engine({ loadingMs: 3_600_000 });
    const waiting = await agent([{ url: beside.url }], [fleet]);
    expect(await get(waiting, '/livez')).toMatchObject({ status: 200 });
    const early = await get(waiting, '/readyz');
    expect(early.status).toBe(503);
    expect(early.text).toContain('no engine is ready');

    const up = await engine();
    const started = await agent([{ url: up.url }], [fleet]);
    await until(() => phaseOf(started) === 'ready');
    await vi.waitFor(async () => expect((await get(started, '/readyz')).status).toBe(200));
  }, 20_000);

  it('exposes figures of its replicas, with no row for what is unknown', async () => {
    const fleet = await router();
    const beside = await engine();
    const started = await agent([{ url: beside.url }], [fleet]);
    await until(() => phaseOf(started) === 'ready');
    const { text } = await get(started, '/metrics');
    const replica = replicaOf(beside.url);
    expect(text).toContain(`spillway_agent_replica_phase{replica="${replica}",phase="ready"} 1`);
    expect(text).toContain(`spillway_agent_replica_running{replica="${replica}",rank="0"} 0`);
    expect(text).toContain('spillway_agent_links{state="welcomed"} 1');
    expect(text).toMatch(/spillway_agent_scrapes_total\{replica="[^"]+",result="ok"\} [1-9]/);
    const status = JSON.parse((await get(started, '/status')).text) as { pool: string };
    expect(status.pool).toBe('llama');
  }, 20_000);

  it("answers a nonce with its proof: the secret's, or the agent id's on this machine", async () => {
    const nonce = '0123456789abcdef0123';
    const fleet = await router();
    const open = await agent([], [fleet]);
    const id = open.status().agentId;
    expect((await get(open, `/v1/proof?nonce=${nonce}`)).text).toBe(addressProof(null, id, nonce));
    const closed = await agent([], [fleet], { linkSecret: 'link-secret' });
    const proof = addressProof('link-secret', 'whoever', nonce);
    expect((await get(closed, `/v1/proof?nonce=${nonce}`)).text).toBe(proof);
    expect((await get(closed, '/v1/proof?nonce=short')).status).toBe(400);
    expect((await get(closed, `/v1/proof?nonce=${nonce}-other`)).status).toBe(403);
    expect((await get(closed, '/v1/proof')).status).toBe(400);
  });
});
