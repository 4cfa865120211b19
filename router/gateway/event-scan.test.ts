import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { EventScan, type StreamFault } from './event-scan.ts';

const FIXTURES = new URL('../../test/fixtures/vllm-0.32.0/', import.meta.url);

function bodyOf(name: string): Buffer {
  const bytes = readFileSync(new URL(name, FIXTURES));
  return bytes.subarray(
    bytes.indexOf('\r\n\r\n') < 0 ? headEnd(bytes) : bytes.indexOf('\r\n\r\n') + 4,
  );
}
function headEnd(bytes: Buffer): number {
  return bytes.indexOf('\n\n') + 2;
}
function chunksOf(name: string): Buffer {
  const { chunks } = JSON.parse(readFileSync(new URL(name, FIXTURES), 'utf8')) as {
    chunks: [number, string][];
  };
  return Buffer.from(chunks.map(([, text]) => text).join(''));
}

interface Seen {
  text: string;
  dataEvents: number;
  fault: StreamFault | null;
  done: boolean;
  usage: EventScan['usage'];
}

function run(pieces: readonly Buffer[], dropUsage: boolean): Seen {
  const scan = new EventScan(dropUsage, 1024 * 1024);
  const seen: Seen = { text: '', dataEvents: 0, fault: null, done: false, usage: null };
  for (const piece of pieces) {
    const { forward, dataEvents, fault } = scan.push(piece);
    seen.text += Buffer.concat(forward).toString();
    seen.dataEvents += dataEvents;
    seen.fault ??= fault;
  }
  seen.text += scan.finish()?.toString() ?? '';
  return { ...seen, done: scan.done, usage: scan.usage };
}

const STREAMS: Record<string, Buffer> = {
  'chat with usage': bodyOf('chat-stream-usage.http'),
  'chat with continuous usage': bodyOf('chat-stream-continuous-usage.http'),
  completion: bodyOf('completion-stream-usage.http'),
  'a killed engine core': chunksOf('stream-killcore.json'),
  'an aborted stream': chunksOf('stream-term-abort.json'),
  'an error at once': chunksOf('stream-term-error.json'),
  'TGI, silent, then failing': Buffer.from(
    ':\n\n:\n\ndata: {"choices":[{"delta":{"content":"a"}}],"usage":null}\n\n' +
      'data: {"error":"Request failed during generation: x","error_type":"generation"}\n\ndata: [DONE]\n\n',
  ),
  'a byte order mark, ids and times': Buffer.from(
    '\ufeffdata: {"choices":[{"delta":{"content":"a"}}]}\n\n' +
      'id: 1\nretry: 5\ndata: {"choices":[{"delta":{"content":"\ufeffb"}}]}\n\ndata: [DONE]\n\n',
  ),
  'CRLF, comments, no space': Buffer.from(
    ': hi\r\n\r\ndata:{"choices":[{"delta":{"content":"é"}}]}\r\n\r\n:\n\ndata: [DONE]\r\n\r\n',
  ),
};

describe.each(Object.entries(STREAMS))('%s', (_name, bytes) => {
  test.each([true, false])('says the same however it is cut (usage dropped: %s)', (dropUsage) => {
    const whole = run([bytes], dropUsage);
    for (let at = 1; at < bytes.length; at += 1) {
      expect(run([bytes.subarray(0, at), bytes.subarray(at)], dropUsage)).toEqual(whole);
    }
    fc.assert(
      fc.property(fc.array(fc.nat(bytes.length), { maxLength: 40 }), (cuts) => {
        const points = [0, ...cuts.toSorted((a, b) => a - b), bytes.length];
        const pieces = points.slice(1).map((end, i) => bytes.subarray(points[i], end));
        expect(run(pieces, dropUsage)).toEqual(whole);
      }),
      { numRuns: 50 },
    );
    const single = [...bytes].map((byte) => Buffer.from([byte]));
    expect(run(single, dropUsage)).toEqual(whole);
  });
});

/** What may stand in one stream beside each other. */
const EVENTS = [
  'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
  'data: {"choices":[{"delta":{"content":"\\"error\\":{}"}}]}\n\n',
  'data: {"choices":[{"delta":{"tool_calls":[{"arguments":"{}"}]}}],"usage":null}\n\n',
  'data: {"choices":[{"text":"b"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}\n\n',
  'data: {"choices":[{"text":"b"}],"usage" : null}\n\n',
  'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}\n\n',
  'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n',
  'data: {"choices":[{"text":"c"}],\ndata: "x":1}\n\n',
  'data:{"choices":[{"text":"d"}]}\n\n',
  'data: {"choices":[{"text":"e"}]}\r\n\r\n',
  'data: {"choices":[{"text":"f"}]}\r\rdata: {"choices":[{"text":"g"}]}\n\n',
  'data: {"error":{"code":500}}\n\n',
  'data: {"choices":[{"finish_reason":"abort"}]}\n\n',
  'data: [DONE]\n\n',
  ': ping\n\n',
  'id: 1\n\n',
  'data: {"choices":[{"text":"unfinished"',
  '\n',
];

