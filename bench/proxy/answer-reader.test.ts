import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { AnswerReader } from './answer-reader.ts';

const CHUNKED =
  'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n';
const EVENTS = ['data: {"a":1}\n\n', 'data: {"b":[1,2]}\n\n', 'data: [DONE]\n\n'];

function framed(...parts: readonly string[]): string {
  return [...parts.map((part) => `${part.length.toString(16)}\r\n${part}\r\n`), '0\r\n\r\n'].join(
    '',
  );
}

function sized(body: string, length = body.length): string {
  return `HTTP/1.1 200 OK\r\nContent-Length: ${length}\r\n\r\n${body}`;
}

interface Seen {
  readonly fault: string | null;
  readonly reader: AnswerReader;
}

/** Cut before each of these bytes. */
function read(text: string, cuts: readonly number[] = []): Seen {
  const bytes = Buffer.from(text);
  const reader = new AnswerReader();
  const ends = [...new Set([...cuts.map((cut) => cut % bytes.length), bytes.length])];
  let from = 0;
  for (const end of ends.toSorted((a, b) => a - b)) {
    const fault = reader.take(bytes.subarray(from, end));
    if (fault !== null) return { fault, reader };
    from = end;
  }
  return { fault: null, reader };
}

describe('an answer as a client reads it', () => {
  it('is the same wherever its bytes are cut, and whatever chunks its events came in', () => {
    const body = EVENTS.join('');
    fc.assert(
      fc.property(
        fc.array(fc.nat({ max: body.length - 1 })),
        fc.array(fc.nat()),
        (borders, cuts) => {
          const ends = [...new Set([...borders.filter((at) => at > 0), body.length])];
          const sorted = ends.toSorted((a, b) => a - b);
          const parts = sorted.map((end, at) => body.slice(sorted[at - 1] ?? 0, end));
          const { fault, reader } = read(CHUNKED + framed(...parts), cuts);
          expect([fault, reader.whole, reader.status]).toEqual([null, true, 200]);
          expect([reader.events, reader.tail]).toEqual([EVENTS.length, body]);
        },
      ),
    );
  });

  it('has as many events as pairs of line feeds', () => {
    expect(read(sized('data: 1\n\n\n\ndata: 2\n\n\n')).reader.events).toBe(3);
  });

  it('is whole only with the last byte that its framing announces', () => {
    for (const text of [CHUNKED + framed(...EVENTS), sized('{"a":1}')]) {
      for (let cut = 1; cut < text.length; cut += 1) {
        expect(read(text.slice(0, cut)).reader.whole).toBe(false);
      }
      expect(read(text).reader.whole).toBe(true);
    }
  });

  it('has begun with the first byte of its body, not with its head', () => {
    expect(read(CHUNKED).reader.begun).toBe(false);
    expect(read(`${CHUNKED}1c\r\n`).reader.begun).toBe(false);
    expect(read(`${CHUNKED}1c\r\nd`).reader.begun).toBe(true);
  });

  it('may have a trailer and no body', () => {
    expect(read(`${CHUNKED}0\r\nx-a: b\r\n\r\n`).reader.whole).toBe(true);
    expect(read(sized('')).reader.whole).toBe(true);
  });

  it('is a fault where its framing is wrong', () => {
    const wrong: Readonly<Record<string, string>> = {
      'bytes behind the end': `${CHUNKED}${framed(...EVENTS)}H`,
      'no size of a chunk': `${CHUNKED}xyz\r\n`,
      'a chunk without a size': `${CHUNKED}${'0'.repeat(40)}`,
      'a chunk that is not as long as it says': `${CHUNKED}4\r\ndata: x\r\n0\r\n\r\n`,
      'a body whose length is told twice or never': 'HTTP/1.1 200 OK\r\n\r\n',
      'no status line': 'HTTP/2 200 OK\r\ncontent-length: 0\r\n\r\n',
    };
    for (const [fault, text] of Object.entries(wrong)) expect(read(text).fault).toContain(fault);
    expect(read(`${sized('{}', 2)}}`).fault).toContain('1 bytes behind the end');
  });

  it('says when its connection is not to be used again', () => {
    const closing = 'HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 0\r\n\r\n';
    expect([read(closing).reader.kept, read(sized('')).reader.kept]).toEqual([false, true]);
  });

  it('leaves nothing behind for the next one', () => {
    const { reader } = read(CHUNKED + framed(...EVENTS));
    reader.reset();
    expect(reader.take(Buffer.from(sized('{}')))).toBe(null);
    expect([reader.whole, reader.events, reader.tail]).toEqual([true, 0, '{}']);
  });
});
