// A kept connection that the engine's side has closed when the next request goes into it: nothing is wrong with the engine,
// and the request is asked again over a connection of its own.

import { request } from 'undici';
import { afterEach, describe, expect, test } from 'vitest';
import { startHarness, type Harness } from '../e2e/shell-harness.ts';
import { startRawEngine, type Play, type RawEngine } from './raw-engine.ts';
import { ANSWER, JSON_HEAD, withLength } from './upstream-plays.ts';

let engine: RawEngine | null = null;
let harness: Harness | null = null;
afterEach(async () => {
  await harness?.close();
  await engine?.close();
});

/** A connection is good for one answer; what becomes of the next request is `then`. */
async function good(then: Play): Promise<Harness> {
  engine = await startRawEngine((socket, played) => {
    if (played.onConnection > 0) then(socket, played);
    else socket.write(withLength(JSON_HEAD, ANSWER));
  });
  harness = await startHarness([engine.url, engine.url]);
  return harness;
}

async function ask({ url }: Harness): Promise<[number, string]> {
  const { statusCode, headers, body } = await request(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'a' }] }),
  });
  await body.dump();
  return [statusCode, String(headers['x-spillway-attempts'])];
}

/** How the attempts ended, in their order. */
function ends({ core }: Harness): string[] {
  return core.events.flatMap((event) => {
    if (event.kind !== 'attemptEnded') return [];
    return event.result.kind === 'serverFault' ? event.result.cause : event.result.kind;
  });
}

describe('a kept connection', () => {
  test.each<[string, Play]>([
    ['is reset', (socket) => socket.resetAndDestroy()],
    ['ends', (socket) => socket.end()],
  ])('that %s as it is used again is nobody’s fault, and no other one is used', async (_, then) => {
    const region = await good(then);
    // Two connections are kept, and neither is good for another answer.
    expect(await Promise.all([ask(region), ask(region)])).toEqual([
      [200, '1'],
      [200, '1'],
    ]);
    expect(await ask(region)).toEqual([200, '2']);
    expect(ends(region)).toEqual(['complete', 'complete', 'staleConnection', 'complete']);
  });

  test('that breaks when the engine has long had the request is as any other', async () => {
    const region = await good((socket) => void setTimeout(() => socket.resetAndDestroy(), 400));
    await ask(region);
    expect(await ask(region)).toEqual([200, '2']);
    expect(ends(region)).toEqual(['complete', 'reset', 'complete']);
  });
});
