// The whole with real processes: engines, agents and a router are killed and started again while clients talk.

import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, poolOf, replicaOf, type EngineProcess, type Running } from './fleet.ts';
import { until } from './until.ts';

const CONFIG = `
pools:
  - id: solo
  - id: four
models:
  solo-model: { pool: solo }
  four-model: { pool: four }
router:
  shutdown: { acceptMs: 0, drainMs: 5000 }
  routing:
    staleGraceMs: 1500
    staticWindowMs: 3000
`;

let fleet: Fleet;
let soloEngine: EngineProcess;
let soloAgent: Running;
const engines: EngineProcess[] = [];
const agents: Running[] = [];

beforeAll(async () => {
  fleet = await Fleet.open(CONFIG);
  await fleet.startRouter();
  const models = ['solo-model', 'four-model', 'four-model', 'four-model', 'four-model'];
  const [solo, ...four] = await Promise.all(models.map((model) => fleet.startEngine(model)));
  if (solo === undefined) throw new Error('no engine');
  soloEngine = solo;
  engines.push(...four);
  soloAgent = fleet.startAgent('solo', [solo]);
  agents.push(fleet.startAgent('four', four.slice(0, 1)));
  agents.push(fleet.startAgent('four', four.slice(1, 2)));
  agents.push(fleet.startAgent('four', four.slice(2)));
  await fleet.whenReady('solo', 1);
  await fleet.whenReady('four', 4);
}, 90_000);

afterAll(async () => {
  await fleet.close();
});

type Message = OpenAI.ChatCompletionMessageParam;

function client(): OpenAI {
  return new OpenAI({ baseURL: `${fleet.clients}/v1`, apiKey: 'unused', maxRetries: 0 });
}

/** About `tokens` tokens of text that no other request has. */
function prompt(name: string, tokens: number): Message[] {
  return [{ role: 'user', content: `${name}: ${'lorem ipsum dolor sit '.repeat(tokens / 5)}` }];
}

interface Answer {
  readonly text: string;
  readonly header: (name: string) => string | null;
}

async function ask(model: string, messages: Message[], changes: object = {}): Promise<Answer> {
  const { data, response } = await client()
    .chat.completions.create({ model, messages, stream: true, max_tokens: 8, ...changes })
    .withResponse();
  let text = '';
  for await (const part of data) text += part.choices[0]?.delta.content ?? '';
  return { text, header: (name) => response.headers.get(`x-spillway-${name}`) };
}

/** The engine of the pool that holds the only lease. */
async function busyEngine(): Promise<EngineProcess> {
  const status = await fleet.whenStatus((each) => each.leases === 1);
  const replicas = poolOf(status, 'four')?.replicas ?? [];
  const busy = replicas.find(({ targets }) => targets.some((target) => target.leases > 0));
  const engine = engines.find(({ replica }) => replica === busy?.id);
  if (engine === undefined) throw new Error('no engine is busy');
  return engine;
}

/** Starts a killed engine again on its port and waits until its agent has warmed it. */
async function revive(engine: EngineProcess): Promise<void> {
  const again = await fleet.startEngine(engine.model, engine.port);
  engines[engines.indexOf(engine)] = again;
  await fleet.whenReady('four', 4);
}

async function noneLeft(): Promise<void> {
  await fleet.whenStatus(({ leases, openRequests }) => leases === 0 && openRequests === 0);
}

describe('a conversation', () => {
  test('goes on where its prefix is', async () => {
    const first = prompt('conversation', 3_000);
    const one = await ask('four-model', first);
    const two: Message[] = [
      ...first,
      { role: 'assistant', content: one.text },
      { role: 'user', content: 'and then?' },
    ];
    // The index learns of the answer with the next report.
    await until(async () => Number((await explain(two)).cachedTokens) > 1_000);
    const next = await ask('four-model', two);
    expect(next.header('replica')).toBe(one.header('replica'));
    expect(next.header('route-reason')).toBe('prefix');
    expect(Number(next.header('cached-tokens'))).toBeGreaterThan(1_000);
    await noneLeft();
  });

  test('is found again by a router that has just started', async () => {
    const first = prompt('restart', 3_000);
    const one = await ask('four-model', first);
    const two: Message[] = [
      ...first,
      { role: 'assistant', content: one.text },
      { role: 'user', content: 'and then?' },
    ];
    await until(async () => Number((await explain(two)).cachedTokens) > 1_000);
    const before = await explain(two);
    await fleet.router?.end('SIGTERM');
    await fleet.startRouter();
    await fleet.whenReady('four', 4);
    await fleet.whenReady('solo', 1);
    // The agents' snapshots come one after the other; the answer's own tokens may have been added since.
    await until(
      async () => Number((await explain(two)).cachedTokens) >= Number(before.cachedTokens),
    );
    expect((await explain(two)).replica).toBe(before.replica);
    expect((await ask('four-model', two)).header('replica')).toBe(one.header('replica'));
  });

  test('200 at once each get their own answer', async () => {
    const solo = await ask('solo-model', prompt('same', 50));
    const answers = await Promise.all(
      Array.from({ length: 200 }, (_, i) =>
        ask('four-model', prompt(i % 2 === 0 ? 'same' : `own ${i}`, 50)),
      ),
    );
    // The simulated engine's text is a function of the prompt alone.
    const same = answers.filter((_, i) => i % 2 === 0).map(({ text }) => text);
    expect(new Set(same)).toEqual(new Set([solo.text]));
    const own = answers.filter((_, i) => i % 2 === 1).map(({ text }) => text);
    expect(new Set(own).size).toBeGreaterThan(90);
    await noneLeft();
  });
});

