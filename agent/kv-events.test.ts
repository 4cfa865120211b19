import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Packr } from 'msgpackr';
import { afterEach, describe, expect, test } from 'vitest';
import { Publisher } from 'zeromq';
import { decodeKvFrames, replayRequest } from './engines/kv-events.ts';
import { KvListener, type KvCount, type KvListenerDeps } from './kv-events.ts';
import type { KvBatch, KvEventsOptions } from './policy/kv-event.ts';
import { createLog } from '../shared/runtime/log.ts';
import { ManualTime } from '../shared/runtime/manual-time.ts';
import { systemTimers } from '../shared/runtime/timers.ts';
import { KvPublisher } from '../sim/engine/http/kv-publisher.ts';
import { until } from '../test/e2e/until.ts';

const running: (() => void)[] = [];

afterEach(() => {
  for (const stop of running.splice(0).reverse()) stop();
});

const packr = new Packr({ useRecords: false });
const EMPTY_BATCH = packr.pack([1, [], 0]);

/** A listener, and what it heard. */
class Ear {
  readonly heard: KvBatch[] = [];
  readonly replayed: number[] = [];
  readonly ends: number[] = [];
  readonly counts: Partial<Record<KvCount, number>> = {};
  readonly lines: string[] = [];
  readonly listener: KvListener;

  constructor(
    options: Partial<KvEventsOptions> & { endpoint: string },
    rest: Partial<KvListenerDeps> = {},
  ) {
    const destination = { write: (line: string): void => void this.lines.push(line) };
    this.listener = new KvListener({
      options: { replay: null, topic: '', bind: false, ...options },
      rank: 0,
      host: '127.0.0.1',
      timers: systemTimers,
      log: createLog({ level: 'warn', readable: false, destination }),
      heard: (batches) => this.heard.push(...batches),
      replayed: (fromSeq, batches, done) => {
        this.replayed.push(...batches.map((each) => each.seq));
        if (done) this.ends.push(fromSeq);
      },
      count: (what, by) => {
        this.counts[what] = (this.counts[what] ?? 0) + by;
      },
      ...rest,
    });
    running.push(() => this.listener.close());
  }

  get seqs(): number[] {
    return this.heard.map((each) => each.seq);
  }
}

async function engine(options: { replaysTopic?: boolean; replays?: boolean } = {}): Promise<{
  publisher: KvPublisher;
  endpoint: string;
  replay: string | null;
}> {
  const { replaysTopic = true, replays = true } = options;
  const publisher = new KvPublisher(
    {
      endpoint: 'tcp://127.0.0.1:*',
      replayEndpoint: replays ? 'tcp://127.0.0.1:*' : null,
      bufferSteps: 100,
      hwm: 1_000,
      maxQueueSize: 1_000,
      topic: 'kv@pod',
    },
    { replaysTopic },
  );
  await publisher.start();
  running.push(() => publisher.close());
  return { publisher, endpoint: publisher.endpoint, replay: publisher.replayEndpoint };
}

/** Publishes, as the first to do so, until the listener hears (a subscription takes a moment) and has heard the last. */
async function meet(publisher: KvPublisher, ear: Ear): Promise<void> {
  let published = 0;
  await until(() => {
    publisher.publish(EMPTY_BATCH);
    published += 1;
    return ear.heard.length > 0;
  });
  await until(() => ear.seqs.at(-1) === published - 1);
}

