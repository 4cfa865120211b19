// A router of two workers with real processes: two agents, four engines, clients with OpenAI's SDK, and workers that are
// killed, told to end, and reconfigured meanwhile.

import { readFile, writeFile } from 'node:fs/promises';
import { Agent, fetch, request } from 'undici';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { WorkerStatus } from '../../router/regional/status.ts';
import { Fleet } from './fleet.ts';
import { until } from './until.ts';

const CONFIG = `
pools:
  - id: four
models:
  model: { pool: four }
router:
  workers: 2
  shutdown: { acceptMs: 0, drainMs: 10000 }
`;

let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.open(CONFIG);
  await fleet.startRouter();
  const engines = await Promise.all(Array.from({ length: 4 }, () => fleet.startEngine('model')));
  fleet.startAgent('four', engines.slice(0, 2));
  fleet.startAgent('four', engines.slice(2));
  await settled();
}, 90_000);

afterAll(async () => {
  await fleet.close();
});

/** Both workers are up, and each has its link with each agent and sees all engines ready. */
async function settled(): Promise<readonly WorkerStatus[]> {
  const status = await fleet.whenStatus(
    ({ workers = [], pools }) =>
      workers.length === 2 &&
      workers.every(({ state, ready, links }) => state === 'up' && ready && links === 2) &&
      pools[0]?.ready === 4,
  );
  return status.workers ?? [];
}

type Message = OpenAI.ChatCompletionMessageParam;

/** A client whose connections are its own. */
function client(): { sdk: OpenAI; close: () => Promise<void> } {
  const dispatcher = new Agent();
  const sdk = new OpenAI({
    baseURL: `${fleet.clients}/v1`,
    apiKey: 'unused',
    maxRetries: 0,
    fetch: ((url: string, init: object) => fetch(url, { ...init, dispatcher })) as never,
  });
  return { sdk, close: () => dispatcher.destroy() };
}

/** One answer over a connection of its own: the text, and headers of ours. */
async function ask(
  messages: Message[],
): Promise<{ text: string; header: (name: string) => string }> {
  const { sdk, close } = client();
  try {
    const { data, response } = await sdk.chat.completions
      .create({ model: 'model', messages, stream: true, max_tokens: 8 })
      .withResponse();
    let text = '';
    for await (const part of data) text += part.choices[0]?.delta.content ?? '';
    return { text, header: (name) => response.headers.get(`x-spillway-${name}`) ?? '' };
  } finally {
    await close();
  }
}

const user = (content: string): Message => ({ role: 'user', content });

/** Which worker served which request, as the log has it. */
function workerOf(requestId: string): number | null {
  const line = fleet.router?.lines.find((each) => each.includes(requestId));
  return line === undefined ? null : ((JSON.parse(line) as { worker?: number }).worker ?? null);
}

/** Streams that go on until they are full or cut; how many workers' streams there are is told by the status. */
function openStreams(count: number): Promise<'complete' | 'cut'>[] {
  return Array.from({ length: count }, async (_, k) => {
    const { sdk, close } = client();
    try {
      const stream = await sdk.chat.completions.create({
        model: 'model',
        messages: [user(`stream ${k} `.repeat(20))],
        stream: true,
        max_tokens: 150,
      });
      let finish: string | null = null;
      for await (const part of stream) finish = part.choices[0]?.finish_reason ?? finish;
      return finish === 'length' ? 'complete' : 'cut';
    } catch {
      return 'cut';
    } finally {
      await close();
    }
  });
}

async function whenOpen(count: number): Promise<readonly WorkerStatus[]> {
  const { workers = [] } = await fleet.whenStatus(
    (status) =>
      status.leases === count &&
      (status.workers ?? []).reduce((sum, { openRequests }) => sum + (openRequests ?? 0), 0) ===
        count,
  );
  return workers;
}

