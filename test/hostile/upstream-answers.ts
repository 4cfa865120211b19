// What an engine may answer, each with what becomes of it: another engine is asked, the client gets it, the client is told
// that it is incomplete, or the client is at fault.

import { gzipSync } from 'node:zlib';
import { chunk, DONE, usageChunk } from '../e2e/scripted-engine.ts';
import type { Play } from './raw-engine.ts';

export type Fate =
  /** Nobody sees it: the attempt ends with this cause and another engine is asked. */
  | { readonly kind: 'failover'; readonly cause: string }
  /** The client gets exactly this body, with 200. */
  | { readonly kind: 'passes'; readonly body: string }
  /** The client gets this beginning, then an error event. */
  | { readonly kind: 'interrupted'; readonly cause: string; readonly body: string }
  /** The client gets that status in an envelope, with this code. */
  | { readonly kind: 'refused'; readonly status: number; readonly code: string | number };

export interface HostileAnswer {
  readonly name: string;
  readonly stream: boolean;
  readonly play: Play;
  readonly fate: Fate;
}

export const STREAM_HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n';
const OPEN = `${STREAM_HEAD}connection: close\r\n\r\n`;
const JSON_HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n';
const CHUNKED = 'transfer-encoding: chunked\r\n\r\n';
const ANSWER = JSON.stringify({
  object: 'chat.completion',
  choices: [{ index: 0, message: { role: 'assistant', content: 'hi' }, finish_reason: 'stop' }],
});
const EVENTS = chunk('a') + chunk('b', 'stop');

const failover = (cause: string): Fate => ({ kind: 'failover', cause });
const interrupted = (cause: string, body = chunk('a')): Fate => ({
  kind: 'interrupted',
  cause,
  body,
});
const passes = (body: string): Fate => ({ kind: 'passes', body });

/** Writes and ends. */
export const says =
  (...texts: readonly (string | Buffer)[]): Play =>
  (socket) => {
    for (const text of texts) socket.write(text);
    socket.end();
  };
/** Writes and leaves the connection as it is. */
const holds =
  (...texts: readonly (string | Buffer)[]): Play =>
  (socket) => {
    for (const text of texts) socket.write(text);
  };
const resets =
  (...texts: readonly string[]): Play =>
  (socket) => {
    for (const text of texts) socket.write(text);
    setTimeout(() => socket.resetAndDestroy(), 10);
  };
/** The same bytes again and again, as fast as they are taken. */
export const endlessly =
  (head: string, piece: string | Buffer): Play =>
  (socket) => {
    socket.write(head);
    const more = (): void => {
      while (!socket.destroyed && socket.write(piece));
    };
    socket.on('drain', more);
    more();
  };
const inChunks = (...pieces: readonly string[]): string =>
  [...pieces, '']
    .map((piece) => `${Buffer.byteLength(piece).toString(16)}\r\n${piece}\r\n`)
    .join('');
