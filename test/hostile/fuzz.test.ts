// Good requests and good answers with a few bytes changed, cut, doubled or moved; and members of any JSON value. Nothing of
// it is a bug of the router, and what is answered is an answer or an error, never half of one.

import fc from 'fast-check';
import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Canonicaliser } from '../../router/gateway/canonical.ts';
import { OWNED_MEMBERS, parseOpenAiRequest } from '../../router/gateway/openai-request.ts';
import { FleetError } from '../../shared/errors.ts';
import { createChainHasher } from '../../shared/lib/chain-hash.ts';
import { CONVERSATION_IDS } from '../../shared/model/conversation-ids.ts';
import { untilError } from '../e2e/broken-answer.ts';
import {
  answerOf,
  chunk,
  DONE,
  startScriptedEngine,
  streamOf,
  usageChunk,
  type ScriptedEngine,
} from '../e2e/scripted-engine.ts';
import { startHarness, type Harness } from '../e2e/shell-harness.ts';
import { until } from '../e2e/until.ts';
import { startRawEngine, type RawEngine } from './raw-engine.ts';
import { CHAT } from './small-region.ts';
import { openWire, wirePost } from './wire.ts';

/** One change of some bytes: what it does, and where, as a share of their length. */
interface Change {
  readonly kind: 'set' | 'drop' | 'insert' | 'double' | 'cut' | 'swap';
  readonly at: number;
  readonly byte: number;
  readonly count: number;
}

const changes = fc.array(
  fc.record<Change>({
    kind: fc.constantFrom('set', 'drop', 'insert', 'double', 'cut', 'swap'),
    at: fc.double({ min: 0, max: 0.999, noNaN: true }),
    byte: fc.oneof(fc.constantFrom(...Buffer.from('\0\r\n"\\{}[]:,\u007f')), fc.nat(255)),
    count: fc.integer({ min: 1, max: 40 }),
  }),
  { minLength: 1, maxLength: 4 },
);

function changed(bytes: Buffer, list: readonly Change[]): Buffer {
  return list.reduce((before, { kind, at, byte, count }) => {
    const from = Math.floor(at * before.length);
    const to = Math.min(before.length, from + count);
    const [head, middle, rest] = [
      before.subarray(0, from),
      before.subarray(from, to),
      before.subarray(to),
    ];
    const one = Buffer.from([byte]);
    switch (kind) {
      case 'set':
        return Buffer.concat([head, one, before.subarray(from + 1)]);
      case 'drop':
        return Buffer.concat([head, rest]);
      case 'insert':
        return Buffer.concat([head, one, before.subarray(from)]);
      case 'double':
        return Buffer.concat([head, middle, middle, rest]);
      case 'cut':
        return head;
      case 'swap':
        return Buffer.concat([middle, head, rest]);
    }
  }, bytes);
}

let good: ScriptedEngine;
let raw: RawEngine;
let harness: Harness;
let answer: Buffer = Buffer.alloc(0);
beforeAll(async () => {
  good = await startScriptedEngine((received, response) =>
    /"stream"\s*:\s*true/.test(String(received.body))
      ? streamOf('good')(received, response)
      : answerOf('good')(received, response),
  );
  raw = await startRawEngine((socket) => socket.end(answer));
  harness = await startHarness([], { limits: { requestTimeoutMs: 300 } });
});
afterAll(async () => {
  await harness.close();
  await good.close();
  await raw.close();
});

async function nothingLeft(): Promise<void> {
  await until(() => harness.shell.requests.openRequests === 0);
  expect(harness.core.leaseCount).toBe(0);
  expect(harness.shell.requests.budget.heldBytes).toBe(0);
  expect(harness.lines.filter(({ msg }) => msg === 'bug')).toEqual([]);
  harness.lines.length = 0;
  harness.core.events.length = 0;
}

const REQUESTS = [
  { model: 'm', stream: true, messages: [{ role: 'user', content: 'h\u00e9llo \ud83d\ude00' }] },
  {
    model: 'm',
    messages: [{ role: 'user', content: [{ type: 'text', text: 'a' }] }],
    tools: [{ type: 'function', function: { name: 'f', parameters: {} } }],
    max_tokens: 5,
    stream_options: { include_usage: true },
    cache_salt: 'x',
    priority: 1,
  },
].map((body) => Buffer.from(JSON.stringify(body)));