test('hears a real engine’s recorded frames as they were published, without their token ids', async () => {
  const file = new URL('../test/fixtures/vllm-0.32.0/kv-events.jsonl', import.meta.url);
  const frames = readFileSync(file, 'utf8')
    .trim()
    .split('\n')
    .map((line) => {
      const row = JSON.parse(line) as { topic: string; seq: number; payloadBase64: string };
      const payload = Buffer.from(row.payloadBase64, 'base64');
      return [Buffer.from(row.topic), replayRequest(row.seq)[1]!, payload];
    });
  const publisher = new Publisher({ linger: 0 });
  await publisher.bind('tcp://127.0.0.1:*');
  running.push(() => publisher.close());
  const ear = new Ear({ endpoint: publisher.lastEndpoint ?? '', topic: 'kv@' });
  await ear.listener.start();
  await until(async () => {
    await publisher.send(['kv@pod', replayRequest(0)[1]!, EMPTY_BATCH]);
    return ear.heard.length > 0;
  });
  const met = ear.counts.batch ?? 0;
  await publisher.send(['elsewhere', replayRequest(9)[1]!, EMPTY_BATCH]);
  for (const each of frames) await publisher.send(each);
  await until(() => (ear.heard.at(-1)?.seq ?? 0) === 533);
  const heard = ear.heard.slice(-frames.length);
  expect(heard).toEqual(
    frames.map((each) => {
      const message = decodeKvFrames(each, { tokens: false });
      return message.kind === 'batch' ? message.batch : null;
    }),
  );
  expect(ear.counts.batch).toBeGreaterThanOrEqual(met + frames.length);
  expect(ear.counts.malformed).toBeUndefined();
});

describe('a replay', () => {
  test.each([
    ['with the topic (vLLM from 0.25)', true],
    ['without it (before, and SGLang)', false],
  ])('%s brings what was missed, and its end', async (_, replaysTopic) => {
    const { publisher, endpoint, replay } = await engine({ replaysTopic });
    const ear = new Ear({ endpoint, replay });
    await ear.listener.start();
    await meet(publisher, ear);
    const last = ear.seqs.at(-1) ?? 0;
    publisher.drop(3);
    for (let i = 0; i < 5; i += 1) publisher.publish(EMPTY_BATCH);
    await until(() => ear.seqs.at(-1) === last + 5);
    expect(ear.seqs.slice(-3)).toEqual([last, last + 4, last + 5]);
    await ear.listener.replay(last + 1);
    expect(ear.replayed).toEqual([1, 2, 3, 4, 5].map((each) => last + each));
    expect(ear.ends).toEqual([last + 1]);
  });

  test('that the engine does not offer ends at once with nothing', async () => {
    const { endpoint } = await engine({ replays: false });
    const ear = new Ear({ endpoint });
    await ear.listener.start();
    await ear.listener.replay(7);
    expect([ear.replayed, ear.ends]).toEqual([[], [7]]);
  });

  test('that is overtaken by another says nothing more', async () => {
    const { publisher, endpoint, replay } = await engine();
    const ear = new Ear({ endpoint, replay });
    await ear.listener.start();
    await meet(publisher, ear);
    const first = ear.listener.replay(0);
    await Promise.all([first, ear.listener.replay(0)]);
    expect(ear.ends).toEqual([0]);
  });
});

test('binds where the engine connects', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'spillway-kv-'));
  running.push(() => rmSync(folder, { recursive: true }));
  const endpoint = `ipc://${folder}/events`;
  const ear = new Ear({ endpoint, bind: true });
  await ear.listener.start();
  const publisher = new Publisher({ linger: 0 });
  publisher.connect(endpoint);
  running.push(() => publisher.close());
  await until(async () => {
    await publisher.send(['t', replayRequest(4)[1]!, EMPTY_BATCH]);
    return ear.heard.length > 0;
  });
  expect(ear.seqs[0]).toBe(4);
});

test('a rank has the port after', async () => {
  const { publisher, endpoint } = await engine();
  const port = Number(endpoint.slice(endpoint.lastIndexOf(':') + 1));
  const ear = new Ear({ endpoint: `tcp://*:${port - 1}` }, { rank: 1 });
  await ear.listener.start();
  await meet(publisher, ear);
  expect(ear.heard.length).toBeGreaterThan(0);
});

