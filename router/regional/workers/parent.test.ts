// The parent with workers that are told what to say.

import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { request } from 'undici';
import { FleetError } from '../../../shared/errors.ts';
import { seededRandom } from '../../../shared/lib/random.ts';
import { systemClock } from '../../../shared/runtime/clock.ts';
import { createLog } from '../../../shared/runtime/log.ts';
import { systemTimers } from '../../../shared/runtime/timers.ts';
import { routerOptions } from '../../../test/e2e/shell-harness.ts';
import { CoreRig } from '../core.harness.ts';
import type { RouterReloadable } from '../options.ts';
import type { RouterStatus } from '../status.ts';
import { NoAnswerError, type Crew, type Member } from './crew.ts';
import type { Order } from './messages.ts';
import { WorkersParent } from './parent.ts';

const options = routerOptions({});
const member = (number: number): Member => ({
  ...{ number, pid: 100 + number, state: 'up', linksPort: 8_080 + number },
  ...{ connections: 0, deaths: 0 },
});

class ToldCrew implements Crew {
  readonly list: Member[] = [member(1), member(2)];
  readonly orders: { number: number; order: Order }[] = [];
  readonly rigs = [new CoreRig(), new CoreRig()];
  /** What each refuses, by number. */
  readonly refuses = new Map<number, Error>();

  members(): readonly Member[] {
    return this.list;
  }

  order(number: number, order: Order): Promise<never> {
    this.orders.push({ number, order });
    const refusal = this.refuses.get(number);
    if (refusal !== undefined) return Promise.reject(refusal);
    return Promise.resolve((order.kind === 'status' ? this.status(number) : {}) as never);
  }

  generations(number: number): RouterReloadable[] {
    return this.orders.flatMap(({ number: of, order }) =>
      of === number && order.kind === 'reload' ? [order.reloadable] : [],
    );
  }

  private status(number: number): RouterStatus {
    const rig = this.rigs[number - 1] ?? new CoreRig();
    return {
      router: { id: `r${number}`, region: 'x', software: 's', upForS: 1 },
      ...{ ready: true, config: null, bodyBytes: number, connections: {}, linkTotals: null },
      ...rig.core.status(rig.nowMs),
    };
  }
}

let crew: ToldCrew;
let parent: WorkersParent;

beforeEach(async () => {
  crew = new ToldCrew();
  const log = createLog({ level: 'silent', readable: false });
  const runtime = { clock: systemClock, timers: systemTimers, random: seededRandom(1), log };
  parent = new WorkersParent({ options, runtime, crew });
  await parent.listen({ host: '127.0.0.1', port: 0 });
});

afterEach(() => parent.close());