function pidOf(workers: readonly WorkerStatus[], number: number): number {
  const pid = workers.find((worker) => worker.number === number)?.pid ?? null;
  if (pid === null) throw new Error(`worker ${number} has no process`);
  return pid;
}

describe('two workers', () => {
  test('are each linked with each agent, on ports of their own, and named by readiness', async () => {
    const workers = await settled();
    expect(new Set(workers.map(({ linksPort }) => linksPort)).size).toBe(2);
    const { body } = await request(`http://127.0.0.1:${fleet.ports.adminPort}/readyz?verbose`);
    expect(await body.text()).toContain('[+] worker 1: ready\n[+] worker 2: ready\nready\n');
  });

  test('tell each other what they send', async () => {
    await fleet.whenStatus(({ siblings: { heard, told } }) => heard === 1 && told === 1);
  });

  test('share connections evenly, those of one pool too', async () => {
    const dispatcher = new Agent({ connections: 64, pipelining: 1 });
    const bodies = await Promise.all(
      Array.from({ length: 64 }, () => request(`${fleet.clients}/v1/models`, { dispatcher })),
    );
    const { workers = [] } = await fleet.status();
    const counts = workers.map(({ connections }) => connections);
    await Promise.all(bodies.map(({ body }) => body.dump()));
    await dispatcher.destroy();
    expect(Math.abs((counts[0] ?? 0) - (counts[1] ?? 0))).toBeLessThanOrEqual(2);
    expect((counts[0] ?? 0) + (counts[1] ?? 0)).toBeGreaterThanOrEqual(64);
  });

  test('both find a conversation where its prefix is, whichever of them served it before', async () => {
    const messages = [user('lorem ipsum dolor sit '.repeat(600))];
    const first = await ask(messages);
    const served = [first];
    for (let turn = 0; turn < 6; turn += 1) {
      messages.push({ role: 'assistant', content: served.at(-1)?.text ?? '' }, user('and then?'));
      // The agent tells both of the answer with its next report.
      await until(
        async () => (await explained(messages, 2)).every(({ cached }) => cached > 1_000),
        {
          pollMs: 100,
        },
      );
      served.push(await ask(messages));
    }
    const replicas = new Set(served.map(({ header }) => header('replica')));
    expect(replicas.size).toBe(1);
    for (const { header } of served.slice(1)) expect(header('route-reason')).toBe('prefix');
    const ids = served.map(({ header }) => header('request-id'));
    await until(() => ids.every((id) => workerOf(id) !== null));
    expect(new Set(ids.map((id) => workerOf(id)))).toEqual(new Set([1, 2]));
  });
});

/** What so many workers, one after the other, would decide. */
async function explained(
  messages: Message[],
  workers: number,
): Promise<{ worker: number; cached: number }[]> {
  const all: { worker: number; cached: number }[] = [];
  for (let k = 0; k < workers; k += 1) {
    const { body } = await request(`http://127.0.0.1:${fleet.ports.adminPort}/v1/route/explain`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'model', messages, stream: true, max_tokens: 8 }),
    });
    const { worker, decision } = (await body.json()) as {
      worker: number;
      decision: { candidates: { cachedTokens: number }[] };
    };
    const cached = Math.max(0, ...decision.candidates.map(({ cachedTokens }) => cachedTokens));
    all.push({ worker, cached });
  }
  return all;
}