test.each([
  ['an address that is none', 'tcp://nowhere', 0],
  ['a rank for which there is none', 'ipc:///tmp/spillway-none', 1],
])('%s is said once, and everything else goes on', async (_, endpoint, rank) => {
  const ear = new Ear({ endpoint }, { rank });
  await ear.listener.start();
  expect(ear.lines).toHaveLength(1);
  expect(ear.lines[0]).toContain('kv events cannot be heard');
  await ear.listener.replay(0);
});

test('an address where nobody answers is said once', async () => {
  const { publisher, endpoint } = await engine({ replays: false });
  publisher.close();
  const ear = new Ear({ endpoint });
  await ear.listener.start();
  await until(() => ear.lines.length > 0);
  expect(ear.lines[0]).toContain('nobody answers');
});

test('a port that speaks no ZeroMQ is nobody, said once, however often it is tried', async () => {
  let tries = 0;
  const server = createServer((socket) => {
    tries += 1;
    socket.end('HTTP/1.1 400 Bad Request\r\n\r\n');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  running.push(() => server.close());
  const { port } = server.address() as AddressInfo;
  const ear = new Ear({ endpoint: `tcp://127.0.0.1:${port}` });
  await ear.listener.start();
  await until(() => tries >= 3);
  expect(ear.lines).toHaveLength(1);
  expect(ear.lines[0]).toContain('nobody answers');
});

test('what is no batch is counted and harms nothing', async () => {
  const { publisher, endpoint } = await engine();
  const ear = new Ear({ endpoint });
  await ear.listener.start();
  await meet(publisher, ear);
  publisher.publish(Buffer.from('nonsense'));
  publisher.publish(packr.pack([1, [{ type: 'BlockMoved' }], 0]));
  await until(() => ear.counts.unknown_event === 1);
  expect(ear.counts.malformed).toBe(1);
  expect(ear.lines).toHaveLength(1);
  expect(ear.lines[0]).toContain('no batch');
});

/** A listener that has received, and hands on in time moved by hand. */
async function listening() {
  const { publisher, endpoint } = await engine();
  const time = new ManualTime();
  const ear = new Ear({ endpoint }, { timers: time });
  await ear.listener.start();
  await until(() => {
    publisher.publish(EMPTY_BATCH);
    return (ear.counts.batch ?? 0) > 0;
  });
  return { publisher, time, ear };
}

test('a flood is dropped beyond 1,024 batches, and what was kept is handed on in one piece', async () => {
  const { publisher, time, ear } = await listening();
  await until(() => {
    for (let i = 0; i < 100; i += 1) publisher.publish(EMPTY_BATCH);
    return (ear.counts.dropped ?? 0) > 0;
  });
  expect(ear.heard).toEqual([]);
  expect(ear.counts.batch).toBe(1_024);
  time.advance(10);
  expect(ear.heard).toHaveLength(1_024);
});

test('what takes too long to decode is dropped too, but never for its own size alone', async () => {
  const { publisher, time, ear } = await listening();
  const blocks = Array.from({ length: 100_000 }, (_, at) => 2 ** 40 + at);
  const big = packr.pack([1, [['BlockRemoved', blocks]], 0]);
  const before = ear.counts.batch ?? 0;
  publisher.publish(big);
  await until(() => (ear.counts.batch ?? 0) > before);
  publisher.publish(EMPTY_BATCH);
  await until(() => ear.counts.dropped === 1);
  time.advance(100);
  publisher.publish(EMPTY_BATCH);
  await until(() => ear.heard.length > 0 || (ear.counts.batch ?? 0) > before + 1);
  expect(ear.counts.dropped).toBe(1);
});

test('a closed listener hears nothing', async () => {
  const { publisher, endpoint, replay } = await engine();
  const ear = new Ear({ endpoint, replay });
  await ear.listener.start();
  await meet(publisher, ear);
  const { length } = ear.heard;
  ear.listener.close();
  publisher.publish(EMPTY_BATCH);
  await ear.listener.replay(0);
  expect([ear.heard.length, ear.ends]).toEqual([length, []]);
});
