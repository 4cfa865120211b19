// Engines that serve nothing but a pooling model, in a whole region: real router, real agents, no generation anywhere.

import { afterEach, expect, test } from 'vitest';
import { startAgent, type RunningAgent } from '../../agent/start.ts';
import { startRegionalRouter, type RunningRouter } from '../../router/regional/start.ts';
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

const { log } = captureLog();
const runtime: RoleRuntime = {
  clock: systemClock,
  timers: systemTimers,
  random: seededRandom(5),
  log,
};
const close: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const each of close.splice(0).toReversed()) await each();
});

interface Region {
  readonly router: RunningRouter;
  readonly agent: RunningAgent;
  readonly front: PoolingFront;
}

async function region(calibration: boolean): Promise<Region> {
  const models = ['sim-model'];
  const router = await startRegionalRouter(routerOptions({ pool: { models } }), runtime);
  close.push(() => router.close());
  const profile = { ...(ENGINE_PROFILES['demo'] as EngineProfile), jitterRatio: 0 };
  const given = { host: '127.0.0.1', port: 0, model: 'sim-model', profile, loadingMs: 0 };
  const engine = await startEngineServer(given, runtime);
  const front = await startPoolingFront(engine.url, { only: true });
  const agent = await startAgent(
    agentOptions(front.url, `ws://127.0.0.1:${router.linksPort}`, {
      settings: {
        calibration,
        calibrationBudgetTokens: 6_000,
        scrapeIntervalMs: 100,
        probeIntervalMs: 300,
      },
    }),
    runtime,
  );
  close.push(
    () => engine.close(),
    () => front.close(),
    () => agent.close(),
  );
  return { router, agent, front };
}

const reportOf = ({ agent }: Region) => agent.status().engines[0]?.targets[0]?.report;

test('is ready by an embedding, serves them, and is degraded by those that fail', async () => {
  const it = await region(false);
  await until(() => it.router.status().pools[0]?.ready === 1);
  const answer = await fetch(`http://127.0.0.1:${it.router.clientsPort}/v1/embeddings`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'sim-model', input: ['of a user', 'another'] }),
  });
  expect([answer.status, ((await answer.json()) as { data: unknown[] }).data.length]).toEqual([
    200, 2,
  ]);
  it.front.failing = true;
  await until(() => reportOf(it)?.phase === 'degraded');
  it.front.failing = false;
  await until(() => reportOf(it)?.phase === 'ready');
}, 20_000);

test('is calibrated by embeddings: a curve, and nothing measured after a prefix', async () => {
  const it = await region(true);
  await until(() => reportOf(it)?.phase === 'ready');
  const curve = reportOf(it)?.prefillCost;
  expect(curve).not.toBeNull();
  const prompts = it.front.embedded.filter((prompt) => prompt.length > 400);
  expect(prompts.length).toBeGreaterThan(3);
  const starts = new Set(prompts.map((prompt) => prompt.slice(0, 60)));
  expect(starts.size).toBe(prompts.length);
}, 20_000);