describe('a request with bytes changed', () => {
  test('in its body is answered, or refused in the envelope', async () => {
    harness.core.urls = [good.url];
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...REQUESTS), changes, async (body, list) => {
        const given = await request(`${harness.url}${CHAT}`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: changed(body, list),
        });
        const text = await given.body.text();
        if (given.statusCode === 200) {
          expect(text).toContain('good');
          return;
        }
        expect(given.statusCode).toBe(400);
        expect(JSON.parse(text)).toMatchObject({ error: { message: expect.any(String) } });
      }),
      { numRuns: 300 },
    );
    await nothingLeft();
  });

  test('anywhere is answered, refused in the envelope, or its connection ends', async () => {
    harness.core.urls = [good.url];
    const port = Number(new URL(harness.url).port);
    const runs = fc.sample(fc.tuple(fc.constantFrom(...REQUESTS), changes), 200);
    const statuses = await Promise.all(
      runs.map(async ([body, list]) => {
        const wire = openWire(port);
        wire.socket.write(changed(wirePost(body), list));
        const got = await wire.answer();
        wire.close();
        if (got !== null && got.status >= 400) {
          expect(JSON.parse(got.body)).toMatchObject({ error: { message: expect.any(String) } });
        }
        return got?.status ?? 0;
      }),
    );
    expect(statuses.filter((status) => status >= 500)).toEqual([]);
    expect(new Set(statuses).size).toBeGreaterThan(3);
    await nothingLeft();
  });
});

const STREAM = chunk('a') + chunk('\u00e9') + chunk('b', 'stop') + usageChunk(9, 0, 3) + DONE;
const WHOLE = '{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":{}}';
const framed = (type: string, body: string) => {
  const length = Buffer.byteLength(body);
  const head = `HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\nconnection: close\r\n`;
  return [
    Buffer.from(`${head}content-length: ${length}\r\n\r\n${body}`),
    Buffer.from(
      `${head}transfer-encoding: chunked\r\n\r\n${length.toString(16)}\r\n${body}\r\n0\r\n\r\n`,
    ),
  ];
};

describe('an answer with bytes changed', () => {
  test.each([
    ['a stream', true, framed('text/event-stream', STREAM)],
    ['JSON', false, framed('application/json', WHOLE)],
  ] as const)(
    '(%s) is an answer, an error, or asked for elsewhere',
    async (_name, stream, list) => {
      harness.core.urls = [raw.url, good.url];
      harness.core.firstAttemptOptions = { firstTokenTimeoutMs: 500, stallTimeoutMs: 500 };
      const seen = { passed: 0, elsewhere: 0, told: 0 };
      await fc.assert(
        fc.asyncProperty(fc.constantFrom(...list), changes, async (bytes, edits) => {
          answer = changed(bytes, edits);
          const given = await request(`${harness.url}${CHAT}`, {
            method: 'POST',
            headers: { 'content-type': 'application/json' },
            body: stream ? (REQUESTS[0] as Buffer) : (REQUESTS[1] as Buffer),
          });
          const text = await untilError(given.body);
          const error = text.includes('"error"') || given.statusCode !== 200;
          if (error) seen.told += 1;
          else if (text.includes('good')) seen.elsewhere += 1;
          else seen.passed += 1;
          expect(given.statusCode).toBeLessThan(500);
          if (stream && given.statusCode === 200) {
            expect(text).toMatch(
              /data: ?\[DONE\]\s+$|data: \{"error":.*"stream_interrupted"\}\}\n\n$/,
            );
          } else JSON.parse(text);
        }),
        { numRuns: 250 },
      );
      harness.core.firstAttemptOptions = {};
      await nothingLeft();
      expect(seen.passed).toBeGreaterThan(10);
      expect(seen.elsewhere).toBeGreaterThan(10);
    },
  );
});

test('members of any JSON value are read, or refused as what they are', async () => {
  const canonicaliser = new Canonicaliser(await createChainHasher());
  const context = {
    canonicaliser,
    jsonDepth: 64,
    idMembers: CONVERSATION_IDS.members,
    seedOf: () => ({ saltGroup: 'default', lora: null }),
  };
  const names = [...OWNED_MEMBERS, 'conversation', 'metadata', 'prompt_cache_key'];
  const member = fc.tuple(fc.constantFrom(...names), fc.jsonValue({ maxDepth: 4 }));
  const message = fc.dictionary(
    fc.constantFrom('role', 'content', 'tool_calls', 'name', '__proto__', 'type', 'text'),
    fc.oneof(fc.constant('user'), fc.jsonValue({ maxDepth: 3 })),
  );
  const body = fc.tuple(fc.array(member, { maxLength: 6 }), fc.array(message, { maxLength: 3 }));
  const routes = ['chat', 'completions', 'embeddings', 'rerank', 'score', 'tokenize'] as const;
  let read = 0;
  fc.assert(
    fc.property(fc.constantFrom(...routes), body, (route, [members, messages]) => {
      const given = { model: 'm', messages, prompt: 'a', ...Object.fromEntries(members) };
      try {
        parseOpenAiRequest(route, Buffer.from(JSON.stringify(given)), context);
        read += 1;
      } catch (error) {
        expect(error).toBeInstanceOf(FleetError);
        expect((error as FleetError).row.status).toBe(400);
      }
    }),
    { numRuns: 3_000 },
  );
  expect(read).toBeGreaterThan(100);
});
