import { describe, expect, test } from 'vitest';
import { EventScan } from './event-scan.ts';

function event(...choices: readonly object[]): string {
  return `data: ${JSON.stringify({ object: 'chat.completion.chunk', choices })}\n\n`;
}
function opening(index = 0, more: object = {}): string {
  const delta = { role: 'assistant', content: '', ...more };
  return event({ index, delta, logprobs: null, finish_reason: null });
}
function told(delta: object, more: object = {}): string {
  return event({ index: 0, delta, logprobs: null, finish_reason: null, ...more });
}
const DONE = 'data: [DONE]\n\n';

/** What is passed on after each piece. */
function passed(...pieces: readonly string[]): string[] {
  const scan = new EventScan(false, 1024 * 1024);
  return pieces.map((piece) => Buffer.concat(scan.push(Buffer.from(piece)).forward).toString());
}

describe('a chat stream that has only opened', () => {
  const answers: readonly (readonly [string, string])[] = [
    ['text', told({ content: 'x' })],
    ['an empty text', told({ content: '' })],
    ['reasoning', told({ reasoning: 'x' })],
    ['a tool call', told({ tool_calls: [{ index: 0, function: { name: 'f' } }] })],
    ['a finish reason', told({}, { finish_reason: 'stop' })],
    ['log-probabilities', told({}, { logprobs: { content: [] } })],
    ['a second role for the same choice', opening()],
    ['role and text in one', told({ role: 'assistant', content: 'x' })],
    ['a usage event', 'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n'],
    ['something unknown', 'data: {"role":"assistant"}\n\n'],
    ['the end', DONE],
  ];
  test.each(answers)('is held until %s comes; then all pass in order', (_what, next) => {
    expect(passed(opening(), next, told({ content: 'y' }))).toEqual([
      '',
      opening() + next,
      next === DONE ? '' : told({ content: 'y' }),
    ]);
    expect(passed(opening() + next)).toEqual([opening() + next]);
  });

  test('is no answer when it is aborted, or fails: nothing of it is passed', () => {
    const scan = new EventScan(false, 1024 * 1024);
    expect(scan.push(Buffer.from(opening()))).toEqual({ forward: [], dataEvents: 0, fault: null });
    const aborted = told({}, { finish_reason: 'abort' });
    expect(scan.push(Buffer.from(aborted + DONE))).toEqual({
      forward: [],
      dataEvents: 0,
      fault: { kind: 'abort' },
    });
    expect(passed(opening(), 'data: {"error":{"code":500}}\n\n')).toEqual(['', '']);
  });

  test('counts its events when they pass', () => {
    const scan = new EventScan(false, 1024 * 1024);
    scan.push(Buffer.from(opening(0) + opening(1)));
    expect(scan.push(Buffer.from(told({ content: 'x' }))).dataEvents).toBe(3);
  });

  test('opens each of its choices once, in events of their own or in one', () => {
    const both = event(
      { index: 0, delta: { role: 'assistant', content: null } },
      { index: 1, delta: { role: 'assistant' } },
    );
    expect(passed(opening(0), opening(1), told({ content: 'x' }))).toEqual([
      '',
      '',
      opening(0) + opening(1) + told({ content: 'x' }),
    ]);
    expect(passed(both, opening(1))).toEqual(['', both + opening(1)]);
  });

  test('holds at most 128 events, and none that is long', () => {
    const many = Array.from({ length: 128 }, (_, index) => opening(index));
    expect(passed(...many).join('')).toBe('');
    expect(passed(...many, opening(128)).at(-1)).toBe(many.join('') + opening(128));
    const long = told({ role: 'assistant', content: '' }, { stop_reason: ' '.repeat(5_000) });
    expect(passed(long)).toEqual([long]);
  });

  test('does not concern what comes after the first answer, nor other kinds of events', () => {
    expect(passed(told({ content: 'x' }), opening(1))).toEqual([
      told({ content: 'x' }),
      opening(1),
    ]);
    const message = 'event: message_start\ndata: {"message":{"role":"assistant"}}\n\n';
    expect(passed(message)).toEqual([message]);
    const completion = event({ index: 0, text: '', finish_reason: null });
    expect(passed(completion)).toEqual([completion]);
  });
});
