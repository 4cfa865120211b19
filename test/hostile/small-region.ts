// A whole region in this process (router, agent, simulated engine, real sockets), and what must be true of it when whatever
// was sent is over: no request, lease, byte of a body or connection is left, no bug was met, a good request is served.

import { request } from 'undici';
import { expect } from 'vitest';
import { startAgent } from '../../agent/start.ts';
import type { RouterOptions } from '../../router/regional/options.ts';
import { startRegionalRouter, type RunningRouter } from '../../router/regional/start.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { startEngineServer } from '../../sim/engine/http/server.ts';
import { ENGINE_PROFILES, type EngineProfile } from '../../sim/engine/profiles.ts';
import { agentOptions, type AgentChanges } from '../e2e/agent-options.ts';
import { captureLog, routerOptions } from '../e2e/shell-harness.ts';
import { until } from '../e2e/until.ts';

export const MODEL = 'sim-model';
export const CHAT = '/v1/chat/completions';
export const GOOD = { model: MODEL, max_tokens: 1, messages: [{ role: 'user', content: 'hi' }] };
/** A client's stream that goes on until its client ends it. */
export const LONG_STREAM = { ...GOOD, stream: true, max_tokens: 30_000, ignore_eos: true };

export interface SmallRegion {
  readonly router: RunningRouter;
  readonly clientsPort: number;
  readonly adminPort: number;
  /** Lines of the router's log. */
  readonly lines: readonly Record<string, unknown>[];
  /** A counter's or gauge's value; `series` is written as in the exposition, without the prefix. */
  value(series: string): Promise<number>;
  /** Holds when nothing of any request is left; then a good request is answered. */
  settles(): Promise<void>;
  close(): Promise<void>;
}

export async function startSmallRegion(
  changes: Parameters<typeof routerOptions>[0] = {},
  agentChanges: AgentChanges = {},
): Promise<SmallRegion> {
  const { lines, log } = captureLog();
  const runtime = { clock: systemClock, timers: systemTimers, random: seededRandom(6), log };
  const admin = { host: '127.0.0.1', port: 0 };
  const options: RouterOptions = { ...routerOptions(changes), admin };
  const router = await startRegionalRouter(options, runtime);
  const profile = { ...(ENGINE_PROFILES['demo'] as EngineProfile), decodeStepMs: 2 };
  const given = { host: '127.0.0.1', port: 0, model: MODEL, profile, loadingMs: 0 };
  const engine = await startEngineServer(given, { ...runtime, log: captureLog().log });
  const link = `ws://127.0.0.1:${router.linksPort}`;
  const agent = await startAgent(agentOptions(engine.url, link, agentChanges), {
    ...runtime,
    log: captureLog().log,
  });
  await until(() => router.status().pools[0]?.ready === 1);
  const region = new RegionUnderFire(router, lines);
  return Object.assign(region, {
    close: async () => {
      await router.close();
      await agent.close();
      await engine.close();
    },
  });
}

class RegionUnderFire {
  readonly router: RunningRouter;
  readonly clientsPort: number;
  readonly adminPort: number;
  readonly lines: readonly Record<string, unknown>[];

  constructor(router: RunningRouter, lines: readonly Record<string, unknown>[]) {
    this.router = router;
    this.clientsPort = router.clientsPort;
    this.adminPort = router.adminPort ?? 0;
    this.lines = lines;
  }

  async value(series: string): Promise<number> {
    const answer = await request(`http://127.0.0.1:${this.adminPort}/metrics`, { reset: true });
    const text = await answer.body.text();
    const line = text.split('\n').find((each) => each.startsWith(`spillway_${series} `));
    return line === undefined ? 0 : Number(line.slice(line.lastIndexOf(' ')));
  }

  async settles(): Promise<void> {
    await until(() => this.left() === '', { says: () => this.left() });
    await this.servesGood();
    await until(() => this.left() === '', { says: () => this.left() });
    expect(this.lines.filter(({ msg }) => msg === 'bug')).toEqual([]);
  }

  /** What is still there, in words; empty when nothing is. */
  private left(): string {
    const { openRequests, leases, bodyBytes, connections, pools } = this.router.status();
    const queued = pools.reduce((sum, pool) => sum + pool.queue.requests, 0);
    const targets = pools.flatMap((pool) => pool.replicas.flatMap((replica) => replica.targets));
    // The agent's own view: its ledger has let go of the request too.
    const waiting = targets.reduce((sum, { report }) => {
      return sum + (report?.waitingPrefillTokens ?? 0) + (report?.running ?? 0);
    }, 0);
    const clients = connections['clients'];
    const counts = { openRequests, leases, bodyBytes, queued, waiting, clients };
    return Object.values(counts).every((count) => count === 0) ? '' : JSON.stringify(counts);
  }

  private async servesGood(): Promise<void> {
    const answer = await request(`http://127.0.0.1:${this.clientsPort}${CHAT}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      // Its connection is not kept, so that none is left behind it.
      reset: true,
      body: JSON.stringify(GOOD),
    });
    expect([answer.statusCode, await answer.body.text()]).toMatchObject([200, expect.any(String)]);
  }
}
