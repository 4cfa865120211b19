// What clients see of a pool that is full: real SDK, real router and agent, a simulated engine with a batch of one.

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import OpenAI from 'openai';
import { request } from 'undici';
import { afterEach, describe, expect, test } from 'vitest';
import { startAgent, type RunningAgent } from '../../agent/start.ts';
import { startRegionalRouter, type RunningRouter } from '../../router/regional/start.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import type { RegionalSettings } from '../../shared/model/settings.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { startEngineServer } from '../../sim/engine/http/server.ts';
import { engineProfile } from '../../sim/engine/profiles.ts';
import { agentOptions } from './agent-options.ts';
import { captureLog, routerOptions } from './shell-harness.ts';
import { until } from './until.ts';

const open: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).toReversed()) await close();
});

const MESSAGES = [{ role: 'user' as const, content: 'hello' }];
const CHAT = { model: 'sim-model', messages: MESSAGES, max_tokens: 4 };
const COMPLETION = { model: 'sim-model', prompt: 'hello', max_tokens: 4 };

interface Region {
  readonly router: RunningRouter;
  readonly agent: RunningAgent;
  readonly client: OpenAI;
  readonly lines: Record<string, unknown>[];
  readonly queued: () => number;
}

/** One replica whose only slot is taken by an answer of many seconds. */
async function busyRegion(settings: Partial<RegionalSettings> = {}): Promise<Region> {
  const { lines, log } = captureLog();
  const runtime = { clock: systemClock, timers: systemTimers, random: seededRandom(7), log };
  const demo = engineProfile('demo');
  if (demo === null) throw new Error('no profile');
  const profile = { ...demo, maxNumSeqs: 1 };
  const engine = await startEngineServer(
    { host: '127.0.0.1', port: 0, model: 'sim-model', profile, loadingMs: 0, apiKey: null },
    runtime,
  );
  open.push(() => engine.close());
  const router = await startRegionalRouter(
    { ...routerOptions({ settings }), admin: { host: '127.0.0.1', port: 0 } },
    runtime,
  );
  open.push(() => router.close());
  const agent = await startAgent(
    agentOptions(engine.url, `ws://127.0.0.1:${router.linksPort}`, { settings: { runningMax: 1 } }),
    runtime,
  );
  open.push(() => agent.close());
  await until(() => router.status().ready);
  const baseURL = `http://127.0.0.1:${router.clientsPort}/v1`;
  const client = new OpenAI({ baseURL, apiKey: 'unused', maxRetries: 0 });
  const taken = await client.chat.completions.create({ ...CHAT, max_tokens: 8_000, stream: true });
  open.push(() => taken.controller.abort());
  await until(() => router.status().pools[0]?.replicas[0]?.targets[0]?.report?.running === 1);
  const queued = () => router.status().pools[0]?.queue.requests ?? 0;
  return { router, agent, client, lines, queued };
}

async function failureOf(answer: Promise<AsyncIterable<unknown>>): Promise<unknown> {
  try {
    for await (const _ of await answer);
  } catch (error) {
    return error;
  }
  return null;
}

