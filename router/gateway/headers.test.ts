import { describe, expect, test } from 'vitest';
import { clientRequestId, passedUpstream } from './headers.ts';
import { retryAfterMs } from './retry-after.ts';
import { errorStatusOf } from './engine-answer.ts';
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

describe('of a trace an engine is told', () => {
  const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
  test.each([
    [{ traceparent }, { traceparent }],
    [
      { traceparent, tracestate: 'a=b,c=d' },
      { traceparent, tracestate: 'a=b,c=d' },
    ],
    [{ traceparent, tracestate: 'a'.repeat(513) }, { traceparent }],
    [{ traceparent, tracestate: 'caf\u00e9' }, { traceparent }],
    [{ traceparent: `${traceparent}, ${traceparent}` }, {}],
    [{ traceparent: '\u00e9'.repeat(55), tracestate: 'a=b' }, {}],
    [{ tracestate: 'a=b', cookie: 'x', 'x-data-parallel-rank': '3' }, {}],
  ])('of %j just %j', (given, told) => {
    expect(passedUpstream(given)).toEqual(told);
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
    [0, 1_000],
    [1_500.4, 1_501],
    [500_000, 60_000],
  ])('a wait of %d ms is said as %d ms', (retryAfterMs, expected) => {
    const answer = errorAnswer({ code: 'saturated', message: 'm', retryAfterMs });
    expect(answer).toMatchObject({ status: 429, shouldRetry: true, retryAfterMs: expected });
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
    ['Failed to deserialize the JSON body', 'Failed to deserialize the JSON body'],
    ['{"error": cut', 'The engine answered with status 404.'],
    ['x'.repeat(2_000), 'The engine answered with status 404.'],
  ])('%s is wrapped', (body, message) => {
    const answer = JSON.parse(engineErrorAnswer(404, Buffer.from(body)).body.toString()) as unknown;
    expect(answer).toMatchObject({ error: { message, param: null, code: 'engine_error' } });
  });

  test.each([
    [
      '{"object":"error","message":"too long","type":"BadRequestError","param":"messages","code":400}',
      { message: 'too long', type: 'BadRequestError', param: 'messages', code: 'engine_error' },
    ],
    [
      '{"error":"Input validation error: x","error_type":"validation"}',
      {
        ...{ message: 'Input validation error: x', type: 'invalid_request_error' },
        ...{ param: null, code: 'validation' },
      },
    ],
  ])("%s keeps in OpenAI's shape what it says", (body, error) => {
    const answer = engineErrorAnswer(422, Buffer.from(body));
    expect(JSON.parse(answer.body.toString())).toEqual({ error });
  });

  test.each([
    [400, 400],
    [422, 422],
    [424, null],
    [429, null],
    [401, null],
    [500, null],
  ])('a %d is about the request itself: %j', (status, expected) => {
    expect(errorStatusOf(status)).toBe(expected);
  });
});