describe('a worker killed', () => {
  test('cuts its own streams alone, and comes back linked, with the other worker too', async () => {
    await settled();
    const streams = openStreams(8);
    const workers = await whenOpen(8);
    const own = workers.find(({ number }) => number === 1)?.openRequests ?? 0;
    expect(own).toBeGreaterThan(0);
    expect(own).toBeLessThan(8);
    process.kill(pidOf(workers, 1), 'SIGKILL');
    const ends = await Promise.all(streams);
    expect(ends.filter((end) => end === 'cut')).toHaveLength(own);
    const after = await settled();
    expect(after.map(({ deaths }) => deaths)).toEqual([1, 0]);
    expect(pidOf(after, 2)).toBe(pidOf(workers, 2));
    await fleet.whenStatus(({ leases, openRequests }) => leases === 0 && openRequests === 0);
  });

  test('lets no counter fall in 100 scrapes, and what it had counted stays, once', async () => {
    await settled();
    const load = new Load(2);
    const before = countersOf(await fleet.metrics());
    let last = before;
    const kills = 3;
    for (let kill = 0; kill <= kills; kill += 1) {
      for (let scrape = 0; scrape < 25; scrape += 1) {
        const now = countersOf(await fleet.metrics());
        expect(fallen(last, now)).toEqual([]);
        last = now;
      }
      const workers = await settled();
      if (kill < kills) process.kill(pidOf(workers, 1 + (kill % 2)), 'SIGKILL');
    }
    await load.end();
    expect(load.refused).toBe(0);
    const after = countersOf(await fleet.metrics());
    expect(fallen(last, after)).toEqual([]);
    const counted = complete(after) - complete(before);
    expect(load.complete).toBeGreaterThan(40);
    // What a killed worker had under way, or had ended in its last 20 ms, may be counted on one side alone.
    expect(Math.abs(counted - load.complete)).toBeLessThanOrEqual(kills * load.width);
    expect(
      sumOf(after, 'spillway_worker_deaths_total') - sumOf(before, 'spillway_worker_deaths_total'),
    ).toBe(kills);

    // Undisturbed, both sides agree to the one.
    const calm = new Load(4);
    await until(() => calm.complete >= 20);
    await calm.end();
    expect(complete(countersOf(await fleet.metrics())) - complete(after)).toBe(calm.complete);
  }, 90_000);
});

/** So many clients that ask again and again, each time over a new connection. */
class Load {
  readonly width: number;
  complete = 0;
  /** Whose worker had no replica, say; not those whose worker was killed. */
  refused = 0;
  private ending = false;
  private readonly clients: Promise<void>[];

  constructor(width: number) {
    this.width = width;
    this.clients = Array.from({ length: width }, () => this.run());
  }

  async end(): Promise<void> {
    this.ending = true;
    await Promise.all(this.clients);
  }

  private async run(): Promise<void> {
    for (let k = 0; !this.ending; k += 1) {
      const dispatcher = new Agent();
      try {
        const { statusCode, body } = await request(`${fleet.clients}/v1/chat/completions`, {
          dispatcher,
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify({ model: 'model', messages: [user(`load ${k}`)], max_tokens: 12 }),
        });
        await body.text();
        if (statusCode === 200) this.complete += 1;
        else this.refused += 1;
      } catch {
        // Its worker was killed.
      } finally {
        await dispatcher.destroy();
      }
    }
  }
}

/** Counters, and the counts of histograms, by name and labels. */
function countersOf(exposition: string): Map<string, number> {
  const rows = [...exposition.matchAll(/^(\w+_(?:total|count|bucket)(?:\{.*\})?) (\S+)$/gm)];
  return new Map(rows.map(([, key = '', value]) => [key, Number(value)]));
}

/** Those that were there before and are less now, or gone. */
function fallen(before: ReadonlyMap<string, number>, now: ReadonlyMap<string, number>): string[] {
  return [...before]
    .filter(([key, value]) => !((now.get(key) ?? -1) >= value))
    .map(([key, value]) => `${key}: ${value} → ${now.get(key)}`);
}

function sumOf(counters: ReadonlyMap<string, number>, prefix: string): number {
  return [...counters].reduce((sum, [key, value]) => sum + (key.startsWith(prefix) ? value : 0), 0);
}

function complete(counters: ReadonlyMap<string, number>): number {
  return sumOf(
    new Map(
      [...counters].filter(([key]) => key.includes('route="chat"') && key.includes('complete')),
    ),
    'spillway_requests_total',
  );
}

