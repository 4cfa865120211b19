import type { IncomingMessage } from 'node:http';
import { Duplex } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { WebSocketServer, type WebSocket } from 'ws';
import { systemClock, type Clock } from './clock.ts';
import { LINK_LIMITS, LINK_WEBSOCKET, LinkSocket, type LinkEnd } from './link-socket.ts';
import { ManualTime } from './manual-time.ts';
import { systemTimers } from './timers.ts';

/** A connection that keeps what is written to it, write by write. */
class Written extends Duplex {
  readonly writes: Buffer[] = [];

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.writes.push(chunk);
    done();
  }

  override _writev(chunks: { chunk: Buffer }[], done: () => void): void {
    this.writes.push(Buffer.concat(chunks.map(({ chunk }) => chunk)));
    done();
  }
}

interface Linked {
  readonly stream: Written;
  readonly link: LinkSocket;
  readonly ends: LinkEnd[];
  readonly rtts: number[];
}

async function linked(clock: Clock = systemClock): Promise<Linked> {
  const stream = new Written();
  const headers = {
    upgrade: 'websocket',
    'sec-websocket-version': '13',
    'sec-websocket-key': Buffer.alloc(16, 7).toString('base64'),
  };
  const request = { method: 'GET', headers } as unknown as IncomingMessage;
  const server = new WebSocketServer({ noServer: true, ...LINK_WEBSOCKET });
  const socket = await new Promise<WebSocket>((resolve) => {
    server.handleUpgrade(request, stream, Buffer.alloc(0), resolve);
  });
  const ends: LinkEnd[] = [];
  const rtts: number[] = [];
  const link = new LinkSocket({
    ...{ socket, stream, clock, timers: systemTimers, limits: LINK_LIMITS },
    onFrame: () => undefined,
    onFault: () => undefined,
    onEnd: (reason) => ends.push(reason),
    onRtt: (rttMs) => rtts.push(rttMs),
  });
  stream.writes.length = 0;
  return { stream, link, ends, rtts };
}

const frames = [1, 2, 3].map((byte) => new Uint8Array([byte]));

test('what is sent in one turn of the event loop leaves in one write, in order', async () => {
  const { stream, link } = await linked();
  for (const frame of frames) expect(link.send(frame)).toBe(true);
  expect(stream.writes).toEqual([]);
  await turn();
  expect(stream.writes).toEqual([Buffer.from([0x82, 1, 1, 0x82, 1, 2, 0x82, 1, 3])]);
  link.send(frames[0] as Uint8Array);
  await turn();
  expect(stream.writes).toHaveLength(2);
  stream.destroy();
});

test('a close goes behind all that was sent in its turn', async () => {
  const { stream, link, ends } = await linked();
  link.send(frames[0] as Uint8Array);
  link.close('shutting_down');
  const sent = Buffer.concat(stream.writes);
  expect(sent.subarray(0, 3)).toEqual(Buffer.from([0x82, 1, 1]));
  expect(sent.subarray(-'shutting_down'.length).toString()).toBe('shutting_down');
  await turn();
  expect(ends).toEqual(['shutting_down']);
  stream.destroy();
});

test('who does not read is still found by what waits, the turn at hand included', async () => {
  const { stream, link, ends } = await linked();
  const large = new Uint8Array(LINK_LIMITS.maxBufferedBytes / 2);
  expect(link.send(large)).toBe(true);
  stream._writev = () => undefined;
  expect(link.send(large)).toBe(false);
  await turn();
  expect(ends).toEqual(['flooded']);
});

/** A pong as a peer sends it, masked with nothing. */
const pong = (payload: Uint8Array): Buffer =>
  Buffer.concat([Buffer.from([0x8a, 0x80 | payload.length, 0, 0, 0, 0]), payload]);

test('the answer to the last ping tells how far the peer is; any other pong tells nothing', async () => {
  const time = new ManualTime();
  const { stream, link, rtts } = await linked(time);
  const ping = (): Uint8Array => {
    link.beat();
    return (stream.writes.at(-1) as Buffer).subarray(2);
  };
  const answer = async (payload: Uint8Array, afterMs: number): Promise<void> => {
    time.advance(afterMs);
    stream.push(pong(payload));
    await turn();
  };
  const first = ping();
  await answer(first, 30);
  expect(rtts).toEqual([30]);
  await answer(first, 5);
  const late = ping();
  time.advance(1_000);
  const next = ping();
  await answer(late, 20);
  await answer(Buffer.from('none of ours'), 1);
  await answer(Buffer.alloc(0), 1);
  expect(rtts).toEqual([30]);
  await answer(next, 10);
  expect(rtts).toEqual([30, 32]);
});

/** A ping or a message of a peer, masked with nothing. */
const PING = Buffer.from([0x89, 0x80, 0, 0, 0, 0]);
const MESSAGE = Buffer.from([0x82, 0x81, 0, 0, 0, 0, 1]);

test('a peer that may send thousands of messages may not ping as often', async () => {
  const { stream, link, ends } = await linked(new ManualTime());
  stream.push(Buffer.concat(Array<Buffer>(400).fill(PING)));
  await turn();
  expect(link.ended).toBe(false);
  stream.push(PING);
  await turn();
  expect(ends).toEqual(['flooded']);
  stream.destroy();
});

test('pings have time to come back in, whatever else is said meanwhile', async () => {
  const time = new ManualTime();
  const { stream, link } = await linked(time);
  for (let second = 0; second < 50; second += 1) {
    for (let tenth = 0; tenth < 10; tenth += 1) {
      time.advance(100);
      stream.push(MESSAGE);
      await turn();
    }
    stream.push(Buffer.concat(Array<Buffer>(50).fill(PING)));
    await turn();
  }
  expect(link.ended).toBe(false);
  stream.destroy();
});
