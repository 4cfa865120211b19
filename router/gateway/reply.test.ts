import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';
// oxlint-disable-next-line no-restricted-imports -- What leaves in which turn of a real server's loop is what is looked at.
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { Reply } from './reply.ts';

const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

interface Served {
  readonly reply: Reply;
  /** Of requests that came with it. */
  readonly others: readonly ServerResponse[];
  /** Writes of the connection so far: each leaves as one. */
  readonly writes: () => number;
}

/** One request of a raw client, with its reply in hand. */
async function serve(
  head: string,
): Promise<Served & { readonly client: Socket; readonly connection: Socket }> {
  const others: ServerResponse[] = [];
  const server = createServer({ noDelay: true }, (_request, response) => others.push(response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const client = connect(port, '127.0.0.1');
  closers.push(() => {
    client.destroy();
    server.close();
    server.closeAllConnections();
  });
  client.write(head);
  await once(server, 'request');
  const response = others.shift() as ServerResponse;
  return { client, connection: response.socket as Socket, others, ...replyOf(response) };
}

function replyOf(response: ServerResponse): Pick<Served, 'reply' | 'writes'> {
  const reply = new Reply(response, { 'x-request-id': 'r' }, { nowMs: 0, breakOff: () => {} });
  const handle = (response.socket as unknown as { readonly _handle: object })._handle;
  let writes = 0;
  for (const name of ['writeBuffer', 'writev', 'writeLatin1String', 'writeUtf8String']) {
    const own = Reflect.get(handle, name) as (...args: unknown[]) => unknown;
    Object.assign(handle, {
      [name](...args: unknown[]) {
        writes += 1;
        return own.apply(handle, args);
      },
    });
  }
  return { reply, writes: () => writes };
}

const GET = 'GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n';

async function read(client: Socket): Promise<string> {
  let text = '';
  client.on('data', (piece) => (text += piece.toString('latin1')));
  await once(client, 'end');
  return text;
}

test('pieces of every size are framed as their client reads them', async () => {
  const { client, reply } = await serve(GET);
  const text = read(client);
  reply.beginStream('text/event-stream', {});
  const sizes = [1, 15, 16, 17, 255, 256, 4_095, 4_096, 65_535, 65_536];
  for (const size of sizes) {
    reply.write(Buffer.alloc(size, 'x'), 1);
    await turn();
  }
  reply.end();
  const body = (await text).split('\r\n\r\n').slice(1).join('\r\n\r\n');
  const frames = sizes.map((size) => `${size.toString(16)}\r\n${'x'.repeat(size)}\r\n`);
  expect(body).toBe(`${frames.join('')}0\r\n\r\n`);
});

test('each piece of a stream leaves in one write, the last one with the end', async () => {
  const { client, reply, writes } = await serve(GET);
  const text = read(client);
  reply.beginStream('text/event-stream', {});
  const counts = [];
  for (const piece of ['data: 1\n\n', 'data: 22\n\n', 'data: [DONE]\n\n']) {
    const last = piece.includes('DONE');
    reply.write(Buffer.from(piece), 1, last);
    if (last) reply.end();
    await turn();
    counts.push(writes());
  }
  expect(counts).toEqual([1, 2, 3]);
  const body = (await text).split('\r\n\r\n').slice(1).join('\r\n\r\n');
  expect(body).toBe('9\r\ndata: 1\n\n\r\na\r\ndata: 22\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n');
});

test('the first piece leaves with the head at once, and not with the turn that brought it', async () => {
  const { client, reply, writes } = await serve(GET);
  const text = read(client);
  reply.beginStream('text/event-stream', {});
  reply.write(Buffer.from('data: 1\n\n'), 1);
  expect(writes()).toBe(1);
  reply.end();
  expect(await text).toContain('data: 1');
});

test('pieces of one turn of the loop keep their order, behind the head and before the end', async () => {
  const { client, reply, writes } = await serve(GET);
  const text = read(client);
  reply.beginStream('text/event-stream', {});
  for (const turns of [['a', 'b'], ['c'], ['d', 'e']]) {
    for (const piece of turns) reply.write(Buffer.from(piece), 1);
    await turn();
  }
  reply.write(Buffer.from('f'), 1, true);
  reply.write(Buffer.from('g'), 1);
  reply.end();
  const chunks = (await text).split('\r\n\r\n').slice(1).join('\r\n\r\n');
  expect(chunks.replaceAll(/[\da-f]+\r\n([a-g]*)\r\n/g, '$1')).toBe('abcdefg');
  expect(chunks.endsWith('\r\n0\r\n\r\n')).toBe(true);
  // The first piece does not wait for the second.
  expect(writes()).toBeLessThanOrEqual(6);
});

test('a whole answer leaves in one write, whatever its bytes', async () => {
  const body = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  const { client, reply, writes } = await serve(GET);
  const text = read(client);
  reply.beginAnswer(200, { contentType: 'application/octet-stream', length: 256 }, {});
  reply.write(body, 1);
  reply.end();
  await turn();
  expect(writes()).toBe(1);
  expect((await text).endsWith(`\r\n\r\n${body.toString('latin1')}`)).toBe(true);
});

test('a client of HTTP/1.0 gets its stream without chunks', async () => {
  const { client, reply } = await serve('GET / HTTP/1.0\r\n\r\n');
  const text = read(client);
  reply.beginStream('text/event-stream', {});
  for (const piece of ['data: 1\n\n', 'data: 2\n\n']) {
    reply.write(Buffer.from(piece), 1);
    await turn();
  }
  reply.end();
  expect(await text).toMatch(/\r\n\r\ndata: 1\n\ndata: 2\n\n$/);
});

test('an answer that waits behind another on its connection keeps its place', async () => {
  const { client, reply, others } = await serve(
    'GET /1 HTTP/1.1\r\nhost: x\r\n\r\nGET /2 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n',
  );
  const later = others[0] as ServerResponse;
  const second = new Reply(later, {}, { nowMs: 0, breakOff: () => {} });
  const text = read(client);
  for (const each of [second, reply]) {
    each.beginStream('text/event-stream', {});
    for (const piece of ['a', 'b']) {
      each.write(Buffer.from(each === second ? piece : piece.toUpperCase()), 1);
      await turn();
    }
  }
  second.end();
  reply.end();
  expect((await text).replaceAll(/HTTP\/1.1 200[^]*?\r\n\r\n/g, '')).toBe(
    '1\r\nA\r\n1\r\nB\r\n0\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n',
  );
});

test('a client that takes nothing makes writes say so, and its room is told of once', async () => {
  const { client, reply } = await serve(GET);
  client.pause();
  reply.beginStream('text/event-stream', {});
  const piece = Buffer.alloc(8 * 1_024, 'x');
  let taken = 0;
  while (reply.write(piece, 1)) {
    taken += 1;
    await turn();
  }
  let drained = 0;
  reply.onceDrained(() => (drained += 1));
  expect(reply.flushed).toBe(false);
  client.resume();
  client.on('data', () => {});
  while (drained === 0) await turn();
  expect(reply.flushed).toBe(true);
  expect(taken).toBeGreaterThan(0);
  reply.end();
});

test('a client that ends its side in the middle of a stream makes no error of the pieces that still come', async () => {
  const { client, connection, reply } = await serve(GET);
  const errors: Error[] = [];
  connection.on('error', (error) => errors.push(error));
  const text = read(client);
  reply.beginStream('text/event-stream', {});
  reply.write(Buffer.from('a'), 1);
  await turn();
  client.end();
  await once(connection, 'end');
  reply.write(Buffer.from('b'), 1);
  expect(await text).toMatch(/\r\n\r\n1\r\na\r\n$/);
  expect(errors).toEqual([]);
});

test('an answer that is cut before its turn on the connection has it cut at its turn', async () => {
  const { client, reply, others } = await serve(
    'GET /1 HTTP/1.1\r\nhost: x\r\n\r\nGET /2 HTTP/1.1\r\nhost: x\r\n\r\n',
  );
  const second = new Reply(others[0] as ServerResponse, {}, { nowMs: 0, breakOff: () => {} });
  const text = read(client);
  second.beginStream('text/event-stream', {});
  second.write(Buffer.from('b'), 1);
  second.destroy();
  await turn();
  reply.beginAnswer(200, { contentType: 'text/plain', length: 1 }, {});
  reply.write(Buffer.from('a'), 1);
  reply.end();
  expect(await text).toMatch(/^HTTP\/1.1 200[^]*\r\n\r\na$/);
});
