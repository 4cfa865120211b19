// Many requests against engines that fail in every way at random, and clients that leave at random. Whatever
// happens: every lease ends once, every byte held is given back, and nothing cut looks complete.

import type { ServerResponse } from 'node:http';
import { request } from 'undici';
import { expect, test } from 'vitest';
import { seededRandom, type Random } from '../../shared/lib/random.ts';
import {
  chunk,
  DONE,
  startScriptedEngine,
  streamHead,
  usageChunk,
  type Script,
} from './scripted-engine.ts';
import { startHarness } from './shell-harness.ts';
import { until } from './until.ts';

const SEED = Number(process.env['SPILLWAY_TEST_SEED'] ?? 20_261_130);
const REQUESTS = 400;
const AT_ONCE = 40;
const PIECES = 12;

function draw(random: Random, below: number): number {
  return Math.floor(random.next() * below);
}

/** Writes `text` cut anywhere, a piece at a time. */
async function dribble(response: ServerResponse, text: string, random: Random): Promise<void> {
  const bytes = Buffer.from(text);
  let from = 0;
  while (from < bytes.length && !response.destroyed) {
    const to = from + 1 + draw(random, bytes.length);
    response.write(bytes.subarray(from, to));
    from = to;
    if (random.next() < 0.2) await new Promise((resolve) => setImmediate(resolve));
  }
}

const stream = (name: string): string[] =>
  Array.from({ length: PIECES }, (_, i) =>
    chunk(`${name}-é-${i};`, i === PIECES - 1 ? 'stop' : null),
  );

type Ending = (response: ServerResponse, events: string[], random: Random) => Promise<void>;
const cut = (events: string[], random: Random): string => {
  const whole = events.join('');
  return whole.slice(0, draw(random, whole.length));
};
const ENDINGS: readonly Ending[] = [
  async (response, events, random) => {
    await dribble(response, events.join('') + usageChunk(10, 5, PIECES) + DONE, random);
    response.end();
  },
  async (response, events, random) => {
    await dribble(response, cut(events, random), random);
    response.socket?.destroy();
  },
  async (response, events, random) => {
    await dribble(response, cut(events, random), random);
    response.end();
  },
  async (response, events, random) => {
    const some = events.slice(0, draw(random, PIECES)).join('');
    await dribble(response, `${some}data: {"error":{"message":"x","code":500}}\n\n${DONE}`, random);
    response.end();
  },
  async (response, events, random) => {
    const some = events.slice(0, draw(random, PIECES)).join('');
    await dribble(response, some + chunk('', 'abort') + usageChunk(1, 0, 1) + DONE, random);
    response.end();
  },
];

function chaos(random: Random): Script {
  return async (received, response) => {
    const body = JSON.parse(received.body.toString()) as {
      stream?: boolean;
      messages: { content: string }[];
    };
    const name = body.messages[0]?.content ?? '';
    const roll = random.next();
    if (roll < 0.1) return void response.writeHead(500).end('oops');
    if (roll < 0.15) return void response.writeHead(429, { 'retry-after': '1' }).end('{}');
    if (roll < 0.2) return void response.socket?.destroy();
    if (body.stream !== true) {
      response.writeHead(200, { 'content-type': 'application/json' });
      const answer = JSON.stringify({ choices: [{ message: { content: name } }] });
      await dribble(response, random.next() < 0.6 ? answer : answer.slice(0, -5), random);
      return void (random.next() < 0.8 ? response.end() : response.socket?.destroy());
    }
    streamHead(response);
    const ending = ENDINGS[random.next() < 0.4 ? 0 : draw(random, ENDINGS.length)];
    await ending?.(response, stream(name), random);
  };
}

test(`every end is clean, whatever fails (seed ${SEED})`, { timeout: 60_000 }, async () => {
  const random = seededRandom(SEED);
  const engines = await Promise.all([0, 1, 2].map(() => startScriptedEngine(chaos(random))));
  const harness = await startHarness(engines.map(({ url }) => url));
  const seen = { complete: 0, interrupted: 0, refused: 0, left: 0 };

  const one = async (i: number): Promise<void> => {
    const name = `n${i}`;
    const streamed = random.next() < 0.75;
    const abort = new AbortController();
    const leaveAfter = random.next() < 0.25 ? draw(random, 6) : null;
    let text = '';
    try {
      if (leaveAfter === 0) setImmediate(() => abort.abort());
      const answer = await request(`${harness.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({
          model: 'm',
          stream: streamed,
          messages: [{ role: 'user', content: name }],
        }),
        signal: abort.signal,
      });
      let pieces = 0;
      for await (const piece of answer.body) {
        text += String(piece);
        pieces += 1;
        if (pieces === leaveAfter) abort.abort();
        if (streamed && text.endsWith('"code":"stream_interrupted"}}\n\n')) break;
      }
      if (answer.statusCode !== 200) {
        expect(JSON.parse(text)).toMatchObject({ error: { code: 'upstream_failed' } });
        seen.refused += 1;
      } else if (!streamed) {
        expect(JSON.parse(text)).toEqual({ choices: [{ message: { content: name } }] });
        seen.complete += 1;
      } else if (text.includes('"error"')) {
        expect(text).toMatch(/data: \{"error":\{.*"stream_interrupted"\}\}\n\n$/);
        expect(
          stream(name)
            .join('')
            .startsWith(text.slice(0, text.lastIndexOf('data: {"error"'))),
        ).toBe(true);
        seen.interrupted += 1;
      } else {
        expect(text).toBe(stream(name).join('') + DONE);
        seen.complete += 1;
      }
    } catch (error) {
      if (!abort.signal.aborted) throw error;
      seen.left += 1;
    }
  };

  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < REQUESTS) {
      next += 1;
      await one(next);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  await until(() => harness.shell.requests.openRequests === 0);
  expect(harness.core.leaseCount).toBe(0);
  expect(harness.shell.requests.budget.heldBytes).toBe(0);
  const ids = harness.lines.filter(({ msg }) => msg === 'request').map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
  // A client that left at once may never have reached the router.
  expect(ids.length).toBeGreaterThanOrEqual(REQUESTS - seen.left);
  expect(harness.lines.filter(({ msg }) => msg === 'bug')).toEqual([]);
  for (const count of Object.values(seen)) expect(count).toBeGreaterThan(10);
  await harness.close();
  await Promise.all(engines.map((engine) => engine.close()));
});
