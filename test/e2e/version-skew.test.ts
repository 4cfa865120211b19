// Agents and routers of neighbouring releases, over real sockets: what one does not know the other does without. What an
// older or newer peer says is made on the way (skew-proxy.ts); frames that earlier code wrote are read in
// shared/protocol/version-skew.test.ts.

import OpenAI from 'openai';
import { afterEach, describe, expect, test } from 'vitest';
import { request } from 'undici';
import { startAgent, type RunningAgent } from '../../agent/start.ts';
import { startRegionalRouter, type RunningRouter } from '../../router/regional/start.ts';
import { testRuntime } from '../../shared/runtime/link-fakes.ts';
import { startEngineServer, type RunningEngine } from '../../sim/engine/http/server.ts';
import { engineProfile } from '../../sim/engine/profiles.ts';
import { agentOptions } from './agent-options.ts';
import { routerOptions } from './shell-harness.ts';
import {
  asItIs,
  NEWER,
  OLDER_AGENT,
  OLDER_ROUTER,
  startSkewProxy,
  withProtocol,
  type Rewrite,
} from './skew-proxy.ts';
import { until } from './until.ts';

const MODEL = 'skew-model';
const open: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).toReversed()) await close();
});

interface Pair {
  readonly router: RunningRouter;
  readonly engine: RunningEngine;
  readonly agent: RunningAgent;
  readonly routerRuntime: ReturnType<typeof testRuntime>;
  readonly agentRuntime: ReturnType<typeof testRuntime>;
  /** The agent's process again, beside the same engine. */
  readonly again: () => Promise<RunningAgent>;
}

async function pair(rewrites: { fromAgent?: Rewrite; fromRouter?: Rewrite }): Promise<Pair> {
  const { fromAgent = asItIs, fromRouter = asItIs } = rewrites;
  const [routerRuntime, agentRuntime] = [testRuntime(), testRuntime()];
  const profile = engineProfile('demo');
  if (profile === null) throw new Error('no profile');
  const router = await startRegionalRouter(routerOptions({}), routerRuntime);
  open.push(() => router.close());
  const engine = await startEngineServer(
    { host: '127.0.0.1', port: 0, model: MODEL, profile, loadingMs: 0 },
    testRuntime(),
  );
  open.push(() => engine.close());
  const proxy = await startSkewProxy(router.linksPort, { fromAgent, fromRouter });
  open.push(() => proxy.close());
  const start = async (): Promise<RunningAgent> => {
    const agent = await startAgent(agentOptions(engine.url, proxy.url), agentRuntime);
    open.push(() => agent.close());
    return agent;
  };
  return { router, engine, agent: await start(), routerRuntime, agentRuntime, again: start };
}

interface Told {
  readonly text: string;
  readonly header: (name: string) => string | null;
}

async function ask(
  router: RunningRouter,
  messages: OpenAI.ChatCompletionMessageParam[],
): Promise<Told> {
  const client = new OpenAI({
    baseURL: `http://127.0.0.1:${router.clientsPort}/v1`,
    apiKey: 'unused',
    maxRetries: 0,
  });
  const { data, response } = await client.chat.completions
    .create({ model: MODEL, messages, max_tokens: 8, stream: true })
    .withResponse();
  let text = '';
  for await (const part of data) text += part.choices[0]?.delta.content ?? '';
  return { text, header: (name) => response.headers.get(`x-spillway-${name}`) };
}

/** A conversation finds its prefix, leases come and go, and an agent that restarts is taken for what it is. */
async function works({ router, agent, again, agentRuntime }: Pair): Promise<void> {
  await until(() => router.status().ready);
  const first = { role: 'user' as const, content: `skew: ${'lorem ipsum dolor sit '.repeat(600)}` };
  const one = await ask(router, [first]);
  const turn: OpenAI.ChatCompletionMessageParam[] = [
    first,
    { role: 'assistant', content: one.text },
    { role: 'user', content: 'and then?' },
  ];
  await until(() => {
    const target = router.status().pools[0]?.replicas[0]?.targets[0];
    return (target?.indexChunks ?? 0) > 10;
  });
  const two = await ask(router, turn);
  expect(Number(two.header('cached-tokens'))).toBeGreaterThan(1_000);
  await until(() => router.status().leases === 0);
  await until(() => agent.status().engines[0]?.targets[0]?.openLeases === 0);
  await agent.close();
  await again();
  await until(() => router.status().ready);
  expect(agentRuntime.lines.map(({ msg }) => msg)).toContain('engine_resumed');
  expect((await ask(router, turn)).text).toBe(two.text);
  expect(router.status().linkTotals?.malformed).toBe(0);
}

describe('an agent and a router', () => {
  test('of one release (control)', async () => {
    await works(await pair({}));
  });

  test('an agent that knows nothing that came later', async () => {
    await works(await pair({ fromAgent: OLDER_AGENT }));
  });

  test('a router that knows nothing that came later', async () => {
    await works(await pair({ fromRouter: OLDER_ROUTER }));
  });

  test('both newer: what is new is left alone, and counted on both sides', async () => {
    const both = await pair({ fromAgent: NEWER, fromRouter: NEWER });
    await works(both);
    const { linkTotals } = both.router.status();
    expect(linkTotals?.unknownFields).toBeGreaterThan(10);
    expect(linkTotals?.unknownKinds).toBeGreaterThan(10);
    const totals = await agentTotals(await both.again());
    expect(totals.unknownFields).toBeGreaterThan(0);
    expect(totals.unknownKinds).toBeGreaterThan(0);
    expect(totals.malformed).toBe(0);
  });
});

interface Totals {
  readonly malformed: number;
  readonly unknownKinds: number;
  readonly unknownFields: number;
}

/** Once a router has said something. */
async function agentTotals(agent: RunningAgent): Promise<Totals> {
  let totals: Totals = { malformed: 0, unknownKinds: 0, unknownFields: 0 };
  await until(async () => {
    const answer = await request(`http://127.0.0.1:${agent.port}/status`);
    totals = ((await answer.body.json()) as { connectionTotals: Totals }).connectionTotals;
    return totals.unknownKinds > 0;
  });
  return totals;
}

describe('a protocol that is too old', () => {
  test('of an agent: the router closes by name, and both say so', async () => {
    const { router, routerRuntime, agentRuntime } = await pair({ fromAgent: withProtocol([0, 0]) });
    await until(() => routerRuntime.lines.some(({ msg }) => msg === 'agent refused'));
    expect(routerRuntime.lines.find(({ msg }) => msg === 'agent refused')).toMatchObject({
      reason: 'protocol_too_old',
    });
    await until(() =>
      agentRuntime.lines.some((line) => JSON.stringify(line).includes('protocol_too_old')),
    );
    expect(router.status().ready).toBe(false);
  });

  test('of a router: the agent closes by name, and both say so', async () => {
    const { router, agentRuntime } = await pair({ fromRouter: withProtocol(0) });
    await until(() =>
      agentRuntime.lines.some((line) => JSON.stringify(line).includes('protocol_too_old')),
    );
    await until(() => router.status().links === 0);
    expect(router.status().ready).toBe(false);
  });
});
