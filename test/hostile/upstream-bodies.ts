// What engines may answer whose head is right: types, JSON, event streams.

import { gzipSync } from 'node:zlib';
import { chunk, DONE, usageChunk } from '../e2e/scripted-engine.ts';
import {
  STREAM_HEAD,
  OPEN,
  JSON_HEAD,
  CHUNKED,
  ANSWER,
  EVENTS,
  failover,
  interrupted,
  passes,
  says,
  holds,
  resets,
  endlessly,
  inChunks,
  withLength,
  both,
  stream,
  whole,
} from './upstream-plays.ts';

const TYPES = [
  stream(
    'a page',
    says(withLength('HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n', '<html>')),
    failover('bad_answer'),
  ),
  whole(
    'a page ',
    says(withLength('HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n', '<html>')),
    failover('bad_answer'),
  ),
  whole(
    'JSON that calls itself a page',
    says(withLength('HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n', ANSWER)),
    passes(ANSWER),
  ),
  whole('JSON under no name', says(withLength('HTTP/1.1 200 OK\r\n', ANSWER)), passes(ANSWER)),
  whole(
    'a type of bytes',
    says(withLength('HTTP/1.1 200 OK\r\ncontent-type: \u00e9\u00ff/\u0080\r\n', ANSWER)),
    passes(ANSWER),
  ),
  stream(
    'an event stream in capitals',
    says('HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream\r\n\r\n', EVENTS, DONE),
    passes(EVENTS + DONE),
  ),
  stream(
    'two types',
    says(`${STREAM_HEAD}content-type: application/json\r\n\r\n`, EVENTS, DONE),
    failover('bad_answer'),
  ),
  stream(
    'events where the answer was to be whole',
    says(OPEN, EVENTS, DONE),
    passes(EVENTS + DONE),
  ),
  whole('an event stream', says(OPEN, EVENTS, DONE), failover('bad_answer')),
  ...both(
    'gzip that nobody asked for',
    says(`${JSON_HEAD}content-encoding: gzip\r\n\r\n`, gzipSync(ANSWER)),
    failover('bad_answer'),
  ),
  stream(
    'a stream in gzip',
    says(`${STREAM_HEAD}content-encoding: gzip\r\n\r\n`, gzipSync(EVENTS + DONE)),
    failover('bad_answer'),
  ),
];

const JSON_BODIES = [
  ...['', 'null', '[]', '5', '{"choices":[', 'NaN', '{"choices":[]} x', '\ufeff{}'].map((body) =>
    whole(`the body ${body}`, says(withLength(JSON_HEAD, body)), failover('bad_answer')),
  ),
  whole(
    'an error of status 200',
    says(withLength(JSON_HEAD, '{"error":{"message":"x"}}')),
    failover('error_event'),
  ),
  whole(
    'NUL bytes behind it',
    says(withLength(JSON_HEAD, `${ANSWER}\u0000`)),
    failover('bad_answer'),
  ),
  whole(
    'usage that is none',
    says(
      withLength(JSON_HEAD, '{"choices":[],"usage":{"prompt_tokens":"x","completion_tokens":-1}}'),
    ),
    passes('{"choices":[],"usage":{"prompt_tokens":"x","completion_tokens":-1}}'),
  ),
];

const EVENT_ENDS: readonly (readonly [string, string])[] = [
  ['CRLF', '\r\n'],
  ['CR', '\r'],
];
const SSE = [
  ...EVENT_ENDS.map(([name, end]) => {
    const text = (EVENTS + DONE).replaceAll('\n', end);
    // Whether an LF belongs to the last CR is never known: the end is written anew.
    const passed = end === '\r' ? text.replace(/\r\r$/, '\n\n') : text;
    return stream(`lines that end with ${name}`, says(OPEN, text), passes(passed));
  }),
  stream('a byte order mark', says(OPEN, '\ufeff', EVENTS, DONE), passes(EVENTS + DONE)),
  stream(
    'comments, ids and times',
    says(OPEN, ': hi\n\n', `id: 1\nretry: 9\n${chunk('a')}`, ':\n\n', DONE),
    passes(`id: 1\nretry: 9\n${chunk('a')}${DONE}`),
  ),
  stream(
    'NUL bytes in an event',
    says(OPEN, chunk('a'), 'data: \u0000\u0000\n\n', DONE),
    passes(`${chunk('a')}data: \u0000\u0000\n\n${DONE}`),
  ),
  stream(
    'one byte at a time',
    (socket) => {
      socket.setNoDelay(true);
      socket.write(OPEN);
      for (const byte of Buffer.from(EVENTS + DONE)) socket.write(Buffer.from([byte]));
      socket.end();
    },
    passes(EVENTS + DONE),
  ),
  stream('[DONE] before anything', says(OPEN, DONE, EVENTS), failover('truncated')),
  stream('only comments and the end', says(OPEN, ': a\n\n: b\n\n'), failover('truncated')),
  stream(
    'comments for ever',
    endlessly(OPEN, ': ping\n\n'.repeat(1_000)),
    failover('first_token_timeout'),
  ),
  stream(
    'an event of 100 MiB',
    endlessly(`${OPEN}data: {"x":"`, 'y'.repeat(65_536)),
    failover('bad_answer'),
  ),
  stream(
    'an event of 100 MiB behind another',
    endlessly(`${OPEN}${chunk('a')}data: {"x":"`, 'y'.repeat(65_536)),
    interrupted('bad_answer'),
  ),
  stream(
    'an error as the first event',
    says(OPEN, 'data: {"error":{"message":"x","code":500}}\n\n', DONE),
    failover('error_event'),
  ),
  stream(
    'an error as the second event',
    says(OPEN, chunk('a'), 'data: {"error":"x"}\n\n', DONE),
    interrupted('error_event'),
  ),
  stream(
    'an error as the last event',
    says(OPEN, chunk('a'), 'data: {"object":"error"}\n\n'),
    interrupted('error_event'),
  ),
  stream(
    "the client's error as the first event",
    says(OPEN, 'data: {"error":{"message":"no","code":400}}\n\n'),
    { kind: 'refused', status: 400, code: 400 },
  ),
  stream('headers and the end', says(OPEN), failover('truncated')),
  stream('headers and a reset', resets(STREAM_HEAD, CHUNKED), failover('reset')),
  stream('headers, for ever', holds(OPEN), failover('first_token_timeout')),
  stream(
    'an event and a reset',
    resets(STREAM_HEAD, CHUNKED, inChunks(chunk('a')).slice(0, -5)),
    interrupted('reset'),
  ),
  stream('an event and the end', says(OPEN, chunk('a')), interrupted('truncated')),
  stream(
    'an event, then a byte now and then',
    (socket) => {
      socket.write(OPEN + chunk('a'));
      const timer = setInterval(() => socket.write('d'), 20);
      socket.on('close', () => clearInterval(timer));
    },
    interrupted('stall'),
  ),
  stream(
    'events behind [DONE] for ever',
    endlessly(OPEN + EVENTS + DONE, chunk('x').repeat(500)),
    passes(EVENTS + DONE),
  ),
  stream(
    'a usage chunk that nobody asked for',
    says(OPEN, EVENTS, usageChunk(1, 0, 2), DONE),
    passes(EVENTS + DONE),
  ),
];

export const HOSTILE_CONTENTS = [...TYPES, ...JSON_BODIES, ...SSE];
