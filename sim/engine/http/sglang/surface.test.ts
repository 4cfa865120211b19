// What a client of a simulated SGLang sees: answers, refusals, its figures, and the ends of its life.

import { describe, expect, it } from 'vitest';

import {
  type Answer,
  answered,
  call,
  CHAT_PATH,
  dataOf,
  open,
  openEngines,
  readText,
  RECORDED_PROFILE,
  settled,
  type TestEngine,
  whenInside,
} from '../test-harness.ts';

const CHAT = {
  model: 'whatever',
  messages: [{ role: 'user', content: 'Tell me of the sea. '.repeat(100) }],
  max_tokens: 20,
};
const STREAM = { ...CHAT, stream: true };
const LONG = { ...CHAT, max_tokens: 4_000 };

const start = openEngines({ kind: 'sglang' });

async function loads({ engine }: TestEngine, query = ''): Promise<Record<string, number>[]> {
  const answer = await call(engine, `/v1/loads${query}`);
  return (JSON.parse(answer.text) as { loads: Record<string, number>[] }).loads;
}

/** One figure of the exposition, all its rows together. */
async function figure({ engine }: TestEngine, row: RegExp): Promise<number> {
  const { text } = await call(engine, '/metrics');
  return text
    .split('\n')
    .filter((line) => !line.startsWith('#') && row.test(line))
    .reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
}

