// An operator's drain of a router, over its listeners.

import { afterEach, expect, test } from 'vitest';
import { request } from 'undici';
import { testRuntime } from '../../shared/runtime/link-fakes.ts';
import { routerOptions } from '../../test/e2e/shell-harness.ts';
import { startRegionalRouter, type RunningRouter } from '../regional/start.ts';

const HERE = { host: '127.0.0.1', port: 0 };
const open: RunningRouter[] = [];
afterEach(async () => {
  for (const router of open.splice(0)) await router.close();
});

async function router(admin: typeof HERE | null): Promise<RunningRouter> {
  const started = await startRegionalRouter({ ...routerOptions({}), admin }, testRuntime());
  open.push(started);
  return started;
}

async function drain(
  port: number | null,
  method: 'GET' | 'POST' | 'DELETE',
  headers: Record<string, string> = {},
): Promise<{ status: number; body: Record<string, unknown> }> {
  const answer = await request(`http://127.0.0.1:${port}/v1/drain`, { method, headers });
  return { status: answer.statusCode, body: (await answer.body.json()) as Record<string, unknown> };
}

async function accepting(port: number | null): Promise<boolean> {
  const answer = await request(`http://127.0.0.1:${port}/readyz?verbose`);
  return (await answer.body.text()).includes('[+] accepting: yes');
}

test('not ready from now on, and ready again when it is undone; said twice it changes nothing', async () => {
  const { adminPort, clientsPort } = await router(HERE);
  expect((await drain(adminPort, 'GET')).body).toEqual({
    draining: false,
    drained: false,
    open: 0,
  });
  for (const _ of [1, 2]) {
    expect(await drain(adminPort, 'POST')).toMatchObject({ status: 200, body: { draining: true } });
  }
  expect(await accepting(adminPort)).toBe(false);
  // It answers whoever comes, and closes the connection behind it.
  const answer = await request(`http://127.0.0.1:${clientsPort}/v1/models`);
  await answer.body.dump();
  expect([answer.statusCode, answer.headers['connection']]).toEqual([200, 'close']);
  expect((await drain(adminPort, 'DELETE')).body).toMatchObject({ draining: false });
  expect(await accepting(adminPort)).toBe(true);
});

test('cannot be undone once the router has been told to end', async () => {
  const running = await router(HERE);
  void running.drain({ acceptMs: 30_000, drainMs: 0 });
  expect((await drain(running.adminPort, 'GET')).body).toMatchObject({ draining: true });
  expect((await drain(running.adminPort, 'DELETE')).status).toBe(503);
  expect(await accepting(running.adminPort)).toBe(false);
});

test('time that it was drained before counts as time in which balancers noticed', async () => {
  let nowMs = 1_000;
  const runtime = testRuntime();
  const clock = { ...runtime.clock, nowMs: () => nowMs };
  const options = { ...routerOptions({}), admin: HERE };
  const running = await startRegionalRouter(options, { ...runtime, clock });
  open.push(running);
  await drain(running.adminPort, 'POST');
  nowMs += 60_000;
  // Longer than the test may take: it does not wait for it again.
  await running.drain({ acceptMs: 60_000, drainMs: 60_000 });
  expect(running.status().draining).toBe(true);
});

test('is not for pages in browsers', async () => {
  const { adminPort } = await router(HERE);
  expect((await drain(adminPort, 'POST', { origin: 'http://somewhere' })).status).toBe(400);
  expect(await accepting(adminPort)).toBe(true);
});

test('is not on the listener of clients, whose proxies are on this machine too', async () => {
  const { clientsPort } = await router(null);
  expect((await drain(clientsPort, 'POST')).status).toBe(404);
  const { clientsPort: other } = await router(HERE);
  expect((await drain(other, 'POST')).status).toBe(404);
});
