import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { usageAtEnd, usageOf } from './usage.ts';

const USAGE = {
  prompt_tokens: 7,
  total_tokens: 9,
  completion_tokens: 2,
  prompt_tokens_details: { cached_tokens: 3 },
};
const SAID = { promptTokens: 7, cachedTokens: 3, completionTokens: 2 };
const atEnd = (value: unknown) => usageAtEnd(Buffer.from(JSON.stringify(value)));

describe('usage found at the end of an answer', () => {
  it('is what stands there, also before members that say nothing more', () => {
    const choices = [{ message: { content: 'hi' } }];
    expect(atEnd({ id: 'x', choices, usage: USAGE })).toEqual(SAID);
    const after = { prompt_logprobs: null, kv_transfer_params: null, cost: -1.5e3, tier: 'a' };
    expect(atEnd({ choices, usage: USAGE, ...after })).toEqual(SAID);
    expect(usageAtEnd(Buffer.from(JSON.stringify({ usage: USAGE }, null, 2)))).toEqual(SAID);
    expect(atEnd({ choices, usage: null })).toBeUndefined();
  });

  it('is never taken from a text, a list or an object inside of the answer', () => {
    const text = 'so "usage":{"prompt_tokens":1}}';
    expect(atEnd({ choices: [{ message: { content: text } }] })).toBeUndefined();
    expect(atEnd({ usage: USAGE, choices: [{ text }] })).toBeUndefined();
    expect(atEnd({ choices: [{ usage: { prompt_tokens: 1 } }] })).toBeUndefined();
    expect(atEnd({ usage: USAGE, more: { usage: { prompt_tokens: 1 } } })).toBeUndefined();
  });

  it('is the same as in the whole answer, or not found, whatever the answer', () => {
    const usage = fc.oneof(
      fc.constant(USAGE),
      fc.record({ prompt_tokens: fc.nat(), completion_tokens: fc.nat() }),
      fc.jsonValue(),
    );
    const entry = fc.tuple(fc.oneof(fc.constant('usage'), fc.string()), fc.oneof(usage, fc.json()));
    fc.assert(
      fc.property(fc.array(entry, { maxLength: 6 }), (entries) => {
        const answer: Record<string, unknown> = Object.fromEntries(entries);
        const found = atEnd(answer);
        if (found !== undefined) expect(found).toEqual(usageOf(answer['usage']));
      }),
      { numRuns: 500 },
    );
  });
});
