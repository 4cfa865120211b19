// Every part of a region is restarted under load, one after the other, and no request fails: agents and engines without
// any retry of the client's, routers behind a balancer, and for clients that try again where no connection stood.

import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { readFile, writeFile } from 'node:fs/promises';
import OpenAI from 'openai';
import { request } from 'undici';
import { FaultRegion, MODEL, REPLICAS } from './fault-region.ts';
import { Load, type Outcome } from './load.ts';
import { replicaOf, type RouterProcess } from './fleet.ts';
import { startBalancer, type SmallBalancer } from './small-balancer.ts';
import { until } from './until.ts';

// A fault takes seconds; on a busy machine many of them.
vi.setConfig({ testTimeout: 90_000, hookTimeout: 90_000 });

let region: FaultRegion;
let balancer: SmallBalancer;
let load: Load | null = null;

beforeAll(async () => {
  region = await FaultRegion.open();
  balancer = await startBalancer(
    region.routers.map((router) => ({
      clientsPort: () => router.ports.clientsPort,
      readyz: () => `${router.admin}/readyz`,
    })),
  );
});

afterAll(async () => {
  await load?.stop();
  await balancer.close();
  await region.close();
});

function router(at: number): RouterProcess {
  const found = region.routers[at];
  if (found === undefined) throw new Error(`no router ${at}`);
  return found;
}

/** While `work` is done, clients ask without end; what became of their requests. */
async function underLoad(
  {
    urls,
    retries,
    clients = 4,
  }: { urls: readonly (() => string)[]; retries: number; clients?: number },
  work: (served: (times: number) => Promise<void>) => Promise<void>,
): Promise<readonly Outcome[]> {
  const clientsPerUrl = clients / urls.length;
  const running = new Load({ model: MODEL, urls, clientsPerUrl, retries });
  load = running;
  const served = async (times: number): Promise<void> => {
    const goal = running.outcomes.length + times;
    await until(() => running.outcomes.length >= goal, { timeoutMs: 40_000 });
  };
  try {
    await served(6);
    await work(served);
    await served(6);
  } finally {
    await running.stop();
    load = null;
  }
  return running.outcomes;
}

const direct = () => region.routers.map((each) => () => each.clients);
const notComplete = (outcomes: readonly Outcome[]) =>
  outcomes.filter(({ end }) => end !== 'complete');
const secondTries = (outcomes: readonly Outcome[]) =>
  outcomes.filter(({ attempts }) => attempts !== '1');

describe('restarted one after the other, without a retry of any client', () => {
  test('agents: their engines go on, and so do all requests', async () => {
    const outcomes = await underLoad({ urls: direct(), retries: 0 }, async (served) => {
      for (let at = 0; at < REPLICAS; at += 1) {
        await region.killAgent(at, 'SIGTERM');
        await region.goneFrom(at);
        await region.startAgent(at);
        await region.allReady();
        await served(3);
      }
    });
    expect(notComplete(outcomes)).toEqual([]);
    expect(secondTries(outcomes)).toEqual([]);
  });

  test('engines: drained, ended, started, put back', async () => {
    const outcomes = await underLoad({ urls: direct(), retries: 0 }, async (served) => {
      for (let at = 0; at < REPLICAS; at += 1) {
        await region.drain(at);
        await region.engine(at).running.end('SIGTERM');
        expect(region.engine(at).running.child.exitCode).toBe(0);
        await region.revive(at);
        await region.undrain(at);
        await region.allReady();
        await served(3);
      }
    });
    expect(notComplete(outcomes)).toEqual([]);
    // An agent does not say `ready` of the life before, so no request meets the engine between two lives.
    expect(secondTries(outcomes)).toEqual([]);
  });

  test('control: an engine that is ended without a drain costs second attempts', async () => {
    const how = { urls: direct(), retries: 0, clients: 6 };
    const outcomes = await underLoad(how, async (served) => {
      const { replica } = region.engine(0);
      await router(0).whenStatus((status) =>
        (replicaOf(status, replica)?.targets ?? []).some(({ leases }) => leases > 1),
      );
      await region.engine(0).running.end('SIGKILL');
      await served(6);
      await region.revive(0);
      await region.allReady();
    });
    const hurt = [...notComplete(outcomes), ...secondTries(outcomes)];
    expect(hurt).not.toEqual([]);
    expect(outcomes.filter(({ end }) => end === 'failed' || end === 'wrong')).toEqual([]);
  });

  test('the configuration: read again, good and bad', async () => {
    const before = await readFile(region.fleet.config, 'utf8');
    const generation = async () => (await router(0).status()).config?.generation ?? 0;
    const outcomes = await underLoad({ urls: direct(), retries: 0 }, async (served) => {
      const old = await generation();
      await writeFile(region.fleet.config, before.replace('stallMinMs: 4000', 'stallMinMs: 4100'));
      await router(0).whenStatus(({ config }) => (config?.generation ?? 0) > old);
      await served(3);
      await writeFile(region.fleet.config, 'pools: [');
      await router(0).whenStatus(({ config }) => config?.lastReloadOk === false);
      await served(3);
      await writeFile(region.fleet.config, before);
      await router(0).whenStatus(({ config }) => config?.lastReloadOk === true);
    });
    expect(notComplete(outcomes)).toEqual([]);
  });
});

