// What proves a replica whose agent is gone, by what it serves.

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { createHttpPools } from '../../shared/runtime/http-pool.ts';
import { probeReplica } from './prober.ts';

const running: (() => Promise<void> | void)[] = [];

afterEach(async () => {
  for (const stop of running.splice(0).reverse()) await stop();
});

type Told = readonly [status: number, body: object];

/** A replica that answers so on these paths, and 404 on others; what it was asked. */
async function probed(
  routes: Readonly<Record<string, Told>>,
): Promise<{ ok: boolean; asked: string[] }> {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    const path = request.url ?? '';
    asked.push(path);
    const [status, body] = routes[path] ?? [404, { detail: 'Not Found' }];
    request.resume();
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const pools = createHttpPools(1_000);
  running.push(
    () => pools.close(),
    () => {
      server.closeAllConnections();
      server.close();
    },
  );
  const pool = pools.get(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  return { ok: await probeReplica({ pool, model: 'm', apiKey: null }), asked };
}

const TOKEN: Told = [200, { choices: [{ text: 'p', finish_reason: 'length' }] }];
const VECTOR: Told = [200, { data: [{ embedding: [0.5] }] }];
const UNSUPPORTED: Told = [
  400,
  { error: { message: 'The model does not support Completions API' } },
];

describe('a replica without an agent is proved', () => {
  test.each<[string, Record<string, Told>, number]>([
    ['a token', { '/v1/completions': TOKEN, '/v1/embeddings': VECTOR }, 1],
    ['a token of its chat', { '/v1/chat/completions': TOKEN }, 2],
    ['an embedding where nothing else is served', { '/v1/embeddings': VECTOR }, 3],
    [
      'an embedding of an older engine',
      { '/v1/completions': UNSUPPORTED, '/v1/embeddings': VECTOR },
      3,
    ],
    ['a rerank', { '/v1/rerank': [200, { results: [{ index: 0 }] }] }, 4],
  ])('by %s', async (_what, routes, tries) => {
    const { ok, asked } = await probed(routes);
    expect([ok, asked.length]).toEqual([true, tries]);
  });

  test.each<[string, Record<string, Told>, number]>([
    ['nothing is served', {}, 4],
    ['it fails, though it embeds', { '/v1/completions': [500, {}], '/v1/embeddings': VECTOR }, 1],
    ['its answer is an error', { '/v1/completions': [200, { error: { message: 'dead' } }] }, 1],
    ['it refuses the key', { '/v1/completions': [401, {}], '/v1/embeddings': VECTOR }, 1],
  ])('not where %s', async (_what, routes, tries) => {
    const { ok, asked } = await probed(routes);
    expect([ok, asked.length]).toEqual([false, tries]);
  });
});
