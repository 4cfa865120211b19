// One request of a client that an engine runs as many: real router, real agent, simulated engine over HTTP.

import { afterEach, expect, test } from 'vitest';
import { startAgent } from '../../agent/start.ts';
import { startRegionalRouter } from '../../router/regional/start.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { startEngineServer } from '../../sim/engine/http/server.ts';
import { ENGINE_PROFILES, type EngineProfile } from '../../sim/engine/profiles.ts';
import { agentOptions } from './agent-options.ts';
import { captureLog, routerOptions } from './shell-harness.ts';
import { until } from './until.ts';

const { log } = captureLog();
const runtime: RoleRuntime = {
  clock: systemClock,
  timers: systemTimers,
  random: seededRandom(6),
  log,
};
const close: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const each of close.splice(0).toReversed()) await each();
});

test('a list of three prompts with two answers each is six in an engine that runs four, and none of a stranger', async () => {
  const models = ['sim-model'];
  const router = await startRegionalRouter(routerOptions({ pool: { models } }), runtime);
  close.push(() => router.close());
  const profile = { ...(ENGINE_PROFILES['demo'] as EngineProfile), jitterRatio: 0, maxNumSeqs: 4 };
  const given = { host: '127.0.0.1', port: 0, model: 'sim-model', profile, loadingMs: 0 };
  const engine = await startEngineServer(given, runtime);
  close.push(() => engine.close());
  const settings = { scrapeIntervalMs: 50, probeIntervalMs: 60_000 };
  const link = `ws://127.0.0.1:${router.linksPort}`;
  const agent = await startAgent(agentOptions(engine.url, link, { settings }), runtime);
  close.push(() => agent.close());
  await until(() => router.status().pools[0]?.ready === 1);
  const report = () => agent.status().engines[0]?.targets[0]?.report;
  const leaving = new AbortController();
  const answer = await fetch(`http://127.0.0.1:${router.clientsPort}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'sim-model',
      prompt: ['of one', 'of another', 'of a third'],
      n: 2,
      stream: true,
      ignore_eos: true,
      max_tokens: 4_000,
    }),
    signal: leaving.signal,
  });
  expect(answer.status).toBe(200);
  const inside = async (): Promise<string> => await (await fetch(`${engine.url}/metrics`)).text();
  await until(async () => /num_requests_waiting\{[^}]*\} 2(\.0)?$/m.test(await inside()));
  const first = report()?.seq ?? 0;
  const seen: (number | null | undefined)[] = [];
  await until(() => {
    if ((report()?.scrapeAgoMs ?? Infinity) < 50) seen.push(report()?.running);
    return (report()?.seq ?? 0) > first + 3;
  });
  expect(new Set(seen)).toEqual(new Set([6]));
  expect(report()?.unattributedTokens).toBe(0);
  leaving.abort();
  await until(() => report()?.running === 0);
}, 20_000);
