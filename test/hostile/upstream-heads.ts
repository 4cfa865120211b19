// What engines may answer that is wrong before any content: no HTTP, statuses, framing.

import { chunk, DONE } from '../e2e/scripted-engine.ts';
import {
  STREAM_HEAD,
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
  status,
} from './upstream-plays.ts';

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

export const HOSTILE_HEADS = [...NO_HTTP, ...STATUSES, ...FRAMING];
