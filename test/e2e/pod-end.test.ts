// How the pod of an engine ends (deploy/k8s/region/engine.yaml, and by hand with deploy/systemd): its agent is told first that it
// drains, the engine finishes what runs, the agent goes last. The hooks are played by hand; the processes are real.

import OpenAI from 'openai';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { drainCommand } from '../../bin/commands/drain.ts';
import { Fleet, poolOf, replicaOf, type AgentProcess, type EngineProcess } from './fleet.ts';
import { until } from './until.ts';

const MODEL = 'pod-model';
const CONFIG = `
pools:
  - id: pods
models:
  ${MODEL}: { pool: pods }
router:
  shutdown: { acceptMs: 0, drainMs: 5000 }
`;
/** In seconds: longer than any answer of these tests. */
const DRAINS = ['--shutdown-timeout', '60'];
const CLIENTS = 4;
const LONG_TOKENS = 150;

interface Pod {
  readonly engine: EngineProcess;
  readonly agent: AgentProcess;
}

let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.open(CONFIG);
  await fleet.startRouter();
}, 60_000);

afterAll(async () => {
  await fleet.close();
});

async function startPod(): Promise<Pod> {
  const engine = await fleet.startEngine(MODEL, 0, DRAINS);
  return { engine, agent: await fleet.agentBeside('pods', [engine]) };
}

interface Answer {
  readonly replica: string | null;
  readonly attempts: string | null;
  readonly finish: string | null;
}

/** `finish` is null where the answer broke off. */
async function ask(name: string, tokens: number): Promise<Answer> {
  const client = new OpenAI({ baseURL: `${fleet.clients}/v1`, apiKey: 'unused', maxRetries: 0 });
  const { data, response } = await client.chat.completions
    .create({
      model: MODEL,
      messages: [{ role: 'user', content: name }],
      stream: true,
      max_tokens: tokens,
    })
    .withResponse();
  const header = (key: string): string | null => response.headers.get(`x-spillway-${key}`);
  const answer = { replica: header('replica'), attempts: header('attempts') };
  let finish: string | null = null;
  try {
    for await (const part of data) finish = part.choices[0]?.finish_reason ?? finish;
  } catch {
    return { ...answer, finish: null };
  }
  return { ...answer, finish };
}

/** Whole, and at the first attempt. */
function smooth({ finish, attempts }: Answer): boolean {
  return finish === 'length' && attempts === '1';
}

/** Clients that ask one thing after the other until they are told to stop, or are not served well. */
class Load {
  readonly answers: Answer[] = [];
  private stopped = false;
  private readonly clients = Array.from({ length: CLIENTS }, (_, i) => this.client(i));

  async end(): Promise<void> {
    this.stopped = true;
    await Promise.all(this.clients);
  }

  private async client(number: number): Promise<void> {
    for (let turn = 0; !this.stopped; turn += 1) {
      const answer = await ask(`client ${number}, turn ${turn}`, 16);
      this.answers.push(answer);
      if (!smooth(answer)) return;
    }
  }
}

/** Answers that an engine is giving, of requests that are long enough to outlast its goodbye. */
async function longAnswers(pods: readonly Pod[]): Promise<Promise<Answer>[]> {
  const long = Array.from({ length: 8 }, (_, i) => ask(`long ${i}`, LONG_TOKENS));
  await fleet.whenStatus((status) =>
    pods.every(({ engine }) => {
      const targets = replicaOf(status, engine.replica)?.targets ?? [];
      return targets.some(({ leases }) => leases > 1);
    }),
  );
  return long;
}

test('a drain before the end of its engine: no request fails, and none needs a second attempt', async () => {
  const pods = [await startPod(), await startPod()];
  const [ending] = pods;
  if (ending === undefined) throw new Error('no pod');
  await fleet.whenReady('pods', 2);
  const load = new Load();
  const long = await longAnswers(pods);
  // The agent's hook; the engine's waits meanwhile.
  await drainCommand().parseAsync([ending.agent.url], { from: 'user' });
  await fleet.whenStatus((status) => poolOf(status, 'pods')?.ready === 1);
  const before = load.answers.length;
  await ending.engine.running.end('SIGTERM');
  expect(ending.engine.running.child.exitCode).toBe(0);
  await ending.agent.running.end('SIGTERM');
  expect(ending.agent.running.child.exitCode).toBe(0);
  await until(() => load.answers.length > before + 2 * CLIENTS);
  await load.end();
  const finished = await Promise.all(long);
  const all = [...finished, ...load.answers];
  expect(all.filter((answer) => !smooth(answer))).toEqual([]);
  expect(finished.some(({ replica }) => replica === ending.engine.replica)).toBe(true);
  expect(load.answers.slice(before + CLIENTS).map(({ replica }) => replica)).not.toContain(
    ending.engine.replica,
  );
});

test('control: an engine that ends first is still sent to, and clients see it', async () => {
  const second = await startPod();
  await fleet.whenReady('pods', 2);
  const load = new Load();
  const long = await longAnswers([second]);
  await second.engine.running.end('SIGTERM');
  await load.end();
  await Promise.all(long);
  expect(load.answers.filter((answer) => !smooth(answer))).not.toEqual([]);
});
