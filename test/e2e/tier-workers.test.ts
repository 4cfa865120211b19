// A router of two workers, as a global router meets it: connections to the tier listener are accepted by the parent and
// served by either worker.

import { Agent, request } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { signContext } from '../../router/gateway/tier-context.ts';
import type { RegionId, RouterId } from '../../shared/model/ids.ts';
import { Fleet } from './fleet.ts';

const KEY = { id: 'g-tokyo', secret: 'secret-of-the-pair-of-tiers' };
const CONFIG = `
region: tokyo
pools:
  - id: one
models:
  model: { pool: one }
router:
  workers: 2
  tier: { listen: '127.0.0.1:0', keys: [{ id: ${KEY.id}, secret: ${KEY.secret} }] }
  shutdown: { acceptMs: 0, drainMs: 10000 }
`;
const PATH = '/v1/chat/completions';
const BODY = JSON.stringify({
  model: 'model',
  messages: [{ role: 'user', content: 'hello' }],
  max_tokens: 2,
});

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.open(CONFIG);
  await fleet.startRouter();
  fleet.startAgent('one', [await fleet.startEngine('model')]);
  await fleet.whenStatus(
    ({ workers = [] }) => workers.length === 2 && workers.every(({ ready }) => ready),
  );
}, 90_000);
afterAll(async () => {
  await fleet.close();
});

let attempts = 0;
function signed(): string {
  attempts += 1;
  return signContext(
    {
      ...{ attempt: `req-${attempts}.1`, from: 'g1' as RouterId, seq: attempts },
      ...{ tenant: 'clinic', saltGroup: 'clinic', residency: null, conversation: null },
      ...{ away: false, awayForMs: 0, zones: null, deadlineInMs: null },
    },
    {
      region: 'tokyo' as RegionId,
      key: KEY,
      bound: { method: 'POST', path: PATH, body: Buffer.from(BODY) },
    },
    Date.now(),
  );
}

test('each worker serves what is signed and refuses what is not, each by its own connections', async () => {
  const { tierPort } = fleet.ports as unknown as { tierPort: number };
  const send = async (dispatcher: Agent, context: string | null): Promise<number> => {
    const { statusCode, body } = await request(`http://127.0.0.1:${tierPort}${PATH}`, {
      dispatcher,
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        ...(context === null ? {} : { 'x-spillway-context': context }),
      },
      body: BODY,
    });
    await body.dump();
    return statusCode;
  };
  const connections = Array.from({ length: 4 }, () => new Agent({ connections: 1 }));
  for (const connection of connections) {
    const used = signed();
    expect(await send(connection, used)).toBe(200);
    expect(await send(connection, null)).toBe(401);
    // By whichever worker it is tried.
    for (const other of connections) expect(await send(other, used)).toBe(401);
  }
  const status = await fleet.whenStatus(({ connections: open }) => open['tier'] === 4);
  // Two of the four have gone to each.
  expect(status.workers?.map((worker) => worker.connections)).toEqual([2, 2]);
  const metrics = await fleet.metrics();
  expect(metrics).toContain('spillway_tier_refusals_total{reason="replayed"} 16');
  expect(metrics).toContain('spillway_tier_refusals_total{reason="missing"} 4');
  await Promise.all(connections.map((connection) => connection.destroy()));
});
