// What is held of a request's body while it is read, and once it is there.

import { IncomingMessage, type ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { BodyBudget } from './body-budget.ts';
import { readJsonBody } from './read-body.ts';

const MIB = 1_048_576;

/** A request whose body comes in these pieces, as the HTTP parser hands them on. */
function requestOf(pieces: readonly Buffer[]): IncomingMessage {
  const request = new IncomingMessage(new Socket());
  request.headers['content-type'] = 'application/json';
  request.headers['content-length'] = String(pieces.reduce((sum, { length }) => sum + length, 0));
  for (const piece of pieces) request.push(piece);
  request.push(null);
  return request;
}

function read(request: IncomingMessage): Promise<Buffer> {
  const hold = new BodyBudget({ bodyBytes: MIB, bodyBytesMax: MIB }).open();
  const from = { request, response: {} as ServerResponse, awaitBody: () => {} };
  return readJsonBody(from, { hold, bounds: { bodyBytes: MIB, bodyRatio: 10 } });
}

/** With memory of its own, as each piece of the parser's has. */
function pieceOf(byte: string, length: number): Buffer {
  return Buffer.from(new ArrayBuffer(length)).fill(byte);
}

test('the memory of pieces is given back as soon as they are one body', async () => {
  const pieces = [pieceOf('a', 65_536), pieceOf('b', 36_864), pieceOf('c', 5)];
  const whole = Buffer.concat(pieces);
  const memory = pieces.map(({ buffer }) => buffer);
  expect((await read(requestOf(pieces))).equals(whole)).toBe(true);
  expect(memory.map(({ byteLength }) => byteLength)).toEqual([0, 0, 5]);
});

test('a body of one piece is that piece', async () => {
  const piece = pieceOf('a', 40_000);
  expect(await read(requestOf([piece]))).toBe(piece);
  expect(piece.buffer.byteLength).toBe(40_000);
});

test('memory that others have a part of stays theirs', async () => {
  const both = pieceOf('a', 20_000);
  const pieces = [both.subarray(0, 10_000), both.subarray(10_000)];
  expect((await read(requestOf(pieces))).equals(both)).toBe(true);
  expect(both.length).toBe(20_000);
});
