// An agent beside a simulated engine that publishes KV events over real ZeroMQ: what it hears, what it fetches again,
// and what happens when there is nobody to hear.

import { request } from 'undici';
import { afterEach, describe, expect, test } from 'vitest';
import { replicaOf, startAgent, type RunningAgent } from '../../agent/start.ts';
import type { AgentTargetStatus } from '../../agent/core-status.ts';
import type { KvEventsOptions } from '../../agent/policy/kv-event.ts';
import { fakeRouter, testRuntime, type FakeRouter } from '../../shared/runtime/link-fakes.ts';
import type { EngineServerOptions } from '../../sim/engine/http/options.ts';
import { startEngineServer, type RunningEngine } from '../../sim/engine/http/server.ts';
import { ENGINE_PROFILES } from '../../sim/engine/profiles.ts';
import { agentOptions } from './agent-options.ts';
import { until } from './until.ts';

const running: (() => Promise<void> | void)[] = [];

afterEach(async () => {
  for (const stop of running.splice(0).reverse()) await stop();
});

const PROFILE = ENGINE_PROFILES['cpu-tiny-llama']!;

async function engine(change: Partial<EngineServerOptions> = {}): Promise<RunningEngine> {
  const started = await startEngineServer(
    {
      host: '127.0.0.1',
      port: 0,
      model: 'tiny',
      profile: PROFILE,
      loadingMs: 0,
      kvEvents: {
        endpoint: 'tcp://*:0',
        replayEndpoint: 'tcp://*:0',
        bufferSteps: 1_000,
        hwm: 1_000,
        maxQueueSize: 1_000,
        topic: 'kv',
      },
      ...change,
    },
    testRuntime(),
  );
  running.push(() => started.close());
  return started;
}

class Rig {
  readonly engine: RunningEngine;
  readonly agent: RunningAgent;
  readonly router: FakeRouter;
  readonly lines: ReturnType<typeof testRuntime>['lines'];

  private constructor(parts: Pick<Rig, 'engine' | 'agent' | 'router' | 'lines'>) {
    this.engine = parts.engine;
    this.agent = parts.agent;
    this.router = parts.router;
    this.lines = parts.lines;
  }

  static async begin(
    options: {
      engine?: Partial<EngineServerOptions>;
      kvEvents?: Partial<KvEventsOptions> | null;
    } = {},
  ): Promise<Rig> {
    const beside = await engine(options.engine);
    const router = await fakeRouter();
    running.push(() => router.server.close());
    const [rank] = beside.kvEndpoints();
    const told = { endpoint: rank?.publish ?? '', replay: rank?.replay ?? null };
    const kvEvents =
      options.kvEvents === null ? null : { topic: 'kv', bind: false, ...told, ...options.kvEvents };
    const runtime = testRuntime();
    const agent = await startAgent(
      agentOptions(
        { url: beside.url, advertiseUrl: beside.url, pidFile: null, kvEvents },
        `ws://127.0.0.1:${router.port}`,
        { pool: 'p', settings: { scrapeIntervalMs: 100 } },
      ),
      runtime,
      { listProcesses: () => Promise.resolve([]) },
    );
    running.push(() => agent.close());
    const rig = new Rig({ engine: beside, agent, router, lines: runtime.lines });
    await until(() => rig.phase === 'ready');
    return rig;
  }

  get phase(): string | undefined {
    return this.agent.status().engines[0]?.phase;
  }

  get target(): AgentTargetStatus {
    const target = this.agent.status().engines[0]?.targets[0];
    if (target === undefined) throw new Error('no target');
    return target;
  }

  get cached(): number | null {
    return this.target.report.kvCachedTokens;
  }