describe('a request that waits', () => {
  test('is refused by its status while nothing was written, and by an event afterwards', async () => {
    const region = await busyRegion({ keepAliveAfterMs: 100 });
    const { client, router, lines, queued } = region;
    const heads: string[] = [];
    const begun = async <T>(stream: Promise<T>, name: string): Promise<T> => {
      const answer = await stream;
      heads.push(name);
      return answer;
    };
    const chat = begun(client.chat.completions.create({ ...CHAT, stream: true }), 'chat');
    const text = begun(client.completions.create({ ...COMPLETION, stream: true }), 'completion');
    const failures = Promise.all([failureOf(chat), failureOf(text)]);
    const silent = client.chat.completions.create(CHAT).catch((error: unknown) => error);
    await until(() => queued() === 3 && heads.length === 2);
    await region.agent.close();

    for (const error of await failures) {
      expect(error).toBeInstanceOf(OpenAI.APIError);
      // As an event: the SDK knows no status of it, and tries nothing again.
      expect(error).toMatchObject({ status: undefined, code: 'no_replica', type: 'server_error' });
    }
    expect(await silent).toMatchObject({ status: 503, code: 'no_replica' });
    const late = () => lines.filter((line) => line['lateError'] === true);
    await until(() => late().length === 2);
    expect(new Set(late().map((line) => line['route']))).toEqual(new Set(['chat', 'completions']));
    const metrics = await request(`http://127.0.0.1:${router.adminPort}/metrics`);
    expect(await metrics.body.text()).toContain('spillway_late_errors_total{code="no_replica"} 2');
  });

  test("is refused before the SDK's own timeout, with a time to come back", async () => {
    const { client, queued } = await busyRegion();
    // Told as 3 s, in whole seconds: a busy machine has the rest.
    const asked = client.chat.completions
      .create({ ...CHAT, stream: true }, { timeout: 3_900 })
      .catch((error: unknown) => error);
    await until(() => queued() === 1);
    const error = await asked;
    expect(error).toMatchObject({ status: 429, code: 'saturated' });
    const { headers } = error as InstanceType<typeof OpenAI.APIError>;
    const afterMs = Number(headers?.get('retry-after-ms'));
    expect(afterMs).toBeGreaterThanOrEqual(1_000);
    expect(Number(headers?.get('retry-after'))).toBe(Math.ceil(afterMs / 1_000));
    expect(headers?.get('x-should-retry')).toBe('true');
  });

  test('is told that it waits before the silence is longer than its Python client bears', async () => {
    const { router } = await busyRegion({ keepAliveAfterMs: 3_600_000 });
    const answer = await request(`http://127.0.0.1:${router.clientsPort}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-stainless-read-timeout': '1.0' },
      body: JSON.stringify({ ...CHAT, stream: true }),
    });
    expect(answer.statusCode).toBe(200);
    const first = (await answer.body[Symbol.asyncIterator]().next()) as IteratorResult<Buffer>;
    expect(String(first.value)).toBe(': keep-alive\n\n');
    answer.body.destroy();
  });
});

/** A server that answers what it likes, and what the SDK sent. */
async function plainServer(answer: (response: ServerResponse, tries: number) => void) {
  const asked: IncomingMessage['headers'][] = [];
  const server = createServer((incoming, response) => {
    asked.push(incoming.headers);
    incoming.resume();
    incoming.on('end', () => answer(response, asked.length));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  open.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { asked, baseURL: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1` };
}

const CHUNK = 'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n';

describe("of the SDK's timeout", () => {
  test('the head of a stream ends it, the whole of any other answer', async () => {
    const timeout = 1_000;
    const { baseURL } = await plainServer((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(': comment\n\n');
      setTimeout(() => response.end(`${CHUNK}data: [DONE]\n\n`), 3 * timeout);
    });
    const client = new OpenAI({ baseURL, apiKey: 'unused', maxRetries: 0, timeout });
    const stream = await client.chat.completions.create({ ...CHAT, stream: true });
    const parts: string[] = [];
    for await (const { choices } of stream) parts.push(choices[0]?.delta.content ?? '');
    expect(parts).toEqual(['x']);
    await expect(client.chat.completions.create(CHAT)).rejects.toBeInstanceOf(
      OpenAI.APIConnectionTimeoutError,
    );
  });

  test('no head within it is the end of a stream too; the timeout of a call is told, in whole seconds', async () => {
    const { asked, baseURL } = await plainServer(() => undefined);
    const client = new OpenAI({ baseURL, apiKey: 'unused', maxRetries: 1, timeout: 1_900 });
    const whole = client.chat.completions.create({ ...CHAT, stream: true }, { timeout: 400 });
    await expect(whole).rejects.toBeInstanceOf(OpenAI.APIConnectionTimeoutError);
    const told = asked.map((headers) => [
      headers['x-stainless-timeout'],
      headers['x-stainless-retry-count'],
    ]);
    // Less than a second is told as none.
    expect(told).toEqual([
      ['0', '0'],
      ['0', '1'],
    ]);
    for (const options of [{ timeout: 1_900 }, {}]) {
      void client.chat.completions.create(CHAT, options).catch(() => undefined);
      await until(() => asked.length > (options.timeout === undefined ? 3 : 2));
    }
    expect(asked[2]?.['x-stainless-timeout']).toBe('1');
    // That of the client as a whole is not.
    expect(asked[3]?.['x-stainless-timeout']).toBeUndefined();
  });

  test('retry-after-ms is obeyed, and that it comes again is told', async () => {
    const { asked, baseURL } = await plainServer((response, tries) => {
      if (tries === 1) {
        const headers = { 'retry-after-ms': '20', 'retry-after': '60', 'x-should-retry': 'true' };
        response.writeHead(429, headers).end();
      } else
        response.writeHead(200, { 'content-type': 'text/event-stream' }).end('data: [DONE]\n\n');
    });
    const client = new OpenAI({ baseURL, apiKey: 'unused', maxRetries: 2 });
    await client.chat.completions.create({ ...CHAT, stream: true });
    expect(asked.map((headers) => headers['x-stainless-retry-count'])).toEqual(['0', '1']);
  });
});
