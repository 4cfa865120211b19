// Request bodies that are wrong, each with what the client is answered and what is counted.

import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { GOOD, MODEL } from './small-region.ts';
import { chunked, wirePost, wireText } from './wire.ts';

export interface HostileRequest {
  readonly name: string;
  readonly bytes: () => Buffer;
  /** Null: the connection ends without an answer. */
  readonly status: number | null;
  /** Of the envelope; null: an engine's or a good answer, whose words are its own. */
  readonly code: string | null;
  /** Series that grow by one; `errors_total` of the code always does. */
  readonly counts?: readonly string[];
}

const CHUNKED = ['content-type: application/json', 'transfer-encoding: chunked'];
const limit = (name: string): readonly string[] => [`limit_hits_total{limit="${name}"}`];
const chat = (changes: object): string => JSON.stringify({ ...GOOD, ...changes });
const MESSAGES = '[{"role":"user","content":"hi"}]';

function bad(name: string, body: string | Buffer, code = 'invalid_json'): HostileRequest {
  return { name, bytes: () => wirePost(body), status: 400, code };
}

const BROKEN_JSON = [
  ['nothing', ''],
  ['white space', ' \r\n\t '],
  ['half an object', '{"model":"m","messages":[{"role":"us'],
  ['an object without its end', `{"model":"${MODEL}","messages":${MESSAGES}`],
  ['something behind the object', `${chat({})} x`],
  ['two objects', chat({}) + chat({})],
  ['a byte order mark', `\ufeff${chat({})}`],
  ['NaN', `{"model":"${MODEL}","temperature":NaN,"messages":${MESSAGES}}`],
  ['Infinity', `{"model":"${MODEL}","temperature":-Infinity,"messages":${MESSAGES}}`],
  ['a comment', `{"model":"${MODEL}",/* x */"messages":${MESSAGES}}`],
  ['single quotes', `{'model':'${MODEL}'}`],
  ['a comma behind the last member', `{"model":"${MODEL}","messages":${MESSAGES},}`],
  ['a member without quotes', `{model:"${MODEL}"}`],
  ['a number with a leading zero', `{"model":"${MODEL}","n":01}`],
  ['a control character in a string', `{"model":"a\u0001b"}`],
  ['NUL bytes', '\u0000'.repeat(100)],
  ['a form', 'model=m&messages=x'],
  ['half an escape', `{"model":"\\u00"}`],
] as const;

const NOT_AN_OBJECT = ['null', 'true', '5', '"text"', '[]', '[{}]'];

/** Wrong types of members that the router reads; the member is named as `param`. */
export const WRONG_TYPES: readonly (readonly [string, unknown])[] = [
  ...[undefined, null, 5, '', [], {}, true].map((value) => ['model', value] as const),
  ...['hi', null, {}, 5, undefined, ['hi'], [null], [{}], [{ role: 5 }], [[]]].map(
    (value) => ['messages', value] as const,
  ),
  ...['yes', 1, {}, []].map((value) => ['stream', value] as const),
  ...['yes', 1, [], true].map((value) => ['stream_options', value] as const),
  ...['5', 1e300, 1.5, true, {}, []].map((value) => ['max_tokens', value] as const),
  ...['5', 2 ** 60, 0.5].map((value) => ['max_completion_tokens', value] as const),
  ...['high', 1.5, {}].map((value) => ['priority', value] as const),
];

/** What the router has no opinion of goes to the engine: the status is the simulated one's, which minds less than a real one. */
const JUDGED: readonly (readonly [string, unknown, number])[] = [
  ['max_tokens', -1, 400],
  ['n', 'two', 400],
  ['n', -1, 400],
  ['stop', 5, 200],
  ['tools', 'x', 200],
  ['response_format', [], 200],
  ['temperature', 'hot', 400],
  ['messages', [{ role: 'user', content: '\ud800 \udc00\ud800' }], 200],
  ['messages', [{ role: 'user', content: 5 }], 200],
  ['messages', [{ role: 'user', content: [{ type: 'image_url', image_url: 'x' }] }], 200],
  ['messages', [], 400],
  ['x', JSON.parse('{"__proto__":{"stream":true},"constructor":{"prototype":{}}}'), 200],
];