  /** A prompt of its own: some blocks that nobody has stored before. */
  async prompt(name: string, words = 300): Promise<void> {
    const prompt = Array.from({ length: words }, (_, at) => `${name}${at}`).join(' ');
    const body = JSON.stringify({ model: 'tiny', prompt, max_tokens: 2 });
    const answer = await request(`${this.engine.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    });
    expect(answer.statusCode).toBe(200);
    await answer.body.text();
  }

  /** Until the agent has heard of a prompt that is sent again and again: a subscription takes a moment. */
  async hears(): Promise<void> {
    let sent = 0;
    await until(async () => {
      await this.prompt(`first${sent++}`, 100);
      return this.cached !== null;
    });
  }
}

describe.each(['map', 'array'] as const)('events as %ss', (kvEventForm) => {
  test('are heard from the first on, a gap is fetched, and nothing is lost', async () => {
    const rig = await Rig.begin({ engine: { kvEventForm } });
    await rig.hears();
    const before = rig.cached ?? 0;
    await rig.prompt('heard');
    await until(() => (rig.cached ?? 0) > before);
    rig.engine.dropKvEvents(1);
    const { gaps } = rig.target.kvEvents;
    await rig.prompt('dropped');
    await rig.prompt('after');
    await until(() => rig.target.kvEvents.gaps > gaps);
    const held = (): number => rig.engine.state().cachedBlocks * PROFILE.blockTokens;
    await until(() => rig.cached === held());
    expect(rig.target.kvEvents.lostGaps).toBe(0);
  });
});

test('an engine that comes back counts from 0: another life, and nothing is cached', async () => {
  const rig = await Rig.begin();
  await rig.hears();
  const { incarnation } = rig.target.report;
  await rig.engine.crash({});
  rig.engine.restart();
  await until(() => rig.phase === 'ready' && rig.target.report.incarnation !== incarnation);
  await rig.hears();
  await rig.prompt('again');
  const held = (): number => rig.engine.state().cachedBlocks * PROFILE.blockTokens;
  await until(() => rig.cached === held());
});

test('a cache that was reset holds nothing', async () => {
  const rig = await Rig.begin({ engine: { vllm: { devMode: true } } });
  await rig.hears();
  const reset = await request(`${rig.engine.url}/reset_prefix_cache`, { method: 'POST' });
  expect(reset.statusCode).toBe(200);
  // vLLM tells of it with its next step.
  await rig.prompt('after', 100);
  const held = (): number => rig.engine.state().cachedBlocks * PROFILE.blockTokens;
  await until(() => rig.cached === held());
});

test('where nobody publishes, everything else goes on', async () => {
  const rig = await Rig.begin({ kvEvents: { endpoint: 'tcp://127.0.0.1:1', replay: null } });
  await until(() => rig.lines.some((line) => line.msg === 'kv events: nobody answers'));
  await rig.prompt('unheard');
  const said = rig.lines.filter((line) => line.msg.startsWith('kv events'));
  expect(said).toHaveLength(1);
  expect([rig.phase, rig.cached]).toEqual(['ready', null]);
  const replica = replicaOf(rig.engine.url);
  const reported = rig.router.messages.some(
    (message) => message.kind === 'report' && message.report.replica === replica,
  );
  expect(reported).toBe(true);
});

test('the metrics tell what was heard', async () => {
  const rig = await Rig.begin();
  await rig.hears();
  const { body } = await request(`http://127.0.0.1:${rig.agent.port}/metrics`);
  const text = await body.text();
  expect(text).toMatch(/spillway_agent_kv_batches_total\{.*result="batch"\} [1-9]/);
  expect(text).toMatch(/spillway_agent_replica_kv_cached_tokens\{.*\} [1-9]/);
  expect(text).toMatch(/spillway_agent_replica_kv_event_gaps\{.*outcome="lost"\} 0/);
});

test('an SGLang tells where its events are: nothing has to be configured', async () => {
  const rig = await Rig.begin({ engine: { kind: 'sglang', warmUpMs: 0 }, kvEvents: null });
  await rig.hears();
  expect(rig.target.kvEvents.batches).toBeGreaterThan(0);
});
