// Requests that are wrong as HTTP: framing, headers, targets, methods, other protocols. Each with what the client is
// answered and what is counted.

import type { HostileRequest } from './clients-bodies.ts';
import { CHAT, GOOD } from './small-region.ts';
import { chunked, wirePost, wireText } from './wire.ts';

const TYPE = 'content-type: application/json';
const BODY = JSON.stringify(GOOD);
const POST = `POST ${CHAT} HTTP/1.1`;
const GET = 'GET /v1/models HTTP/1.1';

function refused(name: string, bytes: () => Buffer, more: Partial<HostileRequest> = {}) {
  return { name, bytes, status: 400, code: 'invalid_request', ...more } satisfies HostileRequest;
}

function served(name: string, bytes: () => Buffer): HostileRequest {
  return { name, bytes, status: 200, code: null };
}

const post = (lines: readonly string[], body: string): Buffer => wireText(POST, lines, body);
const get = (...lines: string[]): Buffer => wireText(GET, lines);
const raw = (text: string): Buffer => Buffer.from(text, 'latin1');
const HEADERS_TOO_LARGE = {
  status: 431,
  code: 'headers_too_large',
  counts: ['limit_hits_total{limit="header_bytes"}'],
};
const LONG = `content-length: ${BODY.length}`;

/** What says of one body that it is two, or ends in two places. */
const FRAMING: readonly HostileRequest[] = [
  refused('a length below 0', () => post([TYPE, 'content-length: -5'], BODY)),
  refused('a length that is no number', () => post([TYPE, 'content-length: 0x10'], BODY)),
  refused('a length with a sign', () => post([TYPE, `content-length: +${BODY.length}`], BODY)),
  refused('a length beyond 64 bits', () => post([TYPE, `content-length: ${'9'.repeat(30)}`], BODY)),
  refused('two lengths that differ', () => post([TYPE, LONG, 'content-length: 5'], BODY)),
  refused('two lengths that agree', () => post([TYPE, LONG, LONG], BODY)),
  refused('two lengths in one header', () => post([TYPE, `${LONG}, ${BODY.length}`], BODY)),
  refused('a length and chunks', () =>
    post([TYPE, LONG, 'transfer-encoding: chunked'], `0\r\n\r\n${BODY}`),
  ),
  refused('chunks and a length', () =>
    post([TYPE, 'transfer-encoding: chunked', 'content-length: 5'], '0\r\n\r\n'),
  ),
  refused('an encoding that is not the last', () =>
    post([TYPE, 'transfer-encoding: chunked, gzip'], '0\r\n\r\n'),
  ),
  refused('chunks with a space before their name', () =>
    post([TYPE, 'transfer-encoding : chunked'], '0\r\n\r\n'),
  ),
  refused('chunks twice', () =>
    post([TYPE, 'transfer-encoding: chunked', 'transfer-encoding: identity'], '0\r\n\r\n'),
  ),
  refused('a chunk whose length is no number', () =>
    post([TYPE, 'transfer-encoding: chunked'], 'zz\r\n{}\r\n'),
  ),
  refused('a chunk longer than it says', () =>
    post([TYPE, 'transfer-encoding: chunked'], '2\r\n{}{}{}\r\n0\r\n\r\n'),
  ),
  refused('a chunk of more bytes than there are', () =>
    post([TYPE, 'transfer-encoding: chunked'], 'ffffffffffffffffff\r\n{}\r\n'),
  ),
  refused(
    'an extension of a chunk without end',
    () => post([TYPE, 'transfer-encoding: chunked'], `2;${'x'.repeat(100_000)}\r\n{}\r\n`),
    {
      status: 413,
      code: 'request_too_large',
      counts: ['limit_hits_total{limit="chunk_extensions"}'],
    },
  ),
  refused(
    'trailers without end',
    () =>
      post(
        [TYPE, 'transfer-encoding: chunked'],
        `2\r\n{}\r\n0\r\n${'x: y\r\n'.repeat(20_000)}\r\n`,
      ),
    HEADERS_TOO_LARGE,
  ),
];

const CHUNKS = [TYPE, 'transfer-encoding: chunked'];
const FINE: readonly HostileRequest[] = [
  served('chunks of one byte', () => Buffer.concat([post(CHUNKS, ''), chunked(raw(BODY), 1)])),
  served('64 KiB in chunks of one byte', () =>
    Buffer.concat([post(CHUNKS, ''), chunked(raw(BODY.padEnd(65_536)), 1)]),
  ),
  served('chunks with extensions', () =>
    post(CHUNKS, `${BODY.length.toString(16)};a=b;c="d"\r\n${BODY}\r\n0\r\n\r\n`),
  ),
  served('chunks with trailers', () =>
    post(CHUNKS, `${BODY.length.toString(16)}\r\n${BODY}\r\n0\r\nx-request-id: a\r\n\r\n`),
  ),
  served('an upgrade to a WebSocket', () =>
    get('connection: upgrade', 'upgrade: websocket', 'sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA=='),
  ),
  served('an upgrade to HTTP/2', () =>
    get('connection: upgrade, http2-settings', 'upgrade: h2c', 'http2-settings: AAMAAABkAAQAAP__'),
  ),
  served('bytes beyond ASCII in a header', () => get('x-request-id: caf\u00e9\u0080')),
  served('a traceparent of bytes', () =>
    wirePost(BODY, [TYPE, 'traceparent: \u00e9\u00ff', `tracestate: ${'\u00e9'.repeat(2_000)}`]),
  ),
  served('100 headers of one name', () => get(...Array.from({ length: 100 }, () => 'x: y'))),
  served('a deadline of for ever', () =>
    wirePost(BODY, [TYPE, 'x-stainless-timeout: 1e308', 'x-stainless-read-timeout: NaN']),
  ),
  served('an explanation that is not allowed', () =>
    wirePost(BODY, [TYPE, 'x-spillway-explain: 1', 'x-spillway-replica: evil', 'x-real-ip: ::1']),
  ),
  served('percent signs that are no escapes', () =>
    wireText('GET /v1/models?%=%zz&%00 HTTP/1.1', []),
  ),
];