async function get(path: string, body?: string): Promise<{ status: number; text: string }> {
  const answer = await request(`http://127.0.0.1:${parent.adminPort}${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    ...(body === undefined ? {} : { body, headers: { 'content-type': 'application/json' } }),
  });
  return { status: answer.statusCode, text: await answer.body.text() };
}

/** The same with another greatest depth of JSON. */
const generation = (jsonDepth: number): RouterReloadable => ({
  ...options.reloadable,
  limits: { ...options.reloadable.limits, jsonDepth },
});
const depths = (number: number): number[] =>
  crew.generations(number).map(({ limits }) => limits.jsonDepth);

describe('a new generation', () => {
  test('goes to every worker, each its share', async () => {
    await parent.reload(generation(9));
    expect([depths(1), depths(2)]).toEqual([[9], [9]]);
    const [share] = crew.generations(1);
    expect(share?.limits.openRequests).toBe(options.reloadable.limits.openRequests / 2);
    expect(parent.reloadable.limits.jsonDepth).toBe(9);
  });

  test('that one of them refuses is taken back from the others', async () => {
    crew.refuses.set(2, new FleetError('tls_unusable', '/ca.pem: cannot be read'));
    await expect(parent.reload(generation(9))).rejects.toThrow('/ca.pem: cannot be read');
    expect(depths(1)).toEqual([9, options.reloadable.limits.jsonDepth]);
    expect(parent.reloadable).toBe(options.reloadable);
  });

  test('goes to workers that are starting, and is taken back from those that began meanwhile', async () => {
    crew.list[1] = { ...member(2), state: 'starting' };
    await parent.reload(generation(9));
    expect(depths(2)).toEqual([9]);
    crew.list[1] = { ...member(2), state: 'down' };
    crew.refuses.set(1, new FleetError('tls_unusable', 'no'));
    const refused = parent.reload(generation(10));
    await Promise.resolve();
    crew.list[1] = { ...member(2), state: 'starting' };
    await expect(refused).rejects.toThrow('no');
    expect(depths(2)).toEqual([9, 9]);
  });

  test('is not held up by a worker that does not answer: it takes it when it wakes', async () => {
    crew.refuses.set(2, new NoAnswerError('not in time'));
    await parent.reload(generation(9));
    expect(depths(1)).toEqual([9]);
    expect(parent.reloadable.limits.jsonDepth).toBe(9);
  });

  test('waits for the one before', async () => {
    crew.refuses.set(1, new FleetError('tls_unusable', 'no'));
    const first = parent.reload(generation(9)).catch(() => undefined);
    const second = parent.reload(generation(10)).catch(() => undefined);
    await Promise.all([first, second]);
    const before = options.reloadable.limits.jsonDepth;
    expect(depths(2)).toEqual([9, before, 10, before]);
  });
});

describe('operators', () => {
  test('see what a worker said before where it does not answer, and that it did not', async () => {
    for (const rig of crew.rigs) rig.ready('a');
    crew.rigs[1]?.arrive();
    expect(JSON.parse((await get('/status')).text)).toMatchObject({ leases: 1, bodyBytes: 3 });
    crew.refuses.set(2, new NoAnswerError('not in time'));
    const status = JSON.parse((await get('/status')).text) as RouterStatus;
    expect(status).toMatchObject({ leases: 1, bodyBytes: 3 });
    expect(status.workers?.map(({ silent }) => silent)).toEqual([false, true]);
    const { text } = await get('/metrics');
    expect(text).toContain('spillway_worker_silent{worker="2"} 1');
    expect(text).toContain('spillway_leases 1');
  });

  test('are counted where they are refused, as those of one process are', async () => {
    expect((await get('/nowhere')).status).toBe(404);
    expect((await get('/readyz', `{"x": "${'y'.repeat(99)}"}`)).status).toBe(405);
    const head = await request(`http://127.0.0.1:${parent.adminPort}/livez`, {
      headers: { 'x-long': 'x'.repeat(options.reloadable.limits.headerBytes) },
    });
    expect(head.statusCode).toBe(431);
    const { text } = await get('/metrics');
    expect(text).toContain(
      'spillway_requests_total{route="other",pool="none",outcome="refused"} 2\n',
    );
    expect(text).toContain('spillway_errors_total{code="headers_too_large"} 1\n');
    expect(text).toContain('spillway_limit_hits_total{limit="header_bytes"} 1\n');
  });

  test('see what workers counted, after one is gone too', async () => {
    const entry = { kind: 'add', name: 'bugs_total', labels: {}, by: 2 } as const;
    parent.journal(1, [entry]);
    parent.journal(2, [entry]);
    parent.ended(2, true);
    parent.journal(2, [entry]);
    const { text } = await get('/metrics');
    expect(text).toContain('spillway_bugs_total 6');
    expect(text).toContain('spillway_worker_deaths_total{worker="2"} 1');
  });

  test('see what a worker has sent to each replica, after it is gone too', async () => {
    for (const rig of crew.rigs) {
      rig.ready('a');
      rig.arrive();
    }
    const sent = async () =>
      /replica_attempts_total\{[^}]*replica="a"[^}]*\} (\d+)/.exec(
        (await get('/metrics')).text,
      )?.[1];
    expect(await sent()).toBe('2');
    crew.list[1] = { ...member(2), state: 'down', pid: null };
    parent.ended(2, true);
    expect(await sent()).toBe('2');
    crew.rigs[0]?.report('a');
    crew.rigs[0]?.arrive();
    expect(await sent()).toBe('3');
  });

  test('are told what one worker would decide, each in turn, and its refusals as its own', async () => {
    const asked = '{"model": "m"}';
    const workers = [await get('/v1/route/explain', asked), await get('/v1/route/explain', asked)];
    expect(workers.map(({ text }) => (JSON.parse(text) as { worker: number }).worker)).toEqual([
      1, 2,
    ]);
    crew.refuses.set(1, new FleetError('model_not_found', 'The model does not exist.'));
    const refused = await get('/v1/route/explain', asked);
    expect(refused.status).toBe(404);
    expect(refused.text).toContain('The model does not exist.');
  });

  test('learn that it is not ready while no worker says so, or while it is out of its balancer', async () => {
    expect((await get('/readyz')).status).toBe(503);
    const readiness = { ready: true, checks: [] };
    parent.beat(1, { readiness, openRequests: 3, readyPools: 1 });
    expect((await get('/readyz')).status).toBe(200);
    expect((await get('/v1/drain', '')).status).toBe(200);
    expect((await get('/readyz')).status).toBe(503);
    expect(crew.orders.filter(({ order }) => order.kind === 'mark')).toHaveLength(2);
    // What was said before it was taken out proves nothing.
    expect(JSON.parse((await get('/v1/drain')).text)).toMatchObject({
      draining: true,
      drained: false,
    });
    for (const number of [1, 2]) parent.beat(number, { readiness, openRequests: 0, readyPools: 1 });
    expect(JSON.parse((await get('/v1/drain')).text)).toMatchObject({ drained: true, open: 0 });
  });

  test('see how far it is when it was told to end, too', async () => {
    await parent.drain({ acceptMs: 0, drainMs: 0 });
    const readiness = { ready: false, checks: [] };
    for (const number of [1, 2]) parent.beat(number, { readiness, openRequests: 1, readyPools: 1 });
    const at = async (): Promise<unknown> => JSON.parse((await get('/v1/drain')).text);
    expect(await at()).toEqual({ draining: true, drained: false, open: 2 });
    for (const number of [1, 2]) parent.beat(number, { readiness, openRequests: 0, readyPools: 1 });
    expect(await at()).toEqual({ draining: true, drained: true, open: 0 });
  });
});