describe('answers', () => {
  it('repeats the model that was asked for, and tells cached tokens only where reported and found', async () => {
    const test = await start({ cacheReport: true });
    const first = JSON.parse((await answered(test, CHAT)).text);
    expect(first).toMatchObject({ object: 'chat.completion', model: 'whatever' });
    expect(first.usage.prompt_tokens_details).toBeNull();
    const second = JSON.parse((await answered(test, CHAT)).text);
    expect(second.usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(300);
    const silent = await start();
    await answered(silent, CHAT);
    const third = JSON.parse((await answered(silent, CHAT)).text);
    expect(third.usage.prompt_tokens_details).toBeNull();
  });

  it('withholds a stream’s header until its first chunk', async () => {
    const test = await start();
    let answer: number | undefined;
    const head = open(test.engine, CHAT_PATH, { body: STREAM }).then((response) => {
      answer = response.statusCode;
      return response;
    });
    await whenInside(test, 1);
    await call(test.engine, '/ping');
    expect(answer).toBeUndefined();
    const text = await settled(test, head.then(readText));
    const events = dataOf(text);
    expect(events.at(-1)).toBe('[DONE]');
    const chunks = events.slice(0, -1).map((each) => JSON.parse(each).choices[0]);
    expect(chunks[0].delta).toMatchObject({ role: 'assistant', content: '' });
    expect(chunks.at(-1)).toMatchObject({
      delta: { reasoning_content: null },
      finish_reason: 'length',
    });
    expect(chunks.slice(0, -1).every((each) => each.finish_reason === null)).toBe(true);
  });

  it('ends with a usage chunk where it was asked for', async () => {
    const test = await start();
    const body = { ...STREAM, stream_options: { include_usage: true } };
    const events = dataOf((await answered(test, body)).text);
    expect(JSON.parse(events.at(-2) ?? '')).toMatchObject({
      choices: [],
      usage: { completion_tokens: 20 },
    });
  });

  it('speaks its own protocol', async () => {
    const test = await start();
    const body = { text: 'Once upon a time', sampling_params: { max_new_tokens: 3 } };
    const whole = await answered(test, body, '/generate');
    expect(JSON.parse(whole.text).meta_info).toMatchObject({
      finish_reason: { type: 'length', length: 3 },
      completion_tokens: 3,
    });
    const stream = { ...body, stream: true };
    const events = dataOf((await answered(test, stream, '/generate')).text);
    const last = JSON.parse(events.at(-2) ?? '');
    expect(last.text).toBe(JSON.parse(whole.text).text);
    const bad = await call(test.engine, '/generate', { body: {} });
    expect([bad.status, JSON.parse(bad.text)]).toEqual([
      400,
      { error: { message: 'Either text or input_ids should be provided.' } },
    ]);
    const many = { ...body, sampling_params: { n: 1_000_000_000 } };
    expect((await call(test.engine, '/generate', { body: many })).status).toBe(400);
  });

  it('knows itself', async () => {
    const { engine } = await start({ dataParallelSize: 2 });
    const get = async (path: string) => JSON.parse((await call(engine, path)).text);
    expect(await get('/model_info')).toMatchObject({ model_path: 'tiny-llama' });
    expect(await get('/server_info')).toMatchObject({
      ...{ page_size: 32, dp_size: 2, version: '0.5.18', kv_events: null },
      max_total_num_tokens: 1_024 * 32,
    });
    expect((await get('/v1/models')).data[0]).toMatchObject({ owned_by: 'sglang' });
    expect(await get('/get_load')).toHaveLength(2);
  });
});

describe('refusals', () => {
  const FULL = { object: 'error', message: 'The request queue is full.', param: null, code: 503 };
  const ONE_QUEUED = { profile: { ...RECORDED_PROFILE, maxNumSeqs: 1 }, maxQueuedRequests: 1 };

  it('answers 503 when the queue is full, and the same as first chunk of a stream', async () => {
    const test = await start(ONE_QUEUED);
    const inside: Promise<Answer>[] = [];
    for (let count = 1; count <= 2; count += 1) {
      inside.push(call(test.engine, CHAT_PATH, { body: LONG }));
      await whenInside(test, count);
      test.time.advance(100);
    }
    const whole = await call(test.engine, CHAT_PATH, { body: CHAT });
    expect([whole.status, JSON.parse(whole.text)]).toEqual([503, { ...FULL, type: '503' }]);
    const stream = await call(test.engine, CHAT_PATH, { body: STREAM });
    expect(stream.status).toBe(200);
    const [chunk, done] = dataOf(stream.text);
    expect(JSON.parse(chunk ?? '')).toEqual({ error: { ...FULL, type: 'SERVICE_UNAVAILABLE' } });
    expect(done).toBe('[DONE]');
    await settled(test, Promise.all(inside), 1_000);
  });

  it.each([false, true])(
    'refuses what is too long with a flat 400, streamed: %s',
    async (stream) => {
      const { engine } = await start();
      const answer = await call(engine, CHAT_PATH, {
        body: { ...CHAT, max_tokens: 100_000, stream },
      });
      expect(answer.status).toBe(400);
      const body = JSON.parse(answer.text);
      expect(body).toMatchObject({ object: 'error', type: 'BadRequestError', code: 400 });
      expect(body.message).toContain("Requested token count exceeds the model's maximum context");
    },
  );

  it('has no /metrics unless it was asked for', async () => {
    expect((await call((await start()).engine, '/metrics')).status).toBe(404);
    expect((await call((await start({ metrics: true })).engine, '/metrics')).status).toBe(200);
  });

  it('flushes its cache only while nothing is inside', async () => {
    const test = await start({ cacheReport: true });
    await answered(test, CHAT);
    const busy = call(test.engine, CHAT_PATH, { body: LONG });
    await whenInside(test, 1);
    expect((await call(test.engine, '/flush_cache', { method: 'POST' })).status).toBe(400);
    await settled(test, busy, 1_000);
    expect((await call(test.engine, '/flush_cache', { method: 'POST' })).status).toBe(200);
    const after = JSON.parse((await answered(test, CHAT)).text);
    expect(after.usage.prompt_tokens_details).toBeNull();
  });
});

describe('figures', () => {
  it('tells exactly what waits to be computed, and who', async () => {
    const test = await start({ profile: { ...RECORDED_PROFILE, maxNumSeqs: 1 } });
    const inside = [LONG, LONG].map((body) => call(test.engine, CHAT_PATH, { body }));
    await whenInside(test, 2);
    test.time.advance(1_000);
    const [row] = await loads(test);
    const { waitingPrefillTokens } = test.engine.state();
    expect(row).toMatchObject({
      num_running_reqs: 1,
      num_waiting_reqs: 1,
      num_waiting_uncached_tokens: waitingPrefillTokens,
      max_total_num_tokens: 1_024 * 32,
    });
    expect(waitingPrefillTokens).toBeGreaterThan(0);
    await settled(test, Promise.all(inside), 1_000);
  });

  it('writes its loads while it has nothing to do, and not while it hangs', async () => {
    const test = await start();
    const at = async (): Promise<number> => (await loads(test))[0]?.['timestamp'] ?? NaN;
    const before = await at();
    test.time.advance(5_000);
    expect(await at()).toBeCloseTo(before + 5);
    test.engine.freeze();
    const hung = await at();
    test.time.advance(60_000);
    expect(await at()).toBe(hung);
  });

  it('selects rows and sections, and writes them as metrics too', async () => {
    const test = await start({ dataParallelSize: 2 });
    expect(await loads(test, '?dp_rank=1')).toMatchObject([{ dp_rank: 1 }]);
    const [core] = await loads(test, '?include=core&dp_rank=0');
    expect(core).not.toHaveProperty('memory');
    expect((await call(test.engine, '/v1/loads?include=nothing')).status).toBe(400);
    const { text } = await call(test.engine, '/v1/loads?format=prometheus');
    expect(text).toContain('sglang_num_waiting_reqs{dp_rank="1"} 0\n');
  });

  it('counts computed and found tokens by batch, everything of a request at its end', async () => {
    const test = await start({ metrics: true });
    const answer = call(test.engine, CHAT_PATH, { body: LONG });
    await whenInside(test, 1);
    test.time.advance(500);
    const computed = await figure(test, /realtime_tokens_total.*prefill_compute/);
    expect(computed).toBeGreaterThan(400);
    expect(await figure(test, /^sglang:prompt_tokens_total/)).toBe(0);
    await settled(test, answer, 1_000);
    expect(await figure(test, /^sglang:prompt_tokens_total/)).toBe(computed);
    await answered(test, CHAT);
    expect(await figure(test, /realtime_tokens_total.*prefill_cache/)).toBeGreaterThan(300);
  });

  it('sees the first token and the others of a stream as they come, of others only the end', async () => {
    const test = await start({ metrics: true });
    await answered(test, CHAT);
    const names = ['time_to_first_token', 'e2e_request_latency', 'inter_token_latency'];
    const sums = () =>
      Promise.all(names.map((name) => figure(test, new RegExp(`${name}_seconds_sum`))));
    const [first = 0, whole, between] = await sums();
    expect([first > 0.05, between]).toEqual([true, 0]);
    expect(first).toBe(whole);
    await answered(test, {
      ...STREAM,
      messages: [{ role: 'user', content: 'other '.repeat(500) }],
    });
    const [firsts = 0, wholes = 0, betweens = 0] = await sums();
    expect(betweens).toBeCloseTo(wholes - firsts, 5);
    expect(await figure(test, /inter_token_latency_seconds_count/)).toBe(19);
  });

  it('keeps its gauges until the next prefill or the 40th decode: an idle server still shows a running request', async () => {
    const test = await start({ metrics: true });
    await answered(test, CHAT);
    expect(test.engine.state().running).toBe(0);
    expect(await figure(test, /^sglang:num_running_reqs\{/)).toBe(1);
  });

  it('runs a request on the rank that it names', async () => {
    const test = await start({ dataParallelSize: 2 });
    const headers = { 'x-data-parallel-rank': '1' };
    const answer = call(test.engine, CHAT_PATH, { body: LONG, headers });
    await whenInside(test, 1);
    expect(test.engine.state().ranks.map(({ openRequests }) => openRequests)).toEqual([0, 1]);
    const wrong = { 'x-data-parallel-rank': '7' };
    expect((await call(test.engine, CHAT_PATH, { body: CHAT, headers: wrong })).status).toBe(400);
    await settled(test, answer, 1_000);
  });
});

describe('health', () => {
  it('is 503 from the open port until the warm-up is over, while requests wait', async () => {
    const test = await start({ loadingMs: 10_000, warmUpMs: 2_000 });
    test.time.advance(7_999);
    await expect(call(test.engine, '/ping')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    test.time.advance(1);
    await expect
      .poll(
        () =>
          call(test.engine, '/ping').then(
            ({ status }) => status,
            () => 0,
          ),
        { interval: 1 },
      )
      .toBe(200);
    expect((await call(test.engine, '/health')).status).toBe(503);
    const early = call(test.engine, CHAT_PATH, { body: CHAT });
    await call(test.engine, '/ping');
    expect(test.engine.state().openRequests).toBe(0);
    expect((await settled(test, early)).status).toBe(200);
    expect((await settled(test, call(test.engine, '/health'))).status).toBe(200);
  });

  it('takes a second at least', async () => {
    const test = await start();
    const before = test.time.nowMs();
    const health = call(test.engine, '/health');
    await whenInside(test, 1);
    expect((await settled(test, health, 250)).status).toBe(200);
    expect(test.time.nowMs() - before).toBeGreaterThanOrEqual(1_000);
  });

  it('is 503 after 20 seconds in which nothing came back', async () => {
    const test = await start();
    test.engine.freeze();
    const before = test.time.nowMs();
    const health = call(test.engine, '/health_generate');
    await whenInside(test, 1);
    expect((await settled(test, health, 500)).status).toBe(503);
    expect(test.time.nowMs() - before).toBeGreaterThanOrEqual(20_000);
    expect((await call(test.engine, '/v1/models')).status).toBe(200);
    await test.engine.terminate();
    await expect(call(test.engine, '/ping')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });

  it('is satisfied with what came back for others', async () => {
    const test = await start({ profile: { ...RECORDED_PROFILE, maxNumSeqs: 1 } });
    const busy = call(test.engine, CHAT_PATH, { body: LONG });
    await whenInside(test, 1);
    test.time.advance(100);
    const health = call(test.engine, '/health');
    await whenInside(test, 2);
    test.time.advance(1_000);
    expect((await health).status).toBe(200);
    expect(test.engine.state().openRequests).toBe(1);
    await settled(test, busy, 1_000);
  });
});

describe('its ends', () => {
  it('goes on after SIGTERM, unhealthy, until nothing is inside', async () => {
    const test = await start();
    const response = await (async () => {
      const head = open(test.engine, CHAT_PATH, { body: { ...LONG, stream: true } });
      await whenInside(test, 1);
      test.time.advance(100);
      return head;
    })();
    const stream = readText(response);
    let gone = false;
    const end = test.engine.terminate().then(() => (gone = true));
    test.time.advance(5_000);
    expect((await call(test.engine, '/health')).status).toBe(503);
    const late = await answered(test, CHAT);
    expect(late.status).toBe(200);
    expect(gone).toBe(false);
    expect(dataOf(await settled(test, stream, 1_000)).at(-1)).toBe('[DONE]');
    await settled(test, end, 1_000);
    await expect(call(test.engine, '/ping')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });

  it('takes everything with it when a scheduler dies', async () => {
    const test = await start();
    const head = open(test.engine, CHAT_PATH, { body: { ...LONG, stream: true } });
    await whenInside(test, 1);
    test.time.advance(100);
    const cut = expect(head.then(readText)).rejects.toMatchObject({ code: 'ECONNRESET' });
    await head;
    test.engine.killCore();
    await cut;
    await expect(call(test.engine, '/ping')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });

  it('ends with reason abort what somebody else aborts', async () => {
    const test = await start({ metrics: true });
    const body = { ...LONG, rid: 'mine' };
    const whole = call(test.engine, CHAT_PATH, { body });
    await whenInside(test, 1);
    const head = open(test.engine, CHAT_PATH, { body: { ...body, stream: true } });
    await whenInside(test, 2);
    test.time.advance(200);
    const stream = head.then(readText);
    await call(test.engine, '/abort_request', { body: { rid: 'mine' } });
    expect(JSON.parse((await whole).text).choices[0].finish_reason).toBe('abort');
    const [last, done] = dataOf(await stream).slice(-2);
    expect(JSON.parse(last ?? '').choices[0].finish_reason).toBe('abort');
    expect(done).toBe('[DONE]');
    expect(test.engine.state().openRequests).toBe(0);
    expect(await figure(test, /^sglang:num_aborted_requests_total/)).toBe(2);
  });

  it('gives back what a client that left had, and counts it', async () => {
    const test = await start({ metrics: true });
    const left = new AbortController();
    const gone = call(test.engine, CHAT_PATH, { body: LONG, signal: left.signal });
    await whenInside(test, 1);
    left.abort();
    await expect(gone).rejects.toThrow();
    await whenInside(test, 0);
    expect(await figure(test, /^sglang:num_aborted_requests_total/)).toBe(1);
  });
});
