import { describe, expect, test } from 'vitest';
import { clientDeadlineMs, clientRequestId } from './headers.ts';
import { retryAfterMs } from './retry-after.ts';
import { engineErrorAnswer, errorAnswer } from './error-envelope.ts';

describe("a client's request id", () => {
  test.each([
    ['abc-1', 'abc-1'],
    ['', null],
    ['with space', null],
    ['line\nbreak', null],
    ['x'.repeat(128), 'x'.repeat(128)],
    ['x'.repeat(129), null],
    [undefined, null],
    [['a', 'b'], null],
  ])('%j is echoed as %j', (value, expected) => {
    expect(clientRequestId(value)).toBe(expected);
  });
});

describe("a client's deadline", () => {
  test.each([
    [{ 'x-stainless-timeout': '600' }, 600_000],
    [{ 'x-stainless-read-timeout': '1.5' }, 1_500],
    [{ 'x-stainless-timeout': 'soon' }, null],
    [{ 'x-stainless-timeout': '0' }, null],
    [{}, null],
  ])('%j is %j ms', (headers, expected) => {
    expect(clientDeadlineMs(headers)).toBe(expected);
  });
});

describe("an engine's Retry-After", () => {
  test.each([
    [{ 'retry-after': '7' }, 7_000],
    [{ 'retry-after': '7', 'retry-after-ms': '250' }, 250],
    [{ 'retry-after': 'Mon, 30 Nov 2026 02:19:01 GMT' }, null],
    [{ 'retry-after': '' }, null],
    [{}, null],
  ])('%j is %j ms', (headers, expected) => {
    expect(retryAfterMs(headers)).toBe(expected);
  });
});

describe('error answers', () => {
  test.each([
    [0, 1],
    [1_500, 2],
    [500_000, 60],
  ])('a wait of %d ms is said as %d s', (retryAfterMs, expected) => {
    const answer = errorAnswer({ code: 'saturated', message: 'm', retryAfterMs });
    expect(answer).toMatchObject({ status: 429, shouldRetry: true, retryAfterS: expected });
  });

  test("an engine's envelope is kept as it is", () => {
    const body = Buffer.from('{ "error": {"message":"x","code":400} }');
    expect(engineErrorAnswer(400, body).body).toBe(body);
  });

  test.each([
    ['{"detail":"Method Not Allowed"}', 'Method Not Allowed'],
    ['{"error":"Unauthorized"}', 'Unauthorized'],
    ['{"object":"error","message":"old style"}', 'old style'],
    ['<html>secret internals</html>', 'The engine answered with status 404.'],
    ['', 'The engine answered with status 404.'],
  ])('%s is wrapped', (body, message) => {
    const answer = JSON.parse(engineErrorAnswer(404, Buffer.from(body)).body.toString()) as unknown;
    expect(answer).toMatchObject({ error: { message, param: null, code: 'engine_error' } });
  });
});