describe('a replica killed', () => {
  test('before the first token is a failover that no client sees', async () => {
    const answer = ask('four-model', prompt('killed before', 20_000));
    const engine = await busyEngine();
    await engine.running.end('SIGKILL');
    const { text, header } = await answer;
    expect(text.length).toBeGreaterThan(0);
    expect(header('attempts')).toBe('2');
    expect(header('route-reason')).toBe('failover');
    expect(header('replica')).not.toBe(engine.replica);
    await noneLeft();
    await revive(engine);
  });

  test('after the first token is an error event, and no other attempt', async () => {
    const stream = await client().chat.completions.create({
      model: 'four-model',
      messages: prompt('killed after', 50),
      stream: true,
      max_tokens: 4_000,
    });
    const engine = await busyEngine();
    let text = '';
    const read = async (): Promise<void> => {
      for await (const part of stream) {
        if (text === '') void engine.running.end('SIGKILL');
        text += part.choices[0]?.delta.content ?? 'x';
      }
    };
    await expect(read()).rejects.toMatchObject({ code: 'stream_interrupted' });
    expect(text).not.toBe('');
    await noneLeft();
    await revive(engine);
  });

  test('comes back with an empty index', async () => {
    const first = prompt('forgotten', 3_000);
    const one = await ask('four-model', first);
    const engine = engines.find(({ replica }) => replica === one.header('replica'));
    if (engine === undefined) throw new Error('no engine');
    await until(async () => Number((await explain(first)).cachedTokens) > 1_000);
    await engine.running.end('SIGKILL');
    await revive(engine);
    await until(async () => Number((await explain(first)).cachedTokens) === 0);
  });
});

describe('a client gone', () => {
  test('ends the work of its engine at once', async () => {
    const abort = new AbortController();
    const answer = client()
      .chat.completions.create(
        { model: 'solo-model', messages: prompt('gone', 50), max_tokens: 20_000 },
        { signal: abort.signal },
      )
      .catch((error: unknown) => error);
    await fleet.whenStatus(({ leases }) => leases === 1);
    abort.abort();
    await answer;
    await noneLeft();
    await until(async () => {
      const state = await fetch(`${soloEngine.url}/load`);
      return ((await state.json()) as { server_load: number }).server_load === 0;
    });
  });
});

describe('an agent killed while its engine lives', () => {
  test('in a pool of one: the replica serves on, past the grace', async () => {
    await soloAgent.end('SIGKILL');
    await fleet.whenStatus((status) => replicaOf(status, soloEngine.replica)?.link === 'static');
    expect((await ask('solo-model', prompt('static', 50))).text.length).toBeGreaterThan(0);
    await noneLeft();
  });

  test('in a pool of four: one lost agent takes its replica out, the others serve', async () => {
    const [engine] = engines;
    await agents[0]?.end('SIGKILL');
    await fleet.whenStatus((s) => replicaOf(s, engine?.replica ?? '')?.link === 'out');
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, i) => ask('four-model', prompt(`three left ${i}`, 50))),
    );
    for (const { header } of answers) expect(header('replica')).not.toBe(engine?.replica);
  });

  test('in a pool of four: most agents lost at once, and the replicas serve on as static', async () => {
    await agents[2]?.end('SIGKILL');
    const lost = engines.slice(2).map(({ replica }) => replica);
    await fleet.whenStatus((s) => lost.every((id) => replicaOf(s, id)?.link === 'static'));
    const answers = await Promise.all(
      Array.from({ length: 24 }, (_, i) => ask('four-model', prompt(`static ${i}`, 400))),
    );
    const used = new Set(answers.map(({ header }) => header('replica')));
    expect(lost.some((id) => used.has(id))).toBe(true);
    await noneLeft();
  });

  test('and started again it is used as before', async () => {
    soloAgent = fleet.startAgent('solo', [soloEngine]);
    await fleet.whenStatus((status) => replicaOf(status, soloEngine.replica)?.link === 'fresh');
    await fleet.whenReady('solo', 1);
    expect((await ask('solo-model', prompt('back', 50))).text.length).toBeGreaterThan(0);
  });
});

interface Explained {
  readonly replica: string | undefined;
  readonly cachedTokens: number | null | undefined;
}

/** Where the request would go now, and how much of it is predicted to be cached there. */
async function explain(messages: Message[]): Promise<Explained> {
  const answer = await fetch(`http://127.0.0.1:${fleet.ports.adminPort}/v1/route/explain`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'four-model', messages, max_tokens: 8 }),
  });
  const { decision } = (await answer.json()) as {
    decision: { candidates: { target: { replica: string }; cachedTokens: number | null }[] };
  };
  const best = decision.candidates.toSorted(
    (a, b) => (b.cachedTokens ?? 0) - (a.cachedTokens ?? 0),
  );
  return { replica: best[0]?.target.replica, cachedTokens: best[0]?.cachedTokens };
}