const REPEATED: readonly (readonly [string, string])[] = [
  ['model twice', `{"model":"${MODEL}","model":"other","messages":${MESSAGES}}`],
  ['model escaped', `{"mod\\u0065l":"${MODEL}","messages":${MESSAGES}}`],
  ['model plain and escaped', `{"model":"${MODEL}","mod\\u0065l":"x","messages":${MESSAGES}}`],
  ['messages twice', `{"model":"${MODEL}","messages":${MESSAGES},"messages":[]}`],
  ['stream twice', `{"model":"${MODEL}","stream":true,"stream":false,"messages":${MESSAGES}}`],
  ['cache_salt escaped', `{"model":"${MODEL}","cache\\u005fsalt":"x","messages":${MESSAGES}}`],
  ['priority twice', `{"model":"${MODEL}","priority":1,"priority":-9,"messages":${MESSAGES}}`],
];

const PROMPTS: readonly (readonly [string, unknown])[] = [
  ['text and token ids', ['a', [1]]],
  ['text and a number', ['a', 5]],
  ['ids that are no integers', [1.5]],
  ['ids below 0', [-1]],
  ['null', [null]],
  ['lists in lists in lists', [[[1]]]],
  ['an object', {}],
  ['a number', 5],
];

const deep = (open: string, close: string, levels: number): string =>
  `{"model":"${MODEL}","messages":${MESSAGES},"x":${open.repeat(levels)}${close.repeat(levels)}}`;

const BIG = 9 * 1_048_576;
/** A JSON object of that many bytes which compresses a thousand times. */
const zeros = (bytes: number): Buffer => Buffer.from(`{"x":"${'0'.repeat(bytes - 8)}"}`);

const SIZES: readonly HostileRequest[] = [
  {
    name: '65 MiB, said beforehand',
    bytes: () =>
      wireText('POST /v1/chat/completions HTTP/1.1', [
        'content-type: application/json',
        `content-length: ${65 * 1_048_576}`,
      ]),
    status: 413,
    code: 'request_too_large',
    counts: limit('body_bytes'),
  },
  {
    name: 'too many bytes in chunks',
    bytes: () =>
      Buffer.concat([
        wireText('POST /v1/chat/completions HTTP/1.1', CHUNKED),
        chunked(Buffer.alloc(BIG, ' '), 65_536),
      ]),
    status: 413,
    code: 'request_too_large',
    counts: limit('body_bytes'),
  },
  {
    name: '65 MiB as a gzip bomb',
    bytes: () => compressed('gzip', gzipSync(zeros(65 * 1_048_576))),
    status: 413,
    code: 'request_too_large',
    counts: limit('body_ratio'),
  },
  {
    name: 'a brotli bomb',
    bytes: () =>
      compressed(
        'br',
        brotliCompressSync(zeros(BIG), { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } }),
      ),
    status: 413,
    code: 'request_too_large',
    counts: limit('body_ratio'),
  },
  {
    name: 'gzip in gzip',
    bytes: () => compressed('gzip', gzipSync(gzipSync(chat({})))),
    status: 400,
    code: 'invalid_json',
  },
  {
    name: 'gzip cut short',
    bytes: () => compressed('gzip', gzipSync(chat({})).subarray(0, 40)),
    status: 400,
    code: 'invalid_request',
  },
];

function compressed(encoding: string, body: Buffer): Buffer {
  return wirePost(body, ['content-type: application/json', `content-encoding: ${encoding}`]);
}

