// Clients that are slow, leave, half-close, never read, pipeline or flood: each is answered or ended within a time that a
// setting names, is counted, and leaves nothing.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { until } from '../e2e/until.ts';
import { CHAT, GOOD, LONG_STREAM, startSmallRegion, type SmallRegion } from './small-region.ts';
import { openWire, wirePost, wireText, type Wire } from './wire.ts';

/** Shortened for this file, ms. */
const LIMITS = { requestTimeoutMs: 500, keepAliveMs: 1_000, clientStallMs: 300 };
const TYPE = 'content-type: application/json';
const BODY = JSON.stringify(GOOD);
const POST = `POST ${CHAT} HTTP/1.1`;

let region: SmallRegion;
beforeAll(async () => {
  region = await startSmallRegion({ limits: LIMITS });
});
afterAll(() => region.close());

const hits = (limit: string) => region.value(`limit_hits_total{limit="${limit}"}`);
const aborts = (stage: string) => region.value(`client_aborts_total{stage="${stage}"}`);

/** Sends a byte of it now and then, until the connection is closed. */
function trickle(wire: Wire, text: string): void {
  let at = 0;
  const timer = setInterval(() => wire.socket.write(text[at++ % text.length] ?? ' '), 20);
  wire.socket.on('close', () => clearInterval(timer));
}

interface SlowClient {
  readonly name: string;
  readonly does: (wire: Wire) => void;
  /** Null: the connection just ends. */
  readonly status: number | null;
}

const SLOW: readonly SlowClient[] = [
  { name: 'says nothing', does: () => undefined, status: null },
  { name: 'begins a line', does: ({ socket }) => void socket.write('GET /v1/mod'), status: 408 },
  {
    name: 'asks as HTTP/0.9 did',
    does: ({ socket }) => void socket.write('GET /v1/models\r\n'),
    status: 408,
  },
  {
    name: 'trickles its headers',
    does: (wire) => {
      wire.socket.write('GET /v1/models HTTP/1.1\r\nhost: x\r\n');
      trickle(wire, 'x-a: b\r\n');
    },
    status: 408,
  },
  {
    name: 'sends half a body',
    does: ({ socket }) => void socket.write(wireText(POST, [TYPE, 'content-length: 99'], '{')),
    status: 408,
  },
  {
    name: 'trickles its body',
    does: (wire) => {
      wire.socket.write(wireText(POST, [TYPE, 'content-length: 99999'], '{'));
      trickle(wire, ' ');
    },
    status: 408,
  },
  {
    name: 'trickles chunks',
    does: (wire) => {
      wire.socket.write(wireText(POST, [TYPE, 'transfer-encoding: chunked']));
      trickle(wire, '1\r\n \r\n');
    },
    status: 408,
  },
  {
    name: 'asks whether it may send, and then does not',
    does: ({ socket }) =>
      void socket.write(wireText(POST, [TYPE, 'expect: 100-continue', 'content-length: 99'])),
    status: 408,
  },
  {
    name: 'trickles a compressed body',
    does: (wire) => {
      const lines = [TYPE, 'content-encoding: gzip', 'content-length: 99999'];
      // A file name that does not end.
      const magic = Buffer.from('1f8b08080000000000ff', 'hex').toString('latin1');
      wire.socket.write(wireText(POST, lines, magic));
      trickle(wire, 'a');
    },
    status: 408,
  },
];