describe('the event scan', () => {
  test('whole events in one piece mean what they mean byte by byte', () => {
    const first = Buffer.from(EVENTS[0] as string);
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...EVENTS), { maxLength: 6 }), (events) => {
        const pieces = [first, ...events.map((event) => Buffer.from(event))];
        const bytes = Buffer.concat(pieces);
        const single = run(
          [...bytes].map((byte) => Buffer.from([byte])),
          true,
        );
        expect(run(pieces, true)).toEqual(single);
        expect(run([first, bytes.subarray(first.length)], true)).toEqual(single);
      }),
      { numRuns: 400 },
    );
  });

  test('a stream without faults passes byte for byte when its usage was asked for', () => {
    for (const name of ['chat-stream-usage.http', 'chat-stream-continuous-usage.http']) {
      const seen = run([bodyOf(name)], false);
      expect(seen.text).toBe(bodyOf(name).toString());
      expect(seen).toMatchObject({ fault: null, done: true });
    }
  });

  test('the usage chunk is read, and dropped unless it was asked for', () => {
    const seen = run([bodyOf('chat-stream-usage.http')], true);
    expect(seen.usage).toEqual({ promptTokens: 2304, cachedTokens: 2272, completionTokens: 6 });
    expect(seen.text).not.toContain('"usage"');
    expect(seen.text.endsWith('data: [DONE]\n\n')).toBe(true);
    expect(seen.dataEvents).toBe(7);
  });

  test('an error event ends the stream before it and its [DONE] are passed', () => {
    const seen = run([chunksOf('stream-killcore.json')], true);
    expect(seen.fault).toMatchObject({ kind: 'error_event', status: 500 });
    expect(seen.text).not.toContain('error');
    expect(seen.done).toBe(false);
    expect(run([chunksOf('stream-term-error.json')], true)).toMatchObject({
      dataEvents: 0,
      text: '',
    });
  });

  test('what an engine says of its fault keeps type and code, never its message', () => {
    const json =
      '{"error":{"message":"your prompt was …","type":"InternalServerError","code":500}}';
    const { fault } = run([Buffer.from(`data: ${json}\n\n`)], true);
    expect(fault).toMatchObject({ detail: 'InternalServerError 500' });
  });

  test('a chunk with finish_reason abort is a fault, and is not passed', () => {
    const seen = run([chunksOf('stream-term-abort.json')], true);
    expect(seen.fault).toEqual({ kind: 'abort' });
    expect(seen.text).not.toContain('abort');
  });

  test.each([
    ['the word as a value', '{"choices":[{"delta":{"content":"error"}}]}'],
    ['the word quoted in text', '{"choices":[{"delta":{"content":"\\"error\\":{}"}}]}'],
    ['a null error', '{"error":null,"choices":[{"delta":{"content":"x"}}]}'],
    ['abort as text', '{"choices":[{"delta":{"content":"abort"},"finish_reason":null}]}'],
    ['a tool argument', '{"choices":[{"delta":{"tool_calls":[{"error":{"a":1}}]}}]}'],
  ])('%s is an answer like any other', (_name, json) => {
    const event = `data: ${json}\n\n`;
    const seen = run([Buffer.from(event)], true);
    expect(seen).toMatchObject({ text: event, fault: null, dataEvents: 1 });
  });

  test.each([
    ['a text error', '{"error":"boom"}'],
    ['an error as the event itself', '{"object":"error","message":"boom","type":"T","code":500}'],
    ['white space', '{ "error" : { "message" : "boom" } }'],
    ['two data lines', '{"error":\ndata: {"message":"boom"}}'],
  ])('%s is a fault', (_name, json) => {
    expect(run([Buffer.from(`data: ${json}\n\n`)], true).fault).toMatchObject({
      kind: 'error_event',
    });
  });

  test.each([
    ['TGI overloaded', '{"error":"Model is overloaded","error_type":"overloaded"}', 429],
    ['TGI, a wrong request', '{"error":"Input validation error","error_type":"validation"}', 422],
    ['TGI, a failed batch', '{"error":"Request failed","error_type":"generation"}', null],
    [
      'SGLang, a full queue',
      '{"error":{"object":"error","message":"The request queue is full.","type":"SERVICE_UNAVAILABLE","param":null,"code":503}}',
      503,
    ],
    ['SGLang, flat', '{"object":"error","message":"m","type":"BadRequestError","code":400}', 400],
    ['another tier, busy', '{"error":{"message":"m","type":"t","code":"saturated"}}', 429],
    ['another tier, failed', '{"error":{"message":"m","type":"t","code":"upstream_failed"}}', 502],
    ['a code of nobody', '{"error":{"message":"m","code":"constructor"}}', null],
    ['one that names nothing', '{"error":{"message":"boom"}}', null],
  ])('%s names its status', (_name, json, status) => {
    const { fault } = run([Buffer.from(`data: ${json}\n\n`)], true);
    expect(fault).toMatchObject({ kind: 'error_event', status });
  });

  test('comments into a silence are no data and are not passed', () => {
    expect(run([Buffer.from(':\n\n: ping\n\n')], true)).toMatchObject({ text: '', dataEvents: 0 });
  });

  test('usage in a long event is read before the event is let go, and the last one counts', () => {
    const event = (text: string, tokens: number): string =>
      `data: {"choices":[{"index":0,"text":"${text}"}],"usage":{"prompt_tokens":9,"completion_tokens":${tokens},"total_tokens":0}}\n\n`;
    const usage = (...events: string[]) =>
      run([Buffer.from(`${events.join('')}data: [DONE]\n\n`)], true).usage?.completionTokens;
    const long = 'x'.repeat(100_000);
    expect(usage(event('a', 1), event(long, 2))).toBe(2);
    expect(usage(event(long, 2), event('a', 3))).toBe(3);
  });

  test('usage in the last chunk of a completion is read, and the chunk passes', () => {
    const last =
      'data: {"choices":[{"index":0,"text":"x","finish_reason":"length"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}\n\n';
    const seen = run([Buffer.from(`${last}data: [DONE]\n\n`)], true);
    expect(seen.usage).toEqual({ promptTokens: 9, cachedTokens: null, completionTokens: 2 });
    expect(seen.text).toContain('"length"');
  });

  test('an event beyond the limit is a fault, not memory', () => {
    const scan = new EventScan(true, 1_000);
    const piece = Buffer.alloc(400, 'x');
    const results = [Buffer.from('data: '), piece, piece, piece].map((each) => scan.push(each));
    expect(results.at(-1)?.fault).toEqual({ kind: 'too_large' });
  });

  test('an unfinished event at the end is not passed; a [DONE] without its blank line is', () => {
    expect(run([Buffer.from('data: {"choices":[')], true).text).toBe('');
    const seen = run([Buffer.from('data: {"choices":[{}]}\n\ndata: [DONE]')], true);
    expect(seen.done).toBe(true);
    expect(seen.text.endsWith('data: [DONE]\n\n')).toBe(true);
  });

  test('nothing after [DONE] is passed', () => {
    expect(run([Buffer.from('data: [DONE]\n\ndata: {"choices":[{}]}\n\n')], true)).toMatchObject({
      text: 'data: [DONE]\n\n',
      dataEvents: 0,
    });
  });

  test('never throws on anything', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array(), { maxLength: 5 }), (pieces) => {
        run(
          pieces.map((piece) => Buffer.from(piece)),
          true,
        );
      }),
    );
  });

  test('a byte order mark before the first event is no part of it', () => {
    const events = 'data: {"choices":[{}]}\n\ndata: [DONE]\n\n';
    expect(run([Buffer.from(`\ufeff${events}`)], true).text).toBe(events);
    // One that comes twice is a field of that name, which nobody knows.
    expect(run([Buffer.from(`\ufeff\ufeff${events}`)], true).text).toBe('data: [DONE]\n\n');
  });

  test('what was passed stays as it was while more comes', () => {
    const event = (k: number) => `data: {"choices":[{"text":"${k}"}]}\n\n`;
    const bytes = Buffer.from(Array.from({ length: 200 }, (_, k) => event(k)).join(''));
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 90 }), (size) => {
        const scan = new EventScan(true, 1_024);
        const passed: Buffer[] = [];
        for (let at = 0; at < bytes.length; at += size) {
          // As from a socket: each piece in a buffer of its own.
          passed.push(...scan.push(Buffer.from(bytes.subarray(at, at + size))).forward);
        }
        expect(Buffer.concat(passed).equals(bytes)).toBe(true);
      }),
      { numRuns: 40 },
    );
  });

  test('an event of 512 KiB that comes byte by byte costs its length, not the square of it', () => {
    const scan = new EventScan(true, 1_048_576);
    const event = Buffer.from(`data: {"choices":[],"x":"${'y'.repeat(524_288)}"}\n\n`);
    let passed = 0;
    for (let at = 0; at < event.length; at += 1) {
      for (const each of scan.push(event.subarray(at, at + 1)).forward) passed += each.length;
    }
    expect(passed).toBe(event.length);
  });
});
