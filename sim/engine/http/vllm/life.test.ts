// How a simulated engine lives and fails, as a client sees it.

import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { describe, expect, it } from 'vitest';

import {
  call,
  CHAT_PATH,
  dataOf,
  open,
  openEngines,
  readText,
  type TestEngine,
} from '../test-harness.ts';

const CHAT = {
  messages: [{ role: 'user', content: 'Tell me of the sea. '.repeat(100) }],
  max_tokens: 400,
};
const STREAM = { ...CHAT, stream: true };

const start = openEngines();

/** A stream that has shown its first token. */
async function streaming({ engine, time }: TestEngine) {
  const response = await open(engine, CHAT_PATH, { body: STREAM });
  time.advance(200);
  const text = readText(response);
  return { response, text };
}

describe('loading', () => {
  it('refuses connections until the time is over, then answers everything at once', async () => {
    const { engine, time } = await start({ loadingMs: 50_000 });
    await expect(call(engine, '/health')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    time.advance(49_999);
    await expect(call(engine, '/metrics')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    time.advance(1);
    await engine.whenServing();
    for (const path of ['/health', '/metrics', '/v1/models']) {
      expect((await call(engine, path)).status).toBe(200);
    }
  });
});

describe('crash', () => {
  it('cuts streams, closes the port, and comes back empty through loading', async () => {
    const test = await start();
    const { engine, time } = test;
    const before = await startSeconds(test);
    const { text } = await streaming(test);
    const cut = expect(text).rejects.toMatchObject({ code: 'ECONNRESET' });
    await call(engine, '/sim/crash', { body: { restartAfterMs: 1_000 } });
    await cut;
    await expect(call(engine, '/health')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    time.advance(1_000);
    await engine.whenServing();
    expect(await startSeconds(test)).toBeGreaterThan(before);
    expect(engine.state()).toMatchObject({ incarnation: 2, cachedBlocks: 0, openRequests: 0 });
    expect((await call(engine, '/metrics')).text).toMatch(/vllm:prompt_tokens_total\{[^}]*\} 0\.0/);
  });

  it('stays down where no return was asked for, until it is started again', async () => {
    const { engine, time } = await start();
    await engine.crash({});
    time.advance(100_000);
    await expect(call(engine, '/health')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    engine.restart();
    await engine.whenServing();
    expect((await call(engine, '/health')).status).toBe(200);
  });
});

describe('being started again', () => {
  it('does nothing to a process that lives', async () => {
    const { engine, time } = await start();
    await Promise.all([1_000, 2_000].map((restartAfterMs) => engine.crash({ restartAfterMs })));
    time.advance(1_000);
    await engine.whenServing();
    time.advance(1_000);
    expect(engine.state()).toMatchObject({ incarnation: 2, phase: 'serving' });
    expect((await call(engine, '/health')).status).toBe(200);
  });
});

describe('death of the core', () => {
  it('ends a stream politely: an error event, then [DONE]', async () => {
    const test = await start();
    const { text, response } = await streaming(test);
    await call(test.engine, '/sim/kill-core', { method: 'POST' });
    const url = new URL(
      '../../../../test/fixtures/vllm-0.32.0/stream-killcore.json',
      import.meta.url,
    );
    const fixture = JSON.parse(readFileSync(url, 'utf8')) as { chunks: [number, string][] };
    const ending = fixture.chunks.slice(-2).map(([, event]) => event);
    expect((await text).endsWith(ending.join(''))).toBe(true);
    expect(response.complete).toBe(true);
  });

  it('is 500 for who waits for a whole answer and for who comes later', async () => {
    const { engine } = await start();
    const waiting = call(engine, CHAT_PATH, { body: CHAT });
    await expect.poll(() => engine.state().openRequests, { interval: 1 }).toBe(1);
    engine.killCore();
    const later = await call(engine, CHAT_PATH, { body: STREAM });
    for (const answer of [await waiting, later]) {
      expect(answer.status).toBe(500);
      expect(JSON.parse(answer.text).error).toMatchObject({
        type: 'InternalServerError',
        code: 500,
      });
    }
  });

  it('is 503 on /health, 200 on /metrics, and a closed port two seconds later', async () => {
    const { engine, time } = await start();
    engine.killCore();
    expect((await call(engine, '/health')).status).toBe(503);
    expect((await call(engine, '/metrics')).status).toBe(200);
    time.advance(2_000);
    await expect(call(engine, '/health')).rejects.toThrow(/ECONNREFUSED|ECONNRESET/);
  });
});

describe('frozen core', () => {
  it('is not seen by HTTP: everything answers, gauges stand, no token comes', async () => {
    const test = await start();
    const { engine, time } = test;
    const response = await open(engine, CHAT_PATH, { body: STREAM });
    time.advance(200);
    let events = '';
    response.setEncoding('utf8').on('data', (part: string) => (events += part));
    await call(engine, '/sim/freeze', { method: 'POST' });
    const metrics = await gauges(test);
    expect(metrics).toContain('vllm:num_requests_running{engine="0",model_name="tiny-llama"} 1.0');
    const seen = dataOf(events).length;
    time.advance(60_000);
    expect((await call(engine, '/health')).status).toBe(200);
    expect(await gauges(test)).toEqual(metrics);
    expect(dataOf(events).length).toBe(seen);
    await call(engine, '/sim/thaw', { method: 'POST' });
    time.advance(60_000);
    await expect.poll(() => events).toContain('[DONE]');
  });
});

describe('a client that goes away', () => {
  it.each([
    ['a stream', STREAM],
    ['a whole answer', CHAT],
  ])('ends the work of %s and frees what it held', async (_, body) => {
    const { engine, time } = await start();
    const away = new AbortController();
    const answer = call(engine, CHAT_PATH, { body, signal: away.signal });
    const failed = expect(answer).rejects.toThrow();
    await expect.poll(() => engine.state().openRequests, { interval: 1 }).toBe(1);
    time.advance(200);
    expect(engine.state().heldBlocks).toBeGreaterThan(0);
    away.abort();
    await failed;
    await expect.poll(() => engine.state().openRequests, { interval: 1 }).toBe(0);
    // The step under way still holds its blocks.
    time.advance(1_000);
    expect(engine.state().heldBlocks).toBe(0);
    expect((await call(engine, '/load')).text).toBe('{"server_load":0}');
  });
});

describe('request ids', () => {
  it('may be given twice: both requests are answered under it', async () => {
    const { engine, time } = await start();
    const headers = { 'x-request-id': 'same' };
    const body = { ...STREAM, max_tokens: 3 };
    const both = [
      await open(engine, CHAT_PATH, { body, headers }),
      await open(engine, CHAT_PATH, { body, headers }),
    ];
    time.advance(10_000);
    for (const response of both) {
      const text = await readText(response);
      expect(text).toContain('"id":"chatcmpl-same"');
      expect(text).toContain('[DONE]');
    }
  });
});

describe('a slow engine', () => {
  it('takes as many times as long', async () => {
    const { engine, time } = await start();
    await call(engine, '/sim/slow', { body: { factor: 100 } });
    const response = await open(engine, CHAT_PATH, { body: STREAM });
    time.advance(1_000);
    expect(engine.state().waitingPrefillTokens).toBeGreaterThan(0);
    response.destroy();
    expect((await call(engine, '/sim/slow', { body: {} })).status).toBe(400);
  });
});

describe('options', () => {
  it('ask for the key on /v1 alone', async () => {
    const { engine } = await start({ apiKey: 'secret' });
    const refused = await call(engine, '/v1/models');
    expect([refused.status, refused.text]).toEqual([401, '{"error":"Unauthorized"}']);
    const headers = { authorization: 'Bearer secret' };
    expect((await call(engine, '/v1/models', { headers })).status).toBe(200);
    expect((await call(engine, '/metrics')).status).toBe(200);
  });

  it('leave cached tokens out of usage', async () => {
    const { engine, time } = await start({ promptTokensDetails: false });
    const body = { ...STREAM, max_tokens: 2, stream_options: { include_usage: true } };
    const response = await open(engine, CHAT_PATH, { body });
    time.advance(10_000);
    const usage = JSON.parse(dataOf(await readText(response)).at(-2) ?? '').usage;
    expect(Object.keys(usage)).toEqual(['prompt_tokens', 'total_tokens', 'completion_tokens']);
  });
});

describe('received requests', () => {
  it('are kept as they came, headers and body, up to the limit', async () => {
    const { engine } = await start({ receivedMax: 2 });
    const body = '{"model": "nope",  "messages": [] }';
    await call(engine, CHAT_PATH, { body, headers: { 'X-Odd-Case': 'Yes' } });
    const [kept] = JSON.parse((await call(engine, '/sim/received')).text).requests;
    expect(kept).toMatchObject({
      method: 'POST',
      path: CHAT_PATH,
      body,
      bodyBytes: 35,
    });
    expect(kept.headers).toContainEqual(['X-Odd-Case', 'Yes']);
    for (let at = 0; at < 3; at += 1) await call(engine, `/v1/models?at=${at}`);
    expect(engine.received().map(({ path }) => path)).toEqual([
      '/v1/models?at=1',
      '/v1/models?at=2',
    ]);
  });
});

describe('the wire', () => {
  it("has uvicorn's headers in lower case and none about a connection that stays open", async () => {
    const { engine } = await start();
    const socket = connect(engine.port, '127.0.0.1');
    socket.write('GET /version HTTP/1.1\r\nHost: x\r\n\r\n');
    const text = await new Promise<string>((resolve) =>
      socket.once('data', (data) => resolve(data.toString())),
    );
    socket.destroy();
    const names = text
      .split('\r\n\r\n')[0]!
      .split('\r\n')
      .slice(1)
      .map((line) => line.split(':')[0]);
    expect(names).toEqual(['date', 'server', 'content-length', 'content-type', 'vary']);
  });
});

async function startSeconds({ engine }: TestEngine): Promise<number> {
  const { text } = await call(engine, '/metrics');
  return Number(/^process_start_time_seconds (.+)$/m.exec(text)?.[1]);
}

async function gauges({ engine }: TestEngine): Promise<string[]> {
  const { text } = await call(engine, '/metrics');
  return text.split('\n').filter((line) => /^vllm:(num_requests|kv_cache|generation)/.test(line));
}
