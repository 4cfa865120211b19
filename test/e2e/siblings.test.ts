// Two routers of one region as real processes, an agent and an engine: what one sends the other knows before any report
// says so, and a report changes nothing of it.

import { afterAll, beforeAll, expect, test } from 'vitest';
import { request } from 'undici';
import type { RouterStatus } from '../../router/regional/status.ts';
import { freePort } from '../free-ports.ts';
import {
  Fleet,
  replicaOf,
  type AgentProcess,
  type EngineProcess,
  type RouterProcess,
} from './fleet.ts';

const MODEL = 'model';

let fleet: Fleet;
let routers: readonly [RouterProcess, RouterProcess];
let engine: EngineProcess;
let agent: AgentProcess;

beforeAll(async () => {
  const ports = [await freePort(), await freePort()] as const;
  const siblings = ports.map((port) => `ws://127.0.0.1:${port}`);
  fleet = await Fleet.open(`
pools:
  - id: one
models:
  ${MODEL}: { pool: one }
router:
  siblings: ${JSON.stringify(siblings)}
`);
  routers = [fleet.addRouter(), fleet.addRouter()];
  ports.forEach((linksPort, k) => {
    const router = routers[k];
    if (router !== undefined) router.ports = { clientsPort: 0, linksPort, adminPort: 0 };
  });
  await Promise.all(routers.map((router) => router.start()));
  engine = await fleet.startEngine(MODEL);
  // A wait in ms is known where the engine's cost curve is.
  const set = ['agent.settings.calibration=true'];
  agent = await fleet.agentBeside('one', [engine], { routers: siblings, set });
  for (const router of routers) {
    await router.whenReady('one', 1);
    await router.whenStatus(({ siblings: { heard, told } }) => heard === 1 && told === 1);
  }
}, 90_000);

afterAll(() => fleet.close());

async function sim(what: string, body: object = {}): Promise<void> {
  const answer = await request(`${engine.url}/sim/${what}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  expect([answer.statusCode, await answer.body.text()]).toMatchObject([200, expect.any(String)]);
}

function targetOf(status: RouterStatus) {
  const target = replicaOf(status, engine.replica)?.targets[0];
  if (target === undefined) throw new Error('no target');
  return target;
}

async function ask(router: RouterProcess, words: string): Promise<string> {
  const answer = await request(`${router.clients}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      ...{ model: MODEL, stream: true, max_tokens: 2 },
      messages: [{ role: 'user', content: words.repeat(400) }],
    }),
  });
  return answer.body.text();
}

test('a router knows of another’s send before any report, and counts it once when reports have it', async () => {
  const [one, other] = routers;
  await sim('freeze');
  agent.running.child.kill('SIGSTOP');
  const before = targetOf(await other.status()).report;
  const answer = ask(one, 'some words of a prompt that waits ').catch(() => 'broken');
  const told = await other.whenStatus(({ siblings }) => siblings.sends === 1);
  const unseen = targetOf(told);
  expect(unseen.report?.seq).toBe(before?.seq);
  expect(unseen.leases).toBe(0);
  expect(unseen.waitMs).toBeGreaterThan(0);
  agent.running.child.kill('SIGCONT');
  const seen = await other.whenStatus(
    (status) => (targetOf(status).report?.waitingPrefillMs ?? 0) > 0,
  );
  const { waitMs, report } = targetOf(seen);
  expect(waitMs).toBeLessThanOrEqual(report?.waitingPrefillMs ?? 0);
  await sim('thaw');
  expect(await answer).toContain('[DONE]');
  await other.whenStatus(({ siblings }) => siblings.sends === 0);
}, 60_000);

test('a router that dies is heard no more, and is heard again when it is back', async () => {
  const [one, other] = routers;
  await sim('freeze');
  const answer = ask(one, 'a request whose router dies ').catch(() => 'broken');
  await other.whenStatus(({ siblings }) => siblings.sends === 1);
  await one.running?.end('SIGKILL');
  await answer;
  await other.whenStatus(({ siblings: { heard, sends } }) => heard === 0 && sends === 0);
  await sim('thaw');
  await one.start();
  await other.whenStatus(({ siblings: { heard, told } }) => heard === 1 && told === 1);
  await one.whenReady('one', 1);
  expect(await ask(one, 'after that ')).toContain('[DONE]');
}, 60_000);