describe('routers, one after the other', () => {
  test('behind a balancer that goes by their readiness: no request fails', async () => {
    const outcomes = await underLoad({ urls: [() => balancer.url], retries: 2 }, async (served) => {
      for (const each of region.routers) {
        await each.running?.end('SIGTERM');
        expect(each.running?.child.exitCode).toBe(0);
        await served(3);
        await each.start();
        await region.allReady();
        await served(6);
      }
    });
    expect(notComplete(outcomes)).toEqual([]);
  });

  test('taken out of the balancer by hand and put back: nothing that is open ends', async () => {
    const drain = (method: 'GET' | 'POST' | 'DELETE') => drainOf(router(0), method);
    const outcomes = await underLoad({ urls: [() => balancer.url], retries: 0 }, async (served) => {
      expect(await drain('POST')).toMatchObject({ draining: true });
      await until(async () => (await drain('GET')).drained, { timeoutMs: 30_000 });
      await served(6);
      // It still serves whoever comes.
      expect(await wholeAnswer(router(0))).toBe('length');
      expect(await drain('DELETE')).toMatchObject({ draining: false });
      await router(0).whenStatus(({ ready }) => ready);
    });
    expect(notComplete(outcomes)).toEqual([]);
  });
});

async function drainOf(
  at: RouterProcess,
  method: 'GET' | 'POST' | 'DELETE',
): Promise<{ draining: boolean; drained: boolean }> {
  const answer = await request(`${at.admin}/v1/drain`, { method });
  expect(answer.statusCode).toBe(200);
  return (await answer.body.json()) as { draining: boolean; drained: boolean };
}

function client(at: RouterProcess): OpenAI {
  return new OpenAI({ baseURL: `${at.clients}/v1`, apiKey: 'unused', maxRetries: 0 });
}

const MESSAGES = [{ role: 'user' as const, content: 'Tell me something.' }];

async function wholeAnswer(at: RouterProcess): Promise<string | undefined> {
  const answer = await client(at).chat.completions.create({
    model: MODEL,
    messages: MESSAGES,
    max_tokens: 4,
  });
  return answer.choices[0]?.finish_reason;
}

/** A stream that goes on for about so many × 8 ms; resolves once it has begun. */
async function openStream(
  at: RouterProcess,
  tokens: number,
): Promise<{ readonly finish: Promise<string | null> }> {
  const stream = await client(at).chat.completions.create({
    model: MODEL,
    messages: MESSAGES,
    max_tokens: tokens,
    stream: true,
  });
  const read = async (): Promise<string | null> => {
    let finish: string | null = null;
    for await (const part of stream) finish = part.choices[0]?.finish_reason ?? finish;
    return finish;
  };
  const finish = read();
  finish.catch(() => undefined);
  return { finish };
}

describe('SIGTERM', () => {
  test('to a router: not ready at once, still accepting, then what runs ends and it exits with 0', async () => {
    const at = router(1);
    const { finish } = await openStream(at, 400);
    at.running?.child.kill('SIGTERM');
    await until(async () => (await readiness(at)) === 503);
    // Within `acceptMs`, 1,500 here: balancers notice late.
    expect(await wholeAnswer(at)).toBe('length');
    await until(async () => (await refusal(at)) !== null);
    expect(at.running?.child.exitCode).toBeNull();
    expect(await finish).toBe('length');
    await until(() => at.running?.child.exitCode === 0);
    await at.start();
    await region.allReady();
  });

  test('a second one ends it at once', async () => {
    const at = router(1);
    const { finish } = await openStream(at, 4_000);
    at.running?.child.kill('SIGTERM');
    await at.running?.says(/"draining"/);
    at.running?.child.kill('SIGTERM');
    await expect(finish).rejects.toThrow();
    await until(() => at.running?.child.exitCode !== null || at.running.child.signalCode !== null);
    await at.start();
    await region.allReady();
    await region.nothingLeft();
  });

  test('to an agent: it says bye, and ends with 0', async () => {
    await region.killAgent(0, 'SIGTERM');
    expect(region.agents[0]?.running.child.exitCode).toBe(0);
    await router(0).running?.says(/"replica_bye"/);
    await region.startAgent(0);
    await region.allReady();
  });
});

async function readiness(at: RouterProcess): Promise<number> {
  const answer = await request(`${at.admin}/readyz`);
  await answer.body.dump();
  return answer.statusCode;
}

/** How a new request is refused; null where it is not. */
async function refusal(at: RouterProcess): Promise<string | null> {
  const answer = await wholeAnswer(at).catch((error: unknown) => String(error));
  return answer === 'length' ? null : (answer ?? 'nothing');
}
