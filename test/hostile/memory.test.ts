// A thousand hostile requests and a thousand hostile answers leave nothing in memory: no object of the router's own for a
// request, no socket, and a heap as large as before.

import { queryObjects, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { request } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Exchange } from '../../router/gateway/exchange.ts';
import { answerOf, startScriptedEngine, type ScriptedEngine } from '../e2e/scripted-engine.ts';
import { startHarness, type Harness } from '../e2e/shell-harness.ts';
import { until } from '../e2e/until.ts';
import { HOSTILE_BODIES } from './clients-bodies.ts';
import { HOSTILE_HTTP } from './clients-http.ts';
import { startRawEngine, type Play, type RawEngine } from './raw-engine.ts';
import { CHAT } from './small-region.ts';
import { HOSTILE_ANSWERS } from './upstream-answers.ts';
import { openWire } from './wire.ts';

const CHEAP_BYTES = 4_096;
const REPETITIONS = 1_000;
const AT_ONCE = 20;
/** What a heap of that age may differ by; a leak of 4 KiB a request is above it. */
const HEAP_BYTES = 3_000_000;

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

let good: ScriptedEngine;
let raw: RawEngine;
let harness: Harness;
let play: Play = () => undefined;
beforeAll(async () => {
  good = await startScriptedEngine(answerOf('good'));
  raw = await startRawEngine((socket, played) => play(socket, played));
  harness = await startHarness([]);
});
afterAll(async () => {
  await harness.close();
  await good.close();
  await raw.close();
});

/** Bytes of the heap, once what the tests themselves keep has gone. No socket is open then. */
async function heapBytes(): Promise<number> {
  await until(() => harness.shell.requests.openRequests === 0 && raw.sockets() === 0);
  // Kept connections to engines close when they have been idle.
  await until(() => !process.getActiveResourcesInfo().includes('TCPSocketWrap'));
  harness.lines.length = 0;
  harness.core.events.length = 0;
  good.received.length = 0;
  for (let k = 0; k < 3; k += 1) {
    collect();
    await new Promise((resolve) => setImmediate(resolve));
  }
  return process.memoryUsage().heapUsed;
}

/** Requests in memory, each with its reply, its attempt and what was read of the answer. */
function exchanges(): number {
  const made = Exchange as unknown as new () => Exchange;
  return queryObjects(made, { format: 'count' }) as unknown as number;
}

async function repeat(times: number, one: (k: number) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < times) await one(next++);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

async function leavesNothing(one: (k: number) => Promise<void>): Promise<void> {
  await repeat(REPETITIONS / 4, one);
  const before = await heapBytes();
  await repeat(REPETITIONS, one);
  const after = await heapBytes();
  expect(exchanges()).toBe(0);
  expect(after - before).toBeLessThan(HEAP_BYTES);
}

test('hostile requests', { timeout: 120_000 }, async () => {
  harness.core.urls = [good.url];
  const port = Number(new URL(harness.url).port);
  const list = [...HOSTILE_BODIES, ...HOSTILE_HTTP]
    .filter(({ name }) => !/MiB|bomb|10.?,000|too many|more tok/.test(name))
    .map(({ bytes }) => bytes())
    .filter(({ length }) => length <= CHEAP_BYTES);
  expect(list.length).toBeGreaterThan(150);
  await leavesNothing(async (k) => {
    const wire = openWire(port);
    wire.socket.write(list[k % list.length] as Buffer);
    await wire.answer();
    wire.close();
  });
});

test('hostile answers', { timeout: 120_000 }, async () => {
  harness.core.urls = [raw.url, good.url];
  harness.core.firstAttemptOptions = { firstTokenTimeoutMs: 1_000, stallTimeoutMs: 1_000 };
  // Those that end by themselves, at once.
  const list = HOSTILE_ANSWERS.filter(
    ({ fate, stream, name }) =>
      (!stream || fate.kind === 'interrupted') &&
      fate.kind !== 'passes' &&
      !/for ever|end$|1 MiB|reset/.test(name),
  );
  expect(list.filter(({ stream }) => !stream).length).toBeGreaterThan(30);
  expect(list.filter(({ stream }) => stream).length).toBeGreaterThan(5);
  const queue: Play[] = [];
  play = (socket, played) => queue.shift()?.(socket, played);
  await leavesNothing(async (k) => {
    const entry = list[k % list.length] as (typeof list)[number];
    queue.push(entry.play);
    const answer = await request(`${harness.url}${CHAT}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'm', messages: [], stream: entry.stream }),
      reset: true,
    });
    await answer.body.dump();
  });
});