describe('a new configuration', () => {
  /** What the router has said of configurations, one line an answer. */
  const answers = (): string[] =>
    (fleet.router?.lines ?? []).filter((line) => line.includes('"msg":"configuration '));

  async function write(text: string): Promise<string> {
    const before = answers().length;
    await writeFile(fleet.config, text);
    await until(() => answers().length > before);
    return answers().at(-1) ?? '';
  }

  /** The models that four connections, and so both workers, list. */
  async function models(): Promise<string[]> {
    const lists = await Promise.all(
      Array.from({ length: 4 }, async () => {
        const dispatcher = new Agent();
        const { body } = await request(`${fleet.clients}/v1/models`, { dispatcher });
        const { data } = (await body.json()) as { data: { id: string }[] };
        await dispatcher.destroy();
        return data.map(({ id }) => id).join();
      }),
    );
    return [...new Set(lists)];
  }

  test('reaches every worker with one answer, or none of them', async () => {
    const text = await readFile(fleet.config, 'utf8');
    const other = text.replace('model: { pool', 'other: { engineModel: model, pool');
    const before = answers().length;
    expect(await write(text.replace('pool: four', 'pool: five'))).toContain(
      'configuration refused',
    );
    expect(await models()).toEqual(['model']);
    expect(await write(other)).toContain('configuration taken');
    expect(await models()).toEqual(['other']);
    // A file that the parent can read and its workers cannot use.
    const unusable = text.replace('- id: four', '- id: four\n    engineTls: { ca: /nowhere.pem }');
    expect(await write(unusable)).toMatch(/nowhere.*configuration refused/);
    expect(await models()).toEqual(['other']);
    expect(await write(text)).toContain('configuration taken');
    expect(await models()).toEqual(['model']);
    fleet.router?.child.kill('SIGHUP');
    await until(() => answers().length > before + 4);
    expect(answers()).toHaveLength(before + 5);
    expect((await settled()).map(({ state }) => state)).toEqual(['up', 'up']);
  });

  test('reaches a worker that is starting', async () => {
    const text = await readFile(fleet.config, 'utf8');
    const pid = pidOf(await settled(), 2);
    process.kill(pid, 'SIGKILL');
    await fleet.whenStatus(({ workers = [] }) => {
      const again = workers[1];
      return again?.pid !== pid && (again?.state === 'starting' || again?.state === 'up');
    });
    await write(text.replace('model: { pool', 'other: { engineModel: model, pool'));
    await settled();
    expect(await models()).toEqual(['other']);
    await write(text);
  });
});

describe('a signal', () => {
  test('to one worker lets its streams end and replaces it; no request fails', async () => {
    const workers = await settled();
    const streams = openStreams(6);
    await whenOpen(6);
    process.kill(pidOf(workers, 2), 'SIGTERM');
    await fleet.whenStatus((status) => status.workers?.[1]?.state === 'leaving');
    const meanwhile = await Promise.all([ask([user('a')]), ask([user('b')]), ask([user('c')])]);
    for (const { header } of meanwhile) {
      await until(() => workerOf(header('request-id')) !== null);
      expect(workerOf(header('request-id'))).toBe(1);
    }
    expect(await Promise.all(streams)).toEqual(Array.from({ length: 6 }, () => 'complete'));
    const after = await settled();
    expect(pidOf(after, 2)).not.toBe(pidOf(workers, 2));
    expect(after[1]?.deaths).toBe(workers[1]?.deaths);
  });

  test('SIGTERM to the parent lets all streams end, and then all processes', async () => {
    const workers = await settled();
    const streams = openStreams(6);
    await whenOpen(6);
    await fleet.router?.end('SIGTERM');
    expect(await Promise.all(streams)).toEqual(Array.from({ length: 6 }, () => 'complete'));
    expect(fleet.router?.child.exitCode).toBe(0);
    for (const { pid } of workers) expect(isAlive(pid ?? 0)).toBe(false);
  });
});

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