describe('a slow client', () => {
  test('is told that it was too slow, and counted; one that said nothing is just ended', async () => {
    const before = await hits('request_timeout');
    const wires = SLOW.map(({ does }) => {
      const wire = openWire(region.clientsPort);
      does(wire);
      return wire;
    });
    const answers = await Promise.all(wires.map((wire) => wire.answer()));
    const seen = answers.map((answer, k) => [SLOW[k]?.name, answer?.status ?? null]);
    expect(seen).toEqual(SLOW.map(({ name, status }) => [name, status]));
    await until(() => wires.every((wire) => wire.closed()));
    await region.settles();
    const told = SLOW.filter(({ status }) => status !== null).length;
    expect((await hits('request_timeout')) - before).toBe(told);
    for (const wire of wires) wire.close();
  });

  test('that goes on sending to an answer that it has is ended', async () => {
    const wire = openWire(region.clientsPort);
    wire.socket.write(wireText('POST /nothing HTTP/1.1', [TYPE, 'content-length: 999999']));
    trickle(wire, ' ');
    expect((await wire.answer())?.status).toBe(404);
    await until(() => wire.closed());
    await region.settles();
  });

  test('that keeps its connection without asking again is ended', async () => {
    const wire = openWire(region.clientsPort);
    wire.socket.write(wireText('GET /v1/models HTTP/1.1', []));
    expect((await wire.answer())?.status).toBe(200);
    await until(() => wire.closed());
    await region.settles();
  });
});

describe('a client that leaves', () => {
  test('half-closed in the middle of its body is told so', async () => {
    const before = await aborts('arriving');
    const wire = openWire(region.clientsPort);
    wire.socket.end(wireText(POST, [TYPE, 'content-length: 99'], '{'));
    expect((await wire.answer())?.status).toBe(400);
    await region.settles();
    expect(await aborts('arriving')).toBe(before + 1);
  });

  test('half-closed behind its request is gone: nobody works for it any more', async () => {
    const before = (await aborts('waiting')) + (await aborts('streaming'));
    const wire = openWire(region.clientsPort);
    wire.socket.end(wirePost(JSON.stringify(LONG_STREAM)));
    await until(() => wire.closed());
    await region.settles();
    expect((await aborts('waiting')) + (await aborts('streaming'))).toBe(before + 1);
  });

  test.each(['end', 'resetAndDestroy'] as const)(
    'by %s in its body leaves nothing',
    async (how) => {
      const before = await aborts('arriving');
      const wire = openWire(region.clientsPort);
      wire.socket.write(wireText(POST, [TYPE, 'content-length: 5000000'], ' '.repeat(100_000)));
      await until(() => region.router.status().bodyBytes > 0);
      wire.socket[how]();
      await region.settles();
      expect(await aborts('arriving')).toBe(before + 1);
    },
  );

  test.each(['end', 'destroy', 'resetAndDestroy'] as const)(
    'by %s in its stream aborts it',
    async (how) => {
      const before = await aborts('streaming');
      const wire = openWire(region.clientsPort);
      wire.socket.write(wirePost(JSON.stringify(LONG_STREAM)));
      await until(() => wire.received().includes('data: '));
      wire.socket[how]();
      await region.settles();
      expect(await aborts('streaming')).toBe(before + 1);
    },
  );

  test('with garbage behind its request gets no answer that is not its own', async () => {
    const wire = openWire(region.clientsPort);
    wire.socket.write(Buffer.concat([wirePost(BODY), Buffer.from('\u0000garbage\r\n\r\n')]));
    await until(() => wire.closed());
    expect(wire.received()).toBe('');
    await region.settles();
  });

  test('with garbage behind its answer is told that it is garbage', async () => {
    const wire = openWire(region.clientsPort);
    wire.socket.write(wirePost(BODY));
    expect((await wire.answer())?.status).toBe(200);
    wire.socket.write('garbage\r\n\r\n');
    await until(() => wire.closed());
    expect(wire.received().match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 400']);
    await region.settles();
  });
});

test('a client that asks a thousand times before it reads is answered in order', async () => {
  const wire = openWire(region.clientsPort);
  wire.socket.pause();
  const asks = Array.from({ length: 1_000 }, (_, k) =>
    wireText('GET /v1/models HTTP/1.1', [`x-request-id: r${k}`]),
  );
  wire.socket.write(Buffer.concat(asks));
  await until(() => wire.socket.writableLength === 0);
  wire.socket.resume();
  await until(() => wire.received().includes('x-request-id: r999\r\n'));
  const ids = [...wire.received().matchAll(/x-request-id: r(\d+)\r/g)].map(([, id]) => Number(id));
  expect(ids).toEqual(asks.map((_, k) => k));
  wire.close();
  await region.settles();
});
