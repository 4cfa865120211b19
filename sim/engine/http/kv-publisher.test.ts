// The publisher against ZeroMQ's own sockets.

import { Dealer, Subscriber } from 'zeromq';
import { afterEach, describe, expect, it } from 'vitest';

import { endpointOfRank, KvPublisher, type KvEventsConfig } from './kv-publisher.ts';

const CONFIG: KvEventsConfig = {
  endpoint: 'tcp://*:0',
  replayEndpoint: 'tcp://*:0',
  bufferSteps: 4,
  hwm: 1_000,
  maxQueueSize: 1_000,
  topic: 'kv@pod',
};

const open: { close(): void }[] = [];

afterEach(() => {
  for (const each of open.splice(0)) each.close();
});

async function started(config: Partial<KvEventsConfig> = {}, replaysTopic = true) {
  const publisher = new KvPublisher({ ...CONFIG, ...config }, { replaysTopic });
  open.push(publisher);
  await publisher.start();
  return publisher;
}

/** A subscriber that has shown that it is connected: the publisher's word for it comes as a message. */
async function subscribed(publisher: KvPublisher): Promise<Subscriber> {
  const subscriber = new Subscriber({ linger: 0, receiveTimeout: 5_000 });
  open.push(subscriber);
  subscriber.connect(publisher.endpoint);
  subscriber.subscribe('');
  subscriber.receiveTimeout = 20;
  await expect
    .poll(
      async () => {
        publisher.publish(Buffer.from('hello'));
        return subscriber.receive().catch(() => null);
      },
      { interval: 1 },
    )
    .not.toBeNull();
  subscriber.receiveTimeout = 5_000;
  return subscriber;
}

async function received(subscriber: Subscriber): Promise<[string, bigint, string]> {
  const [topic, seq, payload] = await subscriber.receive();
  return [topic!.toString(), seq!.readBigUInt64BE(), payload!.toString()];
}

/** Everything up to the end marker, the marker too. */
async function replayed(publisher: KvPublisher, from: number): Promise<string[][]> {
  const dealer = new Dealer({ linger: 0, receiveTimeout: 5_000 });
  open.push(dealer);
  dealer.connect(publisher.replayEndpoint!);
  const start = Buffer.alloc(8);
  start.writeBigUInt64BE(BigInt(from));
  await dealer.send(['', start]);
  const answers: string[][] = [];
  for (;;) {
    const frames = await dealer.receive();
    answers.push(
      frames.map((frame) => (frame.length === 8 ? frame.toString('hex') : frame.toString())),
    );
    if (frames.at(-1)?.length === 0) return answers;
  }
}

const seqHex = (seq: number): string => seq.toString(16).padStart(16, '0');
const END = 'f'.repeat(16);

describe('publishing', () => {
  it('numbers batches under the topic, eight bytes big endian, each as it was given', async () => {
    const publisher = await started();
    const subscriber = await subscribed(publisher);
    publisher.publish(Buffer.from('last hello'));
    for (let at = 0; at < 300; at += 1) publisher.publish(Buffer.from(`batch ${at}`));
    let [, seq, payload] = await received(subscriber);
    while (payload !== 'last hello') [, seq, payload] = await received(subscriber);
    for (let at = 0; at < 300; at += 1) {
      expect(await received(subscriber)).toEqual(['kv@pod', seq + BigInt(at + 1), `batch ${at}`]);
    }
  });

  it('keeps numbers and replay of batches that it was told to lose', async () => {
    const publisher = await started();
    const subscriber = await subscribed(publisher);
    publisher.publish(Buffer.from('before'));
    publisher.drop(2);
    for (const text of ['lost', 'lost again', 'after']) publisher.publish(Buffer.from(text));
    let [, seq, payload] = await received(subscriber);
    while (payload !== 'before') [, seq, payload] = await received(subscriber);
    expect(await received(subscriber)).toEqual(['kv@pod', seq + 3n, 'after']);
    const frames = await replayed(publisher, Number(seq) + 1);
    expect(frames.map((frame) => frame.at(-1))).toEqual(['lost', 'lost again', 'after', '']);
  });

  it('connects where the endpoint names a host', async () => {
    const subscriber = new Subscriber({ linger: 0, receiveTimeout: 20 });
    open.push(subscriber);
    await subscriber.bind('tcp://127.0.0.1:*');
    subscriber.subscribe('kv@');
    const publisher = await started({ endpoint: subscriber.lastEndpoint!, replayEndpoint: null });
    expect(publisher.endpoint).toBe(subscriber.lastEndpoint);
    await expect
      .poll(
        async () => {
          publisher.publish(Buffer.from('x'));
          return subscriber.receive().catch(() => null);
        },
        { interval: 1 },
      )
      .not.toBeNull();
  });
});

describe('replay', () => {
  it('sends what is kept from a number on, then an end', async () => {
    const publisher = await started();
    for (let at = 0; at < 6; at += 1) publisher.publish(Buffer.from(`batch ${at}`));
    expect(await replayed(publisher, 4)).toEqual([
      ['', 'kv@pod', seqHex(4), 'batch 4'],
      ['', 'kv@pod', seqHex(5), 'batch 5'],
      ['', '', END, ''],
    ]);
    expect((await replayed(publisher, 0)).map((frame) => frame[2])).toEqual([
      ...[2, 3, 4, 5].map(seqHex),
      END,
    ]);
    expect(await replayed(publisher, 99)).toEqual([['', '', END, '']]);
  });

  it('leaves the topic out in the old form', async () => {
    const publisher = await started({}, false);
    publisher.publish(Buffer.from('batch'));
    expect(await replayed(publisher, 0)).toEqual([
      ['', seqHex(0), 'batch'],
      ['', END, ''],
    ]);
  });
});

describe('ranks', () => {
  it.each([
    ['tcp://*:5557', 2, 'tcp://*:5559'],
    ['tcp://*:5557', 0, 'tcp://*:5557'],
    ['tcp://*:0', 1, 'tcp://*:0'],
    ['inproc://cache', 1, 'inproc://cache_dp1'],
  ])('of %s: %i is %s', (endpoint, rank, expected) => {
    expect(endpointOfRank(endpoint, rank)).toBe(expected);
  });
});
