import type { IncomingMessage } from 'node:http';
import { Duplex } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { WebSocketServer, type WebSocket } from 'ws';
import { systemClock } from './clock.ts';
import { LINK_LIMITS, LINK_WEBSOCKET, LinkSocket, type LinkEnd } from './link-socket.ts';
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

async function linked(): Promise<{ stream: Written; link: LinkSocket; ends: LinkEnd[] }> {
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
  const link = new LinkSocket({
    ...{ socket, stream, clock: systemClock, timers: systemTimers, limits: LINK_LIMITS },
    onFrame: () => undefined,
    onFault: () => undefined,
    onEnd: (reason) => ends.push(reason),
  });
  stream.writes.length = 0;
  return { stream, link, ends };
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
