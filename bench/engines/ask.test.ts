import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Reading, retryInMs } from './ask.ts';

const delta = (content: string, finish: string | null = null): string =>
  `data: ${JSON.stringify({ choices: [{ delta: { content }, finish_reason: finish }] })}\n\n`;
const ROLE =
  'data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n';
const USAGE =
  'data: {"choices":[],"usage":{"prompt_tokens":70,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":64}}}\n\n';
const DONE = 'data: [DONE]\n\n';
const WHOLE = `: queued\n\n${ROLE}${delta('an é')}${delta('b', 'length')}${USAGE}${DONE}`;

function readAll(pieces: readonly string[]): Reading {
  const reading = new Reading(performance.now());
  for (const piece of pieces) reading.take(piece);
  return reading;
}

describe('an answer', () => {
  it('is read alike wherever it is cut into pieces', () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.nat(WHOLE.length), { maxLength: 6 }), (cuts) => {
        const at = [0, ...cuts.sort((a, b) => a - b), WHOLE.length];
        const reading = readAll(at.slice(1).map((end, index) => WHOLE.slice(at[index], end)));
        expect(reading.fault(200)).toBeNull();
        expect(reading.answer(null)).toMatchObject({
          promptTokens: 70,
          cachedTokens: 64,
          completionTokens: 2,
          error: null,
        });
      }),
    );
  });

  it('begins with its first text: neither a comment nor the role is one', () => {
    expect(readAll([`: queued\n\n${ROLE}`]).answer(null).ttftMs).toBeNull();
    expect(readAll([ROLE, delta('a')]).answer(null).ttftMs).not.toBeNull();
  });

  it.each([
    ['without [DONE]', [ROLE, delta('a', 'length')], 'cut before its end'],
    ['without a finish reason', [ROLE, delta('a'), DONE], 'cut before its end'],
    ['without text', [ROLE, DONE], 'no text'],
    [
      'with an error among its events',
      [delta('a', 'stop'), 'data: {"error":{"code":500}}\n\n', DONE],
      '{"error":{"code":500}}',
    ],
    [
      'with an event that is no JSON',
      [delta('a', 'stop'), 'data: {oh\n\n', DONE],
      'an event that is no JSON: {oh',
    ],
  ])('%s has failed', (_, pieces, fault) => {
    expect(readAll(pieces).fault(200)).toBe(fault);
  });

  it('of another status than 200 has failed, and has no time to first text', () => {
    const reading = readAll(['{"error":"full"}']);
    const fault = reading.fault(503);
    expect(fault).toBe('status 503: {"error":"full"}');
    expect(reading.answer(fault)).toMatchObject({ ttftMs: null, error: fault });
  });
});

describe('a refusal', () => {
  it.each([
    ['is tried again when it says so', 429, { 'retry-after': '7' }, 0, 7_000],
    ['is tried again to the ms', 503, { 'retry-after-ms': '250', 'retry-after': '1' }, 0, 250],
    ['without a time is tried again after half a second', 500, {}, 0, 500],
    ['and then after a whole one', 500, {}, 1, 1_000],
    [
      'that says a longer time than a minute is tried again soon',
      429,
      { 'retry-after': '90' },
      0,
      500,
    ],
    ['that says not to is none', 429, { 'x-should-retry': 'false', 'retry-after': '1' }, 0, null],
    ['that says so is tried again whatever its status', 400, { 'x-should-retry': 'true' }, 0, 500],
    ["of the client's own making is none", 400, {}, 0, null],
    ['is no answer', 200, {}, 0, null],
  ])('%s', (_, status, headers, retry, inMs) => {
    expect(retryInMs(status, headers, retry)).toBe(inMs);
  });
});
