// On real connections: whatever its reader does, it gets what was written, in order.

import fc from 'fast-check';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { READ_AT_ONCE, readsAtOnce } from './reads-at-once.ts';

let server: Server;
let peer: Socket;
let socket: Socket;

beforeEach(async () => {
  server = createServer({ noDelay: true });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});

afterEach(async () => {
  socket.destroy();
  peer.destroy();
  server.close();
  await once(server, 'close');
});

async function connected(): Promise<void> {
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  const { port } = server.address() as AddressInfo;
  socket = connect({ port, host: '127.0.0.1', onread: READ_AT_ONCE });
  [peer] = await accepted;
  readsAtOnce(socket);
}

/** Reads all until the end; what `takes` denies waits for the next time that something comes, or for `resume`. */
function reader(takes: () => boolean): { readonly pieces: Buffer[]; readonly resume: () => void } {
  const pieces: Buffer[] = [];
  const drain = (): void => {
    for (let piece = take(); piece !== null; piece = take()) pieces.push(piece);
  };
  const take = (): Buffer | null => (takes() ? (socket.read() as Buffer | null) : null);
  socket.on('readable', drain);
  return { pieces, resume: drain };
}

test('hands a piece over within the read that brought it: nothing is buffered', async () => {
  await connected();
  let buffered = 0;
  socket.push = (...args) => {
    if (args[0] !== null) buffered += 1;
    return Readable.prototype.push.apply(socket, args);
  };
  const { pieces } = reader(() => true);
  for (const text of ['one', 'two', 'three']) {
    peer.write(text);
    await once(socket, 'readable');
  }
  peer.end();
  await once(socket, 'end');
  expect(pieces.map(String)).toEqual(['one', 'two', 'three']);
  expect(buffered).toBe(0);
});

test('buffers what its reader does not take, before what comes later', async () => {
  await connected();
  let open = false;
  const { pieces } = reader(() => open);
  peer.write('one');
  await once(socket, 'readable');
  expect(socket.readableLength).toBe(3);
  peer.write('two');
  await once(socket, 'readable');
  open = true;
  peer.end('three');
  await once(socket, 'end');
  expect(Buffer.concat(pieces).toString()).toBe('onetwothree');
});

test('puts what is given back before what comes later', async () => {
  await connected();
  const seen: string[] = [];
  let given = false;
  socket.on('readable', () => {
    for (let piece = read(); piece !== null; piece = read()) {
      seen.push(String(piece));
      if (given || String(piece) !== 'one') continue;
      given = true;
      socket.unshift(Buffer.from('ne'));
      seen[0] = 'o';
      return;
    }
  });
  const read = (): Buffer | null => socket.read() as Buffer | null;
  peer.write('one');
  await once(socket, 'readable');
  peer.end('two');
  await once(socket, 'end');
  expect(seen.join('')).toBe('onetwo');
});

test('stops reading while nobody takes anything', async () => {
  await connected();
  const { pieces, resume } = reader(() => open);
  let open = false;
  const bytes = 8 * 1024 * 1024;
  peer.end(Buffer.alloc(bytes, 'x'));
  await once(socket, 'readable');
  await expect.poll(() => peer.writableLength).toBeGreaterThan(0);
  expect(socket.readableLength).toBeLessThanOrEqual(socket.readableHighWaterMark + 65_536);
  open = true;
  resume();
  await once(socket, 'end');
  expect(Buffer.concat(pieces)).toHaveLength(bytes);
});

test('says it to a reader by events as ever', async () => {
  await connected();
  const pieces: Buffer[] = [];
  socket.on('data', (piece: Buffer) => pieces.push(piece));
  peer.end('all');
  await once(socket, 'end');
  expect(Buffer.concat(pieces).toString()).toBe('all');
});

test('loses nothing and changes no order, whenever its reader pauses', async () => {
  const plan = fc.array(fc.tuple(fc.integer({ min: 1, max: 40_000 }), fc.boolean()), {
    minLength: 1,
    maxLength: 24,
  });
  await fc.assert(
    fc.asyncProperty(plan, async (writes) => {
      await connected();
      let at = 0;
      const { pieces, resume } = reader(() => writes[at++]?.[1] ?? true);
      const sent = writes.map(([length], index) => Buffer.alloc(length, index));
      for (const piece of sent) {
        peer.write(piece);
        await new Promise(setImmediate);
      }
      peer.end();
      const all = Buffer.concat(sent);
      await expect
        .poll(
          () => {
            resume();
            return pieces.reduce((sum, { length }) => sum + length, 0);
          },
          { interval: 1 },
        )
        .toBe(all.length);
      expect(Buffer.concat(pieces).equals(all)).toBe(true);
      socket.destroy();
      peer.destroy();
    }),
    { numRuns: 25 },
  );
});