const HEADS: readonly HostileRequest[] = [
  refused('a header without colon', () => get('nothing')),
  refused('a header without name', () => get(': x')),
  refused('a space in a header name', () => get('a b: x')),
  refused('a folded header', () => get('x-a: b', ' folded')),
  refused('NUL in a header', () => get('x-a: b\u0000c')),
  refused('a lone LF after a header', () => raw(`${GET}\r\nhost: x\nx-a: b\r\n\r\n`)),
  refused('a lone CR in a header', () => get('x-a: b\rc: d')),
  refused('no Host', () => raw(`${GET}\r\n\r\n`)),
  refused('a header of 1 MiB', () => get(`x-a: ${'b'.repeat(1_048_576)}`), HEADERS_TOO_LARGE),
  refused(
    '10,000 headers',
    () => get(...Array.from({ length: 10_000 }, (_, k) => `x-${k}: y`)),
    HEADERS_TOO_LARGE,
  ),
  refused(
    'a target of 1 MiB',
    () => wireText(`GET /${'a'.repeat(1_048_576)} HTTP/1.1`, []),
    HEADERS_TOO_LARGE,
  ),
];

const LINES: readonly HostileRequest[] = [
  refused('nonsense', () => raw('NONSENSE\r\n\r\n')),
  refused('HTTP/0.9', () => raw('GET /v1/models\r\n\r\n')),
  refused('HTTP/3.7', () => raw('GET / HTTP/3.7\r\nhost: x\r\n\r\n')),
  refused('a preface of HTTP/2', () => raw('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')),
  refused('a TLS hello', () =>
    raw('\u0016\u0003\u0001\u0002\u0000\u0001\u0000\u0001\u00fc\u0003\u0003'.padEnd(200, '\u0001')),
  ),
  refused('a method that nobody knows', () => raw('FOO / HTTP/1.1\r\nhost: x\r\n\r\n')),
  refused('a method in small letters', () => raw('get / HTTP/1.1\r\nhost: x\r\n\r\n')),
  refused('spaces in the target', () => raw('GET /v1/ models HTTP/1.1\r\nhost: x\r\n\r\n')),
  refused('NUL in the target', () => raw('GET /\u0000 HTTP/1.1\r\nhost: x\r\n\r\n')),
  refused('1 MiB of zeros', () => Buffer.alloc(1_048_576)),
  refused('an SMTP greeting', () => raw('EHLO spillway\r\n')),
];

const MISSING = { status: 404, code: 'not_found' } as const;
const NOT_SO = { status: 405, code: 'method_not_allowed' } as const;
const TARGETS: readonly HostileRequest[] = [
  ...[
    '/../../etc/passwd',
    '/v1/../v1/models',
    '/v1/%2e%2e/metrics',
    '/%00',
    '/%',
    '//v1/models',
    '/V1/MODELS',
    '/v1/models%2f',
    '/__proto__',
    '/constructor',
    '/metrics',
    '/status',
    '/v1/route/explain',
    `/${'a'.repeat(8_000)}`,
    '*',
    '/v1/chat/completions/',
    '/v1/chat/completions;x=y',
  ].map((path) =>
    refused(`the path ${path.slice(0, 40)}`, () => wireText(`GET ${path} HTTP/1.1`, []), MISSING),
  ),
  ...['/v1/models/__proto__', '/v1/models/%', '/v1/models/..%2f..', '/v1/models/'].map((path) =>
    refused(`the model at ${path}`, () => wireText(`GET ${path} HTTP/1.1`, []), {
      status: 404,
      code: 'model_not_found',
    }),
  ),
  ...['GET', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'TRACE', 'PROPFIND', 'QUERY'].map((method) =>
    refused(
      `${method} where POST is meant`,
      () => wireText(`${method} ${CHAT} HTTP/1.1`, []),
      NOT_SO,
    ),
  ),
  refused('a tunnel', () => raw('CONNECT example.com:443 HTTP/1.1\r\nhost: x\r\n\r\n'), NOT_SO),
  refused('a tunnel with a path', () => raw('CONNECT / HTTP/1.1\r\nhost: x\r\n\r\n'), NOT_SO),
];

export const HOSTILE_HTTP: readonly HostileRequest[] = [
  ...FRAMING,
  ...FINE,
  ...HEADS,
  ...LINES,
  ...TARGETS,
];