const withLength = (head: string, body: string): string =>
  `${head}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;

function both(name: string, play: Play, fate: Fate): HostileAnswer[] {
  return [true, false].map((stream) => ({ name, stream, play, fate }));
}
const stream = (name: string, play: Play, fate: Fate): HostileAnswer => ({
  ...{ name, play, fate },
  stream: true,
});
const whole = (name: string, play: Play, fate: Fate): HostileAnswer => ({
  ...{ name, play, fate },
  stream: false,
});

const status = (line: string, more = '', body = '{}'): string =>
  withLength(`HTTP/1.1 ${line}\r\ncontent-type: application/json\r\n${more}`, body);

const NO_HTTP = [
  ...both('garbage', says('\u0000\u0001garbage\r\n\r\n'), failover('reset')),
  ...both('a TLS alert', says('\u0015\u0003\u0001\u0000\u0002\u0002F'), failover('reset')),
  ...both('an HTTP/2 preface', says('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), failover('reset')),
  ...both('HTTP/0.9', says('<html>hello</html>'), failover('reset')),
  ...both('nothing, and the end', says(), failover('reset')),
  ...both('nothing, and a reset', resets(), failover('reset')),
  ...both('nothing, for ever', holds(), failover('first_token_timeout')),
  ...both('half a status line', says('HTTP/1.1 20'), failover('reset')),
  ...both(
    'half a head, for ever',
    holds('HTTP/1.1 200 OK\r\ncont'),
    failover('first_token_timeout'),
  ),
  ...both(
    'headers of 1 MiB',
    says(`${JSON_HEAD}x: ${'y'.repeat(1_048_576)}\r\n\r\n`),
    failover('reset'),
  ),
  ...both(
    'headers without end',
    endlessly(JSON_HEAD, 'x-more: y\r\n'.repeat(100)),
    failover('reset'),
  ),
  ...both('NUL in a header', says(`${JSON_HEAD}x: a\u0000b\r\n\r\n${ANSWER}`), failover('reset')),
];

const STATUSES = [
  ...both('100 and nothing else', holds('HTTP/1.1 100 Continue\r\n\r\n'), failover('reset')),
  ...both(
    '101',
    says('HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n'),
    failover('reset'),
  ),
  ...both(
    '103 for ever',
    endlessly('', 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n'),
    failover('first_token_timeout'),
  ),
  ...[
    '201 Created',
    '202 Accepted',
    '206 Partial Content',
    '301 Moved',
    '302 Found',
    '307 Moved',
  ].flatMap((line) =>
    both(line, says(status(line, 'location: http://127.0.0.1:1/\r\n')), failover('status')),
  ),
  ...both('204', says('HTTP/1.1 204 No Content\r\n\r\n'), failover('status')),
  ...both('304', says('HTTP/1.1 304 Not Modified\r\n\r\n'), failover('status')),
  ...both(
    '502 as a page',
    says(status('502 Bad Gateway', '', '<html>nginx</html>')),
    failover('status'),
  ),
  ...both(
    '500 without end',
    endlessly(`HTTP/1.1 500 Oops\r\n${CHUNKED}`, `400\r\n${'x'.repeat(1_024)}\r\n`),
    failover('status'),
  ),
  ...both('599', says(status('599 What')), failover('status')),
  ...both('600', says(status('600 What')), failover('status')),
  ...both(
    'a 503 that means for ever',
    says(status('503 Busy', 'retry-after: 1e300\r\n')),
    failover('backPressure'),
  ),
  ...both('400 in a page', says(status('400 Bad Request', '', '<html>no</html>')), {
    kind: 'refused',
    status: 400,
    code: 'engine_error',
  }),
  ...both('400 without a body', says('HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n'), {
    kind: 'refused',
    status: 400,
    code: 'engine_error',
  }),
  ...both(
    '400 whose body is cut',
    says('HTTP/1.1 400 Bad Request\r\ncontent-length: 99\r\n\r\n{"error":'),
    { kind: 'refused', status: 400, code: 'engine_error' },
  ),
  ...both(
    '400 without end',
    endlessly(`HTTP/1.1 400 Bad Request\r\n${CHUNKED}`, `400\r\n${'x'.repeat(1_024)}\r\n`),
    { kind: 'refused', status: 400, code: 'engine_error' },
  ),
  ...both(
    'an error without a message',
    says(status('422 No', '', '{"error":{"message":5,"type":[],"code":{}}}')),
    { kind: 'refused', status: 422, code: 'engine_error' },
  ),
  ...both('an error that is null', says(status('404 No', '', '{"error":null}')), {
    kind: 'refused',
    status: 404,
    code: 'engine_error',
  }),
  ...both(
    'an error with a number for a code',
    says(status('400 No', '', '{"error":{"message":"no","type":"x","param":null,"code":400}}')),
    { kind: 'refused', status: 400, code: 400 },
  ),
  ...both('an error of bytes', says(status('400 No', '', '\ufeff{"error":{"message":"no"}}')), {
    kind: 'refused',
    status: 400,
    code: 'engine_error',
  }),
];

const FRAMING = [
  whole(
    'a length that is too long',
    says(`${JSON_HEAD}content-length: 999\r\n\r\n${ANSWER}`),
    failover('reset'),
  ),
  whole(
    'a length that is too short',
    says(`${JSON_HEAD}content-length: 9\r\n\r\n${ANSWER}`),
    failover('bad_answer'),
  ),
  ...both(
    'a length below 0',
    says(`${JSON_HEAD}content-length: -1\r\n\r\n${ANSWER}`),
    failover('reset'),
  ),
  ...both(
    'two lengths',
    says(`${JSON_HEAD}content-length: 5\r\ncontent-length: 6\r\n\r\n${ANSWER}`),
    failover('reset'),
  ),
  ...both(
    'a length and chunks',
    says(`${JSON_HEAD}content-length: 5\r\n${CHUNKED}${inChunks(ANSWER)}`),
    failover('reset'),
  ),
  whole(
    'chunks without their end',
    says(JSON_HEAD, CHUNKED, inChunks(ANSWER).slice(0, -9)),
    failover('reset'),
  ),
  whole('chunks of no length', says(JSON_HEAD, CHUNKED, 'zz\r\n'), failover('reset')),
  whole(
    'half a chunk, for ever',
    holds(JSON_HEAD, CHUNKED, 'ff\r\n{"choices"'),
    failover('first_token_timeout'),
  ),
  whole(
    'trailers',
    says(JSON_HEAD, CHUNKED, inChunks(ANSWER).slice(0, -2), 'x-evil: 1\r\nset-cookie: a=b\r\n\r\n'),
    passes(ANSWER),
  ),
  whole(
    'hop-by-hop headers and cookies',
    says(
      withLength(
        `${JSON_HEAD}connection: close, x-a\r\nx-a: b\r\nproxy-authenticate: x\r\nset-cookie: a=b\r\nlocation: /\r\nserver: evil\r\n`,
        ANSWER,
      ),
    ),
    passes(ANSWER),
  ),
  stream(
    'chunks without their end behind [DONE]',
    says(STREAM_HEAD, CHUNKED, inChunks(EVENTS + DONE).slice(0, -5)),
    passes(EVENTS + DONE),
  ),
  stream(
    'half a chunk and nothing',
    holds(STREAM_HEAD, CHUNKED, `ffff\r\n${chunk('a')}`),
    interrupted('stall'),
  ),
  stream(
    'broken chunks in the middle',
    says(STREAM_HEAD, CHUNKED, inChunks(chunk('a')).slice(0, -5), 'zz\r\n'),
    interrupted('reset'),
  ),
  stream(
    '1,000 events in one chunk',
    says(STREAM_HEAD, CHUNKED, inChunks(chunk('a').repeat(1_000) + DONE)),
    passes(chunk('a').repeat(1_000) + DONE),
  ),
];

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

export const HOSTILE_ANSWERS: readonly HostileAnswer[] = [
  ...NO_HTTP,
  ...STATUSES,
  ...FRAMING,
  ...TYPES,
  ...JSON_BODIES,
  ...SSE,
];