const JSON_BODIES: readonly HostileRequest[] = [
  ...BROKEN_JSON.map(([name, body]) => bad(name, body)),
  ...NOT_AN_OBJECT.map((body) => bad(body, body, 'invalid_request')),
  ...WRONG_TYPES.map(([member, value]) => {
    const name = `${member}: ${value === undefined ? 'missing' : JSON.stringify(value)}`;
    return bad(name, chat({ [member]: value }), 'invalid_request');
  }),
  ...JUDGED.map(([member, value, status]): HostileRequest => ({
    name: `for the engine to judge: ${member}: ${JSON.stringify(value)}`,
    bytes: () => wirePost(chat({ [member]: value })),
    status,
    code: null,
  })),
  ...REPEATED.map(([name, body]) => bad(name, body, 'repeated_member')),
  ...PROMPTS.map(([name, prompt]): HostileRequest => ({
    name: `a prompt list with ${name}`,
    bytes: () => wirePost(JSON.stringify({ model: MODEL, prompt }), undefined, '/v1/completions'),
    status: 400,
    code: 'invalid_request',
  })),
  ...(
    [
      ['100,000 arrays', '[', ']'],
      ['100,000 objects', '{"a":', '}'],
    ] as const
  ).map(([name, open, close]): HostileRequest => ({
    ...bad(`${name} deep`, deep(open, close, 100_000), 'invalid_request'),
    counts: limit('json_depth'),
  })),
  bad('100,000 arrays deep and nothing else', '['.repeat(100_000)),
  bad('bytes that are no UTF-8', Buffer.from(chat({ x: 'a\u00e9' }), 'latin1')),
  bad(
    'an overlong encoding',
    Buffer.concat([Buffer.from('{"a":"'), Buffer.from([0xc0, 0xaf, 0x22, 0x7d])]),
  ),
  bad('half a character at the end', Buffer.concat([Buffer.from(chat({})), Buffer.from([0xe2])])),
  bad('UTF-16', Buffer.from(chat({}), 'utf16le')),
];

const HEAD_END = '\r\n\r\n';
const LONG_MEMBER = Buffer.from(`"documents":["${'long '.repeat(80_000)}"],`);

/** The same in a body that is large, and read as such; null where it would no longer be the same. */
function large({ bytes: small, ...entry }: HostileRequest): HostileRequest | null {
  const sent = small();
  const head = sent.indexOf(HEAD_END) + HEAD_END.length;
  const path = /^POST (\S+)/.exec(sent.toString('latin1', 0, head))?.[1];
  // What comes behind the brace has a member to follow.
  if (sent.toString('latin1', head, head + 2) !== '{"') return null;
  const body = [sent.subarray(head, head + 1), LONG_MEMBER, sent.subarray(head + 1)];
  const bytes = (): Buffer => wirePost(Buffer.concat(body), undefined, path);
  return { ...entry, name: `${entry.name}, and 400 KB`, bytes };
}

export const HOSTILE_BODIES: readonly HostileRequest[] = [
  ...JSON_BODIES,
  ...JSON_BODIES.map(large).filter((entry) => entry !== null),
  ...SIZES,
  ...['__proto__', 'constructor', 'toString', 'hasOwnProperty', '\ud800', 'a'.repeat(100_000)].map(
    (model): HostileRequest => ({
      name: `a model that does not exist: ${model.slice(0, 20)}`,
      bytes: () => wirePost(chat({ model })),
      status: 404,
      code: 'model_not_found',
    }),
  ),
  {
    name: 'more tokens than the context has, as the engine says',
    bytes: () => wirePost(chat({ messages: [{ role: 'user', content: 'word '.repeat(200_000) }] })),
    status: 400,
    code: null,
  },
  {
    name: 'more token ids than the context has',
    bytes: () =>
      wirePost(
        JSON.stringify({ model: MODEL, prompt: Array.from({ length: 40_000 }, () => 7) }),
        undefined,
        '/v1/completions',
      ),
    status: 400,
    code: 'context_length_exceeded',
  },
  ...['text/plain', 'application/jsonx', 'multipart/form-data; boundary=x', ''].map(
    (type): HostileRequest => ({
      name: `the type '${type}'`,
      bytes: () => wirePost(chat({}), [`content-type: ${type}`]),
      status: 415,
      code: 'unsupported_media_type',
    }),
  ),
];
