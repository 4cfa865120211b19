// KV events of a whole simulated engine, as a subscriber hears them.

import { Unpackr } from 'msgpackr';
import { afterEach, describe, expect, it } from 'vitest';
import { Dealer, Subscriber } from 'zeromq';

import type { EngineServerOptions } from './options.ts';
import { call, startTestEngine, type TestEngine } from './test-harness.ts';

const EVENTS = {
  endpoint: 'tcp://*:0',
  replayEndpoint: 'tcp://*:0',
  bufferSteps: 10_000,
  hwm: 1_000,
  maxQueueSize: 1_000,
  topic: 'kv@pod',
};
const PROMPT = 'Tell me of the sea and of the sky. '.repeat(40);
const unpackr = new Unpackr({ useRecords: false, mapsAsObjects: true, int64AsType: 'bigint' });

interface StoredEvent {
  readonly type: string;
  readonly block_hashes: readonly bigint[];
  readonly parent_block_hash: bigint | null;
  readonly token_ids: readonly number[];
}

interface Heard {
  readonly seq: number;
  readonly rank: number;
  readonly events: readonly StoredEvent[];
}

const open: (() => unknown)[] = [];

afterEach(async () => {
  for (const close of open.splice(0).toReversed()) await close();
});

async function start(options: Partial<EngineServerOptions> = {}): Promise<TestEngine> {
  const test = await startTestEngine({ kvEvents: EVENTS, ...options });
  open.push(() => test.engine.close());
  return test;
}

function heard([, seq, payload]: readonly Buffer[]): Heard {
  const [, events, rank] = unpackr.unpack(payload!) as [number, StoredEvent[], number];
  return { seq: Number(seq!.readBigInt64BE()), rank, events };
}

/** All batches that are kept, by replay: nothing is lost to a subscriber that came late. */
async function replayed({ engine }: TestEngine, rank = 0): Promise<Heard[]> {
  const dealer = new Dealer({ linger: 0, receiveTimeout: 5_000 });
  open.push(() => dealer.close());
  dealer.connect(engine.kvEndpoints()[rank]!.replay!);
  await dealer.send(['', Buffer.alloc(8)]);
  const batches: Heard[] = [];
  for (;;) {
    const frames = await dealer.receive();
    if (frames.at(-1)!.length === 0) return batches;
    batches.push(heard(frames.slice(1)));
  }
}

async function complete(test: TestEngine, body: object = {}, headers = {}): Promise<void> {
  const whole = { prompt: PROMPT, max_tokens: 40, ...body };
  const answer = call(test.engine, '/v1/completions', { body: whole, headers });
  await expect.poll(() => test.engine.state().openRequests, { interval: 1 }).toBeGreaterThan(0);
  test.time.advance(60_000);
  await answer;
}

describe('the events of an engine', () => {
  it('tell every full block of prompt and answer, with the tokens of /tokenize', async () => {
    const test = await start();
    await complete(test);
    const batches = await replayed(test);
    expect(batches.map(({ seq }) => seq)).toEqual(batches.map((_, at) => at));
    const stored = batches.flatMap(({ events }) => events);
    expect(stored[0]!.parent_block_hash).toBeNull();
    for (const [at, event] of stored.slice(1).entries()) {
      expect(event.parent_block_hash).toBe(stored[at]!.block_hashes.at(-1));
    }
    const ids = stored.flatMap(({ token_ids }) => token_ids);
    const answer = await call(test.engine, '/tokenize', { body: { prompt: PROMPT } });
    const { tokens, count } = JSON.parse(answer.text) as { tokens: number[]; count: number };
    expect(ids.slice(0, count)).toEqual(tokens);
    expect(ids).toHaveLength(Math.floor((count + 40 - 1) / 32) * 32);
  });

  it('come live, numbered, under the topic', async () => {
    const test = await start();
    const subscriber = new Subscriber({ linger: 0, receiveTimeout: 20 });
    open.push(() => subscriber.close());
    subscriber.connect(test.engine.kvEndpoints()[0]!.publish);
    subscriber.subscribe('kv@pod');
    let first: Buffer[] | null = null;
    for (let tries = 0; tries < 100 && first === null; tries += 1) {
      await complete(test, { prompt: `${tries} ${PROMPT}`, max_tokens: 1 });
      first = await subscriber.receive().catch(() => null);
    }
    const [topic] = first!;
    expect(topic!.toString()).toBe('kv@pod');
    expect(heard(first!).events[0]!.type).toBe('BlockStored');
  });

  it('are numbered from 0 again, with other hashes, at the same place after a restart', async () => {
    const test = await start();
    await complete(test);
    const [before] = await replayed(test);
    const endpoints = test.engine.kvEndpoints();
    await test.engine.crash({});
    test.engine.restart();
    await test.engine.whenServing();
    expect(await replayed(test)).toEqual([]);
    await complete(test);
    const [after] = await replayed(test);
    expect([before!.seq, after!.seq]).toEqual([0, 0]);
    expect(after!.events[0]!.token_ids).toEqual(before!.events[0]!.token_ids);
    expect(after!.events[0]!.block_hashes).not.toEqual(before!.events[0]!.block_hashes);
    expect(test.engine.kvEndpoints()).toEqual(endpoints);
  });

  it('are each rank’s own, on a port of its own, with its number', async () => {
    const test = await start({ dataParallelSize: 2 });
    await complete(test, {}, { 'x-data-parallel-rank': '1' });
    expect(await replayed(test, 0)).toEqual([]);
    const batches = await replayed(test, 1);
    expect(new Set(batches.map(({ rank }) => rank))).toEqual(new Set([1]));
  });

  it('say so when the cache was cleared, with the next step', async () => {
    const test = await start({ vllm: { devMode: true } });
    await complete(test);
    await call(test.engine, '/reset_prefix_cache', { method: 'POST' });
    await complete(test);
    const types = (await replayed(test)).flatMap(({ events }) => events.map(({ type }) => type));
    expect(types.filter((type) => type === 'AllBlocksCleared')).toHaveLength(1);
  });

  it('keep their numbers when they are dropped on purpose', async () => {
    const test = await start();
    const dropped = await call(test.engine, '/sim/drop-events', { body: { count: 2 } });
    expect(dropped.status).toBe(200);
    await complete(test);
    expect((await replayed(test)).map(({ seq }) => seq).slice(0, 3)).toEqual([0, 1, 2]);
    expect((await call(test.engine, '/sim/drop-events', { body: {} })).status).toBe(400);
  });

  it('have their publishers named by /kv_event_sources', async () => {
    const test = await start({ dataParallelSize: 2 });
    const sources = JSON.parse((await call(test.engine, '/kv_event_sources')).text);
    const [first, second] = test.engine.kvEndpoints();
    expect(sources).toMatchObject({
      0: { publisher: 'zmq', endpoint: first!.publish, replay_endpoint: first!.replay },
      1: { endpoint: second!.publish, topic: 'kv@pod', buffer_steps: 10_000 },
    });
  });

  it('are none where none were asked for', async () => {
    const test = await start({ kvEvents: undefined as never });
    expect(test.engine.kvEndpoints()).toEqual([]);
  });
});

describe('endpoints that are not to be had', () => {
  it.each(['tcp://nonsense', 'tcp://192.0.2.1:*'])(
    'end the start, naming them: %s',
    async (endpoint) => {
      const starting = startTestEngine({ kvEvents: { ...EVENTS, endpoint } });
      await expect(starting).rejects.toThrow(`KV events cannot be published on ${endpoint}`);
    },
  );
});
