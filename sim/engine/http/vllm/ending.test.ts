// How a vLLM ends, as the clients of running requests see it.

import { readFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
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
import type { VllmOptions } from './options.ts';

const BODY = {
  messages: [{ role: 'user', content: 'Tell me of the sea. '.repeat(20) }],
  max_tokens: 4_000,
};
const STREAM = { ...BODY, stream: true, stream_options: { include_usage: true } };

const startEngine = openEngines();
const start = (vllm: VllmOptions = {}): Promise<TestEngine> => startEngine({ vllm });

/** A stream that has shown its first token, and its text so far. */
async function streaming({ engine, time }: TestEngine) {
  const response = await open(engine, CHAT_PATH, { body: STREAM });
  time.advance(200);
  const seen = { text: '', ended: false };
  response.setEncoding('utf8').on('data', (part: string) => (seen.text += part));
  response.once('end', () => (seen.ended = true));
  response.on('error', () => {});
  await expect.poll(() => seen.text, { interval: 1 }).toContain('content');
  return { response, seen };
}

function recordedEvents(name: string): string[] {
  const url = new URL(`../../../../test/fixtures/vllm-0.32.0/${name}`, import.meta.url);
  const { chunks } = JSON.parse(readFileSync(url, 'utf8')) as { chunks: [number, string][] };
  return chunks.map(([, event]) => event);
}

describe('SIGTERM with the default time-out', () => {
  it.each(['hang', 'error', 'abort'] as const)(
    'closes the port at once while a stream ends by: %s',
    async (termEnding) => {
      const test = await start({ termEnding });
      await streaming(test);
      void test.engine.terminate();
      await expect(call(test.engine, '/health')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    },
  );

  it('may say nothing more for long and keep the connection', async () => {
    const test = await start({ termEnding: 'hang' });
    const { seen } = await streaming(test);
    const gone = test.engine.terminate();
    const before = seen.text;
    test.time.advance(29_000);
    await expect(call(test.engine, '/health')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    expect([seen.text, seen.ended]).toEqual([before, false]);
    test.time.advance(1_000);
    await gone;
  });

  it('may end the stream by an error event and [DONE], as recorded', async () => {
    const test = await start({ termEnding: 'error' });
    const { seen, response } = await streaming(test);
    const gone = test.engine.terminate();
    await expect.poll(() => seen.ended, { interval: 1 }).toBe(true);
    expect(seen.text.endsWith(recordedEvents('stream-term-error.json').join(''))).toBe(true);
    expect(response.complete).toBe(true);
    test.time.advance(1_000);
    await gone;
  });

  it('may end it by reason abort, usage and [DONE], as recorded', async () => {
    const test = await start({ termEnding: 'abort' });
    const { seen } = await streaming(test);
    const gone = test.engine.terminate();
    test.time.advance(1_000);
    await expect.poll(() => seen.ended, { interval: 1 }).toBe(true);
    const ours = dataOf(seen.text).slice(-3);
    const theirs = recordedEvents('stream-term-abort.json').slice(-3).flatMap(dataOf);
    expect([ours[2], theirs[2]]).toEqual(['[DONE]', '[DONE]']);
    const [own, real] = [ours, theirs].map((events) => JSON.parse(events[0]!).choices[0]);
    expect(own.finish_reason).toBe(real.finish_reason);
    expect(Object.keys(own)).toEqual(Object.keys(real));
    const [usage, recordedUsage] = [ours, theirs].map((events) => JSON.parse(events[1]!));
    expect(Object.keys(usage)).toEqual(Object.keys(recordedUsage));
    await gone;
  });

  it('may look complete to a client of /v1/responses, as the real one does', async () => {
    const test = await start({ termEnding: 'abort' });
    const body = { input: 'Tell me of the sea.', max_output_tokens: 4_000 };
    const answer = call(test.engine, '/v1/responses', { body });
    await expect.poll(() => test.engine.state().openRequests, { interval: 1 }).toBe(1);
    test.time.advance(200);
    void test.engine.terminate();
    test.time.advance(100);
    expect(JSON.parse((await answer).text)).toMatchObject({
      status: 'completed',
      incomplete_details: null,
    });
  });

  it('draws one of the three', async () => {
    const endings = new Set<string>();
    for (let tries = 0; tries < 20 && endings.size < 3; tries += 1) {
      const test = await start();
      // Each engine draws from the same seed: the draws before the end make the difference.
      for (let at = 0; at < tries; at += 1) await call(test.engine, '/v1/models');
      const { seen } = await streaming(test);
      void test.engine.terminate();
      test.time.advance(100);
      await call(test.engine, '/health').catch(() => {});
      endings.add(
        seen.text.includes('"error"') ? 'error' : seen.text.includes('abort') ? 'abort' : 'hang',
      );
      await test.engine.close();
    }
    expect(endings).toEqual(new Set(['hang', 'error', 'abort']));
  });

  it('ends an idle process, and one that loads, at once', async () => {
    const idle = await start();
    await idle.engine.terminate();
    const loading = await startEngine({ loadingMs: 5_000 });
    await loading.engine.terminate();
    await expect(call(loading.engine, '/health')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });
});

describe('SIGTERM with a time-out', () => {
  it('lets what runs finish, and answers what comes by reason abort without a token', async () => {
    const test = await start({ shutdownTimeoutMs: 600_000 });
    const { seen } = await streaming(test);
    const gone = test.engine.terminate();
    const late = call(test.engine, CHAT_PATH, { body: BODY });
    await expect.poll(() => test.engine.state().openRequests, { interval: 1 }).toBe(2);
    test.time.advance(100);
    const { status, text } = await late;
    const { choices, usage } = JSON.parse(text);
    expect([status, choices[0].finish_reason, usage.completion_tokens]).toEqual([200, 'abort', 0]);
    expect((await call(test.engine, '/health')).status).toBe(200);
    // In small steps: what was written needs real time to arrive.
    const ended = (): boolean => {
      if (!seen.ended) test.time.advance(100);
      return seen.ended;
    };
    await expect.poll(ended, { interval: 1, timeout: 5_000 }).toBe(true);
    expect(seen.text).toContain('"finish_reason":"length"');
    test.time.advance(1_000);
    await gone;
    await expect(call(test.engine, '/health')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });

  it('ends what is left when the time is over', async () => {
    const test = await start({ shutdownTimeoutMs: 1_000 });
    const { seen } = await streaming(test);
    const gone = test.engine.terminate();
    test.time.advance(2_000);
    await gone;
    expect(seen.text).not.toContain('"finish_reason":"length"');
  });
});

describe('the death of the core under other protocols', () => {
  it('is an error event without an end for a stream of /v1/messages', async () => {
    const test = await start();
    const body = { model: 'tiny-llama', ...BODY, stream: true };
    const response = await open(test.engine, '/v1/messages', { body });
    const text = readText(response);
    test.time.advance(200);
    test.engine.killCore();
    const events = (await text).split('\n\n').filter((event) => event !== '');
    expect(events.at(-1)).toMatch(
      /^event: error\ndata: \{"type":"error","error":\{"type":"internal/,
    );
    expect(events.join()).not.toContain('message_stop');
  });

  it('is a cut connection for a stream of /v1/responses', async () => {
    const test = await start();
    const body = { input: 'Tell me of the sea.', max_output_tokens: 400, stream: true };
    const response: IncomingMessage = await open(test.engine, '/v1/responses', { body });
    const text = readText(response);
    const cut = expect(text).rejects.toMatchObject({ code: 'ECONNRESET' });
    test.engine.killCore();
    await cut;
  });
});
