import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RequestReader, type ReplicaRequest } from './request-reader.ts';

const POST = 'POST /v1/chat/completions?x=1 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello';
const GET = 'GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n';

function read(pieces: readonly string[]): (readonly [string, string, string])[] {
  const reader = new RequestReader();
  const seen: (readonly [string, string, string])[] = [];
  const whole = ({ method, path, body }: ReplicaRequest): void => {
    seen.push([method, path, body.toString()]);
  };
  for (const piece of pieces) expect(reader.take(Buffer.from(piece), whole)).toBe(null);
  return seen;
}

describe('requests of a connection', () => {
  it('are the same wherever their bytes are cut', () => {
    const text = POST + GET + POST;
    fc.assert(
      fc.property(fc.uniqueArray(fc.nat({ max: text.length })), (cuts) => {
        const ends = [...cuts, text.length].toSorted((a, b) => a - b);
        const seen = read(ends.map((end, at) => text.slice(ends[at - 1] ?? 0, end)));
        const post = ['POST', '/v1/chat/completions', 'hello'];
        expect(seen).toEqual([post, ['GET', '/metrics', ''], post]);
      }),
    );
  });

  it('are refused where they are not HTTP/1.1, or have a body without a length', () => {
    const refusal = (text: string) => new RequestReader().take(Buffer.from(text), () => undefined);
    expect(refusal('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')).toBe(400);
    expect(refusal('POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n')).toBe(411);
    expect(refusal('a'.repeat(70_000))).toBe(431);
  });
});
