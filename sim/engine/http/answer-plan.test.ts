import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { answerLength, answerToken } from '../answers.ts';
import { detokenize, END_TOKEN } from '../tokenizer.ts';
import { planAnswer, type AnswerPlan, type AnswerWish } from './answer-plan.ts';

const SOURCE = { key: 4_711, meanTokens: 30, roomTokens: 200 };

/** What is told with each token, where the plan leaves it to the model too. */
function told(plan: AnswerPlan): string[] {
  return Array.from({ length: plan.tokens }, (_, at) => {
    const last = plan.finish === 'stop' && at === plan.tokens - 1;
    const own = last ? END_TOKEN : answerToken(SOURCE.key, at);
    return plan.texts?.[at] ?? detokenize([plan.ids?.[at] ?? own]);
  });
}

function plan(wish: Partial<AnswerWish>): AnswerPlan {
  return planAnswer({ maxTokens: null, ...wish }, SOURCE);
}

describe('how long an answer is', () => {
  it.each<[string, Partial<AnswerWish>, number, string]>([
    ['its limit', { maxTokens: 7 }, 7, 'length'],
    ['its own length', {}, answerLength(SOURCE.key, 30), 'stop'],
    ['at least what it must', { minTokens: 150 }, 151, 'stop'],
    ['all the room when it may not stop', { ignoreEos: true }, 200, 'length'],
    ['a forced text and its end', { forced: '{"a":1}' }, 3, 'stop'],
    [
      'as much of a forced text as the limit lets',
      { forced: '{"a":1}', maxTokens: 1 },
      1,
      'length',
    ],
  ])('is %s', (_, wish, tokens, finish) => {
    expect(plan(wish)).toMatchObject({ tokens, finish });
  });
});

describe('what an answer says', () => {
  it('is a forced text to the letter, characters that span tokens included', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 60 }), (forced) => {
        expect(told(plan({ forced })).join('')).toBe(forced);
      }),
    );
  });

  it('ends before the first stop string and never tells a part of it, wherever that is', () => {
    const full = told(plan({ maxTokens: 40 })).join('');
    fc.assert(
      fc.property(fc.nat(full.length - 8), fc.integer({ min: 1, max: 7 }), (from, length) => {
        const stop = full.slice(from, from + length);
        const cut = full.slice(0, full.indexOf(stop));
        const stopped = plan({ maxTokens: 40, stop: [stop] });
        const pieces = told(stopped);
        expect(pieces.join('')).toBe(cut);
        expect(stopped).toMatchObject({ finish: 'stop', stopReason: stop });
        expect(pieces).toHaveLength(stopped.tokens);
        const kept = told(plan({ maxTokens: 40, stop: [stop], includeStop: true })).join('');
        expect(kept).toBe(cut + stop);
      }),
    );
  });

  it('is all there when no stop string comes', () => {
    const full = told(plan({ maxTokens: 40 })).join('');
    const free = plan({ maxTokens: 40, stop: ['a string that is never said'] });
    expect(told(free).join('')).toBe(full);
    expect(free).toMatchObject({ finish: 'length', stopReason: null });
  });
});
